"""Lines of the output of a task: whose they are, which are shown, and how they look on a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from batchtrain.config.times import moment
from batchtrain.display.terminal import terminal_text
from batchtrain.errors import UsageError, printable
from batchtrain.metrics.extract import prefix_of
from batchtrain.records import Task
from batchtrain.records.events import Output

COLORS = (36, 33, 35, 32, 34, 31)
"""Of the prefixes of ranks, in turn."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_NUMBERS = re.compile(r"n?\d{1,9}(?:-n?\d{1,9})?(?:,n?\d{1,9}(?:-n?\d{1,9})?)*")
MOST = 100_000


class LogLine(NamedTuple):
    """A line with the node and the rank that printed it; None if the line does not name them."""

    text: str
    node: int | None = None
    rank: int | None = None
    prefix: str = ""
    task: str = ""
    """The task, if lines of several tasks are shown."""

    @property
    def document(self) -> dict[str, object]:
        """For programs."""
        return {"line": self.text, "rank": self.rank, "node": None if self.node is None else f"n{self.node}"}

    def on_terminal(self, others: Iterable[LogLine] = (), *, color: bool) -> str:
        """For a terminal: safe, after `[NODE:RANK]` or `[RANK]` in the colour of its rank. others: the equal lines of
        other ranks, which are counted in."""
        every = (self, *others)
        ranks, nodes = (spans(values) for values in ({line.rank for line in every}, {line.node for line in every}))
        numbers = f"[{nodes}:{ranks}] " if nodes else f"[{ranks}] "
        prefix = numbers if ranks and (len(every) > 1 or not nodes) else self.prefix
        text, task = terminal_text(self.text), f"{printable(self.task)}: " if self.task else ""
        if not prefix or not color:
            return task + prefix + text
        number = self.rank if self.rank is not None else self.node or 0
        return f"{task}\x1b[{COLORS[number % len(COLORS)]}m{prefix.rstrip()}\x1b[0m {text}"


def read(line: str) -> LogLine:
    """A line of a task, with or without a prefix."""
    prefix = prefix_of(line)
    return LogLine(line[len(prefix.text) :], prefix.node, prefix.rank, prefix.text)


def of_event(event: Output) -> LogLine:
    """The line of an event."""
    line = event.text.removeprefix(f"{event.subject}: ")
    return read(line)._replace(task=event.subject if line != event.text else "")


def folded(lines: Iterable[LogLine], *, color: bool) -> Iterator[str]:
    """Lines that came together, for a terminal. Equal lines of several ranks are one; those of each rank keep their
    order."""
    rows: list[list[LogLine]] = []
    last_rows: dict[tuple[str, str], int] = {}
    ends: dict[tuple[str, int], int] = {}
    """The row of the last line of each rank."""
    for line in lines:
        if line.rank is None:
            rows.append([line])
            continue
        rank, key = (line.task, line.rank), (line.task, line.text)
        row = last_rows.get(key, -1)
        if row <= ends.get(rank, -1):
            row = last_rows[key] = len(rows)
            rows.append([])
        rows[row].append(line)
        ends[rank] = row
    for first, *others in rows:
        yield first.on_terminal(others, color=color)


def spans(numbers: Iterable[int | None]) -> str:
    """Numbers as `0-3,5`, without None."""
    parts: list[list[int]] = []
    for number in sorted(number for number in numbers if number is not None):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}" if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


class Wanted(NamedTuple):
    """Which lines are shown; by default all."""

    ranks: frozenset[int] = frozenset()
    nodes: frozenset[int] = frozenset()
    pattern: re.Pattern[str] | None = None
    since: datetime | None = None


EVERYTHING = Wanted()


class Selection:
    """Chooses lines in their order."""

    def __init__(self, filters: Wanted) -> None:
        self._wanted = filters
        self._times: dict[int | None, datetime] = {}
        """The last time that each rank wrote into a line."""
        self.seen = self.named = self.timed = 0
        """Lines in all, lines that name a rank or a node, and lines with a time."""

    def takes(self, line: LogLine) -> bool:
        """Whether a line is shown."""
        filters = self._wanted
        self.seen += 1
        self.named += line.rank is not None or line.node is not None
        return (
            (not filters.ranks or line.rank in filters.ranks)
            and (not filters.nodes or line.node in filters.nodes)
            and self._is_late(line)
            and (filters.pattern is None or filters.pattern.search(line.text) is not None)
        )

    def _is_late(self, line: LogLine) -> bool:
        """Whether the line is not from before the time; a line without a time is as old as the one before it."""
        if self._wanted.since is None:
            return True
        match = _MOMENT.search(line.text)
        time = moment(match[0].replace(",", ".")) if match else None
        if time is not None:
            self.timed += 1
            self._times[line.rank] = time
        last = self._times.get(line.rank)
        return last is not None and last >= self._wanted.since

    def check(self, file: str, job_id: str, seen_task: Callable[[], Task]) -> None:
        """Raise UsageError if the lines lack what they were chosen by."""
        if self.seen and not self.timed and self._wanted.since is not None:
            raise UsageError(f"no line of {file} has a time, such as 2026-11-23 15:12:25, so --since cannot choose any")
        if self.seen and not self.named and (self._wanted.ranks or self._wanted.nodes):
            task = seen_task()
            if not task.request.instances:
                raise UsageError(
                    f"no line of {file} names a rank: task {job_id}/{task.id} is no gang; omit --rank, --node"
                )
            raise UsageError(
                f"no line of {file} names its rank. The files of the ranks are in wd/ranks of each node:"
                f" `batchtrain jobs get {job_id} {task.id} 'ranks/*' --all-nodes` fetches them"
            )


def numbers(text: str) -> frozenset[int]:
    """The numbers in `0,3-5` or `n0,n1`. Raises ValueError."""
    if not _NUMBERS.fullmatch(text.strip()):
        raise ValueError(text)
    indexes: set[int] = set()
    for part in text.replace("n", "").strip().split(","):
        first, _, last = part.partition("-")
        if not 0 <= int(last or first) - int(first) <= MOST:
            raise ValueError(text)
        indexes.update(range(int(first), int(last or first) + 1))
    return frozenset(indexes)
