"""Numbers in the output of a training: loss, accuracy, rates and results, as the program prints them. Pure.

`programs` has the programs; docs/reference/metrics.md lists the names and units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.metrics.point import finite, named
from batchtrain.metrics.programs import PROGRAMS, TABLES, Program, Source
from batchtrain.metrics.programs.base import NUMBER, plain
from batchtrain.records import Point

if TYPE_CHECKING:
    from batchtrain.config.types import MetricPattern

RATE = 5000
"""Up to this number of lines of a merged output per second, all are read; of more lines, a decreasing share."""
FILE_RATE = 100_000
"""The same for a file, whose lines are read long after they were printed."""
FINAL = ("total images/sec", "__results.", "Total img/sec", "Avg bus bandwidth", "test accuracy")
"""Texts of lines that are always read: they come once, at the end."""
LONGEST_LINE = 64 * 1024
"""A longer line has no metrics."""
_START = Source()
_PREFIX = re.compile(
    r"^\[(\d{1,9}):(\d{1,9}|[A-Za-z]+(?: \d{1,9})?)\] |^\[\d+,(\d{1,9})\]<std(?:out|err)>: ?|^\[rank(\d{1,9})\]: ?"
)
_KERAS_STEP = re.compile(r"\s*\d+/(\d+) .*/(?:step|sample)")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*\x07)")


class Pattern(NamedTuple):
    """A pattern of the user. The group `value`, or else the first group, is the value; `step` and `epoch` are optional
    groups. Without a name, the group `name` is that of the metric."""

    name: str
    pattern: str
    unit: str = ""


NAMED_NUMBER = Pattern("", rf"^\s*(?P<name>[A-Za-z][\w ./@-]{{0,60}})(?<! )\s*[=:]\s*(?P<value>{NUMBER})\s*$")
"""A line that is a name and a number: a metric if the user asks for it."""


def patterns_of(metrics: Iterable[MetricPattern]) -> tuple[Pattern, ...]:
    """The `metrics` of a task, as they are searched for."""
    return tuple(Pattern(metric.name, metric.pattern, metric.unit) for metric in metrics)


class Extractor:
    """Reads the lines of one task as they come."""

    def __init__(
        self, patterns: Iterable[Pattern] = (), otherwise: Iterable[Pattern] = (), *, is_of_file: bool = False
    ) -> None:
        """otherwise: what is searched for in lines that no program reads."""
        self.skipped = 0
        """Lines that were not read because too many came at once."""
        self._own = tuple(_program_of(pattern) for pattern in patterns)
        programs = (*self._own, *PROGRAMS, *map(_program_of, otherwise))
        every = [(program.needle, program) for program in programs]
        self._programs = tuple(pair for pair in every if "/s" not in pair[0]), tuple(every)
        """Those for a line without a rate, and those for one with a rate."""
        self._sources: dict[tuple[int | None, str], Source] = {}
        self._second, self._count = 0, 0
        self._rate = FILE_RATE if is_of_file else RATE

    def feed(self, lines: Sequence[str], now: float) -> Iterator[Point]:
        """The numbers in lines of a merged output that came at a time (in seconds). Each may begin with its rank. A
        line with absurd numbers or depths has none."""
        if int(now) != self._second:
            self._second, self._count = int(now), 0
        for text in self._sample(lines):
            yield from self.line(*split(text))

    def _sample(self, lines: Sequence[str]) -> Iterator[str]:
        """The lines to read: of each `_rate` lines of a second a smaller part, taken without looking at the others."""
        at = 0
        while at < len(lines):
            number = self._count + 1
            every = number // self._rate + 1
            part = lines[at : at + every * self._rate - number]
            chosen = part[-number % every :: every]
            if every > 1 and _has_final("\n".join(part)):
                chosen = [line for n, line in enumerate(part, number) if n % every == 0 or _has_final(line)]
            at, self._count = at + len(part), self._count + len(part)
            self.skipped += len(part) - len(chosen)
            yield from chosen

    def line(self, rank: int | None, line: str, stream: str = "") -> Iterator[Point]:
        """The numbers in a line that a rank printed."""
        if not line or len(line) > LONGEST_LINE:
            return
        try:  # a context manager would take a tenth of the time
            before = self._sources.get((rank, stream), _START)
            if (source := _state(before, line)) is not before:
                self._sources[rank, stream] = source
            for needle, program in self._programs["/s" in line]:
                if needle in line and (match := program.pattern.search(line)):
                    point = program.read(match, source)
                    if point is not None:
                        float(point.step or 0), float(point.epoch or 0)  # raises for a number that no curve has
                        if point.values:
                            point = named(point)
                            yield point if rank is None or point.rank is not None else point._replace(rank=rank)
                        if program not in self._own:
                            return
            for table in TABLES if source.table else ():
                if source.table.startswith(table.name) and (point := table.row(source, line)):
                    yield named(point)._replace(rank=rank)
        except (ValueError, RecursionError, OverflowError):
            return


def _state(source: Source, line: str) -> Source:
    """The state after a line."""
    if line.startswith("Epoch ") and (match := re.match(r"Epoch (\d+)/\d+", line)):
        return source._replace(epoch=int(match[1]), steps=0)
    if source.epoch is not None and not source.steps and "/s" in line and (match := _KERAS_STEP.match(line)):
        return source._replace(steps=int(match[1]))
    if line[0] in "#|│ \t" and line.lstrip()[:1] in "#|│":
        for table in TABLES:
            if (changed := table.header(source, line)) is not None:
                return changed
    return source


def _has_final(text: str) -> bool:
    return any(final in text for final in FINAL)


class Prefix(NamedTuple):
    """What stands before the output of a rank in a merged line: `[NODE:RANK] ` of a framework, `[1,RANK]<stdout>: ` of
    Open MPI, `[rankRANK]: ` of PyTorch, or nothing."""

    text: str = ""
    node: int | None = None
    rank: int | None = None


def prefix_of(line: str) -> Prefix:
    """The prefix of a line."""
    match = _PREFIX.match(line)
    if match is None:
        return Prefix()
    return Prefix(match[0], int(match[1]) if match[1] else None, number_of(match[2] or match[3] or match[4]))


def split(text: str) -> tuple[int | None, str]:
    """The rank of a line, and the line as its process printed it."""
    if not text.startswith("["):
        return None, printed(text)
    prefix = prefix_of(text)
    return prefix.rank, printed(text[len(prefix.text) :])


def printed(line: str) -> str:
    """A line as it stands on a terminal: without colours, and one that was redrawn in its last state."""
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if "\x1b" in line or "\b" in line:
        line = _ESCAPES.sub("", line).replace("\b", "")
    return line.rstrip("\n")


def number_of(role: str) -> int | None:
    """The number of a rank, or of a role such as `worker 1`."""
    digits = role.rpartition(" ")[2]
    return int(digits) if digits.isdigit() else None


def _program_of(own: Pattern) -> Program:
    names = re.compile(own.pattern).groupindex

    def read(match: re.Match[str], source: Source) -> Point | None:
        value = match["value" if "value" in names else 1]
        if value is None or not re.fullmatch(NUMBER, value):
            return None
        step, epoch = (finite(match[name] or "") if name in names else None for name in ("step", "epoch"))
        return Point(
            {own.name or plain(match["name"]): finite(value)}, step=None if step is None else int(step), epoch=epoch
        )

    return Program("metrics", "", own.pattern, read)
