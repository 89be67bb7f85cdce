"""Rows as text, as HTML in a notebook, and as documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any, Generic, TypeVar

from batchtrain import markup
from batchtrain.errors import printable, shortened
from batchtrain.records.failure import Failure

Row = TypeVar("Row")
MOST_ROWS = 100
"""Rows of a table that a notebook shows."""
DECIMALS = {"seconds": 1, "node_hours": 2}
"""The decimals of a column, by its name: of values below 1 two digits. Others have the digits that they need."""


class Table(tuple[Row, ...], Generic[Row]):
    """Rows of one kind: a tuple that prints as text and displays as HTML in a notebook; both show MOST_ROWS rows."""

    in_words: Callable[[Iterable[Row]], Iterable[Row]] = staticmethod(iter)
    """What is shown of the rows."""

    def _repr_html_(self) -> str:
        if not self:
            return "<i>nothing</i>"
        more = f"<i>and {len(self) - MOST_ROWS:,} more rows</i>" if len(self) > MOST_ROWS else ""
        return markup.table(columns(self), map(cells, self.in_words(self[:MOST_ROWS]))) + more

    def __str__(self) -> str:
        if not self:
            return "nothing"
        more = [f"… and {len(self) - MOST_ROWS:,} more rows"] if len(self) > MOST_ROWS else []
        return "\n".join([*aligned(list(self.in_words(self[:MOST_ROWS])), []), *more])

    __repr__ = __str__


def row_card(kind: str, row: Any) -> str:
    """One row in a frame: its id and state, and each other field that has a value."""
    filled = {name: cell for name, cell in zip(columns([row]), cells(row), strict=True) if cell}
    title, state = f"{kind} {filled.pop('id', '')}", filled.pop("state", "")
    return markup.card(markup.head(title, state), markup.table((), filled.items()))


def aligned(rows: Sequence[Any], widths: list[int], *, head: bool = True) -> list[str]:
    """The lines of a table. widths: those of the rows before; they grow to those of these rows."""
    lines = [cells(row) for row in rows]
    named = [columns(rows), *lines]
    widths[:] = [
        max(width, *(len(line[index]) for line in named)) for index, width in enumerate(widths or [0] * len(named[0]))
    ]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (named if head else lines)
    ]


def columns(rows: Iterable[Any]) -> tuple[str, ...]:
    """The names of the rows' columns."""
    return tuple(map(printable, _names(next(iter(rows)))))


def cells(row: Any) -> tuple[str, ...]:
    """A row's values as text in one line that does not control a terminal: a file name may have any character."""
    values = row.items() if isinstance(row, dict) else ((name, getattr(row, name)) for name in _names(row))
    return tuple(printable(_cell(value, DECIMALS.get(name))) for name, value in values)


def shown(row: Any, names: Iterable[str] = ()) -> dict[str, Any]:
    """The values of a row by name. A failure is its text. names: by default those of its columns."""
    return {name: _text_of_failures(getattr(row, name)) for name in names or _names(row)}


def _names(row: Any) -> Iterable[str]:
    if isinstance(row, dict):
        return row
    names: tuple[str, ...] = row.columns or row.__struct_fields__ if hasattr(row, "columns") else row._fields
    return names


def _text_of_failures(value: Any) -> Any:
    if isinstance(value, Failure):
        return str(value)
    return tuple(map(_text_of_failures, value)) if type(value) is tuple else value


def _cell(value: Any, decimals: int | None) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, float):
        exact = markup.short(value) if value != round(value, 2) else f"{value:.2f}"
        return exact if decimals is None else f"{value:.{decimals}f}" if value >= 1 else f"{value:.2g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%SZ}"
    if isinstance(value, tuple):
        return shortened("; ".join(str(item) for item in value))
    return shortened(str(value))
