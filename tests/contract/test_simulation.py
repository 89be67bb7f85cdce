"""The simulated world: some seeds without a violation, and the same trace for the same seed."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]
pytest.importorskip("greenlet")


def _simulation(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_some_seeds_find_no_violation() -> None:
    assert "8 seeds from 0, 0 violations" in _simulation("--seeds", "0:8", "--minutes", "10")


def test_a_seed_has_one_trace() -> None:
    traces = {re.findall(r"trace \w+, \d+ lines", _simulation("--seed", "5"))[0] for _ in range(2)}
    assert len(traces) == 1
