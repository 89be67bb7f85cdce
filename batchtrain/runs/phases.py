"""How long each part of a run took. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from batchtrain.records import Attempt, Task

Span = tuple[datetime, datetime]
"""A beginning and an end."""

PHASES = {
    "pool": "until all nodes are there",
    "preparation": "the start task of the slowest node",
    "start": "until the first task runs: scheduling, images, input data",
    "training": "from the start of the first task to the end of the last one",
    "restarts": "after the loss of a node or a failure, until the next attempt runs",
    "fetch": "logs and results",
}
"""The parts of a run in their order."""


class Moments(NamedTuple):
    """The times of events, by the clock of this machine."""

    started: datetime
    ready: datetime | None = None
    """All nodes were ready."""


def phases(
    moments: Moments,
    tasks: Iterable[Task],
    preparation: float | None,
    fetch: float,
    attempts: Mapping[str, Sequence[Attempt]] = {},
) -> dict[str, float]:
    """The seconds of each known part. Times of the service are compared only with each other.

    preparation: seconds of the slowest start task, if the nodes started in this run. attempts: those of the tasks that
    ran more than once.
    """
    gaps: list[Span] = []
    unknown: list[Span] = []
    for of_task in attempts.values():
        for before, after in pairwise(of_task):
            if before.ended and after.started and after.started > before.ended:
                gaps.append((before.ended, after.started))
        for before, after in pairwise(run for run in of_task if run.started):
            if before.started and after.started and not before.ended and after.started > before.started:
                unknown.append((before.started, after.started))  # an attempt whose end is unknown, and a wait
    created, first, last, beside = _whole(tasks, attempts, (*gaps, *unknown))
    restarts = _outside(gaps, beside) if gaps else None
    training = (last - first).total_seconds() - _outside((*gaps, *unknown), beside) if first and last else None
    seconds: dict[str, float | None] = {"preparation": preparation, "training": training, "fetch": fetch}
    seconds["restarts"] = restarts
    if moments.ready is not None:
        seconds["pool"] = (moments.ready - moments.started).total_seconds() - (preparation or 0.0)
    seconds["start"] = (first - created).total_seconds() if first and created else None
    return {name: round(max(value, 0.0), 3) for name in PHASES if (value := seconds.get(name)) is not None}


def _whole(
    tasks: Iterable[Task], attempts: Mapping[str, Sequence[Attempt]], gaps: Sequence[Span]
) -> tuple[datetime | None, datetime | None, datetime | None, list[Span]]:
    """When the first task was added, the first start of a task, the last end, and the runs during gaps. There may be a
    million tasks. An attempt whose end is unknown is no run, but the first start may be its own."""
    created = first = last = None
    from_, to = min((start for start, _ in gaps), default=None), max((end for _, end in gaps), default=None)
    beside = []
    for task in tasks:
        created = min(created or task.created, task.created) if task.created else created
        of_task = attempts.get(task.id, ())
        for run in of_task:
            first = min(first or run.started, run.started) if run.started else first
        for start, end in _runs(task, of_task):
            first, last = min(first or start, start), max(last or end, end)
            if from_ and to and start < to and end > from_:
                beside.append((start, end))
    return created, first, last, beside


def _runs(task: Task, attempts: Sequence[Attempt]) -> Iterator[Span]:
    """The times in which a task ran. An attempt whose end is unknown is left out."""
    if attempts:
        yield from ((run.started, run.ended) for run in attempts if run.started and run.ended)
    elif task.started and (end := task.ended):
        yield task.started, end


def _outside(gaps: Iterable[Span], runs: Iterable[Span]) -> float:
    """The seconds of gaps in which nothing ran."""
    changes = [(moment, change) for start, end in gaps for moment, change in ((start, (1, 0)), (end, (-1, 0)))]
    changes += [(moment, change) for start, end in runs for moment, change in ((start, (0, 1)), (end, (0, -1)))]
    changes.sort()
    seconds, waiting, running = 0.0, 0, 0
    for (moment, (gap, run)), (following, _) in pairwise(changes):
        waiting, running = waiting + gap, running + run
        if waiting and not running:
            seconds += (following - moment).total_seconds()
    return seconds
