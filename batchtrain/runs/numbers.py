"""Writes metrics/TASK.jsonl of a run: the points of its tasks as they come, or those of the files that were fetched."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import BinaryIO

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


class Recorded:
    """Writes the metrics of the tasks of one job."""

    def __init__(self, run: RunDirectory, patterns: Patterns, clock: Callable[[], float] = time.time) -> None:
        self._run, self._patterns, self._clock = run, patterns, clock
        self._tasks: dict[str, _Task] = {}

    def see(self, event: MetricsSeen) -> None:
        """Write what came of a task that is followed."""
        self._task(event.subject).see(event, self._clock())

    def is_whole(self, task: str) -> bool:
        """Whether a task was followed to its end."""
        return task in self._tasks and self._tasks[task].is_whole

    def lines(self, task: str, stream: str, lines: Sequence[str]) -> None:
        """Write the numbers of lines of the output of a task that was not followed to its end."""
        now = self._clock()
        self._task(task).read(lambda source: source.output(lines, now), now)

    def records(self, task: str, lines: Sequence[str]) -> None:
        """Write the numbers of lines of the records of a gang that was not followed to its end."""
        now = self._clock()
        self._task(task).read(lambda source: source.records(lines, now), now)

    def end(self, files: Mapping[str, tuple[Path, ...]]) -> dict[str, dict[str, Metric]]:
        """Add the metrics files that were fetched, by task. Returns the summary of each task that has metrics."""
        for task, paths in files.items():
            self._task(task).add(paths, self._clock())
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
        self._has_records = False
        self._path, self._patterns = path, patterns
        self._stream: MetricStream | None = None
        self._file: BinaryIO | None = None

    def see(self, event: MetricsSeen, now: float) -> None:
        self._add(event.points, now, again=event.again, hidden=event.hidden)
        self.is_whole, self._has_records = event.ended, event.has_records
        if event.ended:
            self.notes.extend(event.notes)

    def read(self, take: Callable[[MetricStream], Batch], now: float) -> None:
        if self._stream is None:
            self._stream = MetricStream(self._patterns)
            self._close()
        batch = take(self._stream)
        self._has_records = self._stream.has_records
        self._add(batch.points, now, again=batch.again, hidden=batch.hidden)

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

    def add(self, paths: tuple[Path, ...], now: float) -> None:
        """Values that the program wrote itself replace those of the same name in its output. The records of a gang have
        those of its ranks already."""
        if self._has_records:
            paths = tuple(path for path in paths if not _RANK.fullmatch(path.stem))
        noted = len(self.notes)
        self._drop({name for path in paths for point in self._read(path) for name in point.values})
        del self.notes[noted:]
        for path in paths:  # read twice, because the files of all ranks may not fit into memory
            for point in self._read(path):
                self._write(point, now)

    def _drop(self, names: Set[str]) -> None:
        if self._file is None or not names:
            return
        self._file.close()
        kept = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            point = of_json(line)
            if point is not None and names.isdisjoint(point.values):
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
        self._close()
        if self._stream is not None:
            self.notes.extend(self._stream.notes)
        summary = Summary({pattern.name: pattern.unit for pattern in self._patterns})
        for point in points_of(self._path):
            summary.add(point)
        self.notes.extend(summary.notes)
        return summary.metrics()
