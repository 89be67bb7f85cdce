"""The facts of a job's tasks that lists are filtered by, one array each: 10⁵ tasks are filtered in milliseconds; pure.

A position is a task's place in the order of its job. Deleted tasks leave a gap until the arrays are compacted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batchtrain.emulator.query import Comparison, Condition, Every, StartsWith
from batchtrain.emulator.records import TaskFacts

ABSENT = -(1 << 63)
"""The number of a missing value."""
STATES = ("", "active", "preparing", "running", "completed")
"""By code; the first is a deleted task."""
RESULTS = ("", "success", "failure")
CODES = {**{state: code for code, state in enumerate(STATES)}, **{result: code for code, result in enumerate(RESULTS)}}
BLOCK = 4096
"""Positions that are filtered at once, so that the first page of a long list is made at once."""

Positions = Sequence[int]

COLUMNS = ("seqs", "ids", "state", "state_time", "created", "modified", "start", "end", "exit_code", "result",
           "retries")  # fmt: skip

NUMBERS: Mapping[str, str] = {
    "stateTransitionTime": "state_time",
    "creationTime": "created",
    "lastModified": "modified",
    "executionInfo/startTime": "start",
    "executionInfo/endTime": "end",
    "executionInfo/exitCode": "exit_code",
}
"""The column of each property that is a number or a time."""
WORDS: Mapping[str, tuple[str, ...]] = {"state": STATES, "executionInfo/result": RESULTS}
"""The words of each property that has few values."""

_KEEP: Mapping[str, Callable[[Any, Any, Positions], list[int]]] = {
    "eq": lambda column, value, at: [i for i in at if column[i] == value],
    "ne": lambda column, value, at: [i for i in at if column[i] != value],
    "gt": lambda column, value, at: [i for i in at if column[i] > value],
    "ge": lambda column, value, at: [i for i in at if column[i] >= value],
    "lt": lambda column, value, at: [i for i in at if column[i] < value],
    "le": lambda column, value, at: [i for i in at if column[i] <= value],
}


class TaskRow(NamedTuple):
    """The facts about a task that the columns store."""

    id: str
    state: str
    state_time: int
    created: int
    modified: int


class Columns:
    """The columns, in the order of the tasks."""

    __slots__ = (*COLUMNS, "ascending", "latest", "order")

    def __init__(self) -> None:
        self.seqs, self.retries = array("q"), array("i")
        self.ids: list[str] = []
        self.state, self.result = bytearray(), bytearray()
        self.state_time, self.created, self.modified = array("q"), array("q"), array("q")
        self.start, self.end, self.exit_code = array("q"), array("q"), array("q")
        self.latest = array("q")
        """The latest `state_time` of each block: a query for recent changes reads few blocks."""
        self.ascending = True
        """Whether the ids ascend in the order of the tasks, as those of a factory do."""
        self.order: list[tuple[str, int]] = []
        """The id and the number of each task in the order of the ids; empty before they are listed."""

    def add(self, task: TaskFacts) -> None:
        """Add a task; a new one has the highest number."""
        in_order = not self.seqs or task.seq > self.seqs[-1]
        self.ascending = self.ascending and in_order and (not self.ids or task.id > self.ids[-1] != "")
        self.order.clear()
        self.seqs.append(task.seq)
        self.ids.append(task.id)
        self.retries.append(task.retries)
        self.state.append(CODES[task.state])
        self.result.append(CODES[task.result])
        self.state_time.append(task.state_time)
        self.created.append(task.created)
        self.modified.append(task.modified)
        self.start.append(task.start or ABSENT)
        end, exit_code = _ending(task)
        self.end.append(end)
        self.exit_code.append(exit_code)
        if len(self.latest) * BLOCK < len(self.seqs):
            self.latest.append(ABSENT)
        self._note(len(self.seqs) - 1, task.state_time)
        if not in_order:
            self._keep(sorted(range(len(self.seqs)), key=self.seqs.__getitem__))

    def _note(self, at: int, time: int) -> None:
        if time > self.latest[at // BLOCK]:
            self.latest[at // BLOCK] = time

    def change(self, task: TaskFacts) -> None:
        """Copy the facts that can change."""
        at = bisect_left(self.seqs, task.seq)
        self.retries[at] = task.retries
        self.state[at] = CODES[task.state]
        self.result[at] = CODES[task.result]
        self.state_time[at] = task.state_time
        self.modified[at] = task.modified
        self.start[at] = task.start or ABSENT
        self.end[at], self.exit_code[at] = _ending(task)
        self._note(at, task.state_time)

    def drop(self, seq: int) -> None:
        """Remove a task; its position stays as a gap."""
        at = bisect_left(self.seqs, seq)
        self.state[at], self.ids[at] = 0, ""

    def compact(self) -> None:
        """Remove the gaps that deleted tasks left."""
        self._keep([at for at, state in enumerate(self.state) if state])

    def _keep(self, positions: Positions) -> None:
        """Keep only these positions, in this order."""
        for name in COLUMNS:
            column = getattr(self, name)
            values = [column[at] for at in positions]
            setattr(self, name, array(column.typecode, values) if isinstance(column, array) else type(column)(values))
        starts = range(0, len(self.seqs), BLOCK)
        self.latest = array("q", [max(self.state_time[start : start + BLOCK]) for start in starts])

    def after(self, seq: int, condition: Condition | None) -> Iterator[Positions]:
        """The positions of the tasks after a number that a filter accepts, in blocks."""
        first = bisect_right(self.seqs, seq)
        for number in range(first // BLOCK, len(self.latest)):
            block: Positions = range(max(first, number * BLOCK), min((number + 1) * BLOCK, len(self.seqs)))
            if condition is not None:
                block = self.narrow(condition, block)
            if positions := [at for at in block if self.state[at]]:
                yield positions

    def by_id(self, after: str, condition: Condition | None) -> Iterator[int]:
        """The positions of the tasks that a filter accepts, in the order of their ids, after an id."""
        if condition is not None:
            matches = [(self.ids[at], at) for block in self.after(0, condition) for at in block]
            yield from (at for task_id, at in sorted(matches) if task_id > after)
            return
        if not self.order:
            self.order = sorted((self.ids[at], self.seqs[at]) for block in self.after(0, None) for at in block)
        for _, seq in self.order[bisect_right(self.order, (after, self.seqs[-1])) :] if self.order else ():
            at = bisect_left(self.seqs, seq)
            if at < len(self.seqs) and self.seqs[at] == seq and self.state[at]:
                yield at

    def narrow(self, condition: Condition, at: Positions) -> Positions:
        """The positions that a filter accepts."""
        if isinstance(condition, Every):
            for term in condition.terms:
                at = self.narrow(term, at)
            return at
        if isinstance(condition, Comparison):
            return self._compare(condition, at)
        if isinstance(condition, StartsWith):
            ids, prefix = self.ids, condition.prefix
            return [i for i in at if ids[i].startswith(prefix)]
        return sorted({i for term in condition.terms for i in self.narrow(term, at)})

    def _compare(self, condition: Comparison, at: Positions) -> Positions:
        path, word, value = condition[:3]
        if path in WORDS:
            code = WORDS[path].index(value or "") if (value or "") in WORDS[path] else len(WORDS[path])
            column = self.state if path == "state" else self.result
            if word == "eq" and isinstance(at, range):
                return _occurrences(column, code, at)
            return _KEEP[word](column, code, at)
        if path == "id":
            return [] if value is None and word != "ne" else _KEEP[word](self.ids, value, at)
        numbers = getattr(self, NUMBERS[path])
        if value is None:
            return _KEEP[word](numbers, ABSENT, at) if word in ("eq", "ne") else []
        if path == "stateTransitionTime" and word in ("gt", "ge") and at and self.latest[at[0] // BLOCK] < value:
            return []
        positions = _KEEP[word](numbers, value, at)
        return [i for i in positions if numbers[i] != ABSENT] if word in ("lt", "le") else positions

    def row(self, at: int) -> TaskRow:
        return TaskRow(self.ids[at], STATES[self.state[at]], self.state_time[at], self.created[at], self.modified[at])


def _ending(task: TaskFacts) -> tuple[int, int]:
    """The end time and the exit code, which are visible only in the state `completed`."""
    if task.state != "completed":
        return ABSENT, ABSENT
    return task.end or ABSENT, ABSENT if task.exit_code is None else task.exit_code


def _occurrences(column: bytearray, code: int, at: range) -> list[int]:
    """The positions of a byte, found without a loop over all bytes."""
    positions = []
    position = column.find(code, at.start, at.stop)
    while position >= 0:
        positions.append(position)
        position = column.find(code, position + 1, at.stop)
    return positions
