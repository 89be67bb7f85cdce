"""Commands that end midway: what they created is deleted, named or adopted. `tests/bench/endings.py` has more."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain.emulator import server
from batchtrain.runs import directory
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
from tests.waiting import GUARD

pytestmark = pytest.mark.process
LEADER = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below nohup
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal the controlling one of its session, and runs a command in it."""
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
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_ends_a_command_nothing_is_left_without_a_word(fault: str, command: str, world: World) -> None:
    if fault in DISKS and (os.geteuid() != 0 or shutil.which("mount") is None):
        pytest.skip("a disk of its own needs root")
    if command not in REQUESTS:
        REQUESTS[command] = requests_of(world, command)
    points = spread(REQUESTS[command], len(FAULTS) + 2)
    assert ended(world, Case(command, fault, points[(FAULTS.index(fault) + 1) % len(points)])) == []


def test_results_of_many_bytes_come_home_by_several_threads(world: World) -> None:
    jobs = world.recipe / "jobs.yaml"
    jobs.write_text(jobs.read_text(encoding="utf-8").replace("200000", "6000000"), encoding="utf-8")
    world.runs.mkdir()
    done = world.batchtrain("run", str(world.recipe))
    assert (done.returncode, world.models(), world.existing()) == (0, [6_000_000], set()), done.stderr


def test_a_closed_terminal_ends_a_run_as_ctrl_c_does(world: World) -> None:
    jobs = world.recipe / "jobs.yaml"
    jobs.write_text(
        jobs.read_text(encoding="utf-8").replace("sleep 0.3", "echo written; sleep 86400"), encoding="utf-8"
    )
    world.runs.mkdir()
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, sys.executable, "-m", "batchtrain.cli", "run", str(world.recipe)],
        env=world.environment,
        cwd=world.place,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""
    while b"written\r\n" not in shown:
        shown += os.read(main, 4096)
    os.close(main)  # the kernel sends SIGHUP, and what is written to the terminal fails
    process.wait(GUARD)
    assert (world.existing(), world.models(), world.states()) == (set(), [MODEL_BYTES], ["interrupted"])
    (run,) = directory.runs(world.runs)
    assert [task.state for task in run.tasks()] == ["completed"], "its tasks have ended before its results are fetched"
    texts = [event.text for event in run.events()]
    assert {"deleted job j", "deleted pool p"} <= set(texts)


def test_jobs_wait_ends_a_run_whose_process_was_killed(world: World) -> None:
    world.runs.mkdir()
    world.batchtrain("run", str(world.recipe), fault="SIGKILL", point=SUBMISSION)
    assert world.states() == ["lost"] and world.existing()
    waited = world.batchtrain("jobs", "wait", "j")
    assert (waited.returncode, world.existing(), world.states()) == (0, set(), ["completed"]), waited.stderr
    assert world.models() == [MODEL_BYTES]


def test_a_run_that_was_killed_before_it_sent_its_tasks_was_interrupted(world: World) -> None:
    world.runs.mkdir()
    world.batchtrain("run", str(world.recipe), fault="SIGKILL", point="POST /jobs")
    world.batchtrain("jobs", "wait", "j")
    assert (world.existing(), world.states()) == (set(), ["interrupted"])


def test_runs_clean_leaves_a_job_of_another_directory_alone(world: World, tmp_path: Path) -> None:
    world.runs.mkdir()
    world.batchtrain("run", str(world.recipe), fault="SIGKILL", point=SUBMISSION)
    elsewhere = world.batchtrain("runs", "clean", "-y", "--runs-dir", str(tmp_path / "other"))
    left = world.existing()
    assert left and f"{len(left)} of them belong to runs that are not in" in elsewhere.stderr
    world.batchtrain("runs", "clean", "-y")
    assert world.existing() == set()
