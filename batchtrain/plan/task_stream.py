"""The tasks of a job with more than fit into one request: counted by arithmetic, made one by one when they are sent."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from batchtrain.errors import PlanError
from batchtrain.plan.wire import Fill, TaskCreate, Template, filled_pieces, pieces
from batchtrain.plan.wire.later import Piece

COLLECTION_TASKS = 100
COLLECTION_BYTES = 900_000
"""The most of one request with tasks; the service takes 1 MB."""
SHOWN = 5
"""Factories of which a plan shows tasks."""


class TaskDocument(NamedTuple):
    """The JSON document of one task."""

    id: str
    body: bytes
    """As a plan shows it: each placeholder as `{{kind:name}}`."""
    open: tuple[Piece, ...] = ()
    """The body around its placeholders; empty without any, and then the body is sent as it is."""

    @property
    def placeholders(self) -> bool:
        """Whether the body has placeholders."""
        return bool(self.open)

    @property
    def templates(self) -> dict[str, Template]:
        """Every text with placeholders, by the text that is shown."""
        return {str(part): part for part in self.open if isinstance(part, Template)}

    def filled(self, fill: Fill) -> bytes:
        """The body as it is sent, with every placeholder filled."""
        return filled_pieces(self.open, fill) if self.open else self.body


class Tasks(Protocol):
    """Some of the tasks of a stream, such as those of one factory."""

    @property
    def count(self) -> int | None:
        """How many; None if only the end of `documents` tells it."""

    @property
    def first(self) -> TaskDocument: ...
    @property
    def last(self) -> TaskDocument | None:
        """None if the count is None."""

    @property
    def largest(self) -> int | None:
        """The bytes that no body exceeds; None if the count is None."""

    @property
    def rule(self) -> str | None:
        """A text that determines, with the first and the last task, all of them; None if only `documents` tells."""

    @property
    def numbered(self) -> bool:
        """Whether a rule gives the ids, so that none can repeat."""

    def repeated(self, number: int, task_id: str) -> PlanError:
        """The error for a task with the id of an earlier one."""

    def documents(self) -> Iterator[TaskDocument]: ...


class TaskStream(msgspec.Struct, frozen=True):
    """The body of a step `task.add`. Nothing is expanded until `documents` is iterated."""

    parts: tuple[Tasks, ...]

    @property
    def count(self) -> int | None:
        """The number of tasks; None if only the end of `documents` tells it."""
        counts = [part.count for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def first(self) -> TaskDocument:
        return self.parts[0].first

    @property
    def last(self) -> TaskDocument | None:
        """None if it is not known before `documents` ends."""
        return self.parts[-1].last

    @property
    def largest(self) -> int | None:
        """The bytes that no body exceeds; None if they are not known before `documents` ends."""
        sizes = [part.largest for part in self.parts]
        return None if None in sizes else max(size for size in sizes if size is not None)

    @property
    def ruled(self) -> bool:
        """Whether `rules` determines all tasks."""
        return all(part.rule is not None for part in self.parts)

    def documents(self) -> Iterator[TaskDocument]:
        """Every task in order, each time the same unless the user's own function yields others.

        Raises PlanError for a repeated id, and UsageError if the user's function fails.
        """
        ids = _Seen()
        for part in self.parts:
            if part.numbered:
                yield from part.documents()
                continue
            for number, task in enumerate(part.documents()):
                if not ids.add(task.id.lower()):
                    raise part.repeated(number, task.id)
                yield task

    def shown(self) -> dict[str, Any]:
        """What a plan shows in place of all tasks: their number, the largest body, and the first and the last task of
        each factory."""
        return self._described((*self.parts[: SHOWN - 1], self.parts[-1]))

    def rules(self) -> dict[str, Any]:
        """What is known about all tasks without `documents`."""
        return {**self._described(self.parts), "rules": [part.rule for part in self.parts]}

    def _described(self, parts: Sequence[Tasks]) -> dict[str, Any]:
        ends = {task.id: task.body for part in parts for task in (part.first, part.last) if task}
        return {
            "count": self.count,
            "largest": self.largest,
            "tasks": [msgspec.json.decode(body) for body in ends.values()],
        }


class ListedTasks(msgspec.Struct, frozen=True):
    """Tasks that are written one by one in the configuration."""

    bodies: Sequence[TaskCreate]

    @property
    def count(self) -> int:
        return len(self.bodies)

    @property
    def first(self) -> TaskDocument:
        return document(self.bodies[0])

    @property
    def last(self) -> TaskDocument:
        return document(self.bodies[-1])

    @property
    def largest(self) -> int:
        return max(len(each.body) for each in self.documents())

    @property
    def rule(self) -> str | None:
        """More than two tasks are not all shown."""
        return "" if len(self.bodies) <= 2 else None

    @property
    def numbered(self) -> bool:
        return False

    def repeated(self, number: int, task_id: str) -> PlanError:
        return PlanError(f"the id `{task_id}` is that of two tasks; the service ignores the case of ids")

    def documents(self) -> Iterator[TaskDocument]:
        return map(document, self.bodies)


def document(body: TaskCreate) -> TaskDocument:
    """The document of a planned task."""
    text, around = pieces(body)
    return TaskDocument(body.id, text, around)


class _Seen:
    """Texts that were seen, by hashes of 64 bits: 16 bytes a text. Two of a million texts share one with a chance of 1
    in 10^7."""

    def __init__(self) -> None:
        self._hashes, self._used = array("q", bytes(8 * 1024)), 0

    def add(self, text: str) -> bool:
        """Adds a text. Returns whether it is new."""
        if self._used * 2 > len(self._hashes):
            self._grow()
        new = self._put(hash(text) or 1)
        self._used += new
        return new

    def _put(self, value: int) -> bool:
        hashes = self._hashes
        mask = len(hashes) - 1
        slot = value & mask
        while hashes[slot]:
            if hashes[slot] == value:
                return False
            slot = (slot + 1) & mask
        hashes[slot] = value
        return True

    def _grow(self) -> None:
        old, self._hashes = self._hashes, array("q", bytes(8 * 4 * len(self._hashes)))
        for value in old:
            if value:
                self._put(value)
