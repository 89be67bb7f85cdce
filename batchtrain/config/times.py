"""Times in ISO 8601; no rules. The rules and the planner ask the same function."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_MOMENT = re.compile(
    r"(?i)([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


def moment(text: str) -> datetime | None:
    """A time in UTC, the default zone. Returns None if the text is not a time. Fractions of a second are dropped."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return None
    day, clock, seconds, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z", "z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:
        return datetime.fromisoformat(f"{day}T{clock or '00:00'}{seconds or ':00'}{offset}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
