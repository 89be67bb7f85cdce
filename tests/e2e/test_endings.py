"""Commands that end midway: what they created is deleted, named or adopted. Here the processes, signals and disks are
real; `tests/simulation` has thousands of such ends, and `tests/bench/endings.py` more real ones."""

from __future__ import annotations

import itertools
import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from batchtrain.emulator import server
from batchtrain.runs import directory
from batchtrain.service import read
from tests import azurite
from tests.bench.endings import (
    COMMANDS,
    DISKS,
    FAULTS,
    MODEL_BYTES,
    SUBMISSION,
    Case,
    World,
    ended,
    requests_of,
    spread,
)
from tests.waiting import GUARD, until

pytestmark = pytest.mark.process
LEADER = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below nohup
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal the controlling one of its session, and runs a command in it."""
LASTS = "sleep 86400"
REQUESTS: dict[str, int] = {}
"""How many requests each command sends, for the tests of one process."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An account of its own, as the command line sees it."""
    made = World(tmp_path)
    made.batchtrain("emulator", "start", "--port", "0")
    yield made
    server.stop(made.home)


@pytest.mark.parametrize("fault", ["SIGHUP", "SIGKILL"])
def test_a_run_that_ends_in_its_training_leaves_nothing_without_a_word(fault: str, world: World) -> None:
    assert ended(world, Case("run", fault, SUBMISSION)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "command"), list(zip(FAULTS, itertools.cycle(COMMANDS))))
def test_whatever_ends_a_command_nothing_is_left_without_a_word(fault: str, command: str, world: World) -> None:
    if fault in DISKS and (os.geteuid() != 0 or shutil.which("mount") is None):
        pytest.skip("a disk of its own needs root")
    if command not in REQUESTS:
        REQUESTS[command] = requests_of(world, command)
    points = spread(REQUESTS[command], len(FAULTS) + 2)
    assert ended(world, Case(command, fault, points[(FAULTS.index(fault) + 1) % len(points)])) == []


@contextmanager
def at_a_terminal(world: World, *words: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A command that shows what a task has `written`; yields the other side of its terminal, and the process."""
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, sys.executable, "-m", "batchtrain.cli", *words],
        env=world.environment,
        cwd=world.place,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    read_until(main, b"written\r\n")
    yield main, process


def run_at_a_terminal(world: World, *options: str) -> AbstractContextManager[tuple[int, subprocess.Popen[bytes]]]:
    """The same of a run whose task has written its results and continues."""
    jobs = world.recipe / "jobs.yaml"
    jobs.write_text(jobs.read_text(encoding="utf-8").replace("sleep 0.3", f"echo written; {LASTS}"), encoding="utf-8")
    world.runs.mkdir()
    return at_a_terminal(world, "run", str(world.recipe), *options)


def read_until(main: int, text: bytes) -> None:
    shown = b""
    while text not in shown:
        assert select.select([main], [], [], GUARD)[0], shown
        shown += os.read(main, 4096)


def test_a_closed_terminal_ends_a_run_as_ctrl_c_does(world: World) -> None:
    with run_at_a_terminal(world) as (main, process):
        os.close(main)  # the kernel sends SIGHUP, and what is written to the terminal fails
        process.wait(GUARD)
    assert (world.existing(), world.models(), world.states()) == (set(), [MODEL_BYTES], ["interrupted"])
    (run,) = directory.runs(world.runs)
    assert [task.state for task in run.tasks()] == ["completed"], "its tasks have ended before its results are fetched"
    texts = [event.text for event in run.events()]
    assert "deleted job j, pool p" in texts


@pytest.mark.parametrize("answer", [b"\r", b"stop\r"])
def test_ctrl_c_asks_and_stops_the_run_by_default(answer: bytes, world: World) -> None:
    with run_at_a_terminal(world) as (main, process):
        os.write(main, b"\x03")
        read_until(main, b"let it continue? (stop, continue) [stop]: ")
        os.write(main, answer)
        read_until(main, b"deleted job j, pool p")
        assert process.wait(GUARD) == 130
        os.close(main)
    assert (world.existing(), world.models(), world.states()) == (set(), [MODEL_BYTES], ["interrupted"])


def test_a_run_that_its_user_leaves_continues_within_its_limits(world: World) -> None:
    with run_at_a_terminal(world, "--max-duration", "1h") as (main, process):
        os.write(main, b"\x03")
        read_until(main, b"[stop]: ")
        os.write(main, b"continue\r")
        read_until(main, b"its pool has no nodes 30m after its last task")
        assert process.wait(GUARD) == 130
        os.close(main)
    (run,) = directory.runs(world.runs)
    assert (run.record().state, run.record().left_by) == ("left", "user")
    assert world.existing() == {"pool p", "job j"} and world.client.pools.get("p").autoscale
    limit = read.job(world.client.batch, "j", read.EXAMINED_JOB).wall_clock
    assert limit is not None and limit < 3600 + GUARD
    assert world.batchtrain("runs", "fetch").returncode == 0
    assert (world.models(), world.states()) == ([MODEL_BYTES], ["left"])
    assert world.batchtrain("runs", "stop", "-y").returncode == 0
    assert world.batchtrain("runs", "attach").returncode == 130
    assert (world.existing(), world.models(), world.states()) == (set(), [MODEL_BYTES], ["interrupted"])


@pytest.mark.parametrize(("answer", "state"), [(b"continue\r", "active"), (b"stop\r", "completed")])
def test_ctrl_c_in_an_attached_run_asks_whether_it_continues(answer: bytes, state: str, world: World) -> None:
    azurite.require()
    jobs = world.recipe / "jobs.yaml"
    jobs.write_text(jobs.read_text(encoding="utf-8").replace("sleep 0.3", f"echo written; {LASTS}"), encoding="utf-8")
    world.batchtrain("run", str(world.recipe), "--detach", "--max-duration", "1h")
    with at_a_terminal(world, "runs", "attach") as (main, process):
        os.write(main, b"\x03")
        read_until(main, b"[stop]: ")
        os.write(main, answer)
        read_until(main, b"continues; next:" if state == "active" else b"is being terminated")
        assert process.wait(GUARD) == 130
        os.close(main)
    until(lambda: world.client.jobs.state("j") == state)


def test_a_run_whose_results_are_in_storage_continues_when_its_terminal_is_closed(world: World) -> None:
    azurite.require()
    output = "{storage_account_settings: s, remote_path: models, local_path: output}"
    outputs = f"  - {{output_data: {{azure_storage: [{output}]}}, id: t"
    jobs = world.recipe / "jobs.yaml"
    jobs.write_text(jobs.read_text(encoding="utf-8").replace("  - {id: t", outputs), encoding="utf-8")
    with run_at_a_terminal(world) as (main, process):
        os.close(main)
        process.wait(GUARD)
    (run,) = directory.runs(world.runs)
    assert run.record().left_by == "terminal"
    assert (
        "the run continues without this command, because its terminal was closed; its pool has no nodes 30m after its"
        f" last task; `batchtrain runs attach {run.name}` follows it, and `batchtrain runs stop {run.name}` ends it"
        in [event.text for event in run.events()]
    )
    assert world.existing() == {"pool p", "job j"}
