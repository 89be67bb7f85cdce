"""A job's tasks in numbers: times, node hours and causes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.records import Counts, Task
from batchtrain.service.answers import TaskAnswer
from batchtrain.service.statistics import Collector, cause_of, spread


def task(number: int, seconds: int, code: int = 0, **more: Any) -> Task:
    info = {
        "startTime": "2026-01-01T00:00:10Z",
        "endTime": f"2026-01-01T00:00:{10 + seconds}Z",
        "exitCode": code,
        "result": "Failure" if code else "Success",
    }
    document = {"id": f"t{number}", "state": "completed", "creationTime": "2026-01-01T00:00:00Z", "executionInfo": info}
    return msgspec.convert({**document, **more}, TaskAnswer).record


def test_a_spread_is_the_median_the_95th_percentile_and_the_longest() -> None:
    assert spread(range(1, 101)) == (50, 95, 100)
    assert spread(range(1, 201)) == (100, 190, 200)
    assert spread([7.0]) == (7.0, 7.0, 7.0)
    assert spread([]) is None


def test_times_causes_and_the_slowest_are_counted() -> None:
    collector = Collector()
    for number in range(20):
        collector.add(task(number, number, 137 if number > 17 else 0))
    collector.add(Task("waiting", "active"))
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
        ({}, 0, 0.01),
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


def test_retries_and_requeues_are_added_up_and_the_first_start_and_the_last_end_are_kept() -> None:
    collector = Collector()
    for number, start, end in ((1, 20, 30), (2, 10, 50), (3, 40, 45)):
        info = {"startTime": f"2026-01-01T00:00:{start}Z", "endTime": f"2026-01-01T00:00:{end}Z", "exitCode": 0,
                "result": "Success", "retryCount": number, "requeueCount": 10 * number}  # fmt: skip
        collector.add(msgspec.convert({"id": "t", "state": "completed", "executionInfo": info}, TaskAnswer).record)
    stats = collector.stats({})
    assert (stats.retries, stats.requeues) == (6, 60)
    assert stats.first_start and stats.last_end
    assert (stats.first_start.second, stats.last_end.second) == (10, 50)
    assert stats.waited is None


def test_a_task_that_started_before_it_was_created_by_the_clocks_waited_for_nothing() -> None:
    collector = Collector()
    collector.add(task(1, 5, creationTime="2026-01-01T00:00:20Z"))
    assert collector.stats({}).waited == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("info", "cause"),
    [
        ({"exitCode": 3, "failureInfo": {"code": "FailureExitCode"}}, "exit code 3"),
        ({"exitCode": 127}, "exit code 127 (a command was not found)"),
        ({"failureInfo": {"code": "DiskFull", "message": "No space."}}, "DiskFull"),
        ({"exitCode": 1, "failureInfo": {"code": ""}}, "exit code 1"),
        ({}, "exit code None"),
    ],
)
def test_a_cause_is_the_exit_code_unless_the_service_knows_another(info: Any, cause: str) -> None:
    assert cause_of(msgspec.convert({"id": "t", "executionInfo": info}, TaskAnswer).record) == cause


def test_the_most_frequent_cause_comes_first_with_its_message() -> None:
    collector = Collector()
    for number, code in enumerate((1, 2, 2, 1, 2)):
        collector.add(task(number, 1, code))
    first, second = collector.stats({"exit code 1": "why"}).failed_by
    assert (first, second) == (("exit code 2", 3, "t1", ""), ("exit code 1", 2, "t0", "why"))
