"""The curves of runs for a notebook and for text."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from batchtrain import markup
from batchtrain.errors import UsageError, printable

Value = TypeVar("Value")
Row = TypeVar("Row", bound=tuple[Any, ...])

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 24
"""Columns of a curve in text."""


class Plot(NamedTuple):
    """Figures that display as SVG in a notebook: by title, curves by name. `figure()` draws them with matplotlib."""

    figures: Mapping[str, Mapping[str, Sequence[markup.Point]]]

    def _repr_html_(self) -> str:
        return "".join(markup.figure(title, curves) for title, curves in self.figures.items()) or "<i>no curves</i>"

    def figure(self) -> Any:
        """The same curves as a figure of matplotlib, one below the other. Raises UsageError without matplotlib."""
        try:
            matplotlib: Any = importlib.import_module("matplotlib.figure")  # optional
        except ImportError:
            raise UsageError(
                "matplotlib is not installed: `pip install matplotlib`; without it the plot displays as SVG"
            ) from None
        figure = matplotlib.Figure(figsize=(8, 2.6 * max(len(self.figures), 1)), layout="constrained")
        for number, (title, curves) in enumerate(self.figures.items(), 1):
            axes = figure.add_subplot(len(self.figures), 1, number)
            for name, points in curves.items():
                axes.plot([x for x, _ in points], [y for _, y in points], label=name)
            axes.set_title(title)
            if len(curves) > 1:
                axes.legend()
        return figure

    def __str__(self) -> str:
        lines = [
            f"{title}{f' {name}' if name != title else ''}: {spark((y for _, y in points), SHOWN)} {points[-1][1]:.6g}"
            for title, curves in self.figures.items()
            for name, points in curves.items()
        ]
        return "\n".join(map(printable, lines)) or "no curves"

    def __repr__(self) -> str:
        return str(self)


def continued(values: Sequence[tuple[int, float | None, Value]]) -> list[Value]:
    """The values of all attempts as one curve. values: each with its attempt and its place. Where a later attempt
    begins at an earlier place, as from a checkpoint, its values replace those of the attempts before."""
    firsts: dict[int, float] = {}
    for attempt, step, _ in values:
        if step is not None:
            firsts[attempt] = min(step, firsts.get(attempt, step))
    if len(firsts) < 2:
        return [value for _, _, value in values]
    ends, end = dict[int, float](), math.inf
    for number in sorted(firsts, reverse=True):
        ends[number], end = end, min(end, firsts[number])
    by_attempt = sorted(values, key=lambda value: value[0])
    return [value for number, step, value in by_attempt if step is None or step < ends[number]]


def spark(values: Iterable[float], width: int) -> str:
    """A curve of the last values in one line; of more values than columns, the last of each group."""
    finite_values = [value for value in values if value == value and abs(value) != float("inf")]
    if len(finite_values) < 2:
        return ""
    count = min(len(finite_values), width)
    columns = [finite_values[(number + 1) * len(finite_values) // count - 1] for number in range(count)]
    low, high = min(columns), max(columns)
    if high == low:
        return BARS[3] * len(columns)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in columns)


def thinned(values: Sequence[Row], most: int) -> list[Row]:
    """At most so many points: the first, the last, and of each part its lowest and its highest. The third field of a
    point is its value."""
    if len(values) <= most:
        return list(values)
    parts = max(most // 2 - 1, 1)
    bounds = [1 + (len(values) - 2) * part // parts for part in range(parts + 1)]
    points = [values[0]]
    for start, end in pairwise(bounds):
        numbers = [(row[2], index) for index, row in enumerate(values[start:end], start) if row[2] is not None]
        if numbers:
            points += [values[index] for index in sorted({min(numbers)[1], max(numbers)[1]})]
    return [*points, values[-1]]
