"""What a test run does with processes that outlive it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from tests import leftovers

pytestmark = pytest.mark.process
SLEEP = ("sleep", "100000")


@pytest.fixture(autouse=True)
def _run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing of the run that this test is part of is ended."""
    monkeypatch.setenv(leftovers.MARK, f"inner-{os.getpid()}")
    monkeypatch.setattr(leftovers, "GRACE", 0.2)


def test_what_a_run_started_is_ended_and_named(tmp_path: Path) -> None:
    with subprocess.Popen(["bash", "-c", "setsid sleep 100000 & wait"], cwd=tmp_path) as process:
        lines = leftovers.end(tmp_path)
    assert not psutil.pid_exists(process.pid)
    assert any(f" sleep 100000 (in {tmp_path})" in line for line in lines), lines


def test_a_task_of_an_emulated_node_is_known_by_the_nodes_directory(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "BATCHTRAIN_EMULATED_NODE": f"{tmp_path}/emulator/nodes/pool/node"}
    with subprocess.Popen(SLEEP, env=environment) as process:
        assert len(leftovers.end(tmp_path)) == 1
    assert not psutil.pid_exists(process.pid)


def test_processes_of_others_go_on(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP, env={"PATH": os.environ["PATH"], leftovers.MARK: "outer"}) as process:
        assert leftovers.end(tmp_path) == []
        assert process.poll() is None
        process.kill()
