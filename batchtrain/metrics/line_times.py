"""When an output was printed: its gang, or the client that followed it, noted times of positions in it. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from batchtrain.metrics.stream import decoded

FILE = "times.jsonl"
"""What the client that follows a task notes, beside its output: records as those of a gang."""
MOST, ANSWERED = 50_000, 5_000
"""Times that are kept of an output, and that are in one answer."""
LARGEST, LATEST = 1 << 53, 1e11
_OUTPUT = re.compile(r"(?:wd/)?((?:attempt-\d+/)?)(?:ranks/(?:rank-)?(\d+)\.)?(stdout|stderr)\.txt")


class OutputName(NamedTuple):
    """The merged output of a task, or that of a rank."""

    folder: str
    """Empty for the last attempt; else such as `attempt-1/`."""
    rank: int | None
    stream: str


def output_name(path: str) -> OutputName | None:
    """Which output a file has, as a task or a run directory names it; None for another file."""
    match = _OUTPUT.fullmatch(path)
    return OutputName(match[1], int(match[2]) if match[2] else None, match[3]) if match else None


class LineTimes:
    """The times of one output. What comes from its position `at` on was printed at the time, or soon after."""

    def __init__(self, output: OutputName) -> None:
        self._output = output
        self._positions: list[int] = []
        self._times: list[float] = []

    def take(self, lines: Sequence[str]) -> None:
        """Records of the gang or the client."""
        for record in decoded(lines):
            if record.at is not None and (record.rank, record.file) == (self._output.rank, self._output.stream):
                self._add(record.at, record.time)

    def _add(self, at: int, time: float) -> None:
        if not (0 <= at < LARGEST and 0 < time < LATEST):
            return
        if self._positions and at <= self._positions[-1]:  # a later attempt writes the file anew
            start = bisect_left(self._positions, at)
            del self._positions[start:], self._times[start:]
        elif self._times and int(time) == int(self._times[-1]):
            return
        self._positions.append(at)
        self._times.append(time)
        if len(self._positions) > MOST:
            del self._positions[1::2], self._times[1::2]

    def __bool__(self) -> bool:
        return bool(self._positions)

    def between(self, start: int, end: int) -> dict[str, list[float]]:
        """The times of a part of the output: from the last one before `start` on."""
        first = max(bisect_left(self._positions, start + 1) - 1, 0)
        last = bisect_left(self._positions, end)
        step = 1 + (last - first) // ANSWERED
        return {"at": list(self._positions[first:last:step]), "time": self._times[first:last:step]}
