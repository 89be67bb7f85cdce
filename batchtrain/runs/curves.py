"""The curves of runs for a notebook and for text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from batchtrain import markup

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 24
"""Columns of a curve in text."""


class Plot(NamedTuple):
    """Figures that display as SVG in a notebook: by title, curves by name."""

    figures: Mapping[str, Mapping[str, Sequence[markup.Point]]]

    def _repr_html_(self) -> str:
        return "".join(markup.figure(title, curves) for title, curves in self.figures.items()) or "<i>no curves</i>"

    def __str__(self) -> str:
        lines = [
            f"{title}{f' {name}' if name != title else ''}: {spark((y for _, y in points), SHOWN)} {points[-1][1]:.6g}"
            for title, curves in self.figures.items()
            for name, points in curves.items()
        ]
        return "\n".join(lines) or "no curves"

    def __repr__(self) -> str:
        return str(self)


def spark(values: Iterable[float], width: int) -> str:
    """A curve of the last values in one line; of more values than columns, the last of each group."""
    known = [value for value in values if value == value and abs(value) != float("inf")]
    if len(known) < 2:
        return ""
    count = min(len(known), width)
    picked = [known[(number + 1) * len(known) // count - 1] for number in range(count)]
    low, high = min(picked), max(picked)
    if high == low:
        return BARS[3] * len(picked)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in picked)
