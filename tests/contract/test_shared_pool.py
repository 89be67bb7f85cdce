"""Two runs use one pool: whatever ends one of them, the other one ends well, and the pool goes with the last."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.environments import ROOT


@pytest.mark.slow
def test_of_two_runs_on_one_pool_one_is_ended_at_any_request_and_the_other_ends_well() -> None:
    command = [sys.executable, "-m", "tests.simulation.shared_pool", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
