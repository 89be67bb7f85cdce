"""Which ranks the others waited for when a collective operation timed out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from batchtrain.service.causes import PREFIX

_WAITED = re.compile(r"\[Rank (\d+)\] Watchdog caught collective operation timeout: Work\w+\(SeqNum=(\d+)")
"""PyTorch's watchdog on a rank that waits: the rank, and the number of the operation."""
_LAST_OPERATION = re.compile(
    r"Rank (\d+)\] Received a dump signal due to a collective timeout from +rank \d+ .*?Last enqueued \w+ work: (-?\d+)"
)
"""What every other rank answers to it, from PyTorch 2.3 on: the rank, and the number of its last operation."""
_GLOO = re.compile(r"gloo/.*[Tt]imed out")
"""PyTorch with gloo on a rank that waits; the prefix of the line has its number."""
_NAMED = re.compile(r"\bRanks? ([\d, ]*\d) failed to pass monitoredBarrier")
"""`monitored_barrier` of PyTorch with gloo names them itself."""
_STALLED, _STALLED_RANK = "Stalled ranks:", re.compile(r"^(\d+): \[")
"""Horovod names them on the lines after this one."""


def missing_ranks(lines: Iterable[str]) -> tuple[int, ...]:
    """The ranks that did not reach the operation on which others waited; none if the output does not tell it.

    lines: the output of all ranks, with the prefixes of the node launcher and of PyTorch.
    """
    operations: dict[int, int] = {}
    last_operations: dict[int, int] = {}
    names, ranks, faulty = set[int](), set[int](), set[int]()
    is_stalled = False
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        text, number = match["text"], match["rank"] or (match["label"] or "").rpartition(" ")[2]
        rank = int(number) if number.isdecimal() else None
        ranks |= {rank} if rank is not None else set()
        faulty |= {int(number)} if match["rank"] else set()  # PyTorch writes this prefix before errors
        if wait := _WAITED.search(text):
            operations.setdefault(int(wait[1]), int(wait[2]))
        elif last := _LAST_OPERATION.search(text):
            last_operations[int(last[1])] = int(last[2])
        elif naming := _NAMED.search(text):
            names |= {int(name) for name in re.findall(r"\d+", naming[1])}
        elif _GLOO.search(text) and rank is not None:
            operations.setdefault(rank, 0)
        elif is_stalled and (stall := _STALLED_RANK.match(text)):
            names.add(int(stall[1]))
            continue
        is_stalled = _STALLED in text
    if names or not operations:
        return tuple(sorted(names))
    behind = {
        rank for rank, number in last_operations.items() if number < min(operations.values()) and rank not in operations
    }
    silent = {*range(max({*operations, *ranks}) + 1)} - {*operations, *last_operations, *faulty}
    return tuple(sorted(behind or silent))
