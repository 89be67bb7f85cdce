"""Writes metrics/TASK.jsonl of a run from the output of its tasks and the files of $BATCHTRAIN_METRICS."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from batchtrain.config.types import MetricPattern
from batchtrain.records import Metric
from batchtrain.runs.directory import RunDirectory, line_of, open_private, points_of, replace
from batchtrain.runs.extract import Extractor, Pattern, Point, of_json
from batchtrain.runs.summary import Summary

MOST_BYTES = 64 << 20
"""Most bytes of a file of $BATCHTRAIN_METRICS that are read; of a longer file, every k-th line is read."""
_RANK = re.compile(r"\d+")
Patterns = Callable[[str], Iterable[MetricPattern]]
"""The `metrics` of a task."""


class MetricsFile(NamedTuple):
    """A file of $BATCHTRAIN_METRICS that an attempt of a task wrote."""

    attempt: int
    path: Path


class Numbers(Protocol):
    """Makes metrics/TASK.jsonl of a run."""

    def lines(self, task: str, stream: str, lines: Sequence[str], attempt: int = 1) -> None:
        """Take lines of the merged output of an attempt of a task. Each may begin with the prefix of its rank."""

    def end(self, files: Mapping[str, tuple[MetricsFile, ...]]) -> dict[str, dict[str, Metric]]:
        """Finish: all output has come. files: the fetched files of $BATCHTRAIN_METRICS, by task. Returns the summary of
        each task that has metrics."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the numbers: sampled, refused or not finite."""


def numbers_of(run: RunDirectory, patterns: Patterns) -> Numbers:
    """Returns an object that collects the metrics of a run."""
    return Recorded(run, patterns)


class Recorded:
    """Writes the metrics of the tasks of one job."""

    def __init__(self, run: RunDirectory, patterns: Patterns, clock: Callable[[], float] = time.time) -> None:
        self._run, self._patterns, self._clock = run, patterns, clock
        self._tasks: dict[str, _Task] = {}

    def lines(self, task: str, stream: str, lines: Sequence[str], attempt: int = 1) -> None:
        """Write the numbers of lines."""
        self._task(task).lines(lines, self._clock(), attempt)

    def end(self, files: Mapping[str, tuple[MetricsFile, ...]]) -> dict[str, dict[str, Metric]]:
        """Add the program's own metrics, and make the summary."""
        for task, of_task in files.items():
            self._task(task).add(of_task, self._clock())
        summaries = {name: task.end() for name, task in self._tasks.items()}
        return {name: summary for name, summary in summaries.items() if summary}

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks about all tasks."""
        return tuple(f"{name}: {note}" for name, task in self._tasks.items() for note in task.notes)

    def _task(self, name: str) -> _Task:
        if name not in self._tasks:
            self._tasks[name] = _Task(self._run.metrics_file(name), self._own(name))
        return self._tasks[name]

    def _own(self, name: str) -> tuple[Pattern, ...]:
        return tuple(Pattern(metric.name, metric.pattern, metric.unit) for metric in self._patterns(name))


class _Task:
    """The metrics of one task: a file, and its summary."""

    def __init__(self, path: Path, patterns: tuple[Pattern, ...]) -> None:
        self.notes: list[str] = []
        self._path, self._patterns = path, patterns
        self._extractor = Extractor(patterns)
        self._file: BinaryIO | None = None
        self._now = 0.0

    def lines(self, lines: Sequence[str], now: float, attempt: int = 1) -> None:
        for point in self._extractor.feed(lines, now):
            with contextlib.suppress(ValueError):  # a name that is no text
                self._write(point._replace(attempt=attempt), now)

    def _write(self, point: Point, now: float) -> None:
        if self._file is None:
            self._file = open_private(self._path, "wb")  # the whole output is read again by a later `jobs fetch`
        self._file.write(line_of(point.line(now)))

    def add(self, files: tuple[MetricsFile, ...], now: float) -> None:
        """Values that the program wrote itself replace those of the same name in the output of the same attempt."""
        noted = len(self.notes)
        own: dict[int, set[str]] = {}
        for file in files:
            own.setdefault(file.attempt, set()).update(name for point in self._read(file.path) for name in point.values)
        self._drop(own)
        del self.notes[noted:]
        for file in files:  # read twice, because the files of all ranks may not fit into memory
            for point in self._read(file.path):
                with contextlib.suppress(ValueError):  # a name that is not a text
                    self._write(point._replace(attempt=file.attempt), now)

    def _drop(self, own: Mapping[int, set[str]]) -> None:
        if self._file is None or not any(own.values()):
            return
        self._file.close()
        kept = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            point = of_json(line)
            names = own.get(point.attempt, set()) if point is not None else set()
            if point is not None and not names.intersection(point.values):
                kept.append(line)
            elif point is not None and (rest := {k: v for k, v in point.values.items() if k not in names}):
                kept.append(line_of(point._replace(values=rest).line(0)))
        replace(self._path, b"".join(kept))
        self._file = self._path.open("ab")

    def _read(self, path: Path) -> Iterator[Point]:
        rank = int(path.stem) if _RANK.fullmatch(path.stem) else None
        every = path.stat().st_size // MOST_BYTES + 1
        if every > 1:
            self.notes.append(f"metrics of {path.stem}: every {every}. line was read, because there are very many")
        refused, first = 0, ""
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if number % every:
                    continue
                try:
                    point = of_json(line)
                except (ValueError, RecursionError) as error:
                    refused, first = refused + 1, first or f"line {number + 1}: {error}"
                    continue
                if point is not None:
                    yield point if point.rank is not None or point.node else point._replace(rank=rank)
        if refused:
            self.notes.append(f"metrics of {path.stem}: {refused} lines were ignored ({first})")

    def end(self) -> dict[str, Metric]:
        """Close the file, and read it once for the summary."""
        if self._file is None:
            return {}
        self._file.close()
        self._file = None
        if self._extractor.skipped:
            self.notes.append(f"{self._extractor.skipped:,} lines came too fast and were not searched for metrics")
        summary = Summary({pattern.name: pattern.unit for pattern in self._patterns})
        for point in points_of(self._path):
            summary.add(point)
        self.notes.extend(summary.notes)
        return summary.metrics()
