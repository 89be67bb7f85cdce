"""Commands that end midway: what they created is deleted, named or adopted. `tests/bench/endings.py` has more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain.emulator import server
from tests.bench.endings import COMMANDS, DISKS, FAULTS, Case, World, ended, requests_of, spread

pytestmark = pytest.mark.process
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
    assert ended(world, Case("run", fault, 20)) == []


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
