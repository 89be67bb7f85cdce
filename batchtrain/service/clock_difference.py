"""This machine's clock beside the clock of a service, which every answer carries as its Date."""

from __future__ import annotations

from datetime import datetime, timezone

from batchtrain.service.answer_body import http_date
from batchtrain.service.retry import span

KEY_LIMIT, TOKEN_LIMIT = 15 * 60.0, 5 * 60.0
"""Seconds that the clocks may differ: for a signature with a key, and for the times in a token of Entra ID."""
STEP = "synchronise the clock (`sudo timedatectl set-ntp true`, or `sudo chronyc makestep`)"


def now() -> datetime:
    """This machine's time; tests replace it."""
    return datetime.now(timezone.utc)


def ahead(date: str | None) -> float | None:
    """Seconds that this machine's clock is ahead of the Date of an answer, to about a second; None without a date."""
    served = http_date(date)
    return (now() - served).total_seconds() if served else None


def difference(seconds: float) -> str:
    """The difference as text."""
    return f"this machine's clock is {span(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} the service's"
