"""How the lines of one program are read."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

from batchtrain.metrics.point import finite
from batchtrain.records import Point

NUMBER = (
    r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|NaN|inf|Infinity)"
)
"""A number as programs print it; finite() reads it.

A pattern that is searched for anywhere in a line must not begin within a number or a word, by a look behind it: else a
line of 64 KiB of digits takes minutes.
"""


class Source(NamedTuple):
    """What the earlier lines of one rank say about the next: its epoch, and the table that it prints."""

    epoch: int | None = None
    steps: int = 0
    """How many steps the epoch has, if it is one of Keras."""
    table: str = ""
    """The name of the table whose rows follow."""
    columns: tuple[str, ...] = ()
    """The names of its columns."""
    label: str = ""
    """The name of the last row that had one: the rows below it belong to it."""


Read = Callable[["re.Match[str]", Source], Point | None]


class Program:
    """How to read the lines of one program."""

    def __init__(self, name: str, needle: str, expression: str, read: Read) -> None:
        """needle: a text that each of these lines contains; searching for it is faster than the pattern."""
        self.name, self.needle, self._expression, self.read = name, needle, expression, read

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of a line. Compiled at its first use: a run needs few of them."""
        return re.compile(self._expression)


class Table(NamedTuple):
    """A program that prints a header and then rows."""

    name: str
    header: Callable[[Source, str], Source | None]
    """The state after a line of a header, or after a row that names the rows below it; None for another line."""
    row: Callable[[Source, str], Point | None]
    """The values of a row; None for another line."""


def one(name: str) -> Read:
    """Reads the first group as a metric."""
    return lambda match, source: Point({name: finite(match[1])})


def plain(name: str) -> str:
    """A name in lower case, without spaces."""
    return name.lower().replace("@", "").replace(" ", "_")


def pairs(text: str, form: str = r"([A-Za-z_][\w./-]*)(?:=|: )") -> dict[str, float | None]:
    """The names and numbers in a text. form: a pattern of a name and what follows it."""
    return {plain(name): finite(value) for name, value in re.findall(rf"(?<![\w./-]){form}({NUMBER})(?![\w.])", text)}
