"""Regular expressions that are compiled at their first use: those for secrets would take a tenth of every start."""

from __future__ import annotations

import re
from typing import Any, cast


class _Late:
    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, method)  # the next use finds it without this function
        return method


def late(text: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression, as `re.compile` makes it."""
    return cast("re.Pattern[str]", _Late(text, flags))
