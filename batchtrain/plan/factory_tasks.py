"""The tasks of one factory as JSON documents: one body is planned and cut where its values are, each task fills it.

A row whose values may change more than these texts, such as a quote in a command, is planned as any other task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from batchtrain.config import factories, ids
from batchtrain.config.factories import FORMAT_ERRORS, Row
from batchtrain.config.types import Task
from batchtrain.errors import PlanError
from batchtrain.plan.factory import Made
from batchtrain.plan.task_stream import TaskDocument, document
from batchtrain.plan.types import Built
from batchtrain.plan.wire import Placeholder, Template, VaultSettings, pieces

Build = Callable[[Task, str], Built]
"""Plans one task with its id."""


class FactoryTasks:
    """The tasks of one factory, for a stream."""

    def __init__(self, expansion: Made, span: ids.Span | None, build: Build) -> None:
        """span: the ids; None if the values make them."""
        self._made, self._span, self._build = expansion, span, build

    @property
    def count(self) -> int | None:
        return self._made.size

    @cached_property
    def built(self) -> Built:
        """The first task, planned."""
        return self._planned(next(iter(self._made.rows())), 0)

    @cached_property
    def last_built(self) -> Built | None:
        """The last task, planned; None if only the end of the rows tells it."""
        row = self._made.last()
        return None if row is None else self._planned(row, (self.count or 1) - 1)

    @cached_property
    def first(self) -> TaskDocument:
        return document(self.built.body)

    @property
    def last(self) -> TaskDocument | None:
        return document(self.last_built.body) if self.last_built else None

    @cached_property
    def largest(self) -> int | None:
        """The body with the longest value in each place; no task may have all of them. None for rows that only reading
        tells, also if they were counted."""
        if self.count is None or self._made.last() is None:
            return None
        row = tuple(max(column, key=lambda value: len(str(value))) for column in self._made.columns)
        return len(document(self._planned(row, self.count - 1).body).body)

    @property
    def rule(self) -> str | None:
        """The factory, unless its values come from files or from a function."""
        factory = self._made.spot.factory
        return None if factory.file is not None or factory.custom is not None else repr(factory)

    def documents(self) -> Iterator[TaskDocument]:
        """Raises PlanError for values that do not fit."""
        names = self._span.ids() if self._span else None
        cut = self._cut

        def made(row: Row) -> TaskDocument | tuple[Task, str]:
            task_id = next(names) if names else ""
            quick = cut.filled(row, task_id) if cut else None
            return quick or (self._made.task(row), task_id)

        for item in self._made.each(made):
            yield item if isinstance(item, TaskDocument) else self._document(*item)

    @property
    def numbered(self) -> bool:
        return self._span is not None

    def repeated(self, number: int, task_id: str) -> PlanError:
        return self._made.repeated(number, task_id)

    def _planned(self, row: Row, index: int) -> Built:
        [task] = self._made._replace(rows=lambda: (row,)).tasks()
        return self._build(task, self._span.id(index) if self._span else str(task.id))

    def _document(self, task: Task, task_id: str) -> TaskDocument:
        return document(self._build(task, task_id or str(task.id)).body)

    @cached_property
    def _cut(self) -> _Cut | None:
        """None if the values of this factory change more than texts of the body."""
        row = next(iter(self._made.rows()))
        try:
            cut = _cut(self._made, row, self._build, with_id=self._span is not None)
        except (_NotPlain, PlanError, *FORMAT_ERRORS):
            return None
        return cut if cut and cut.filled(row, self.first.id) in (None, self.first) else None


ID = "#id"
PLAIN = re.compile(r"[A-Za-z0-9_.,:/+@%-]+")
"""Values that are the same in JSON, and mean nothing to a shell."""
NAME = re.compile(r"[A-Za-z0-9_-]+")
"""The same for the path of an output, in which a point makes a file of a directory."""
_SPEC = re.compile(r"(0\d+)?[,_]?(\.\d+)?[bdeEfFgGnoxX%]?")
"""Formats that add no space."""


class _NotPlain(Exception):
    """A value is used in another way than as text."""


class _Field:
    """Stands for a value while the body is planned; every use of it becomes a mark."""

    def __init__(self, name: str, mark: str, uses: list[str]) -> None:
        self._name, self._mark, self._uses = name, mark, uses

    def __format__(self, spec: str) -> str:
        if not _SPEC.fullmatch(spec) or self._mark in spec:
            raise _NotPlain
        use = f"{{{self._name}:{spec}}}" if spec else f"{{{self._name}}}"
        if use not in self._uses:
            self._uses.append(use)
        return f"{self._mark}{self._uses.index(use)}z"

    def __str__(self) -> str:
        raise _NotPlain

    __repr__ = __str__


class _Part(msgspec.Struct, frozen=True):
    """A placeholder of which the values are a part, such as the link to a file of its own."""

    parts: tuple[str | tuple[str, str], ...]

    def filled(self, row: Row, words: Mapping[str, Any]) -> Template:
        return Template(
            *(
                part.format(*row, **words)
                if isinstance(part, str)
                else Placeholder(part[0], part[1].format(*row, **words))
                for part in self.parts
            )
        )


class _Cut(msgspec.Struct, frozen=True):
    """A body as a text for `str.format`."""

    made: Made
    whole: str
    open: tuple[str | _Part | Template | VaultSettings, ...]
    """The same around its placeholders; empty without any."""
    id: str
    """The text of an id that the values make; empty for others."""
    plain: re.Pattern[str]
    """What a text among the values is made of."""
    names: tuple[str, ...]
    """The parameters that are recorded with the task."""
    used: frozenset[str]
    """The words that the body uses."""

    def filled(self, row: Row, task_id: str) -> TaskDocument | None:
        """The document of a row; None if it must be planned as any other task."""
        args, words = self.made.arguments(row)
        if not all(map(self._fits, args)) or not all(self._fits(words[name]) for name in self.used):
            return None
        filling = {**words, **{f"#{name}": _recorded(words[name]) for name in self.names}}
        filling[ID] = task_id = self.made.id_of(self.id.format(*args, **words)) if self.id else task_id
        body = self.whole.format(*args, **filling).encode()
        return TaskDocument(task_id, body, tuple(_filled(part, args, filling) for part in self.open))

    def _fits(self, value: Any) -> bool:
        if isinstance(value, str):
            return self.plain.fullmatch(value) is not None
        return type(value) is int or (type(value) is float and self.plain is PLAIN)


def _filled(part: str | _Part | Template | VaultSettings, row: Row, words: Mapping[str, Any]) -> Any:
    if isinstance(part, str):
        return part.format(*row, **words).encode()
    return part.filled(row, words) if isinstance(part, _Part) else part


@lru_cache(4096)
def _recorded(value: Any) -> str:
    """A plain value as JSON inside a text of JSON."""
    return factories.as_json(value).replace('"', '\\"')


def _cut(expansion: Made, row: Row, build: Build, *, with_id: bool) -> _Cut | None:
    """Plan the task with a mark for each value, and cut its document there."""
    spot, (values, words) = expansion.spot, expansion.arguments(row)
    mark = "zq"
    while mark in repr(spot.task):
        mark += "q"
    uses = [f"{{{ID}}}"]
    fields = {name: _Field(name, mark, uses) for name in words}
    texts = {id(field): format(_Field(f"#{name}", mark, uses)) for name, field in fields.items()}
    task = expansion.filled(
        tuple(_Field(str(index), mark, uses) for index in range(len(values))), fields, lambda field: texts[id(field)]
    )
    first = (task.command or "").split(maxsplit=1)[:1]
    plain, around = pieces(build(task, f"{mark}0z").body)
    task_marks = set(re.findall(rf"{mark}\d+z", repr(task)))  # a body without one of them has it in another form
    paths = any("{" in (output.local_path or "") for output in spot.task.output_data.azure_storage)
    if (
        mark in "".join(first)
        or (paths and any(":" in use for use in uses))
        or any(text.encode() not in plain for text in task_marks)
    ):
        return None
    whole = _format(plain.decode(), mark, uses)
    words_in_use = {use.strip("{}").partition(":")[0] for use in uses} & words.keys()
    return _Cut(
        expansion,
        whole,
        tuple(_part(piece, mark, uses) for piece in around),
        "" if with_id else spot.task.id or "",
        NAME if paths else PLAIN,
        tuple(name for name in words if f"{{#{name}}}" in whole),
        frozenset(words if factories.names(spot.factory) else words_in_use),
    )


def _format(text: str, mark: str, uses: list[str]) -> str:
    parts = re.split(rf"{mark}(\d+)z", text)
    return "".join(
        uses[int(part)] if number % 2 else part.replace("{", "{{").replace("}", "}}")
        for number, part in enumerate(parts)
    )


def _part(
    piece: bytes | Template | VaultSettings, mark: str, uses: list[str]
) -> str | _Part | Template | VaultSettings:
    if isinstance(piece, bytes):
        return _format(piece.decode(), mark, uses)
    if isinstance(piece, VaultSettings) or mark not in str(piece):
        if isinstance(piece, VaultSettings) and mark in msgspec.json.encode(piece.settings, enc_hook=str).decode():
            raise _NotPlain
        return piece
    return _Part(
        tuple(
            (part.kind, _format(part.name, mark, uses)) if isinstance(part, Placeholder) else _format(part, mark, uses)
            for part in piece.parts
        )
    )
