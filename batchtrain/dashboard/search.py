"""Finds a text in a file of any size, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from batchtrain.dashboard.output import Read
from batchtrain.errors import UsageError
from batchtrain.metrics.extract import split

BLOCK = 8 << 20
LONGEST = 1000
"""Characters of the text."""
LONGEST_LINE = 1 << 16
"""Bytes of a line that are kept until its end comes; of a longer one, what was read is searched before."""
PREFIX = 200
"""Bytes of a line that name its rank."""
ROWS = 1000
"""Positions in one answer."""


def matches(size: int, read: Read, text: str, *, rank: int | None = None, skip: int = 0) -> dict[str, Any]:
    """The number of matches, and the positions of their lines from the one with the number `skip` on. Letters match in
    either case if they are ASCII. rank: only in lines of this rank."""
    needle = text.encode()[: LONGEST * 4].lower()
    if "\n" in text:
        raise UsageError("`find` is a text within one line")
    count, lines = 0, list[int]()
    for line in _lines(size, read, needle, rank) if needle else ():
        if skip <= count < skip + ROWS:
            lines.append(line)
        count += 1
    return {"size": size, "matches": count, "skip": skip, "lines": lines}


def _lines(size: int, read: Read, needle: bytes, rank: int | None) -> Iterator[int]:
    """The position of the line of each match."""
    before, at = b"", 0
    while at < size and (block := read(at, min(at + BLOCK, size))):
        content = before + block
        first, lower = at - len(before), content.lower()
        at += len(block)
        end = 0
        last = cut = content.rfind(b"\n") + 1 if at < size else len(content)
        if len(content) - cut > LONGEST_LINE:
            last, cut = len(content), len(content) - len(needle) + 1
        while (hit := lower.find(needle, end, last)) >= 0:
            end = hit + len(needle)
            begin = content.rfind(b"\n", 0, hit) + 1
            if rank is None or split(content[begin : begin + PREFIX].decode("utf-8", "replace"))[0] == rank:
                yield first + begin
        before = content[max(cut, end) :]
