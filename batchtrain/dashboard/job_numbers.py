"""A job of many tasks at a glance: throughput, durations, the slowest tasks, and the failures by cause."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from batchtrain.client.job import Job
from batchtrain.records import Task, shown
from batchtrain.service import retry, statistics

RECENT, GROUPED = 1000, 1000
"""The tasks that ended last, and the failed tasks, from which the numbers come: at most some requests for each."""
BARS, MOST_SLOW, CAUSES = 20, 10, 20
SLOW_TASK = ("id", "seconds", "node")
PAGE, PAGE_SECONDS = 1000, 120.0
"""Tasks that run again together, and how long transient faults of their requests are retried."""


def job_numbers(job: Job) -> dict[str, Any]:
    """The numbers of a job, as the page shows them."""
    tasks = [task for task in job.last_tasks(RECENT, "completed") if task.ended]
    return {
        "tasks": len(tasks),
        **at_a_glance(tasks),
        "failures": by_cause(tuple(job.iter_tasks("failed", limit=GROUPED))),
    }


def at_a_glance(tasks: Sequence[Task]) -> dict[str, Any]:
    """The throughput, the durations and the slowest of tasks that have ended."""
    ends = sorted(task.ended.timestamp() for task in tasks if task.ended)
    seconds = [task.seconds for task in tasks if task.seconds is not None]
    slow = heapq.nlargest(MOST_SLOW, tasks, key=lambda task: task.seconds or 0.0)
    return {"throughput": bars(ends), "durations": bars(seconds), "slowest": [shown(task, SLOW_TASK) for task in slow]}


def bars(values: Sequence[float]) -> list[dict[str, float]]:
    """How many values are in each of BARS equal parts, from the least to the greatest value."""
    if not values:
        return []
    low, high = min(values), max(values)
    width = (high - low) / BARS or 1.0
    counts = Counter(min(int((value - low) / width), BARS - 1) for value in values)
    count = BARS if high > low else 1
    return [{"from": low + n * width, "to": low + (n + 1) * width, "count": counts[n]} for n in range(count)]


def by_cause(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The causes of failed tasks, the most frequent first, each with an example."""
    rows = statistics.failed_by(statistics.by_cause(tasks), {})[:CAUSES]
    return [{"cause": row.cause, "tasks": row.tasks, "example": row.example} for row in rows]


def retry_alike(job: Job, task_id: str) -> None:
    """Run all failed tasks again that have the cause of this one, a page at a time."""
    cause = statistics.cause_of(job.seen_task(task_id))
    alike = (task.id for task in list(job.iter_tasks("failed")) if statistics.cause_of(task) == cause)
    while page := tuple(itertools.islice(alike, PAGE)):
        with retry.until(time.monotonic() + PAGE_SECONDS):
            job.reactivate_tasks(*page, tell=lambda _: None)
