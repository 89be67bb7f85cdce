"""Where a training is: epoch and step as one ordered value, and as a global step on an axis. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


class Position(NamedTuple):
    """An epoch, a step in it, and the global step, which counts the steps of all epochs. None is unknown."""

    epoch: float | None = None
    step: int | None = None
    global_step: float | None = None

    def __str__(self) -> str:
        """The step; where it begins again with each epoch, `EPOCH:STEP`."""
        if self.step is None:
            return ""
        return (
            str(self.step)
            if self.epoch is None or self.global_step in (None, self.step)
            else f"{self.epoch:g}:{self.step}"
        )


class Front:
    """The latest of several positions."""

    def __init__(self, positions: Iterable[Position]) -> None:
        self._steps: dict[float | None, float] = {}
        """The highest global step of each epoch; of the positions without an epoch with the key None."""
        for position in positions:
            step = -math.inf if position.global_step is None else position.global_step
            self._steps[position.epoch] = max(step, self._steps.get(position.epoch, step))
        self._epoch = max((epoch for epoch in self._steps if epoch is not None), default=None)
        self._step = max(self._steps.values(), default=-math.inf)

    def is_after(self, position: Position) -> bool:
        """Whether a training passes a position before one of these; unknown parts are equal to all others."""
        epoch, step = position.epoch, position.global_step
        if epoch is not None and self._epoch is not None and epoch < self._epoch:
            return True
        equal = [self._steps.get(key, -math.inf) for key in (epoch, None)] if epoch is not None else [self._step]
        return step is not None and step < max(equal)


class _Counter:
    """What the counters of one rank said in one attempt."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.position = Position()
        self._first = 0
        """The step with which the current round of the counter began."""
        self._lengths: set[int] = set()
        """The last steps of earlier rounds that began new epochs, if the program prints no epoch."""

    def advance(self, epoch: float | None, step: int | None) -> Position:
        """The position after a report that may lack the epoch or the step. A step that falls while no epoch is printed
        begins an epoch if it begins as the round before, and that was as long as the others; else it is a restart."""
        before = self.position
        if epoch is None:
            epoch = before.epoch
            if step is not None and before.step is not None and step < before.step:
                if step <= self._first and (not self._lengths or before.step in self._lengths):
                    epoch = (before.epoch or 0) + 1
                    self._lengths.add(before.step)
                self._first = step
        if step is not None and before.step is None:
            self._first = step
        if step is None and epoch == before.epoch:
            step = before.step
        self.position = Position(epoch, step, before.global_step)
        return self.position


class Course:
    """Gives each report of a task its position. Without a step, the global step is that of the rank's last step, or
    else its epoch; it is None if the task counts nothing."""

    def __init__(self) -> None:
        self._counters: dict[int | None, _Counter] = {}
        self._starts: dict[int, float] = {}
        """The global step before the first step of each epoch that has begun."""
        self._steps: dict[int, tuple[int, int]] = {}
        """The lowest and the highest step of each epoch."""
        self._stride = self._length = self._latest = 0
        """The least difference of two steps, the longest epoch so far, and the last epoch."""
        self._begins_again = False
        """Whether the step begins again with each epoch."""

    def advance(self, rank: int | None, attempt: int, epoch: float | None, step: int | None) -> Position:
        """The position of the next report of a rank."""
        counter = self._counters.get(rank)
        if counter is None or counter.attempt != attempt:
            counter = self._counters[rank] = _Counter(attempt)
        before, after = counter.position, counter.advance(epoch, step)
        if step is not None:
            counter.position = after._replace(global_step=self._place(before, after))
        elif before.step is None:
            counter.position = after._replace(
                global_step=after.epoch if before.global_step in (None, before.epoch) else before.global_step
            )
        return counter.position

    def _place(self, before: Position, after: Position) -> float:
        epoch, last_epoch, step = int(after.epoch or 0), int(before.epoch or 0), after.step or 0
        if before.step is not None and epoch == last_epoch and step > before.step:
            self._stride = min(self._stride or step - before.step, step - before.step)
        if epoch not in self._steps:
            self._begin(epoch, step)
        low, high = self._steps.get(epoch, (step, step))
        self._steps[epoch] = low, high = min(low, step), max(high, step)
        self._length, self._latest = max(self._length, high - low), max(self._latest, epoch)
        return step + (self._starts.get(epoch, 0.0) if self._begins_again else 0.0)

    def _begin(self, epoch: int, step: int) -> None:
        """An epoch begins with a step."""
        last = (
            self._latest
            if self._latest < epoch
            else max((number for number in self._steps if number < epoch), default=epoch)
        )
        low, high = self._steps.get(last, (0, 0))
        if last in self._steps and (step < high or step == low == high):
            self._begins_again = True
        if self._begins_again and last in self._steps:
            length = self._length + max(self._stride, 1)
            self._starts[epoch] = self._starts.get(last, 0.0) + (epoch - last) * length
