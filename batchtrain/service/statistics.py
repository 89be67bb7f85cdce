"""The tasks of a job in numbers: how long they waited and ran, what they used, and why they failed. Pure."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from batchtrain.records.seen import Counts, TaskSeen
from batchtrain.service.failed import MEANINGS
from batchtrain.service.tasks import Execution, Listed, count_of, seen

SELECT = "id,state,creationTime,executionInfo,nodeInfo,multiInstanceSettings,requiredSlots"
"""The properties of a task from which the numbers are computed."""
SLOWEST = 5
BY_EXIT_CODE = frozenset({"", "FailureExitCode"})
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


class FailedBy(NamedTuple):
    """The tasks that failed for the same cause."""

    cause: str
    tasks: int
    example: str
    message: str = ""
    """The failure of the example."""


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
        self._example: dict[str, TaskSeen] = {}
        self._failures: dict[str, int] = {}

    def add(self, item: Listed) -> None:
        """Take one task."""
        task, info = seen(item), item.execution_info or Execution()
        self._counts[count_of(task)] += 1
        self._retries, self._requeues = self._retries + task.retries, self._requeues + task.requeues
        if info.start_time is not None:
            self._first = info.start_time if self._first is None else min(self._first, info.start_time)
            if item.creation_time is not None:
                self._waited.append(max((info.start_time - item.creation_time).total_seconds(), 0.0))
        if info.end_time is not None:
            self._last = info.end_time if self._last is None else max(self._last, info.end_time)
        if task.seconds is not None:
            self._add_run(item, task, task.seconds)
        if task.failed:
            cause = cause_of(item)
            self._failures[cause] = self._failures.get(cause, 0) + 1
            self._example.setdefault(cause, task)

    def _add_run(self, item: Listed, task: TaskSeen, seconds: float) -> None:
        self._ran.append(seconds)
        gang = item.multi_instance_settings
        nodes = gang.number_of_instances if gang else min(item.required_slots / self._slots, 1.0)
        self._node_seconds += seconds * nodes
        entry = (seconds, task.id, task.node)
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, entry)
        else:
            heapq.heappushpop(self._slowest, entry)

    def examples(self) -> dict[str, TaskSeen]:
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


def cause_of(item: Listed) -> str:
    """Why a task failed, if its document contains a reason."""
    info = item.execution_info or Execution()
    fault = info.failure_info
    if fault is not None and fault.code not in BY_EXIT_CODE:
        return fault.code
    meaning = MEANINGS.get(info.exit_code or 0, "")
    return f"exit code {info.exit_code}" + (f" ({meaning})" if meaning else "")


def spread(values: Iterable[float]) -> Spread | None:
    """None if there is no value."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(ordered[(len(ordered) - 1) // 2], p95(ordered), ordered[-1])


def p95(ordered: Sequence[float]) -> float:
    """The 95th percentile of sorted values: the smallest that at least 95 % of them do not exceed."""
    return ordered[-(-95 * len(ordered) // 100) - 1]
