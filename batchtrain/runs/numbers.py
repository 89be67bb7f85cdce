"""Writes metrics/TASK.jsonl of a run: the points of its tasks as they come, or those of the files that were fetched."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import BinaryIO, NamedTuple

from batchtrain.config.types import MetricPattern
from batchtrain.metrics.extract import Pattern, patterns_of
from batchtrain.metrics.point import of_json
from batchtrain.metrics.stream import Batch, MetricStream
from batchtrain.metrics.summary import Summary
from batchtrain.records import Metric, Point
from batchtrain.records.events import MetricsSeen
from batchtrain.runs.directory import RunDirectory, line_of, open_private, points_of, replace

MOST_BYTES = 64 << 20
"""Most bytes of a file of $BATCHTRAIN_METRICS that are read; of a longer file, every k-th line is read."""
_RANK = re.compile(r"\d+")
Patterns = Callable[[str], Iterable[MetricPattern]]
"""The `metrics` of a task."""


class MetricsFile(NamedTuple):
    """A file of $BATCHTRAIN_METRICS that an attempt of a task wrote."""

    attempt: int
    path: Path


class Recorded:
    """Writes the metrics of the tasks of one job."""

    def __init__(self, run: RunDirectory, patterns: Patterns, clock: Callable[[], float] = time.time) -> None:
        self._run, self._patterns, self._clock = run, patterns, clock
        self._tasks: dict[str, _Task] = {}

    def see(self, event: MetricsSeen, attempt: int = 1) -> None:
        """Write what came of a task that is followed. attempt: the one that prints; of records, see `records`."""
        self._task(event.subject).see(event, self._clock(), attempt)

    def is_whole(self, task: str) -> bool:
        """Whether a task was followed to its end."""
        return task in self._tasks and self._tasks[task].is_whole

    def lines(self, task: str, stream: str, lines: Sequence[str], attempt: int = 1) -> None:
        """Write the numbers of lines of the output of an attempt of a task that was not followed to its end."""
        now = self._clock()
        self._task(task).read(lambda source: source.output(lines, now), now, attempt)

    def records(self, task: str, lines: Sequence[str], first: int = 1) -> None:
        """Write the numbers of lines of the records of a gang that was not followed to its end. first: the attempt that
        they call 1."""
        now = self._clock()
        self._task(task).read(lambda source: source.records(lines, now), now, first)

    def end(self, files: Mapping[str, tuple[MetricsFile, ...]]) -> dict[str, dict[str, Metric]]:
        """Add the metrics files that were fetched, by task. Returns the summary of each task that has metrics."""
        for task, of_task in files.items():
            self._task(task).add(of_task, self._clock())
        summaries = {name: task.end() for name, task in self._tasks.items()}
        return {name: summary for name, summary in summaries.items() if summary}

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the metrics of all tasks: sampled, refused or not finite."""
        return tuple(f"{name}: {note}" for name, task in self._tasks.items() for note in task.notes)

    def _task(self, name: str) -> _Task:
        if name not in self._tasks:
            self._tasks[name] = _Task(self._run.metrics_file(name), patterns_of(self._patterns(name)))
        return self._tasks[name]


class _Task:
    """The metrics of one task: a file, and its summary."""

    def __init__(self, path: Path, patterns: tuple[Pattern, ...]) -> None:
        self.notes: list[str] = []
        self.is_whole = False
        self._recorded_attempts = set[int]()
        """The attempts whose records were read: they have what the ranks measured."""
        self._path, self._patterns = path, patterns
        self._stream: MetricStream | None = None
        self._file: BinaryIO | None = None

    def see(self, event: MetricsSeen, now: float, attempt: int) -> None:
        points = self._of_attempt(event.points, attempt, has_records=event.has_records)
        self._add(points, now, again=event.again, hidden=event.hidden)
        self.is_whole = event.ended
        if event.ended:
            self.notes.extend(event.notes)

    def read(self, take: Callable[[MetricStream], Batch], now: float, attempt: int = 1) -> None:
        if self._stream is None:
            self._stream = MetricStream(self._patterns)
            self._close()
        batch = take(self._stream)
        points = self._of_attempt(batch.points, attempt, has_records=self._stream.has_records)
        self._add(points, now, again=batch.again, hidden=batch.hidden)

    def _of_attempt(self, points: Sequence[Point], attempt: int, *, has_records: bool) -> Sequence[Point]:
        if has_records:
            points = [point._replace(attempt=point.attempt + attempt - 1) for point in points]
            self._recorded_attempts.update(point.attempt for point in points)
            return points
        return points if attempt == 1 else [point._replace(attempt=attempt) for point in points]

    def _add(self, points: Sequence[Point], now: float, *, again: bool, hidden: Set[str]) -> None:
        if again:
            self._begin(points[0].attempt if points else 1, now)
        self._drop(hidden)
        for point in points:
            self._write(point, now)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, attempt: int, now: float) -> BinaryIO:
        """Forget the points of an attempt; those of attempts before are kept, if only this command saw them."""
        self._close()
        earlier = [line_of(old.line(now)) for old in points_of(self._path) if old.attempt < attempt]
        self._file = open_private(self._path, "wb")
        self._file.writelines(earlier)
        return self._file

    def _write(self, point: Point, now: float) -> None:
        file = self._file or self._begin(point.attempt, now)
        with contextlib.suppress(ValueError):  # a name that is no text
            file.write(line_of(point.line(now)))

    def add(self, files: tuple[MetricsFile, ...], now: float) -> None:
        """Values that the program wrote itself replace those of the same name in the output of the same attempt. The
        records of a gang have those of its ranks already."""
        files = tuple(
            file for file in files if file.attempt not in self._recorded_attempts or not _RANK.fullmatch(file.path.stem)
        )
        noted = len(self.notes)
        own: dict[int, set[str]] = {}
        for file in files:
            own.setdefault(file.attempt, set()).update(name for point in self._read(file.path) for name in point.values)
        for attempt, names in own.items():
            self._drop(names, attempt)
        del self.notes[noted:]
        for file in files:  # read twice, because the files of all ranks may not fit into memory
            for point in self._read(file.path):
                self._write(point._replace(attempt=file.attempt), now)

    def _drop(self, names: Set[str], attempt: int | None = None) -> None:
        """Take the values of some names out of the file: of one attempt, or of all."""
        if self._file is None or not names:
            return
        self._file.close()
        kept = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            point = of_json(line)
            if point is None or (attempt not in (None, point.attempt)) or names.isdisjoint(point.values):
                kept.append(line)
            elif rest := {name: value for name, value in point.values.items() if name not in names}:
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
        self._close()
        if self._stream is not None:
            self.notes.extend(self._stream.notes)
        summary = Summary({pattern.name: pattern.unit for pattern in self._patterns})
        for point in points_of(self._path):
            summary.add(point)
        self.notes.extend(summary.notes)
        return summary.metrics()
