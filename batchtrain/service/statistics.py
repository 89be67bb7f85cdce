"""The tasks of a job in numbers: how long they waited and ran, what they used, and why they failed. Pure."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from batchtrain.records import Counts, FailedBy, Task
from batchtrain.records.failure import EXIT_CODE
from batchtrain.service.failed import MEANINGS

SLOWEST = 5
BY_EXIT_CODE = frozenset({"", EXIT_CODE})
"""The codes of failures that the exit code explains."""


class Spread(NamedTuple):
    """Seconds: the median, the 95th percentile and the longest."""

    median: float
    p95: float
    longest: float


class SlowTask(NamedTuple):
    """A task that took long."""

    task: str
    seconds: float
    node: str


class Stats(NamedTuple):
    """The tasks of a job in numbers."""

    counts: Counts
    waited: Spread | None
    """From the creation of a task to the start of its last run."""
    ran: Spread | None
    """The last run of the tasks that have ended."""
    first_start: datetime | None
    last_end: datetime | None
    node_hours: float
    """The hours of nodes that these runs used; a task that shares a node counts with its slots."""
    retries: int
    requeues: int
    slowest: tuple[SlowTask, ...]
    failed_by: tuple[FailedBy, ...]


class Collector:
    """Adds up tasks one by one, in 16 bytes for each."""

    def __init__(self, slots: int = 1) -> None:
        """slots: the task slots of a node of the pool."""
        self._slots = max(slots, 1)
        self._counts = dict.fromkeys(Counts._fields, 0)
        self._waited, self._ran = array("d"), array("d")
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._node_seconds = 0.0
        self._retries = self._requeues = 0
        self._slowest: list[tuple[float, str, str]] = []
        self._example: dict[str, Task] = {}
        self._failures: dict[str, int] = {}

    def add(self, task: Task) -> None:
        """Take one task."""
        self._counts[task.counts_as] += 1
        self._retries, self._requeues = self._retries + task.retries, self._requeues + task.requeues
        if task.started is not None:
            self._first = task.started if self._first is None else min(self._first, task.started)
            if task.created is not None:
                self._waited.append(max((task.started - task.created).total_seconds(), 0.0))
        if end := task.ended:
            self._last = end if self._last is None else max(self._last, end)
        if task.seconds is not None:
            self._ran.append(task.seconds)
            slots = task.request.instances or min(task.request.slots / self._slots, 1.0)
            self._node_seconds += task.seconds * slots
            heapq.heappush(self._slowest, (task.seconds, task.id, task.node))
            if len(self._slowest) > SLOWEST:
                heapq.heappop(self._slowest)
        if task.failed:
            cause = cause_of(task)
            self._failures[cause] = self._failures.get(cause, 0) + 1
            self._example.setdefault(cause, task)

    def examples(self) -> dict[str, Task]:
        """A failed task for each cause, the most frequent cause first."""
        causes = sorted(self._failures, key=lambda cause: -self._failures[cause])
        return {cause: self._example[cause] for cause in causes}

    def stats(self, messages: dict[str, str]) -> Stats:
        """The numbers. messages: the failures of examples, by cause."""
        return Stats(
            counts=Counts(**self._counts),
            waited=spread(self._waited),
            ran=spread(self._ran),
            first_start=self._first,
            last_end=self._last,
            node_hours=self._node_seconds / 3600,
            retries=self._retries,
            requeues=self._requeues,
            slowest=tuple(SlowTask(task, seconds, node) for seconds, task, node in sorted(self._slowest, reverse=True)),
            failed_by=tuple(
                FailedBy(cause, self._failures[cause], task.id, messages.get(cause, ""))
                for cause, task in self.examples().items()
            ),
        )


def cause_of(task: Task) -> str:
    """Why a task failed."""
    if task.failure.code not in BY_EXIT_CODE:
        return task.failure.code
    meaning = MEANINGS.get(task.exit_code or 0, "")
    return f"exit code {task.exit_code}" + (f" ({meaning})" if meaning else "")


def by_cause(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Failed tasks by cause, the causes in the order of their first task."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(cause_of(task), []).append(task)
    return groups


def failed_by(groups: Mapping[str, Sequence[Task]], messages: Mapping[str, str]) -> tuple[FailedBy, ...]:
    """The groups of `by_cause` as records, the most frequent first. messages: the failures of examples, by cause."""
    frequent = sorted(groups.items(), key=lambda group: -len(group[1]))
    return tuple(FailedBy(cause, len(tasks), tasks[0].id, messages.get(cause, "")) for cause, tasks in frequent)


def spread(values: Iterable[float]) -> Spread | None:
    """None if there is no value."""
    ascending = sorted(values)
    if not ascending:
        return None
    return Spread(ascending[(len(ascending) - 1) // 2], p95(ascending), ascending[-1])


def p95(ascending: Sequence[float]) -> float:
    """The 95th percentile of sorted values: the smallest that at least 95 % of them do not exceed."""
    return ascending[-(-95 * len(ascending) // 100) - 1]
