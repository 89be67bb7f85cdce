"""How long each part of a run took."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from batchtrain.records import Attempt, Task
from batchtrain.runs.phases import Moments, _outside, phases

START = datetime(2026, 11, 22, tzinfo=timezone.utc)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def task(begin: float, seconds: float | None) -> Task:
    """A task by the clock of the service, which is an hour ahead."""
    return Task("t", "completed", seconds=seconds, started=after(3600 + begin), created=after(3600 - 30))


def test_the_parts_of_a_run_add_up_to_its_time() -> None:
    moments = Moments(START, ready=after(200))
    found = phases(moments, [task(10, 40), task(20, 50), task(0, None)], 80.0, 5.0)
    assert found == {"pool": 120.0, "preparation": 80.0, "start": 40.0, "training": 60.0, "fetch": 5.0}


def test_a_part_that_is_not_known_is_left_out() -> None:
    assert phases(Moments(START), [], None, 2.0) == {"fetch": 2.0}
    assert phases(Moments(START), [Task("t", "active", created=START)], None, 0.0) == {"fetch": 0.0}


def test_a_task_that_never_starts_does_not_make_the_start_of_the_others_longer() -> None:
    found = phases(Moments(START), [task(0, 1), Task("after", "active", created=after(3600))], None, 500.0)
    assert found == {"start": 30, "training": 1, "fetch": 500}


def attempt(number: int, start: float, end: float | None) -> Attempt:
    return Attempt("t", number, ("n",), after(3600 + start), None if end is None else after(3600 + end))


def test_a_lost_attempt_is_training_and_the_time_until_the_next_one_is_a_restart() -> None:
    moments, again = Moments(START), task(60, 40)
    known = {again.id: (attempt(1, 10, 40), attempt(2, 60, 100))}
    found = phases(moments, [again], None, 0.0, known)
    assert found == {"start": 40, "training": 70, "restarts": 20, "fetch": 0}
    other = replace(task(30, 20), id="other")
    assert phases(moments, [again, other], None, 0.0, known)["restarts"] == 10


def test_an_attempt_whose_end_nobody_saw_is_not_invented_and_its_time_is_no_start() -> None:
    moments, again = Moments(START), task(60, 40)
    found = phases(moments, [again], None, 0.0, {again.id: (attempt(1, 10, None), attempt(2, 60, 100))})
    assert found == {"start": 40, "training": 40, "fetch": 0}


@pytest.mark.parametrize(
    ("gaps", "runs", "seconds"),
    [
        ([(0, 10)], [], 10),
        ([(0, 10), (20, 25)], [], 15),
        ([(0, 10), (5, 15)], [], 15),
        ([(0, 10)], [(3, 5), (4, 6)], 7),
        ([(5, 10)], [(0, 6), (9, 20)], 3),
        ([(5, 10), (30, 40)], [(0, 50)], 0),
    ],
)
def test_the_time_of_gaps_in_which_nothing_runs_is_counted_once(
    gaps: list[tuple[int, int]], runs: list[tuple[int, int]], seconds: float
) -> None:
    spans = ([(after(start), after(end)) for start, end in times] for times in (gaps, runs))
    assert _outside(*spans) == seconds


def test_a_wait_is_no_restart_while_another_task_that_runs_again_still_runs() -> None:
    first, second = (replace(task(start, 20), id=name) for name, start in (("a", 60), ("b", 80)))
    known = {"a": (attempt(1, 10, 40), attempt(2, 60, 100)), "b": (attempt(1, 10, 50), attempt(2, 80, 100))}
    found = phases(Moments(START), [first, second], None, 0.0004, known)
    assert found == {"start": 40, "training": 80, "restarts": 10, "fetch": 0}


def test_an_attempt_that_begins_as_the_one_before_ends_is_no_restart() -> None:
    again = task(40, 60)
    assert phases(Moments(START), [again], None, 0.0, {again.id: (attempt(1, 10, 40), attempt(2, 40, 100))}) == {
        "start": 40, "training": 90, "fetch": 0,
    }  # fmt: skip
