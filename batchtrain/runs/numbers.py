"""Writes metrics/TASK.jsonl of a run: the points of its tasks as they come, or those of the files that were fetched."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from batchtrain import state_files
from batchtrain.config.types import MetricPattern
from batchtrain.metrics.extract import Pattern, patterns_of
from batchtrain.metrics.point import of_json
from batchtrain.metrics.stream import Batch, MetricStream
from batchtrain.metrics.summary import Summary
from batchtrain.records import Metric, Point, RanksRecord
from batchtrain.records.events import MetricsSeen
from batchtrain.runs.directory import RunDirectory, line_of, points_of

MOST_BYTES = 64 << 20
"""Most bytes of a file of $BATCHTRAIN_METRICS that are read; of a longer file, every k-th line is read."""
RANKS_SECONDS = 1.0
"""The least time between two changes of the file of the ranks."""
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

    @property
    def tasks(self) -> Set[str]:
        """The tasks of which something was read."""
        return self._tasks.keys()

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

    def at(self, now: float) -> None:
        """What is read from now on was measured at this time at the latest."""
        self._clock = lambda: now

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the metrics of all tasks: sampled, refused or not finite."""
        return tuple(f"{name}: {note}" for name, task in self._tasks.items() for note in task.notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may have made the gangs slow, without duplicates."""
        return tuple(dict.fromkeys(text for task in self._tasks.values() for text in task.warnings))

    def _task(self, name: str) -> _Task:
        if name not in self._tasks:
            self._tasks[name] = _Task(self._run, name, patterns_of(self._patterns(name)))
        return self._tasks[name]


class _Task:
    """The metrics of one task: a file, and its summary; and a file with its ranks."""

    def __init__(self, run: RunDirectory, name: str, patterns: tuple[Pattern, ...]) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.is_whole = False
        self._recorded_attempts = set[int]()
        """The attempts whose records were read: they have what the ranks measured."""
        self._run, self._path, self._ranks_path = run, run.metrics_file(name), run.ranks_file(name)
        self._patterns = patterns
        self._ranks_written = float("-inf")
        self._stream: MetricStream | None = None
        self._file: BinaryIO | None = None

    def see(self, event: MetricsSeen, now: float, attempt: int) -> None:
        points = self._of_attempt(event.points, attempt, has_records=event.has_records)
        self._add(points, now, attempt, again=event.again, hidden=event.hidden)
        self.warnings.extend(event.warnings)
        self.is_whole = event.ended
        if event.ended:
            self.notes.extend(event.notes)
        if self._file is not None:
            self._file.flush()  # the page of the run reads it
        if (event.ranks or event.progress) and (event.ended or now - self._ranks_written >= RANKS_SECONDS):
            self._ranks_written = now
            self._run.replace(self._ranks_path, msgspec.json.encode(RanksRecord(event.ranks, event.progress)))

    def read(self, take: Callable[[MetricStream], Batch], now: float, attempt: int = 1) -> None:
        if self._stream is None:
            self._stream = MetricStream(self._patterns, watched=False)
            self._close()
        batch = take(self._stream)
        self.warnings.extend(batch.warnings)
        points = self._of_attempt(batch.points, attempt, has_records=self._stream.has_records)
        self._add(points, now, attempt, again=batch.again, hidden=batch.hidden)

    def _of_attempt(self, points: Sequence[Point], attempt: int, *, has_records: bool) -> Sequence[Point]:
        if has_records:
            points = [point._replace(attempt=point.attempt + attempt - 1) for point in points]
            self._recorded_attempts.update(point.attempt for point in points)
            return points
        return points if attempt == 1 else [point._replace(attempt=attempt) for point in points]

    def _add(self, points: Sequence[Point], now: float, attempt: int, *, again: bool, hidden: Set[str]) -> None:
        current = points[0].attempt if points else attempt
        if again:
            self._begin(current, now)
        if hidden:
            self._drop(lambda point, name: point.attempt >= current and name in hidden)
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
        self._file = self._run.open(self._path, "wb")
        self._file.writelines(earlier)
        return self._file

    def _write(self, point: Point, now: float) -> None:
        file = self._file or self._begin(point.attempt, now)
        with contextlib.suppress(ValueError):  # a name that is no text
            file.write(line_of(point.line(now)))

    def add(self, files: tuple[MetricsFile, ...], now: float) -> None:
        """Values that the program wrote itself replace those of the same name in its output of the same attempt. The
        records of a gang have them already, unless a node was lost: then the values of the rank are replaced."""
        note_count = len(self.notes)
        if self._file is not None:
            self._file.flush()
        recorded_counts = self._counted(points_of(self._path)) if self._recorded_attempts else Counter()
        replaced_keys: set[tuple[int, int | None, str]] = set()
        better_files: list[MetricsFile] = []
        for file in files:
            counts = self._counted(self._read(file.path), file.attempt)
            of_ranks = file.attempt in self._recorded_attempts
            if not of_ranks or any(recorded_counts[key] != count for key, count in counts.items()):
                better_files.append(file)
                replaced_keys.update((attempt, rank if of_ranks else None, name) for attempt, rank, name in counts)
        if replaced_keys:
            self._drop(
                lambda point, name: any((point.attempt, rank, name) in replaced_keys for rank in (point.rank, None))
            )
        del self.notes[note_count:]
        for file in better_files:  # read twice, because the files of all ranks may not fit into memory
            for point in self._read(file.path):
                self._write(point._replace(attempt=file.attempt), now)

    @staticmethod
    def _counted(points: Iterable[Point], attempt: int | None = None) -> Counter[tuple[int, int | None, str]]:
        """The number of values by attempt, rank and name."""
        return Counter((attempt or point.attempt, point.rank, name) for point in points for name in point.values)

    def _drop(self, is_dropped: Callable[[Point, str], bool]) -> None:
        """Take values out of the file, by their points and names."""
        if self._file is None:
            return
        self._file.close()

        def kept() -> Iterator[bytes]:
            with self._path.open("rb") as file:
                for line in file:
                    point = of_json(line, recorded=True)
                    values = point.values if point else {}
                    others = {name: value for name, value in values.items() if not (point and is_dropped(point, name))}
                    if point is None or len(others) == len(values):
                        yield line
                    elif others:
                        yield line_of(point._replace(values=others).line(0))

        self._run.replace_lines(self._path, kept())
        self._file = self._run.open(self._path, "ab")

    def _read(self, path: Path) -> Iterator[Point]:
        rank = int(path.stem) if _RANK.fullmatch(path.stem) else None
        every = path.stat().st_size // MOST_BYTES + 1
        if every > 1:
            self.notes.append(f"metrics of {path.stem}: every {every}. line was read, because there are very many")
        ignored_count, first = 0, ""
        with state_files.opened(path) as file:
            for number, line in enumerate(file):
                if number % every:
                    continue
                try:
                    point = of_json(line, rank)
                except (ValueError, RecursionError) as error:
                    ignored_count, first = ignored_count + 1, first or f"line {number + 1}: {error}"
                    continue
                if point is not None:
                    yield point
        if ignored_count:
            self.notes.append(f"metrics of {path.stem}: {ignored_count} lines were ignored ({first})")

    def end(self) -> dict[str, Metric]:
        """Close the file, and read it once for the summary."""
        if self._stream is not None:
            self.notes.extend(self._stream.notes)
        if self._file is None:
            return {}
        self._close()
        summary = Summary({pattern.name: pattern.unit for pattern in self._patterns})
        for point in points_of(self._path):
            summary.add(point)
        self.notes.extend(summary.notes)
        return summary.metrics()
