"""One row of `doctor` and of `images check`."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL, NOT_CHECKED = "ok", "warn", "fail", "not checked"


class Check(NamedTuple):
    """A check and its result."""

    check: str
    result: str
    """OK, WARN, FAIL or NOT_CHECKED."""
    found: str
    next_step: str = ""
