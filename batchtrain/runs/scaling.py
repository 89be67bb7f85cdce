"""The report of an experiment: speed-up and efficiency, as a table, CSV and one HTML page. Pure."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from typing import NamedTuple

from batchtrain.runs.compare import Statistics

BATCH = ("batch", "replica_batch", "batch_size")
"""Names of the variable that is the batch of one node or replica."""
WIDTH, HEIGHT, MARGIN = 480, 260, 40


class Measured(NamedTuple):
    """The result of one case."""

    values: tuple[tuple[str, str], ...]
    nodes: int
    rate: float | None
    run: str
    statistics: Statistics | None = None
    node_hours: float | None = None
    cost: str = ""


class ScalingRow(NamedTuple):
    """One line of a table."""

    scaling: str
    case: str
    nodes: int
    rate: float | None
    speedup: float | None
    efficiency: float | None
    mean: float | None
    median: float | None
    p95: float | None
    deviation: float | None
    node_hours: float | None
    cost: str
    run: str


def rows(measured: Sequence[Measured]) -> list[ScalingRow]:
    """Weak scaling has the same batch per node in each group, strong scaling the same batch of all nodes."""
    found = _grouped("weak", measured)
    if any(_batch(one) is not None for one in measured):
        found += [row for row in _grouped("strong", measured) if row.scaling]
    return found


def _grouped(scaling: str, measured: Sequence[Measured]) -> list[ScalingRow]:
    groups: dict[str, list[Measured]] = {}
    for one in measured:
        groups.setdefault(_case(one, strong=scaling == "strong"), []).append(one)
    found = []
    for case, members in groups.items():
        if scaling == "strong" and len({one.nodes for one in members}) < 2:
            continue  # one number of nodes has nothing to scale
        members = sorted(members, key=lambda one: one.nodes)
        first = next((one for one in members if one.rate), None)
        found += [_row(scaling, case, one, first) for one in members]
    return found


def _row(scaling: str, case: str, one: Measured, first: Measured | None) -> ScalingRow:
    speedup = one.rate / first.rate if one.rate and first and first.rate else None
    efficiency = 100 * speedup * first.nodes / one.nodes if speedup is not None and first else None
    mean, median, p95, deviation = one.statistics or (None, None, None, None)
    numbers = (one.rate, speedup, efficiency, mean, median, p95, deviation, one.node_hours)
    return ScalingRow(scaling, case, one.nodes, *numbers, one.cost, one.run)


def _case(one: Measured, *, strong: bool) -> str:
    batch = _batch(one)
    rest = [(name, value) for name, value in one.values if name != "nodes" and not (strong and name in BATCH)]
    if strong and batch is not None:
        rest.append(("effective_batch", f"{batch * one.nodes:g}"))
    return " ".join(f"{name}={value}" for name, value in rest) or "all"


def _batch(one: Measured) -> float | None:
    for name, value in one.values:
        if name in BATCH:
            try:
                return float(value)
            except ValueError:
                return None
    return None


def as_csv(table: Sequence[ScalingRow]) -> str:
    """The table for spreadsheets."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(ScalingRow._fields)
    writer.writerows(table)
    return file.getvalue()


def as_html(title: str, unit: str, table: Sequence[ScalingRow]) -> str:
    """One page without network access: a plot for each kind of scaling, and the table."""
    heads = "".join(f"<th>{name}</th>" for name in ScalingRow._fields)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(_cell(cell))}</td>' for cell in row)}</tr>" for row in table)
    plots = "".join(_plot(kind, unit, [row for row in table if row.scaling == kind]) for kind in ("weak", "strong"))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>'
        "body{font:15px sans-serif;margin:2em}td,th{text-align:left;padding:2px 12px 2px 0}"
        f"</style><h1>{html.escape(title)}</h1>{plots}<table><tr>{heads}</tr>{body}</table></html>\n"
    )


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _plot(kind: str, unit: str, table: Sequence[ScalingRow]) -> str:
    measured = [row for row in table if row.rate]
    if len({row.nodes for row in measured}) < 2:
        return ""
    most = max(row.nodes for row in measured)
    top = max(row.rate or 0 for row in measured)
    lines = []
    for number, case in enumerate(dict.fromkeys(row.case for row in measured)):
        points = [(row.nodes / most, (row.rate or 0) / top) for row in measured if row.case == case]
        text = " ".join(
            f"{MARGIN + x * (WIDTH - 2 * MARGIN):.0f},{HEIGHT - MARGIN - y * (HEIGHT - 2 * MARGIN):.0f}"
            for x, y in points
        )
        shade = f"hsl({number * 67 % 360} 70% 35%)"
        lines.append(f'<polyline fill="none" stroke-width="2" stroke="{shade}" points="{text}"/>')
        lines.append(f'<text x="{MARGIN + 8}" y="{20 + 14 * number}" fill="{shade}">{html.escape(case)}</text>')
    label = f"{kind} scaling: {unit or 'rate'} over nodes"
    return (
        f'<figure><figcaption>{html.escape(label)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' role="img" aria-label="{html.escape(label)}">{"".join(lines)}<text x="0" y="{MARGIN}">{top:.4g}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 8}">{most} nodes</text></svg></figure>'
    )
