"""`run --local` whose emulator ends: it ends too, or goes on after a restart. The processes are real."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from batchtrain.emulator import server
from tests.bench.endings import POOL
from tests.waiting import GUARD, until

from .conftest import Shell, left_running

pytestmark = [pytest.mark.process, pytest.mark.slow]
JOBS = "job_specifications: [{id: j, tasks: [{id: t, command: 'mkdir ../again || exit 0; echo begun; sleep 86400'}]}]\n"


@pytest.fixture
def run(batchtrain: Shell) -> subprocess.Popen[str]:
    """A run whose task runs until the emulator is killed, and ends well when it runs again."""
    (batchtrain.cwd / "pool.yaml").write_text(POOL, encoding="utf-8")
    (batchtrain.cwd / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain("emulator", "start", "--port", "0")
    process = batchtrain.start("run", ".", "--local")
    assert process.stdout is not None
    until(lambda: "begun" in process.stdout.readline())
    return process


def kill(home: Path) -> server.Status:
    """Kill the emulator, and wait until its nodes are gone."""
    status = server.at(home)
    os.kill(status.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(status.pid) and not left_running(home))
    return status


def test_a_run_ends_with_the_reason_soon_after_its_emulator_was_killed(
    batchtrain: Shell, run: subprocess.Popen[str]
) -> None:
    kill(batchtrain.home)
    _, errors = run.communicate(timeout=GUARD)
    assert run.returncode == 5, errors
    assert f"the emulator on {batchtrain.home} has ended" in errors


def test_a_run_goes_on_when_its_emulator_starts_again(batchtrain: Shell, run: subprocess.Popen[str]) -> None:
    run.send_signal(signal.SIGSTOP)  # however long the start takes here, the run sees an emulator that starts
    former = kill(batchtrain.home)
    batchtrain("emulator", "start", "--port", "0")
    assert server.at(batchtrain.home).endpoint == former.endpoint
    run.send_signal(signal.SIGCONT)
    _, errors = run.communicate(timeout=GUARD)
    assert run.returncode == 0, errors


def test_an_emulator_whose_directory_is_deleted_ends_with_its_nodes_and_its_run(
    batchtrain: Shell, run: subprocess.Popen[str]
) -> None:
    pid = server.at(batchtrain.home).pid
    until(lambda: shutil.rmtree(batchtrain.home, ignore_errors=True) or not batchtrain.home.exists())
    until(lambda: not psutil.pid_exists(pid) and not left_running(batchtrain.home))
    _, errors = run.communicate(timeout=GUARD)
    assert run.returncode == 5, errors
    assert f"its data directory {batchtrain.home} was deleted" in errors
