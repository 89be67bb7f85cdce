"""Numbers that a program reports."""

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
