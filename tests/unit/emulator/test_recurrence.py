"""When a job schedule creates its jobs, at the limits of its times; in seconds."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from batchtrain.emulator import recurrence, wire
from batchtrain.emulator.records import JobSchedule
from batchtrain.emulator.wire import SECOND

CREATED = 1_000


class Answers(NamedTuple):
    step: str
    following: int
    deadline: int


def schedule(*, next_run: int = 600, made: int = 1, **times: str | int) -> JobSchedule:
    """A schedule whose interval and window are durations, and its other times seconds."""
    shown = {name: wire.timestamp(time * SECOND) if isinstance(time, int) else time for name, time in times.items()}
    return JobSchedule(
        id="s", seq=1, state="active", state_time=0, created=CREATED * SECOND, spec={"schedule": shown},
        next_run=next_run * SECOND, last_run=300 * SECOND, made=made,
    )  # fmt: skip


def answers(found: JobSchedule, second: int) -> Answers:
    now = second * SECOND
    following, deadline = recurrence.following(found, now), recurrence.deadline(found, now)
    return Answers(recurrence.next_step(found, now), following // SECOND, -(-deadline // SECOND))


@pytest.mark.parametrize(
    ("second", "step", "following", "deadline"),
    [
        (599, "wait", 600, 600),
        (600, "make", 900, 900),
        (720, "make", 900, 900),
        (721, "wait", 900, 900),
        (899, "wait", 900, 900),
        (900, "make", 1200, 1200),
    ],
)
def test_a_job_is_due_from_its_moment_to_the_end_of_the_start_window(
    second: int, step: str, following: int, deadline: int
) -> None:
    found = schedule(recurrenceInterval="PT5M", startWindow="PT2M")
    assert answers(found, second) == (step, following, deadline)


@pytest.mark.parametrize(
    ("last", "second", "step", "following", "deadline"),
    [
        (900, 600, "make", 900, 900),
        (899, 600, "make", 0, 900),
        (900, 900, "make", 0, 901),
        (900, 901, "end", 0, 0),
    ],
)
def test_the_last_moment_itself_is_one_for_a_job(
    last: int, second: int, step: str, following: int, deadline: int
) -> None:
    found = schedule(recurrenceInterval="PT5M", doNotRunAfter=last)
    assert answers(found, second) == (step, following, deadline)


def test_without_a_recurrence_there_is_one_job() -> None:
    assert answers(schedule(), 600) == ("make", 0, 0)
    assert answers(schedule(next_run=0), 600) == ("end", 0, 0)
    assert answers(schedule(startWindow="PT1M"), 661) == ("end", 0, 0)


@pytest.mark.parametrize(
    ("made", "times", "first"),
    [
        (0, {}, CREATED),
        (0, {"doNotRunUntil": 2_000}, 2_000),
        (1, {}, 0),
        (1, {"recurrenceInterval": "PT5M"}, CREATED),
        (1, {"recurrenceInterval": "PT5M", "doNotRunUntil": 2_000}, 2_000),
        (1, {"recurrenceInterval": "PT1H", "doNotRunUntil": 2_000}, 3_900),
    ],
)
def test_after_a_change_a_job_is_due_an_interval_after_the_last_one(
    made: int, times: dict[str, str | int], first: int
) -> None:
    assert recurrence.first_run(schedule(made=made, **times)) == first * SECOND
