"""Times and durations as the service writes them."""

from __future__ import annotations

from datetime import datetime, timedelta

from batchtrain.config import times
from batchtrain.config.types import seconds_of
from batchtrain.errors import PlanError


def duration(span: str) -> str:
    """`[days.]HH:MM:SS` as ISO 8601, the way the service normalises it (`PT6M`, `P1DT2H`)."""
    total = seconds_of(span)
    if total == 0:
        return "PT0S"
    day, seconds = divmod(total, 86400)
    parts = ((seconds // 3600, "H"), (seconds % 3600 // 60, "M"), (seconds % 60, "S"))
    clock = "".join(f"{value}{unit}" for value, unit in parts if value)
    return "P" + (f"{day}D" if day else "") + (f"T{clock}" if clock else "")


def optional_duration(span: str | None) -> str | None:
    """The same; None for no span."""
    return duration(span) if span else None


def moment(text: str | None, where: str) -> str | None:
    """A time as ISO 8601 in UTC, the default zone; None for no text. Raises PlanError if the text is not a time."""
    if not text:
        return None
    time = times.moment(text)
    if time is None:
        raise PlanError(f"{where}: `{text}` is no moment; write it as 2027-01-31T08:00:00Z")
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def after(span: str, now: datetime) -> str:
    """The time that many days (`P30D`) from now."""
    return (now + timedelta(days=int(span[1:-1]))).strftime("%Y-%m-%dT%H:%M:%SZ")
