"""Tables on a terminal: as wide as the terminal, never broken inside a word. `-o json` has every column."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from batchtrain.cli.messages import completed
from batchtrain.markup import TONES, Tone
from batchtrain.records import cells, columns

GAP = 2
LONG = 24
"""Wider columns may be wrapped between words."""
STYLES: dict[Tone, str] = {"bad": "red", "warn": "yellow"}
"""The styles of states that are not as they should be."""
SAYS_NOTHING = frozenset({"", "0", "0.00", "no"})
LEAST = (
    "source", "reads", "after", "series", "node_agent", "memory_gib", "requeues", "retries", "vm_size", "created",
    "started",
    "ended", "allocated", "target_spot", "target_dedicated", "allocation", "start_task", "seconds", "node_hours",
)  # fmt: skip
"""The columns that a list omits if there is no room: those with one value in all rows first, then in this order."""


class Column(NamedTuple):
    """A column with its width, and the width of its longest word."""

    name: str
    values: tuple[str, ...]
    width: int
    least: int

    @property
    def head(self) -> str:
        return self.name.replace("_", " ")

    @property
    def texts(self) -> list[Text]:
        """The values, states in their styles."""
        tones = [TONES.get(value) if self.name == "state" else None for value in self.values]
        return [
            Text(value, STYLES.get(tone, "") if tone else "") for value, tone in zip(self.values, tones, strict=True)
        ]


def printed(rows: Sequence[Any]) -> None:
    """Print rows as a table if it fits the terminal, otherwise each row as lines of a name and a value."""
    console = Console(highlight=False, soft_wrap=False)
    texts = [map(completed, cells(row)) for row in rows]
    by_column = zip(columns(rows), zip(*texts, strict=True), strict=True)
    every = [_column(name, values) for name, values in by_column if any(values)]
    fitting = _fitting(every, console.width, alone=len(rows) == 1)
    if not fitting:
        _stack(console, every)
        return
    heads = (RichColumn(column.head, width=column.width, overflow="fold") for column in fitting)
    table = RichTable(*heads, box=None, header_style="bold", padding=(0, GAP, 0, 0))
    for values in zip(*(column.texts for column in fitting), strict=True):
        table.add_row(*values)
    console.print(table)
    left_out = [column.head for column in every if column.name not in {fit.name for fit in fitting} and _speaks(column)]
    if left_out:
        console.print(Text(f"columns that do not fit: {', '.join(left_out)} (-o json has everything)", style="dim"))


def _column(name: str, values: Sequence[str]) -> Column:
    head = name.replace("_", " ")
    width = max(cell_len(text) for text in (name, *values))
    words = [word for text in values for word in text.split()]
    longest = max((cell_len(word) for word in (*head.split(), *words)), default=0)
    wraps = max(map(cell_len, values)) > LONG
    return Column(name, tuple(values), width, longest if wraps else max(longest, *map(cell_len, values)))


def _speaks(column: Column) -> bool:
    return not SAYS_NOTHING.issuperset(column.values)


def _fitting(every: list[Column], room: int, *, alone: bool) -> list[Column]:
    """The columns that fit, with their widths; empty if the rows must be stacked."""
    for fitting in (every, [column for column in every if _speaks(column)]):
        if _needs(column.width for column in fitting) <= room:
            return fitting
    if alone:
        return []
    constant = {column.name for column in every if len(set(column.values)) == 1}
    for name in ("", *sorted(LEAST, key=lambda name: name not in constant)):
        fitting = [column for column in fitting if column.name != name]
        if _needs(column.least for column in fitting) <= room:
            return _narrowed(fitting, room)
    return []


def _needs(widths: Iterable[int]) -> int:
    return sum(width + GAP for width in widths)


def _narrowed(columns: list[Column], room: int) -> list[Column]:
    """Shrinks the widest columns until all fit."""
    columns = list(columns)
    while (over := _needs(column.width for column in columns) - room) > 0:
        index = max(range(len(columns)), key=lambda index: columns[index].width - columns[index].least)
        column = columns[index]
        columns[index] = column._replace(width=max(column.least, column.width - over))
    return columns


def _stack(console: Console, every: list[Column]) -> None:
    """Each row as lines of a name and a value; empty values are omitted."""
    spoken = [column for column in every if _speaks(column)]
    indent = max(len(column.head) for column in spoken) + GAP
    for row in range(len(spoken[0].values)):
        if row:
            console.print()
        for column in spoken:
            value = column.values[row]
            if value in SAYS_NOTHING:
                continue
            if max(map(cell_len, value.split()), default=0) > console.width - indent:
                console.print(Text(column.head, style="bold"))
                head, margin = "", GAP
            else:
                head, margin = column.head, indent
            lines = textwrap.wrap(value, console.width - margin, break_long_words=False, break_on_hyphens=False)
            for number, line in enumerate(lines):
                heading = (head if number == 0 else "").ljust(margin)
                console.print(Text.assemble((heading, "bold"), (line, column.texts[row].style)), soft_wrap=True)
