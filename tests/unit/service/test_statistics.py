"""A job's tasks in numbers: times, node hours and causes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.errors import NotFound, ServiceError
from batchtrain.service.statistics import Collector, spread
from batchtrain.service.task_actions import ACTIONS, Changed, Refusal, refusal
from batchtrain.service.tasks import Counts, Listed


def task(number: int, seconds: int, code: int = 0, **more: Any) -> Listed:
    info = {
        "startTime": "2026-01-01T00:00:10Z",
        "endTime": f"2026-01-01T00:00:{10 + seconds}Z",
        "exitCode": code,
        "result": "Failure" if code else "Success",
    }
    document = {"id": f"t{number}", "state": "completed", "creationTime": "2026-01-01T00:00:00Z", "executionInfo": info}
    return msgspec.convert({**document, **more}, Listed)


def test_a_spread_is_the_median_the_95th_percentile_and_the_longest() -> None:
    assert spread(range(1, 101)) == (50, 95, 100)
    assert spread([7.0]) == (7.0, 7.0, 7.0)
    assert spread([]) is None


def test_times_causes_and_the_slowest_are_counted() -> None:
    collector = Collector()
    for number in range(20):
        collector.add(task(number, number, 137 if number > 17 else 0))
    collector.add(Listed("waiting", "active"))
    stats = collector.stats({})
    assert stats.counts == Counts(active=1, succeeded=18, failed=2)
    assert (stats.waited, stats.ran) == ((10, 10, 10), (9, 18, 19))
    assert [slow.task for slow in stats.slowest] == ["t19", "t18", "t17", "t16", "t15"]
    (failed,) = stats.failed_by
    assert (failed.cause, failed.tasks, failed.example) == (
        "exit code 137 (for example by the kernel if memory runs out)", 2, "t18",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "slots", "hours"),
    [
        ({}, 1, 0.01),
        ({}, 4, 0.0025),
        ({"requiredSlots": 2}, 4, 0.005),
        ({"multiInstanceSettings": {"numberOfInstances": 3}}, 1, 0.03),
    ],
)
def test_node_hours_count_the_nodes_of_a_gang_and_the_slots_of_a_task(
    more: dict[str, Any], slots: int, hours: float
) -> None:
    collector = Collector(slots)
    collector.add(task(1, 36, **more))
    assert collector.stats({}).node_hours == pytest.approx(hours)


def test_an_error_names_the_first_refused_tasks_and_counts_the_others() -> None:
    refused = tuple(Refusal(f"t{number}", NotFound(f"no t{number}", code="TaskNotFound")) for number in range(7))
    error = refusal("j", ACTIONS["del"], Changed(("a",), (), refused))
    assert isinstance(error, NotFound)
    assert str(error).startswith("7 of 8 tasks of job j were not deleted:\n  no t0\n")
    assert str(error).endswith("\n  and 2 more")
    mixed = (*refused[:1], Refusal("x", ServiceError("busy", code="TaskCompleted")))
    assert type(refusal("j", ACTIONS["term"], Changed((), (), mixed))) is ServiceError
