"""Waits for what no event tells a test of. How long it takes is never part of a claim."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
GUARD = 600.0
"""Seconds until a test that hangs gives up: far more than anything correct takes on a busy machine."""


async def reached(holds: Callable[[], object], *, pause: float = 0.001) -> None:
    """`until` in a coroutine, which the limit of its test ends. Without a pause, the loop takes a step at a time."""
    while not holds():
        await asyncio.sleep(pause)


def until(holds: Callable[[], Found], *, pause: float = 0.01) -> Found:
    """What `holds` returns as soon as it is true."""
    end = time.monotonic() + GUARD
    while not (found := holds()):
        assert time.monotonic() < end, f"it did not come true in {GUARD:.0f} s"
        time.sleep(pause)
    return found
