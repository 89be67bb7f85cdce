"""torchrun.py with a real PyTorch: two launches on this machine, in which the second is late at their exit barrier."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.raw_server import free_port

pytestmark = [pytest.mark.process, pytest.mark.framework]

TORCHRUN = Path(__file__).resolve().parents[2] / "batchtrain" / "runtime" / "torchrun.py"
LATE = f"""
import os, runpy, sys, time
from torch.distributed import PrefixStore, TCPStore

released, first = os.environ["RELEASED"], os.environ["BATCHTRAIN_NODE_RANK"] == "0"
barrier, done = PrefixStore.wait, TCPStore.wait

def late(store, keys, *timeout):
    while not first and keys[0].endswith("last_member") and not os.path.exists(released):
        time.sleep(0.01)
    return barrier(store, keys, *timeout)

def waits_for_others(store, keys, *timeout):
    open(released, "w").close()
    return done(store, keys, *timeout)

PrefixStore.wait, TCPStore.wait = late, waits_for_others
if sys.argv.pop(1) == "ours":
    runpy.run_path({str(TORCHRUN)!r}, run_name="__main__")
else:
    runpy.run_module("torch.distributed.run", run_name="__main__")
"""
"""The second node enters the wait of the barrier when the first has ended, or waits for the others to be done."""


@pytest.fixture
def python(framework_environment: Callable[[str], Path]) -> str:
    return str(framework_environment("torch") / "bin" / "python")


def launch(python: str, program: str, rendezvous: str, tmp_path: Path) -> tuple[list[int], list[str]]:
    """Exit codes and stderr of both nodes, whose one process each succeeds."""
    shared, released = free_port(), tmp_path / "released"

    def start(node: int) -> subprocess.Popen[str]:
        address = (
            (f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={shared}")
            if rendezvous == "static"
            else (f"--rdzv-endpoint=127.0.0.1:{shared}", f"--rdzv-conf=is_host={'true' if node == 0 else 'false'}")
        )
        backend = () if rendezvous == "static" else ("--rdzv-backend=c10d", "--rdzv-id=test")
        environment = os.environ | {
            "BATCHTRAIN_NODE_RANK": str(node),
            "BATCHTRAIN_NODES": "2",
            "BATCHTRAIN_MASTER_ADDRESS": "127.0.0.1",
            "BATCHTRAIN_MASTER_PORT": str(shared),
            "OMP_NUM_THREADS": "1",
            "RELEASED": str(released),
        }
        options = ("--nnodes=2", "--nproc-per-node=1", *backend, *address, "--no-python", "true")
        words = (python, "-c", LATE, program, *options)
        with (tmp_path / f"{node}.txt").open("w") as stderr:
            return subprocess.Popen(words, env=environment, stderr=stderr, text=True)

    nodes = [start(0), start(1)]
    codes = [nodes[0].wait(120)]
    released.touch()
    codes.append(nodes[1].wait(120))
    return codes, [(tmp_path / f"{node}.txt").read_text() for node in (0, 1)]


def test_the_python_of_torchrun_is_found_for_a_command_that_names_none(python: str, tmp_path: Path) -> None:
    (tmp_path / "torchrun.sh").write_bytes(TORCHRUN.with_suffix(".sh").read_bytes())
    (tmp_path / "torchrun.py").write_text("import sys; print(sys.executable, *sys.argv[1:])")
    environment = {"PATH": f"{Path(python).parent}:/usr/bin:/bin"}
    words = ("sh", str(tmp_path / "torchrun.sh"), "--no-python", "bash", "-c", "echo 'a b'")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split(" ", 1)[1] == "--no-python bash -c echo 'a b'\n", done.stderr
    assert Path(done.stdout.split()[0]).parent == Path(python).parent


def test_without_pytorch_torchrun_itself_reports_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/torchrun"
    program.write_text('#!/bin/sh\necho "torchrun $*"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin"}
    words = ("sh", str(TORCHRUN.with_suffix(".sh")), "--nnodes=2")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "torchrun --nnodes=2\n"


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_a_node_that_is_late_at_the_exit_barrier_still_finds_the_store(
    rendezvous: str, python: str, tmp_path: Path
) -> None:
    codes, errors = launch(python, "ours", rendezvous, tmp_path)
    assert (codes, errors) == ([0, 0], ["", ""])


def test_torchrun_alone_prints_a_traceback_on_a_node_that_is_late(python: str, tmp_path: Path) -> None:
    codes, errors = launch(python, "plain", "static", tmp_path)
    assert codes == [0, 0]
    assert "Error waiting on exit barrier" in errors[1]
