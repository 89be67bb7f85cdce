"""Durations of the configuration language: their length and their validity; no rules."""

from __future__ import annotations

from functools import lru_cache

MINUTE, HOUR, DAY = 60, 3600, 86400


@lru_cache(maxsize=1024)
def length(span: str) -> int:
    """Seconds of `[d.]HH:MM:SS`; -1 if it is invalid (`99:99:99`), which the rule `span` reports."""
    days, _, clock = span.rpartition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    if minutes > 59 or seconds > 59 or (days and hours > 23):
        return -1
    return int(days or 0) * DAY + hours * HOUR + minutes * MINUTE + seconds
