"""Promises in seconds, kept on machines that others use as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable


def soonest(bound: float, attempt: Callable[[], float]) -> float:
    """The least that up to three attempts took, in seconds; none is made after one below the bound.

    A busy machine may hold up one. What takes too long by itself does so every time; what does by chance may pass, so
    that a second attempt is said among pytest's warnings.
    """
    least = attempt()
    for _ in range(2):
        if least >= bound:
            with warnings.catch_warnings():
                warnings.simplefilter("default")  # pytest makes errors of them otherwise
                warnings.warn(f"it took {least:.2f} s, and {bound} s are promised", stacklevel=2)
            least = min(least, attempt())
    return least
