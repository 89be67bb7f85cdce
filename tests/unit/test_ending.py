"""What a command has added when it fails: what was refused or never sent is not counted."""

from __future__ import annotations

from typing import Any

import pytest
from batchtrain.created import Created

from batchtrain.errors import AlreadyExists, Differs, QuotaReached, ServiceError, TimedOut, Unreachable, UsageError
from batchtrain.records.events import (
    Event,
    JobAdded,
    JobAdding,
    PoolAdded,
    PoolAdding,
    ScheduleAdded,
    ScheduleAdding,
    Standing,
)
from batchtrain.service.connect import Account
from batchtrain.service.faults import NO_CONNECTION
from batchtrain.service.requests import Creation


class Client:
    """An account and nothing else."""

    account = Account("http://127.0.0.1:1", "x", "a2V5", emulated=True)

    def creation(self, kind: str, name: str) -> Creation:
        return Creation("t1", 0.0)


def told(error: BaseException, *events: type[Event]) -> str:
    """What is said after these events and an error; two of them add a thing, which is named by its number."""
    said: list[Event] = []
    client: Any = Client()
    made = Created(client, said.append)
    for number, event in enumerate(events):
        made.tell(event(f"x{number // 2}", ""))
    made.settle(error)
    made.say_left(error)
    return said[-1].text if said and isinstance(said[-1], Standing) else ""


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (QuotaReached("no cores"), False),
        (AlreadyExists("of somebody else"), False),
        (ServiceError("refused"), False),
        (Differs("of another plan"), False),
        (TimedOut("the quota stayed reached"), False),
        (Unreachable("nobody there", code=NO_CONNECTION), False),
        (Unreachable("the answer was lost"), True),
        (KeyboardInterrupt(), True),
        (ZeroDivisionError(), True),
    ],
    ids=lambda value: str(value),
)
def test_a_thing_whose_addition_failed_stays_where_the_service_may_have_added_it(
    error: BaseException, stays: bool
) -> None:
    assert told(error, PoolAdding).startswith("left as it is: pool x0") is stays


def test_where_nothing_was_asked_for_nothing_is_said() -> None:
    assert told(UsageError("no such recipe")) == ""


def test_what_was_added_stays_whatever_comes_next() -> None:
    unreachable = Unreachable("Azure Resource Manager does not answer")
    assert "delete: batchtrain pool del x0 --local" in told(unreachable, PoolAdding, PoolAdded)
    assert "wait:" not in told(QuotaReached("no cores"), PoolAdding, PoolAdded)
    assert "wait: batchtrain pool wait x0 --local" in told(TimedOut("long"), PoolAdding, PoolAdded)


def test_every_job_that_was_added_is_named_and_a_schedule_too() -> None:
    events = (JobAdding, JobAdded, ScheduleAdding, ScheduleAdded, JobAdding)
    assert told(ServiceError("refused"), *events).splitlines() == [
        "left as they are: job x0, job schedule x1",
        "  delete: batchtrain jobs del x0 --local",
        "  delete: batchtrain jobs del x1 --local",
    ]
