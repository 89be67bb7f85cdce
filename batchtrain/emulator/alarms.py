"""Waits for moments of the account's clock.

A future is done when the clock reaches its moment, however the clock is changed meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from batchtrain.emulator import wire
from batchtrain.emulator.clock import Clock

LONGEST = 3600.0
"""The longest sleep in seconds: an event loop's own clock need not handle longer ones."""


class Alarms:
    """All futures that wait for a moment of one clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self.notify: Callable[[], None] = lambda: None
        """Called when a future is added."""

    @property
    def next(self) -> int | None:
        """The earliest moment that a future waits for."""
        while self._heap and self._heap[0][2].done():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @property
    def waiting(self) -> int:
        """The number of waiting futures."""
        return sum(not future.done() for _, _, future in self._heap)

    def at(self, moment: int) -> asyncio.Future[None]:
        """A future that is done when the clock shows `moment`. The caller may cancel it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (moment, next(self._numbers), future))
        self.look()
        self.notify()
        return future

    async def sleep(self, seconds: float) -> None:
        """Wait for seconds of the account's clock."""
        await self.at(self.clock() + int(seconds * wire.SECOND))

    def look(self) -> None:
        """Complete all futures whose moment has come, and schedule the next check; also after changes of the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self.clock()
        while (moment := self.next) is not None and moment <= now:
            heapq.heappop(self._heap)[2].set_result(None)
        if moment is not None and (seconds := self.clock.seconds_to(moment)) is not None:
            self._timer = asyncio.get_running_loop().call_later(min(seconds, LONGEST), self.look)

    def close(self) -> None:
        """Cancel all futures."""
        if self._timer is not None:
            self._timer.cancel()
        for _, _, future in self._heap:
            future.cancel()
        self._heap = []
