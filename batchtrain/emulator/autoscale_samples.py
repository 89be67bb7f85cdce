"""The samples that an autoscale formula reads: a pool's numbers every half minute of the account's time; pure.

They are stored as steps, one for each half minute with a change, so that an idle pool costs nothing.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from batchtrain.emulator import wire

PERIOD = 30 * wire.SECOND
KEPT = 2880
"""Samples are kept for one day."""


class Load(NamedTuple):
    """Resource use of the machine that all nodes share: bytes, and operations since its start."""

    memory: float = 0
    disk: float = 0
    disk_read: float = 0
    disk_written: float = 0
    disk_reads: float = 0
    disk_writes: float = 0
    network_in: float = 0
    network_out: float = 0


NUMBERS = (
    "$CPUPercent", "$WallClockSeconds", "$MemoryBytes", "$DiskBytes", "$DiskReadBytes", "$DiskWriteBytes",
    "$DiskReadOps", "$DiskWriteOps", "$NetworkInBytes", "$NetworkOutBytes", "$SampleNodeCount", "$ActiveTasks",
    "$RunningTasks", "$PendingTasks", "$SucceededTasks", "$FailedTasks", "$CurrentDedicatedNodes",
    "$CurrentLowPriorityNodes", "$PreemptedNodeCount", "$UsableNodeCount", "$TaskSlotsPerNode",
)  # fmt: skip
Numbers = tuple[float, ...]
"""The value of each of NUMBERS."""


class History:
    """The numbers of one pool: half minutes (counted from year 1), and the values from each on."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, Numbers]] = deque()

    def note(self, now: int, numbers: Numbers) -> None:
        """Record values that hold from now on. They replace earlier values of the same half minute."""
        mark = -(-now // PERIOD)
        if self._steps and self._steps[-1][1] == numbers:
            return
        if self._steps and self._steps[-1][0] == mark:
            self._steps.pop()
        self._steps.append((mark, numbers))
        while len(self._steps) > 1 and self._steps[1][0] <= mark - KEPT:
            self._steps.popleft()

    def samples(self, names: Iterable[str], now: int) -> Mapping[str, tuple[tuple[datetime, float], ...]]:
        """For each name, the samples of the last day in order of time. The last sample is taken now."""
        columns = {name: NUMBERS.index(name) for name in names}
        if not columns or not self._steps:
            return {}
        rows = list(self._rows(now))
        return {name: tuple((at, numbers[index]) for at, numbers in rows) for name, index in columns.items()}

    def _rows(self, now: int) -> Iterable[tuple[datetime, Numbers]]:
        last = now // PERIOD
        steps = [*self._steps, (last + 1, self._steps[-1][1])]
        for (mark, numbers), (end, _) in itertools.pairwise(steps):
            for number in range(max(mark, last - KEPT + 1), min(end, last + 1)):
                if number * PERIOD < now:
                    yield _moment(number), numbers
        yield wire.as_datetime(now), self._steps[-1][1]


@lru_cache(maxsize=2 * KEPT)
def _moment(mark: int) -> datetime:
    return wire.as_datetime(mark * PERIOD)
