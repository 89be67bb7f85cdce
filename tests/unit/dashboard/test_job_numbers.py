"""The numbers of a job of many tasks, and what runs again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from batchtrain.dashboard.figures import newest
from batchtrain.dashboard.job_numbers import BARS, PAGE, at_a_glance, bars, by_cause, retry_alike
from batchtrain.records import Task
from batchtrain.runs.curves import Series

BEGAN = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


def ended(number: int, seconds: float = 1.0, code: int = 0) -> Task:
    start = BEGAN + timedelta(seconds=number)
    result = "failure" if code else "success"
    return Task(f"t{number}", "completed", result, code, node="n", started=start, seconds=seconds)


def test_a_node_shows_the_last_value_of_each_of_its_metrics() -> None:
    measured: Series = {"gpu": {"n0": [(0, 0.0, 1.0, None), (1, 1.0, 2.0, None)], "n1": []}}
    assert newest(measured) == {"n0": {"gpu": 2.0}}


def test_every_value_is_in_one_of_the_equal_parts() -> None:
    parts = bars([float(number) for number in range(101)])
    assert len(parts) == BARS
    assert sum(part["count"] for part in parts) == 101
    assert (parts[0]["from"], parts[-1]["to"]) == (0.0, 100.0)
    assert parts[-1]["count"] == 6  # the greatest value, too


def test_equal_values_are_one_part_and_no_values_none() -> None:
    assert bars([]) == []
    assert [part["count"] for part in bars([2.0, 2.0])] == [2]


def test_the_slowest_tasks_come_first() -> None:
    numbers = at_a_glance([ended(0, 5.0), ended(1, 50.0), ended(2, 0.5)])
    assert [task["id"] for task in numbers["slowest"]] == ["t1", "t0", "t2"]
    assert sum(part["count"] for part in numbers["throughput"]) == 3


class Job:
    def __init__(self, tasks: list[Task]) -> None:
        self.tasks, self.pages = tasks, list[tuple[str, ...]]()

    def seen_task(self, task_id: str) -> Task:
        return next(task for task in self.tasks if task.id == task_id)

    def iter_tasks(self, state: str) -> Iterator[Task]:
        assert state == "failed"
        return iter(self.tasks)

    def reactivate_tasks(self, *task_ids: str, tell: Any) -> None:
        self.pages.append(task_ids)


def test_failures_are_counted_by_cause_with_the_first_as_the_example() -> None:
    failed = [ended(0, code=3), ended(1, code=137), ended(2, code=3)]
    rows = [(row["tasks"], row["cause"], row["example"]) for row in by_cause(failed)]
    assert [(count, example) for count, _, example in rows] == [(2, "t0"), (1, "t1")]
    assert rows[0][1] == "exit code 3"


def test_more_tasks_than_a_page_run_again_in_pages() -> None:
    job: Any = Job([ended(number, code=3) for number in range(PAGE + 1)])
    retry_alike(job, "t0")
    assert [len(page) for page in job.pages] == [PAGE, 1]
