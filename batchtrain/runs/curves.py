"""The curves of runs: for a notebook, for text, and as the columns of a chart."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from batchtrain import markup
from batchtrain.errors import UsageError, printable
from batchtrain.records import Point
from batchtrain.runs.directory import points_of
from batchtrain.runtime.batchtrain_sweep import lower_is_better

Value = TypeVar("Value")
Row = TypeVar("Row", bound=tuple[Any, ...])

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 24
"""Columns of a curve in text."""
MOST_POINTS = 2000
"""Points of a curve in a chart."""
MOST_LINES = 16
"""Ranks of a metric that are lines of their own; of more, a band from the lowest to the highest is drawn."""
MOST_UNDEFINED = 100

Reading = tuple["float | None", float, "float | None", "float | None"]
"""Place, time, value and epoch. A value of None is NaN or infinite."""
Series = dict[str, dict[str, list[Reading]]]
"""Values by metric, and by rank or node."""
Curves = dict[str, dict[str, dict[str, Any]]]
"""Columns by metric, and by rank or node."""


class Plot(NamedTuple):
    """Figures that display as SVG in a notebook: by title, curves by name. `figure()` draws them with matplotlib."""

    figures: Mapping[str, Mapping[str, Sequence[markup.Point]]]
    after: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """By title and curve, that its last value is not finite, such as `NaN since epoch 4`."""

    def _repr_html_(self) -> str:
        return (
            "".join(
                markup.figure(title, curves, after=self.after.get(title, {})) for title, curves in self.figures.items()
            )
            or "<i>no curves</i>"
        )

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
                ends = f", then {text}" if (text := self.after.get(title, {}).get(name)) else ""
                axes.plot([x for x, _ in points], [y for _, y in points], label=f"{name}{ends}")
            axes.set_title(f"{title}{ends}" if len(curves) == 1 else title)
            if len(curves) > 1:
                axes.legend()
        return figure

    def __str__(self) -> str:
        lines = [
            f"{title}{f' {name}' if name != title else ''}: {spark((y for _, y in points), SHOWN)} {points[-1][1]:.6g}"
            f"{f', then {text}' if (text := self.after.get(title, {}).get(name)) else ''}"
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


# --- charts -----------------------------------------------------------------------------------------------------------


def curves_in(path: Path, most: int = MOST_POINTS) -> Curves:
    """The curves of a file of metrics, by metric and rank or node. Those of all attempts are one."""
    kinds: tuple[dict[str, dict[str, list[Any]]], ...] = ({}, {})
    for point in points_of(path):
        lines = kinds[bool(point.node)]
        for name, key, value in values_of(point, 0.0):
            lines.setdefault(name, {}).setdefault(key, []).append((point.attempt, value[0], value))
    series, system = (
        {name: {key: continued(values) for key, values in lines.items()} for name, lines in kind.items()}
        for kind in kinds
    )
    return {**curves_of(series, most), **curves_of(system, most, system=True)}


def joined(of_tasks: Iterable[tuple[str, Curves]]) -> Curves:
    """The curves of several tasks, whose lines begin with the name of the task."""
    curves = Curves()
    for task, of_task in of_tasks:
        for metric, lines in of_task.items():
            curves.setdefault(metric, {}).update({f"{task} {key}".rstrip(): line for key, line in lines.items()})
    return curves


def placed(curves: Curves, has_failed: bool) -> Curves:
    """The curves of a task with their places among those of all tasks."""
    return {
        metric: {key: {**line, "place": place(metric, _last(line), has_failed)} for key, line in lines.items()}
        for metric, lines in curves.items()
    }


def _last(line: dict[str, Any]) -> float | None:
    return line["value"][-1] if line["value"] and "diverged" not in line else None


def place(metric: str, last: float | None, has_failed: bool) -> tuple[bool, bool, float]:
    """The place of a task among those of a job, the lowest first: the failed, then the best last value of a metric,
    and then those whose last value is not finite."""
    value = 0.0 if last is None else last
    return not has_failed, last is None, value if lower_is_better(metric) else -value


def values_of(point: Point, now: float) -> Iterator[tuple[str, str, Reading]]:
    """The values of a point: the metric, the rank or node, and the value."""
    key = point.node or ("" if point.rank is None else str(point.rank))
    t = now if point.t is None else point.t
    for name, value in point.values.items():
        yield name[:100], key, (point.global_step, t, value, point.epoch)


def curves_of(series: Series, most: int = MOST_POINTS, *, system: bool = False) -> dict[str, dict[str, Any]]:
    """The curves by metric and name; those of many ranks as a band. system: they are of nodes."""
    return {
        name: {key: columns(values, most, system=system) for key, values in tuple(lines.items())}
        if len(lines) <= MOST_LINES
        else {"": band(lines, most, system=system)}
        for name, lines in tuple(series.items())
    }


def columns(values: Sequence[Reading], most: int = MOST_POINTS, *, system: bool = False) -> dict[str, Any]:
    """A curve as columns of step, time and value, thinned for the page; and where it was NaN or infinite."""
    numbers = [row for row in values if row[2] is not None]
    undefined = [row[:2] for row in values if row[2] is None]
    steps, times, of, epochs = zip(*thinned(numbers, most), strict=True) if numbers else ((), (), (), ())
    document: dict[str, Any] = {"step": list(steps), "t": list(times), "value": list(of)}
    if values and values[-1][2] is None:
        document["diverged"] = True
    if any(epoch is not None for epoch in epochs):
        document["epoch"] = list(epochs)
    if undefined:
        document["undefined"] = undefined[:MOST_UNDEFINED]
    if system:
        document["system"] = True
    return document


def band(lines: Mapping[str, Sequence[Reading]], most: int = MOST_POINTS, *, system: bool = False) -> dict[str, Any]:
    """The mean, the lowest and the highest value of all ranks at each step, or of some steps together where they are
    many; by time if they have no steps."""
    places: dict[float, list[tuple[float, float]]] = {}
    for values in lines.values():
        for step, t, value, _ in values:
            if value is not None:
                places.setdefault(round(t) if step is None else step, []).append((t, value))
    has_steps = any(row[0] is not None for values in lines.values() for row in values[:1])
    ordered, size = sorted(places.items()), max(-(-len(places) // most), 1)
    groups = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    rows = [[value for _, part in group for _, value in part] for group in groups]
    document = {
        "step": [group[-1][0] if has_steps else None for group in groups],
        "t": [max(t for _, part in group for t, _ in part) for group in groups],
        "value": [sum(row) / len(row) for row in rows],
        "low": [min(row) for row in rows],
        "high": [max(row) for row in rows],
        "ranks": len(lines),
    }
    return {**document, "system": True} if system else document
