"""The metrics of one task as one stream of points, and the state of its ranks. Pure: the time is an argument.

A gang writes `RECORDS` on the node of its primary: what each rank prints and measures, line by line, with the rank and
the time (docs/adr/0038). Of a task without a gang, its output and its file of $BATCHTRAIN_METRICS are read.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import msgspec

from batchtrain.foreign import UNREADABLE
from batchtrain.metrics.extract import Extractor, Pattern, prefix_of, printed, split
from batchtrain.metrics.point import of_json
from batchtrain.records import Metric, Point, Rank, Rendezvous, TrainingProgress
from batchtrain.records.events import MetricsSeen
from batchtrain.records.position import Course, Position
from batchtrain.records.rates import is_total, rates_of

RECORDS = "wd/ranks/stream.jsonl"
"""What all ranks print and measure, in the directory of a task on the node of its primary."""
OWN = "wd/ranks/rank-0.metrics.jsonl"
"""The file of $BATCHTRAIN_METRICS of a task without a gang."""
MEASURED = "metrics"
"""The `file` of a line that a program wrote to $BATCHTRAIN_METRICS."""
MOST_RANKS = 10_000
BEAT_SECONDS = 10.0
"""The seconds between two signs of life of a node."""
LONGEST_SHOWN = 300
"""Characters of the last line of a rank."""
_TOTAL = re.compile(
    r"\b(?P<unit>step|epoch|iter(?:ation)?|batch)\W{0,3}(?P<at>\d{1,12}) ?(?:/|of) ?(?P<of>\d{1,12})\b", re.IGNORECASE
)


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of `RECORDS`. Without a `line` it is the start of a rank, or a sign of life of a node."""

    time: float = 0.0
    """Seconds since 1970 by the clock of its node, or by one clock if signs of life have no node; 0 if the node has no
    program that tells it."""
    rank: int | None = None
    node: str = ""
    """n0 is the primary."""
    attempt: int = 1
    file: str = ""
    """stdout, stderr, or metrics: a line of $BATCHTRAIN_METRICS."""
    line: str = ""
    nodes: int = 0
    """The number of nodes of the gang, in the record of a node that has joined it."""
    unfit: str = ""
    """The address of a node whose preflight found faults of its hardware, and that a client may replace."""
    warning: str = ""
    """What may make the gang slow, but does not stop it."""
    skipped: int = 0
    """Lines that were not written because too many of the same form came."""
    at: int | None = None
    """The position of the line in what the rank printed to `file`. Without a rank: that of the output of the task from
    which on it was written in the last second."""


class Batch(NamedTuple):
    """What came at once."""

    points: tuple[Point, ...]
    again: bool = False
    """Whether they replace all points before: the task has better ones than those of its merged output."""
    unfit: tuple[str, ...] = ()
    """Addresses of nodes whose preflight found faults of their hardware."""
    warnings: tuple[str, ...] = ()
    """What may make the gang slow, but does not stop it."""
    hidden: frozenset[str] = frozenset()
    """Metrics that the program now measures itself: the values before, which it printed, are to be forgotten."""


NOTHING = Batch(())
_LINE = msgspec.json.Decoder(Line)


class MetricStream:
    """Reads what a task prints and measures as it comes."""

    def __init__(
        self, patterns: Iterable[Pattern] = (), otherwise: Iterable[Pattern] = (), *, watched: bool = True
    ) -> None:
        """otherwise: what is searched for in lines that no program reads. watched: whether the state of the ranks and
        the progress are read as well, for which every line is looked at; not for a file, of which more is searched."""
        self._patterns = tuple(patterns), tuple(otherwise)
        self._is_watched = watched
        self._extractor = Extractor(*self._patterns, is_of_file=not watched)
        self.ranks: dict[int, Rank] = {}
        self._course = Course()
        self._progress: dict[int | None, TrainingProgress] = {}
        self.has_records = False
        """Whether the ranks of a gang are read; then its merged output is not."""
        self._rendezvous: dict[str, int] = {}
        """The nodes that have joined the gang, each with the number of all."""
        self._skipped = self._refused = 0
        self._first_refused = ""
        self._measured: set[str] = set()
        self._printed: set[str] = set()
        """The names of the metrics that were found in the file of $BATCHTRAIN_METRICS, and of those in the output."""
        self._last_sign: float | None = None
        """The time of the last sign of life of a node, by its clock: what its ranks printed until then has come."""
        self._behind: dict[str, float] = {}
        """By node, the clock of this machine minus that of the node: the least that was seen."""
        self._undefined: set[str] = set()
        """The metrics that were not finite."""
        self._news: list[str] = []
        """Sentences for the next event."""
        self.has_news = False
        """Whether a rank printed something since `seen` was called."""

    @property
    def progress(self) -> TrainingProgress | None:
        """How far the slowest rank is, in the unit that was printed last."""
        every = tuple(self._progress.copy().values())
        alike = (row for row in every if (row.unit, row.of) == (every[-1].unit, every[-1].of))
        return min(alike, key=lambda row: row.at, default=None)

    def begin_again(self) -> None:
        """The task runs on another node now: the ranks and the clocks of the nodes before are gone."""
        self.ranks.clear()
        self._progress.clear()
        self._rendezvous.clear()
        self._behind.clear()
        self._last_sign = None

    def records(self, lines: Sequence[str], now: float) -> Batch:
        """Take lines of `RECORDS` that came at a time (seconds since 1970)."""
        records, again = tuple(decoded(lines)), False
        early = (record.nodes or record.unfit or record.warning for record in records)
        has_output = not all(early)  # nodes that join have none yet
        if has_output and not self.has_records:
            again, self.has_records = bool(self._measured or self._printed), True
            self._extractor = Extractor(*self._patterns, is_of_file=not self._is_watched)
            for before in (self.ranks, self._progress, self._measured, self._printed):
                before.clear()
        unfit = tuple(record.unfit for record in records if record.unfit)
        warnings = tuple(record.warning for record in records if record.warning)
        return self._batch(self._of_records(records, now))._replace(again=again, unfit=unfit, warnings=warnings)

    def _of_records(self, records: Sequence[Line], now: float) -> Iterator[tuple[Point, bool]]:
        for line in records:
            self._skipped += line.skipped
            if line.time and (line.node in self._behind or len(self._behind) < MOST_RANKS):
                self._behind[line.node] = min(self._behind.get(line.node, math.inf), now - line.time)
            if line.time and line.rank is None and not line.line:
                at = line.time + self._behind.get(line.node, 0.0)
                self._last_sign, self.has_news = max(at, self._last_sign or at), True
            if line.nodes and len(self._rendezvous) < MOST_RANKS:
                self._rendezvous[line.node], self.has_news = line.nodes, True
            if line.rank is not None and not (line.line or line.file):
                self._see(line.rank, line.node, "", line.time or now, line.attempt)
            if line.line:
                yield from self._of_line(line, now)

    def _of_line(self, line: Line, now: float) -> Iterator[tuple[Point, bool]]:
        at, is_measured = line.time or now, line.file == MEASURED
        rank, text = line.rank, "" if is_measured else printed(line.line)
        if rank is None:  # of a launcher such as torchrun, whose workers may have prefixes
            rank, text = split(text)
        if self._is_watched:
            self._see(rank, line.node, text, at, line.attempt)
        points = self._of_json(rank, line.line) if is_measured else self._extractor.line(rank, text, line.file)
        for point in points:
            yield point._replace(t=at if point.t is None else point.t, attempt=line.attempt), is_measured

    def own(self, lines: Sequence[str], now: float, rank: int | None = 0) -> Batch:
        """Take lines of a file of $BATCHTRAIN_METRICS."""
        return self._batch((point, True) for line in lines for point in self._of_json(rank, line))

    def output(self, lines: Sequence[str], now: float) -> Batch:
        """Take lines of stdout or stderr of the task; those of a gang that is read by its records are ignored."""
        if self.has_records:
            return NOTHING
        for line in lines if self._is_watched else ():
            prefix = prefix_of(line)
            node = "" if prefix.node is None else f"n{prefix.node}"
            self._see(prefix.rank, node, printed(line[len(prefix.text) :]), now, 1)
        return self._batch((point, False) for point in self._extractor.feed(lines, now))

    def _of_json(self, rank: int | None, line: str) -> Iterator[Point]:
        try:
            point = of_json(line, rank)
        except (ValueError, RecursionError) as error:
            self._refused += 1
            self._first_refused = self._first_refused or str(error)
            return
        if point is not None:
            yield point

    def _batch(self, pairs: Iterable[tuple[Point, bool]]) -> Batch:
        """Points, each with whether the program measured it itself: then it hides what is printed of the same name."""
        points: list[Point] = []
        hidden: set[str] = set()
        for point, is_measured in pairs:
            if is_measured:
                late = self._printed.intersection(point.values) - self._measured
                self._measured.update(point.values)
                if late:
                    hidden |= late
                    points = [rest for rest in (_without(late, before) for before in points) if rest.values]
            else:
                point = _without(self._measured, point)
                self._printed.update(point.values)
            if point.values:
                points.append(self._placed(point))
        return Batch(tuple(points), hidden=frozenset(hidden))

    def _placed(self, point: Point) -> Point:
        """The point at its place; its rank is there now."""
        if point.node:
            return point
        position = self._course.advance(point.rank, point.attempt, point.epoch, point.step)
        point = point._replace(global_step=position.global_step)
        for name in (name for name, value in point.values.items() if value is None and name not in self._undefined):
            self._undefined.add(name)
            self._news.append(f"{name} is {Metric(None, None, since=point.counted).text()}")
        rank = self.ranks.get(-1 if point.rank is None else point.rank)
        if rank is not None:
            names = sorted(rates_of(point.values), key=is_total)
            rates = (value for name in names if (value := point.values[name]) is not None)
            self.ranks[rank.number] = _at(rank, position, next(rates, rank.rate))
        return point

    def _see(self, number: int | None, node: str, text: str, at: float, attempt: int) -> None:
        if (match := _TOTAL.search(text)) and 0 < int(match["of"]) >= int(match["at"]):
            progress = TrainingProgress(match["unit"].lower(), int(match["at"]), int(match["of"]))
            if number in self.ranks or len(self._progress) <= MOST_RANKS:
                self._progress.pop(number, None)
                self._progress[number] = progress
        if number is None or (number not in self.ranks and len(self.ranks) >= MOST_RANKS):
            return
        self.has_news = True
        before = self.ranks.get(number) or Rank(number)
        position = before.position if attempt == before.attempt else Position()
        last = text.strip()[:LONGEST_SHOWN] or before.last
        rank = Rank(number, node, attempt, before.lines + bool(text), last, at)
        self.ranks[number] = _at(rank, position, before.rate)

    def event(self, job: str, task: str, batch: Batch = NOTHING, *, ended: bool = False) -> MetricsSeen:
        """What came, and the ranks now, for those who show or record it. ended: it is the last of the task."""
        news, self._news = self._news, []
        return MetricsSeen(
            task,
            f"{task}: {', '.join(news)}" if news else "",
            job=job,
            **batch._asdict(),
            ranks=self.seen(),
            progress=self.progress,
            read_to=None if self._last_sign is None else self._last_sign + BEAT_SECONDS,
            rendezvous=Rendezvous(tuple(self._rendezvous), max(self._rendezvous.values(), default=0)),
            ended=ended,
            has_records=self.has_records,
            notes=self.notes if ended else (),
        )

    def judged_at(self, now: float) -> float:
        """The time at which ranks are compared: a client that lags behind their output does not make them silent."""
        return now if self._last_sign is None else min(now, self._last_sign + BEAT_SECONDS)

    def seen(self) -> tuple[Rank, ...]:
        """The ranks in order, with their times by the clock of this machine."""
        self.has_news = False
        behind = self._behind.copy()
        if "" in behind:  # a sign of life without a node: one clock stamps the lines of all nodes
            behind = dict.fromkeys(behind, min(behind.values()))
        ranks = sorted(self.ranks.copy().values(), key=lambda rank: rank.number)
        return tuple(msgspec.structs.replace(rank, heard=rank.heard + behind.get(rank.node, 0.0)) for rank in ranks)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not read, and why."""
        skipped, notes = self._skipped + self._extractor.skipped, []
        if skipped:
            why = "came too fast" if self._is_watched or self._skipped else "are too many"
            notes.append(f"{skipped:,} lines {why} and were not searched for metrics")
        if self._refused:
            notes.append(f"{self._refused:,} lines of BATCHTRAIN_METRICS were ignored ({self._first_refused})")
        return tuple(notes)


def _at(rank: Rank, position: Position, rate: float | None) -> Rank:
    epoch, step, global_step = position
    return msgspec.structs.replace(rank, epoch=epoch, step=step, global_step=global_step, rate=rate)


def decoded(lines: Sequence[str]) -> Iterator[Line]:
    """The records of these lines."""
    for text in lines:
        with contextlib.suppress(*UNREADABLE):  # the end of a line that a lost node began
            yield _LINE.decode(text)


def _without(names: Set[str], point: Point) -> Point:
    if names.isdisjoint(point.values):
        return point
    return point._replace(values={name: value for name, value in point.values.items() if name not in names})
