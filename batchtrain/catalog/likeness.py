"""The distance of two names, to find the intended name for a misspelt one."""

from __future__ import annotations


def mistakes(name: str, other: str) -> int:
    """The number of letters omitted, added, replaced or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(name, 1):
        earlier, before, row = before, row, [i]
        for j, other_letter in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and name[i - 2] == other_letter:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]
