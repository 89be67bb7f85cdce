"""The value of a number that a program reports."""

from __future__ import annotations

import msgspec


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last and the best value of a metric, and the step of the last."""

    last: float
    best: float
    step: int | None = None
    unit: str = ""
