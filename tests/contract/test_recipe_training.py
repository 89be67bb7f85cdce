"""The recipes' training script under a bare mpirun, without any of our code around it.

What it prints is a contract: other tests read it when the same script runs through the service. There
(`tests/e2e/test_recipes.py`) it learns with each MPI; here one training with MPICH serves several tests.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "mpi4py-MPICH" / "src" / "train.py"
RANKS = 4
SHORT = ("--epochs", "5", "--verify")
RANK_LINE = re.compile(r"epoch (\d+) rank (\d+) node (\S+) host (\S+) shard (\d+) weights ([0-9a-f]{64})")

pytestmark = [pytest.mark.mpi, pytest.mark.process, pytest.mark.slow]
Environments = Callable[[str], Path]


@functools.cache
def lines(prefix: Path, *options: str) -> tuple[str, ...]:
    """What training by MPICH printed; it must have ended with 0."""
    environment = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(Path.home()), "AZ_BATCH_NODE_ID": "tvm-1"}
    command = [f"{prefix}/bin/mpirun", "-n", str(RANKS), f"{prefix}/bin/python", "-u"]
    done = subprocess.run(
        [*command, str(SCRIPT), *options], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return tuple(done.stdout.splitlines())


def weights_by_epoch(printed: tuple[str, ...]) -> dict[int, list[str]]:
    """The hashes of all ranks, epoch by epoch."""
    found: dict[int, list[str]] = defaultdict(list)
    for line in printed:
        if match := RANK_LINE.fullmatch(line):
            found[int(match[1])].append(match[6])
    return dict(found)


def test_only_rank_0_prints_once_an_epoch_and_leaves_a_checkpoint_and_no_half_written_one(
    mpi_environment: Environments, tmp_path: Path
) -> None:
    printed = lines(mpi_environment("mpich"), "--epochs", "2", "--output", str(tmp_path / "output"))
    assert [line.split()[:2] for line in printed[1:3]] == [["epoch", "1"], ["epoch", "2"]]
    assert sorted(line.split()[0] for line in printed[3:]) == ["checkpoint", "test"]
    assert f"checkpoint {tmp_path}/output/weights.npz" in printed
    assert max(len(line) for line in printed if "checkpoint" not in line) < 80
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["metrics.json", "weights.npz"]


def test_all_ranks_have_the_same_weights_in_every_epoch(mpi_environment: Environments) -> None:
    epochs = weights_by_epoch(lines(mpi_environment("mpich"), *SHORT))
    counted = {epoch: (len(hashes), len(set(hashes))) for epoch, hashes in epochs.items()}
    assert counted == dict.fromkeys(range(1, 6), (RANKS, 1))


def test_without_the_all_reduce_no_two_ranks_have_the_same_weights(mpi_environment: Environments) -> None:
    epochs = weights_by_epoch(lines(mpi_environment("mpich"), "--epochs", "2", "--no-allreduce", "--verify"))
    assert {epoch: len(set(hashes)) for epoch, hashes in epochs.items()} == {1: RANKS, 2: RANKS}


def test_shards_are_disjoint_and_together_all_samples(mpi_environment: Environments) -> None:
    printed = lines(mpi_environment("mpich"), *SHORT)
    assert printed[0] == f"ranks {RANKS} hosts 1 samples 1437 shards disjoint"
    sizes = {match[2]: int(match[5]) for line in printed if (match := RANK_LINE.fullmatch(line))}
    assert sorted(sizes) == ["0", "1", "2", "3"]
    assert sum(sizes.values()) == 1437


def test_a_rank_says_which_node_it_is_on(mpi_environment: Environments) -> None:
    printed = lines(mpi_environment("mpich"), *SHORT)
    assert {match[3] for line in printed if (match := RANK_LINE.fullmatch(line))} == {"tvm-1"}
