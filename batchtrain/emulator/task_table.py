"""The tasks of a job. Only those that something acts on are in memory; the others are read where they are stored.

A task that was looked up is in memory, and stays the same object, until `World.rest` drops it: after it is stored,
and only while nothing acts on it. What lists are filtered by stays in memory (see `columns`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from batchtrain.emulator.columns import Columns, TaskRow
from batchtrain.emulator.query import Condition, number
from batchtrain.emulator.records import Task, TaskFacts

BATCH = 256
"""Tasks that are read together."""
BY_ID = "id:"
"""How the token of a list begins that is sorted by ids; without it, it is a task's number."""

_decode = msgspec.msgpack.Decoder(Task).decode


class Archive(Protocol):
    """Where tasks are stored."""

    def tasks(self, job: int, seqs: Sequence[int]) -> Sequence[bytes]:
        """Tasks of a job by their ascending numbers, in the form of MessagePack."""


class Shelf:
    """The tasks of all jobs that are in memory, the one that was used longest ago first."""

    def __init__(self) -> None:
        self.archive: Archive | None = None
        """None if every task is in memory."""
        self.tasks: dict[int, Task] = {}

    def use(self, task: Task) -> None:
        self.tasks.pop(task.seq, None)
        self.tasks[task.seq] = task

    def read(self, job: int, seqs: Sequence[int]) -> Iterator[Task]:
        assert self.archive is not None, "a task is neither in memory nor stored"
        return map(_decode, self.archive.tasks(job, seqs))


class TaskTable:
    """The tasks of a job by id (in lower case), by number, and in order."""

    __slots__ = ("_changed", "_columns", "_here", "_job", "_seqs", "_shelf")

    def __init__(self, job: int, shelf: Shelf) -> None:
        self._job, self._shelf = job, shelf
        self._seqs: dict[str, int] = {}
        self._here: dict[int, Task] = {}
        self._changed: dict[int, Task] = {}
        """Tasks that differ from their columns."""
        self._columns = Columns()

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._seqs)

    def __contains__(self, key: str) -> bool:
        return key in self._seqs

    def __getitem__(self, key: str) -> Task:
        return self.at(self._seqs[key])

    def get(self, key: str) -> Task | None:
        seq = self._seqs.get(key)
        return None if seq is None else self.at(seq)

    def at(self, seq: int) -> Task:
        """A task by its number."""
        task = self._here.get(seq)
        if task is None:
            (task,) = self._shelf.read(self._job, (seq,))
            self._here[seq] = task
            self._shelf.use(task)
        return task

    def has(self, task: Task) -> bool:
        """Whether this is the task of its id, and not deleted."""
        return self._here.get(task.seq) is task

    @property
    def columns(self) -> Columns:
        for task in self._changed.values():
            self._columns.change(task)
        self._changed.clear()
        return self._columns

    def values(self) -> Iterator[Task]:
        """Every task, only to be read."""
        columns = self.columns
        return self.only(columns.seqs[at] for block in columns.after(0, None) for at in block)

    def listed(self, token: str, condition: Condition | None = None) -> Iterator[tuple[str, int, TaskRow]]:
        """The tasks that a filter accepts in the order of their ids, after the token of one: its token, its number, and
        the facts that the columns store. Raises Fault 400 for an unknown token."""
        columns = self.columns
        if columns.ascending:
            for block in columns.after(number(token), condition):
                for at in block:
                    yield str(columns.seqs[at]), columns.seqs[at], columns.row(at)
            return
        after = token.removeprefix(BY_ID)
        if token and after == token:  # the ids ascended when the page before was listed
            after = max((columns.ids[at] for at in range(bisect_right(columns.seqs, number(token)))), default="")
        for at in columns.by_id(after, condition):
            yield f"{BY_ID}{columns.ids[at]}", columns.seqs[at], columns.row(at)

    def only(self, seqs: Iterable[int]) -> Iterator[Task]:
        """Tasks by their numbers, only to be read."""
        numbers = iter(seqs)
        while some := list(islice(numbers, BATCH)):
            tasks = {seq: self._here[seq] for seq in some if seq in self._here}
            away = sorted(seq for seq in some if seq not in tasks)
            tasks.update(zip(away, self._shelf.read(self._job, away) if away else (), strict=True))
            yield from (tasks[seq] for seq in some)

    def add(self, task: TaskFacts) -> None:
        """A new task, or the facts of one that is only stored."""
        key = task.id.lower()
        self._seqs[task.id if task.id == key else key] = task.seq  # mostly one string can serve for both
        self._columns.add(task)
        if isinstance(task, Task):
            self._here[task.seq] = task
            self._shelf.use(task)

    def change(self, task: Task) -> None:
        self._changed[task.seq] = task
        self._shelf.use(task)

    def drop(self, task: Task) -> None:
        del self._seqs[task.id.lower()], self._here[task.seq]
        self._changed.pop(task.seq, None)
        self._shelf.tasks.pop(task.seq, None)
        self._columns.drop(task.seq)
        if len(self._columns.seqs) > max(64, 2 * len(self._seqs)):
            self._columns.compact()

    def let_go(self, task: Task) -> None:
        """Keep only what the columns know; the task must be stored."""
        if task.seq in self._changed:
            self._columns.change(self._changed.pop(task.seq))
        self._here.pop(task.seq, None)

    def clear(self) -> None:
        for seq in self._here:
            self._shelf.tasks.pop(seq, None)
        self._seqs, self._here, self._changed, self._columns = {}, {}, {}, Columns()
