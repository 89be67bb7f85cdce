"""The followed and the detached run of one recipe bring the same files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests import azurite
from tests.bench.endings import POOL
from tests.waiting import until

from .conftest import Shell
from .test_frameworks import RECIPES

pytestmark = pytest.mark.process

JOBS = """\
job_specifications:
- id: j
  tasks:
  - {id: linked, source: src, command: bash make.sh}
  - {id: alone, source: src, command: 'mkdir -p .hidden/x "a b"; echo 1 >.hidden/x/f; echo 2 >"a b/c d"; cp "$AZ_BATCH_TASK_SHARED_DIR/keep.txt" copy.txt'}
  - {id: named, source: src, command: bash make.sh, results: {include: [output, '*.json'], exclude: ['mod*']}}
  - {id: failing, command: 'echo 1 >model.json; exit 3'}
"""  # noqa: E501
MAKE = """\
mkdir -p sub/deep .hidden/.more __pycache__ sub/__pycache__ output ".dot dir" .cache
echo 1 >model.json; echo 2 >sub/deep/model.bin; echo 3 >.hidden/state; echo 4 >.hidden/.more/state
echo 5 >".dot dir/with space"
echo 6 >__pycache__/a.pyc; echo 7 >sub/__pycache__/b.pyc; echo 8 >output/o.txt; echo 9 >"name with space"
mkdir output/.states; echo 1 >output/.states/.last; echo 10 >.cache/c
echo changed >config.json; rm replaced.txt; echo new >replaced.txt; echo new >.settings/new.txt
ln -s /nowhere dangling; ln -s sub/deep best
"""
SOURCE = {"config.json": "{}", "keep.txt": "x", ".settings/in.txt": "y", "replaced.txt": "z", "make.sh": MAKE}
LINKED = """
.dot dir/with space, .hidden/.more/state, .hidden/state, .settings/new.txt, best/model.bin, config.json, model.json,
.states/.last, name with space, o.txt, replaced.txt, sub/deep/model.bin
"""
EXPECTED = {
    "linked": sorted(name.strip() for name in LINKED.split(",")),
    "alone": [".hidden/x/f", "a b/c d", "copy.txt"],
    "named": [".states/.last", "config.json", "o.txt"],
    "failing": ["model.json"],
}


GANG_JOBS = """\
job_specifications:
- id: j
  tasks:
  - &gang
    id: created
    source: src
    multi_instance: {num_instances: 3, coordination_command: bash on_node.sh}
    command: bash on_node.sh; exit 0
  - {<<: *gang, id: failing, command: bash on_node.sh; exit 3}
  - {<<: *gang, id: named, results: {from: all, include: [sub/*/x, '*.json', '.hidden'], exclude: ['changed*']}}
  - {<<: *gang, id: limited, results: {from: all, exclude: [sub]}}
  - {<<: *gang, id: launched, multi_instance: {num_instances: 3, pytorch: {processes_per_node: 1}}}
"""
ON_NODE = """\
cd "$AZ_BATCH_TASK_WORKING_DIR"; mkdir -p sub/deep .hidden/.more __pycache__ sub/__pycache__ output .cache
for name in sub/deep/x .hidden/.more/y __pycache__/z sub/__pycache__/z .cache/z output/o 'a  b'; do echo "$name" >"$name"; done
rm -f changed.json; echo changed >changed.json; ln -sfn sub/deep best; ln -sf sub/deep/x file; ln -sf /etc/passwd outside; echo more >>written; echo $AZ_BATCH_NODE_ID >node.json
"""  # noqa: E501
GANG_SOURCE = {"on_node.sh": ON_NODE, "written": "", "changed.json": "{}", "sub/kept": "x"}


def write(directory: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def files(run: Path) -> dict[str, str]:
    """The digests of the results of a run."""
    top = run.resolve() / "outputs"
    paths = (path for path in top.rglob("*") if path.is_file())
    return {path.relative_to(top).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def of_both_runs(batchtrain: Shell, recipe: str, code: int = 0) -> tuple[dict[str, str], dict[str, str]]:
    """The results of the followed and of the detached run of a recipe."""
    batchtrain("run", recipe, "--local", "--runs-dir", "followed", code=code)
    batchtrain("run", recipe, "--local", "--detach", "--max-duration", "30m", "--runs-dir", "detached")
    until(lambda: json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == [])
    batchtrain("runs", "fetch", "--local", "--runs-dir", "detached")
    return files(batchtrain.cwd / "followed/latest"), files(batchtrain.cwd / "detached/latest")


def test_a_followed_and_a_detached_run_bring_what_the_program_created(batchtrain: Shell) -> None:
    azurite.require()
    write(batchtrain.cwd, {"pool.yaml": POOL, "jobs.yaml": JOBS})
    write(batchtrain.cwd / "src", SOURCE)
    followed, detached = of_both_runs(batchtrain, ".", code=10)
    assert sorted(followed) == sorted(f"{task}/{name}" for task, names in EXPECTED.items() for name in names)
    assert detached == followed


def test_both_runs_bring_what_the_program_created_on_each_node_of_a_gang(batchtrain: Shell) -> None:
    azurite.require()
    pool = POOL.replace("dedicated: 1", "dedicated: 3") + "  inter_node_communication_enabled: true\n"
    write(batchtrain.cwd, {"pool.yaml": pool, "jobs.yaml": GANG_JOBS})
    write(batchtrain.cwd / "src", GANG_SOURCE)
    followed, detached = of_both_runs(batchtrain, ".", code=10)
    assert detached.keys() == followed.keys()
    of_nodes = [name for name in detached if name.endswith("node.json")]
    assert len({detached[name] for name in of_nodes}) == 3
    assert all(detached[name] == followed[name] for name in detached if name not in of_nodes)


@pytest.mark.mpi
def test_a_training_by_an_mpi_leaves_the_same_files_when_it_is_detached(trained: Shell) -> None:
    azurite.require()
    followed, detached = of_both_runs(trained, str(RECIPES / "mpi4py-MPICH"))
    assert followed and detached.keys() == followed.keys()
