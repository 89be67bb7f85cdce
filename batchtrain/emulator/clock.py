"""The account's time: the machine's time, a multiple of it, or a stopped time that is stepped by hand.

It never goes back, except in an empty account, because recorded times stay in the past. Signatures are checked against
the machine's time, which the clients use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from batchtrain.emulator import wire

MODES = ("real", "scaled", "stepped")
MOST_TIMES = 1_000_000.0
FASTEST = 0.001
"""The shortest wait, in seconds of the machine's time."""


class Reading(NamedTuple):
    """The state of a clock that is stored for a restart."""

    mode: str = "real"
    times: float = 1.0
    """Seconds of the account's time per second of the machine's time; 0 if the clock is stopped."""
    shift: int = 0
    """The ticks by which the account's time is ahead, at the machine's moment `at`."""
    at: int = 0


class Clock:
    """Returns the account's time in ticks; `machine_time` returns the machine's."""

    def __init__(self, machine_time: Callable[[], int], reading: Reading | None = None) -> None:
        self.machine_time = machine_time
        self._reading = reading or Reading()
        self._last = 0

    def __call__(self) -> int:
        now = self.machine_time()
        reading = self._reading
        extra = int((now - reading.at) * (reading.times - 1))
        self._last = max(self._last, now + reading.shift + extra)
        return self._last

    @property
    def reading(self) -> Reading:
        """The current state, based on the present moment."""
        account, now = self(), self.machine_time()
        return self._reading._replace(shift=account - now, at=now)

    def turn(self, mode: str, times: float = 1.0) -> None:
        """Change how the clock runs from now on. Raises ValueError."""
        if mode not in MODES:
            raise ValueError(f"a clock is {', '.join(MODES)}, not {mode}")
        if mode == "scaled" and not 0 < times <= MOST_TIMES:
            raise ValueError(f"a clock runs up to {MOST_TIMES:g} times as fast, and forward, not {times:g} times")
        speed = {"real": 1.0, "scaled": times, "stepped": 0.0}[mode]
        self._reading = self.reading._replace(mode=mode, times=speed)

    def reset(self) -> None:
        """Return to the machine's time; only for an account without records."""
        self._reading, self._last = Reading(), 0

    def advance(self, ticks: int) -> None:
        """Step forward. Raises ValueError for a step back."""
        if ticks < 0:
            raise ValueError("time does not go back")
        reading = self.reading
        self._reading = reading._replace(shift=reading.shift + ticks)

    def seconds_to(self, at: int) -> float | None:
        """Seconds of the machine's time until the account's time is `at`; None if only a step leads there."""
        ticks = at - self()
        if ticks <= 0:
            return 0.0
        times = self._reading.times
        return max(ticks / wire.SECOND / times, FASTEST) if times else None
