"""Times in ISO 8601; no rules. The rules and the planner ask the same function."""

from __future__ import annotations

from datetime import datetime, timezone

from batchtrain.config.patterns import late

_MOMENT = late(
    r"(?i)([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_DURATION = late(r"(?:([0-9.]+)d)?(?:([0-9.]+)h)?(?:([0-9.]+)m)?(?:([0-9.]+)s?)?")


def duration(text: str) -> float | None:
    """Seconds from a text such as `90`, `90s`, `30m`, `1h30m` or `2d`. Returns None if the text is no duration."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        return None
    try:
        return sum(float(part) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True) if part)
    except ValueError:  # two decimal points
        return None


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
