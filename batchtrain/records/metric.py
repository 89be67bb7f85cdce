"""Numbers that a program reports, and the ranks that report them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from batchtrain.records.position import Position

MAIN = (
    "objective", "loss", "test_accuracy", "accuracy", "train_loss", "val_loss", "validation_loss", "eval_loss",
    "val_accuracy", "validation_accuracy", "eval_accuracy", "perplexity", "throughput", "tokens_per_second", "busbw",
    "latency_us",
)  # fmt: skip
"""The usual metrics, in the order in which every view shows them; the others follow."""
LEARNING_RATES = frozenset({"lr", "learning_rate"})
"""Settings that programs print among their metrics. They rank no tasks."""


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last and the best value of a metric, and the step of the last. A value of None is NaN or infinite."""

    last: float | None
    best: float | None
    step: int | None = None
    unit: str = ""
    since: str = ""
    """Where a last value that is not finite became so, such as `step 16`."""

    def text(self, digits: int = 6) -> str:
        """The last value in words."""
        if self.last is None:
            return f"NaN since {self.since}" if self.since else "NaN"
        return f"{self.last:.{digits}g}"


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
    global_step: float | None = None
    """Its place on the axis of all points of its task, as `Course` gives it. It is not recorded."""

    @property
    def counted_step(self) -> int | None:
        """The step counted through all epochs; None without a step."""
        return self.step if self.step is None or self.global_step is None else round(self.global_step)

    @property
    def counted(self) -> str:
        """Where it is, as `step 16`; without a step as `epoch 2`; empty without both."""
        if self.step is not None:
            return f"step {self.counted_step}"
        return "" if self.epoch is None else f"epoch {self.epoch:g}"

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
    epoch: float | None = None
    global_step: float | None = None

    @property
    def position(self) -> Position:
        """Where its training is."""
        return Position(self.epoch, self.step, self.step if self.global_step is None else self.global_step)


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
