"""Tables of rules, and the one loop of every command that acts by them: look, decide, act. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec

Seen = TypeVar("Seen")
Act = TypeVar("Act", bound=str)


class Row(msgspec.Struct, Generic[Seen, Act], frozen=True):
    """What is done, and when."""

    name: str
    when: str
    """When it applies, in words."""
    applies: Callable[[Seen], object]
    act: Act
    does: str
    """The same in words."""


def first(rows: Iterable[Row[Seen, Act]], seen: Seen) -> Row[Seen, Act] | None:
    """The first row that applies; None if there is nothing to do."""
    return next((row for row in rows if row.applies(seen)), None)


def drive(
    look: Callable[[], Seen],
    decide: Callable[[Seen], Row[Seen, Act] | None],
    act: Callable[[Act, Seen], None],
) -> None:
    """Look, do what was decided, and look again, until there is nothing to do."""
    while (row := decide(seen := look())) is not None:
        act(row.act, seen)
