"""How long each part of a run took. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from batchtrain.records import Task

PHASES = {
    "pool": "until all nodes are there",
    "preparation": "the start task of the slowest node",
    "start": "until the first task runs: scheduling, images, input data",
    "training": "from the start of the first task to the end of the last one",
    "fetch": "logs and results",
}
"""The parts of a run in their order."""


class Moments(NamedTuple):
    """The times of events, by the clock of this machine."""

    started: datetime
    ready: datetime | None = None
    """All nodes were ready."""
    added: datetime | None = None
    """The tasks were added."""
    ended: datetime | None = None
    """All tasks had ended."""


def phases(moments: Moments, tasks: Iterable[Task], preparation: float | None, fetch: float) -> dict[str, float]:
    """The seconds of each known part. Times of the service are compared only with each other.

    preparation: seconds of the slowest start task, if the nodes started in this run.
    """
    training = _span(tasks)
    seconds: dict[str, float | None] = {"preparation": preparation, "training": training, "fetch": fetch}
    if moments.ready is not None:
        seconds["pool"] = (moments.ready - moments.started).total_seconds() - (preparation or 0.0)
    if moments.added is not None and moments.ended is not None and training is not None:
        seconds["start"] = (moments.ended - moments.added).total_seconds() - training
    return {name: round(max(value, 0.0), 3) for name in PHASES if (value := seconds.get(name)) is not None}


def _span(tasks: Iterable[Task]) -> float | None:
    first = last = None
    for task in tasks:
        if task.started and (end := task.ended):
            first, last = min(first or task.started, task.started), max(last or end, end)
    return (last - first).total_seconds() if first and last else None
