"""How a process of a gang ended, as the launch engines record it on the primary's node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from batchtrain.records.record import Time

ENDS = "wd/ranks/ends.jsonl"
"""How the processes of a failed gang ended, in the directory of its task: a JSON object on each line, the cause first,
then the other failures, then the processes that exited with code 0 before, then those that the launcher ended."""
STALLED, ENDED_EARLY = "stalled", "ended-early"
"""Causes of ends: the gang stood still; a process exited with code 0 while others ran."""


class ProgramError(msgspec.Struct, frozen=True):
    """What a program under torchelastic's `record` wrote about its exception."""

    file: str = ""
    message: str = ""
    time: Time | None = None


class RankEnd(msgspec.Struct, frozen=True):
    """A line of ends.jsonl. Nothing is set if nothing is known, as for a task without a gang."""

    process: str = ""
    """Its name, such as `rank 3` or `scheduler 0`; empty for a failure of the whole gang, such as a lost node."""
    rank: int | None = None
    node: str = ""
    address: str = ""
    exit_code: int | None = None
    signal: int | None = None
    signal_name: str = ""
    time: Time | None = None
    attempt: int = 1
    """How often the task has begun on the primary's node. A start on another node begins with 1 again."""
    ending: str = ""
    """How it ended in words, if its code does not tell all of it."""
    full_memory: str = ""
    """Which memory was full when the kernel killed it: `cgroup` (the limit of its container) or `node`."""
    cause: str = ""
    """A name for what happened, as far as there is one: `stalled`, `singletons`, `ended-early`."""
    calls: tuple[str, ...] = ()
    """What the main thread of a Python process that stalled did: the last call first, such as `load (train.py:28)`."""
    by_launcher: bool = False
    """Whether the launcher ended it because another process had failed."""
    error: ProgramError = ProgramError()
    lines: tuple[str, ...] = ()
    """What it printed last; only of the cause."""
    early: RankEnd | None = None
    """The first process that had exited with code 0 before this one failed; readers of all ends set it."""

    @property
    def words(self) -> str:
        """How it ended, such as `exited with code 7`."""
        if self.by_launcher:
            return f"ended by the launcher ({self.signal_name or f'code {self.exit_code}'})"
        code = f"was killed by signal {self.signal}" if self.signal else f"exited with code {self.exit_code}"
        return self.ending or code


def first_failure(ends: Sequence[RankEnd]) -> RankEnd:
    """The end of the process that failed first; nothing is set if nothing is known."""
    early = next((end for end in ends if end.cause == ENDED_EARLY), None)
    return replace(ends[0], early=early) if ends else RankEnd()


def by_rank(ends: Iterable[RankEnd]) -> dict[int, RankEnd]:
    """How the ranks of a gang ended, by rank; the first end of each counts."""
    first = dict[int, RankEnd]()
    for end in ends:
        if end.rank is not None:
            first.setdefault(end.rank, end)
    return first
