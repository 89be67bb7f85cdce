"""A rank of a gang, as its output shows it."""

from __future__ import annotations

import msgspec


class Rank(msgspec.Struct, frozen=True):
    """What a rank printed last. Its step and its rate are those of its last metrics."""

    number: int
    node: str = ""
    """Its node: n0 is the primary."""
    attempt: int = 1
    lines: int = 0
    """Its lines that were read."""
    last: str = ""
    """Its last line, without control characters of terminals."""
    heard: float = 0.0
    """When it printed it: seconds since 1970 by the clock of this machine."""
    step: int | None = None
    rate: float | None = None
    """Images or samples per second."""


class TrainingProgress(msgspec.Struct, frozen=True):
    """How far a training is, as `step 3/10`."""

    unit: str
    at: int
    of: int
