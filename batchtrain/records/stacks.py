"""What the Python processes of a gang do at a moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from batchtrain.errors import counted
from batchtrain.records.record import Record

STACKS = "wd/ranks/stacks.jsonl"
"""The file that the launcher writes on the primary when it stops a gang that stands still."""


class Stack(Record, frozen=True):
    """A process, and the calls of its threads: the last call and the main thread first."""

    columns: ClassVar[tuple[str, ...]] = ("rank", "node", "pid", "threads")

    rank: str
    """As the launcher names it; several processes may belong to a rank."""
    pid: int
    program: str = ""
    threads: tuple[tuple[str, ...], ...] = ()
    node: str = ""

    @property
    def calls(self) -> tuple[str, ...]:
        """Those of its main thread."""
        return self.threads[0] if self.threads else ()


class Alike(NamedTuple):
    """Processes whose main threads stand at the same place."""

    ranks: tuple[str, ...]
    calls: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{named(self.ranks)}:", *(f"  {call}" for call in self.calls)])


def alike(stacks: Iterable[Stack]) -> list[Alike]:
    """The processes by the calls of their main threads; those that differ from most first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for stack in stacks:
        groups.setdefault(stack.calls, []).append(stack.rank)
    by_size = sorted(groups.items(), key=lambda group: len(group[1]))
    return [Alike(tuple(dict.fromkeys(sorted(ranks, key=_order))), calls) for calls, ranks in by_size]


def in_words(stacks: Iterable[Stack]) -> str:
    """The groups, or why there are none."""
    return "\n".join(map(str, alike(stacks))) or (
        "no Python process of the task can be read: install py-spy in its environment; only the ranks of a gang need"
        " none, unless their Python starts with -E, -I or -S"
    )


def named(ranks: tuple[str, ...]) -> str:
    """The ranks of a group in words."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    few = ", ".join(ranks[:MOST_NAMED])
    return f"{counted(len(ranks), 'rank')} ({few}{', …' if len(ranks) > MOST_NAMED else ''})"


MOST_NAMED = 16


def _order(rank: str) -> tuple[int, str]:
    return (int(rank) if rank.isdecimal() else 1 << 30, rank)
