"""How long each part of a run took."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from batchtrain.records import Task
from batchtrain.runs.phases import Moments, phases

START = datetime(2026, 11, 22, tzinfo=timezone.utc)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def task(begin: float, seconds: float | None) -> Task:
    """A task by the clock of the service, which is an hour ahead."""
    return Task("t", "completed", seconds=seconds, started=after(3600 + begin))


def test_the_parts_of_a_run_add_up_to_its_time() -> None:
    moments = Moments(START, ready=after(200), added=after(210), ended=after(300))
    found = phases(moments, [task(10, 40), task(20, 50), task(0, None)], 80.0, 5.0)
    assert found == {"pool": 120.0, "preparation": 80.0, "start": 30.0, "training": 60.0, "fetch": 5.0}


def test_a_part_that_is_not_known_is_left_out() -> None:
    assert phases(Moments(START), [], None, 2.0) == {"fetch": 2.0}
    assert phases(Moments(START, added=after(1), ended=after(9)), [], None, 0.0) == {"fetch": 0.0}
