"""The recipes that train here, through the whole product: YAML, plan, SDK, service, nodes, MPI."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import needs, trained_models

from .conftest import IMAGES

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
RANK_LINE = re.compile(r"epoch (\d+) rank (\d+) node (\S+) host (\S+) shard (\d+) weights ([0-9a-f]{64})")
TRAIN = "python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --epochs 10"
OUTPUT = "--output $AZ_BATCH_TASK_WORKING_DIR/output"
COMMAND = "job_specifications[0].tasks[0].command"

pytestmark = [pytest.mark.mpi, pytest.mark.process]


@pytest.mark.parametrize("mpi", [pytest.param("MPICH", marks=pytest.mark.smoke), "OpenMPI", "IntelMPI"])
def test_a_recipe_trains_on_two_nodes_with_equal_weights_and_disjoint_shards(
    mpi: str, trained: Any, mpi_environment: Callable[[str], Path]
) -> None:
    done = trained("run", str(RECIPES / f"mpi4py-{mpi}"), "--local", "--set", f"{COMMAND}={TRAIN} --verify {OUTPUT}")
    printed = [match for line in done.stdout.splitlines() if (match := RANK_LINE.fullmatch(line))]
    accuracy = float(re.findall(r"^test accuracy (\S+)$", done.stdout, flags=re.M)[0])
    assert accuracy >= 0.95
    assert "shards disjoint" in done.stdout
    assert {int(match[2]) for match in printed} == {0, 1, 2, 3}
    nodes = {(match[3], match[4]) for match in printed}
    assert len(nodes) == len({node for node, _ in nodes}) == 2
    hashes: dict[str, set[str]] = defaultdict(set)
    for match in printed:
        hashes[match[1]].add(match[6])
    assert len(hashes) == 10
    assert all(len(values) == 1 for values in hashes.values())
    written = trained.cwd / "runs/latest/metrics/train/0.jsonl"
    assert json.loads(written.read_text().splitlines()[-1])["test_accuracy"] == pytest.approx(accuracy, abs=1e-4)
    trained_models.check(f"mpi4py-{mpi}", mpi_environment(IMAGES[mpi][1]), trained.cwd, accuracy)


WITHOUT_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$0" "$@"')


@pytest.fixture
def offline(trained: Any) -> Any:
    """The command line where only the loopback interface is up."""
    needs.program("ip")
    if subprocess.run([*WITHOUT_NETWORK, "true"], check=False).returncode != 0:
        pytest.skip("a network namespace cannot be made here; it takes root's rights")
    trained.through = WITHOUT_NETWORK
    return trained


@pytest.mark.parametrize("mpi", ["MPICH", "IntelMPI"])
@pytest.mark.slow
def test_a_recipe_trains_where_there_is_no_network(mpi: str, offline: Any) -> None:
    done = offline("run", str(RECIPES / f"mpi4py-{mpi}"), "--local")
    assert "test accuracy 0.9" in done.stdout


@pytest.mark.parametrize("mpi", ["OpenMPI"])
@pytest.mark.slow
def test_open_mpi_which_needs_a_network_says_so(mpi: str, offline: Any) -> None:
    done = offline("run", str(RECIPES / "mpi4py-OpenMPI"), "--local", code=10)
    assert "Open MPI's daemons do not use the loopback interface, and this machine has no other" in done.stderr


def copied(trained: Any, mpi: str, command: str) -> Path:
    """The recipe with another command."""
    recipe = Path(shutil.copytree(RECIPES / f"mpi4py-{mpi}", trained.cwd / mpi))
    jobs = recipe / "config" / "jobs.yaml"
    text = jobs.read_text(encoding="utf-8")
    head = text[: text.index("    command: >-")]
    jobs.write_text(head + "    command: |-\n      " + command + "\n", encoding="utf-8")
    return recipe


def test_the_output_of_the_ranks_is_on_the_screen_as_it_happens(trained: Any) -> None:
    """Each rank goes on only when its line was read."""
    line = "sh -c 'echo now=$PMI_RANK; until [ -e seen-$PMI_RANK ]; do sleep 0.05; done'"
    recipe = copied(trained, "MPICH", line)
    process = trained.start("run", str(recipe), "--local")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("now="):
            for directory in trained.home.glob("nodes/*/*/workitems/digits/job-1/train/wd"):
                (directory / f"seen-{line.strip().removeprefix('now=')}").touch()
    process.communicate()
    assert process.returncode == 0
