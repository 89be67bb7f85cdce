"""Numbers that a program reports, and the ranks that report them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last and the best value of a metric, and the step of the last."""

    last: float
    best: float
    step: int | None = None
    unit: str = ""


class Point(NamedTuple):
    """The values of one moment. A value that is NaN or infinite is None."""

    values: dict[str, float | None]
    rank: int | None = None
    step: int | None = None
    epoch: float | None = None
    t: float | None = None
    """Seconds since 1970."""
    node: str = ""
    attempt: int = 1
    """Which run of the task: 2 after its first retry or requeue."""

    def line(self, now: float) -> dict[str, Any]:
        """The object of a line of metrics/TASK.jsonl."""
        fields = {"t": round(now if self.t is None else self.t, 3), "rank": self.rank, "node": self.node or None}
        fields.update(step=self.step, epoch=self.epoch, attempt=self.attempt if self.attempt > 1 else None)
        values = {name: value for name, value in self.values.items() if name not in fields}  # a program may print them
        return {name: value for name, value in fields.items() if value is not None} | values


class Rank(msgspec.Struct, frozen=True):
    """What a rank printed last. Its step and its rate are those of its last metrics."""

    number: int
    node: str = ""
    """Its node: n0 is the primary."""
    attempt: int = 1
    lines: int = 0
    """Its lines that were read."""
    last: str = ""
    """Its last line, without control characters of terminals."""
    heard: float = 0.0
    """When it printed it: seconds since 1970 by the clock of this machine."""
    step: int | None = None
    rate: float | None = None
    """Images or samples per second."""


class Rendezvous(msgspec.Struct, frozen=True):
    """The nodes of a gang that have joined it, and the number of its nodes. n0 is the primary."""

    joined: tuple[str, ...] = ()
    nodes: int = 0

    @property
    def missing(self) -> tuple[str, ...]:
        """The nodes that the others wait for."""
        return tuple(name for name in (f"n{number}" for number in range(self.nodes)) if name not in self.joined)


class TrainingProgress(msgspec.Struct, frozen=True):
    """How far a training is, as `step 3/10`."""

    unit: str
    at: int
    of: int


class RanksRecord(msgspec.Struct, frozen=True):
    """metrics/TASK.ranks.json: the ranks of a task as they were last."""

    ranks: tuple[Rank, ...] = ()
    progress: TrainingProgress | None = None
