"""The report of an experiment: speed-up and efficiency, as a table, CSV and one HTML page. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from batchtrain import markup
from batchtrain.runs.compare import Statistics
from batchtrain.runtime.batchtrain_sweep import csv_cell

BATCH = ("batch", "replica_batch", "batch_size")
"""Names of a variable that sets the batch of one node or replica."""


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
    """One row of the table."""

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


def rows(runs: Sequence[Measured]) -> list[ScalingRow]:
    """The rows for weak scaling (the same batch per node in each group) and strong scaling (the same total batch)."""
    scaling_rows = _grouped("weak", runs)
    if any(_batch(run) is not None for run in runs):
        scaling_rows += [row for row in _grouped("strong", runs) if row.scaling]
    return scaling_rows


def _grouped(scaling: str, runs: Sequence[Measured]) -> list[ScalingRow]:
    groups: dict[str, list[Measured]] = {}
    for run in runs:
        groups.setdefault(_case(run, strong=scaling == "strong"), []).append(run)
    scaling_rows = []
    for case, members in groups.items():
        if scaling == "strong" and len({run.nodes for run in members}) < 2:
            continue  # a single number of nodes shows no scaling
        members = sorted(members, key=lambda run: run.nodes)
        first = next((run for run in members if run.rate), None)
        for run in members:
            speedup = run.rate / first.rate if run.rate and first and first.rate else None
            efficiency = 100 * speedup * first.nodes / run.nodes if speedup is not None and first else None
            mean, median, p95, deviation = run.statistics or (None, None, None, None)
            numbers = (run.rate, speedup, efficiency, mean, median, p95, deviation, run.node_hours)
            scaling_rows.append(ScalingRow(scaling, case, run.nodes, *numbers, run.cost, run.run))
    return scaling_rows


def _case(run: Measured, *, strong: bool) -> str:
    batch = _batch(run)
    other_values = [(name, value) for name, value in run.values if name != "nodes" and not (strong and name in BATCH)]
    if strong and batch is not None:
        other_values.append(("effective_batch", f"{batch * run.nodes:g}"))
    return " ".join(f"{name}={value}" for name, value in other_values) or "all"


def _batch(run: Measured) -> float | None:
    for name, value in run.values:
        if name in BATCH:
            try:
                return float(value)
            except ValueError:
                return None
    return None


def as_csv(table: Sequence[ScalingRow]) -> str:
    """The table as CSV for spreadsheets."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(ScalingRow._fields)
    writer.writerows(map(csv_cell, row) for row in table)
    return file.getvalue()


def as_html(title: str, unit: str, table: Sequence[ScalingRow]) -> str:
    """One page without network access: a plot for each kind of scaling, and the table."""
    table_html = markup.table(ScalingRow._fields, (tuple(map(_cell, row)) for row in table))
    plots = "".join(_plot(kind, unit, [row for row in table if row.scaling == kind]) for kind in ("weak", "strong"))
    return markup.page(title, f"<h1>{markup.text(title)}</h1>{plots}{table_html}")


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _plot(kind: str, unit: str, table: Sequence[ScalingRow]) -> str:
    rated_rows = [row for row in table if row.rate]
    if len({row.nodes for row in rated_rows}) < 2:
        return ""
    cases: dict[str, list[markup.Point]] = {}
    for row in rated_rows:
        cases.setdefault(row.case, []).append((row.nodes, row.rate or 0))
    return markup.figure(f"{kind} scaling: {unit or 'rate'} over nodes", cases)
