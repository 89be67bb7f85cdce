"""How often the account may be asked: one token bucket for everything that the pages watch."""

from __future__ import annotations

import threading
from collections.abc import Callable

PER_MINUTE, BURST = 25.0, 12.0
"""Requests to Azure: at most so many in a minute, after a burst."""


class Budget:
    """A token bucket. What the user opens is paid afterwards; what is watched waits until something is left."""

    def __init__(self, clock: Callable[[], float], per_minute: float = PER_MINUTE, burst: float = BURST) -> None:
        self._clock, self._rate, self._burst = clock, per_minute / 60, burst
        self._left, self._at = burst, clock()
        self._lock = threading.Lock()

    def spend(self, requests: int) -> None:
        """Some requests were sent."""
        with self._lock:
            self._refill()
            self._left = max(self._left - requests, -self._burst)

    def exhaust(self, seconds: float) -> None:
        """The service throttles: nothing is left for this time."""
        with self._lock:
            self._refill()
            self._left = min(self._left, -seconds * self._rate)

    def delay(self) -> float:
        """Seconds until a request may be sent."""
        with self._lock:
            self._refill()
            return max(0.0, (1 - self._left) / self._rate)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now


class Unlimited(Budget):
    """The budget of the emulator, which is on this machine."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)

    def spend(self, requests: int) -> None:
        """Costs nothing."""

    def exhaust(self, seconds: float) -> None:
        """There is no throttling to respect."""
