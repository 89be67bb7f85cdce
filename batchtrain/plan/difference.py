"""What differs between two texts of plans. Pure."""

from __future__ import annotations

import difflib

from batchtrain import markup


class PlanDifference(tuple[tuple[str, str], ...]):
    """The lines of two plans that differ, as pairs of texts: a tuple that prints as text and displays as HTML."""

    def __str__(self) -> str:
        lines = ((mark, line) for pair in self for mark, text in zip("-+", pair, strict=True) for line in _lines(text))
        return "\n".join(f"{mark} {line}" for mark, line in lines) or "the plans are equal"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self:
            return "<i>the plans are equal</i>"
        return markup.table(("this plan", "the other"), self)


def difference(text: str, other: str) -> PlanDifference:
    """The lines that differ."""
    lines, others = text.splitlines(), other.splitlines()
    changes = difflib.SequenceMatcher(None, lines, others, autojunk=False).get_opcodes()
    return PlanDifference(
        ("\n".join(lines[a:b]), "\n".join(others[c:d])) for kind, a, b, c, d in changes if kind != "equal"
    )


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []
