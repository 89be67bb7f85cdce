"""Everything that can go wrong while tasks are added, all at once: the small version of `tests/bench/chaos.py`."""

from __future__ import annotations

import pytest

from tests.bench import chaos

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_job_ends_with_exactly_its_tasks_whatever_happens_to_its_addition() -> None:
    assert chaos.main(seed=18, count=2000, kills=6, longest=1.0, throttle=0.5) == 0
