"""Promises in seconds, kept on machines that others use as well."""

from __future__ import annotations

from collections.abc import Callable


def soonest(bound: float, attempt: Callable[[], float]) -> float:
    """The least that up to three attempts took, in seconds; none is made after one below the bound.

    A busy machine may hold up one. What takes too long by itself does so every time.
    """
    least = attempt()
    for _ in range(2):
        if least >= bound:
            least = min(least, attempt())
    return least
