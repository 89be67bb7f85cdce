"""A job of many tasks at a glance: throughput, durations, the slowest tasks, and the failures by cause."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from batchtrain.client.job import Job
from batchtrain.records import Task
from batchtrain.service import retry, statistics

RECENT, GROUPED = 1000, 1000
"""The tasks that ended last, and the failed tasks, from which the numbers come: at most some requests for each."""
CAUSES = 20
PAGE, PAGE_SECONDS = 1000, 120.0
"""Tasks that run again together, and how long transient faults of their requests are retried."""


def job_numbers(job: Job) -> dict[str, Any]:
    """The numbers of a job, as the page shows them."""
    tasks = [task for task in job.last_tasks(RECENT, "completed") if task.ended]
    return {
        "tasks": len(tasks),
        **statistics.at_a_glance(tasks),
        "failures": by_cause(tuple(job.iter_tasks("failed", limit=GROUPED))),
    }


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
