"""A task of a run as its directory has it, while it runs and afterwards: output, curves, ranks, and a search.

The process that records a run writes its directory while the tasks run. The same files hold the end, so a page that
reads them continues without a break when the job is deleted.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.dashboard.figures import add, newest, ranks_document
from batchtrain.dashboard.output import Output
from batchtrain.errors import NotFound
from batchtrain.metrics.line_times import FILE, LineTimes, OutputName, output_name
from batchtrain.records import Point, RanksRecord
from batchtrain.records.gang import StepTimes, ranks_in
from batchtrain.runs.curves import Series, curves_in
from batchtrain.runs.directory import RunDirectory, RunRecord, points_of

RECENT_POINTS = 50_000
"""Last points from which the step times of ranks are taken."""
SECONDS = 1.0
BLOCK = 1 << 20


def inside(run: RunDirectory, folder: Path, file: str) -> Path:
    """A file in a folder of a run. Raises NotFound, also for a path or a link that leads out of the run."""
    base = run.path.resolve()
    with suppress(OSError, ValueError):  # no such file, or no path at all
        target = (folder / file).resolve(strict=True)
        if target.is_relative_to(base) and target.is_file():
            return target
    raise NotFound(f"run {run.name} has no file `{file}`", code="FileNotFound")


class RunTask(NamedTuple):
    """A task of a run."""

    run: RunDirectory
    id: str

    def path(self, file: str) -> Path:
        """A file of its logs. Raises NotFound, also for a path or a link that leads out of the run."""
        return inside(self.run, self.run.logs(self.id), file)

    def size(self, file: str) -> int:
        """The bytes of a file."""
        return self.path(file).stat().st_size

    def read(self, file: str, start: int, end: int) -> bytes:
        """Bytes of a file; empty behind its end."""
        with self.path(file).open("rb") as content:
            content.seek(start)
            return content.read(end - start)

    def output(self, file: str) -> Output:
        """The topic of a file of its logs."""
        return Output(functools.partial(self.size, file), functools.partial(self.read, file), SECONDS, remote=False)

    def logs(self) -> list[str]:
        """The files of its logs: the merged ones, those of ranks, and those of earlier attempts."""
        base = self.run.logs(self.id)
        names = ("*.txt", "ranks/*.txt", "attempt-*/*.txt")
        return [path.relative_to(base).as_posix() for name in names for path in sorted(base.glob(name))]

    def times(self, file: str, start: int, end: int) -> dict[str, Any]:
        """When a part of an output was printed: by its gang, else by the client that followed it."""
        if output := output_name(file):
            for source in ("ranks/stream.jsonl", f"{output.folder}{FILE}"):
                with suppress(NotFound):
                    if times := _CACHE.of(self.path(source), _TimesIn(output)):
                        return times.between(start, end)  # type: ignore[no-any-return]  # the cache has any values
        return {"at": [], "time": []}

    def metrics(self) -> dict[str, Any]:
        """The curves, by metric and rank or node. Those of all attempts are one."""
        curves: dict[str, Any] = _CACHE.of(self.run.metrics_file(self.id), curves_in)
        return curves

    def ranks(self, record: RunRecord) -> dict[str, Any]:
        """The ranks, those that matter first. Of a run that has ended, as they were at its end."""
        recorded = self.run.ranks(self.id)
        points = _CACHE.of(self.run.metrics_file(self.id), recent_points)
        steps, system = StepTimes(), Series()
        for point in points:
            steps.add(point.rank, point.t or 0.0, point.global_step)
            if point.node:
                add(system, point, 0.0)
        ranks = recorded if recorded.ranks else RanksRecord(ranks_in(points), recorded.progress)
        now, ended = time.time(), record.state != "running"
        if ended:
            now = record.ended.timestamp() if record.ended else max((rank.heard for rank in ranks.ranks), default=0.0)
        ends = {} if record.state == "completed" else self.run.rank_ends(self.id, record)
        return ranks_document(ranks, steps, newest(system), now, ends, ended=ended)


class _TimesIn(NamedTuple):
    """Reads the times of an output from a file with records."""

    output: OutputName

    def __call__(self, path: Path) -> LineTimes:
        times = LineTimes(self.output)
        with path.open(encoding="utf-8", errors="replace") as file:
            while lines := file.readlines(BLOCK):
                times.take(lines)
        return times


def recent_points(path: Path) -> tuple[Point, ...]:
    """The last points of a file of metrics, of its last attempt."""
    recent = deque(points_of(path), maxlen=RECENT_POINTS)
    last = max((point.attempt for point in recent), default=1)
    return tuple(point for point in recent if point.attempt == last)


class _Cache:
    """What was read from files that have not changed since."""

    MOST = 16

    def __init__(self) -> None:
        self._values: dict[tuple[Path, Any], tuple[tuple[int, int], Any]] = {}

    def of(self, path: Path, read: Any) -> Any:
        """What `read` makes of a file."""
        status = path.stat() if path.exists() else None
        version = (status.st_mtime_ns, status.st_size) if status else (0, 0)
        cached = self._values.pop((path, read), None)
        if cached is None or cached[0] != version:
            cached = (version, read(path))
        self._values[path, read] = cached
        while len(self._values) > self.MOST:
            self._values.pop(next(iter(self._values)))
        return cached[1]


_CACHE = _Cache()
