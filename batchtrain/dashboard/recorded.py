"""Recorded runs: their list, one run, its curves, and several beside one another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from batchtrain import records
from batchtrain.dashboard.output import Value, columns
from batchtrain.errors import BatchtrainError, NotFound, UsageError
from batchtrain.hints import pasted
from batchtrain.runs import compare, directory, finished
from batchtrain.runs.curves import continued
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.service.connect import loopback

ROWS = 200
TASK = (*records.Task.columns, "parameters")
"""What is shown of a task."""
MOST_EVENTS, MOST_FILES = 500, 1000
_RECORDS: dict[Path, tuple[int, RunRecord]] = {}
"""The records that were read, with the time of their last change."""


def listed(root: Path, *, skip: int = 0) -> list[dict[str, Any]]:
    """The runs, the newest first. One that cannot be read is left out."""
    newest = sorted((run for run in directory.runs(root)), key=lambda run: run.name, reverse=True)
    rows = (_row(run) for run in newest[skip : skip + ROWS])
    return [row for row in rows if row]


def shown(root: Path, name: str) -> dict[str, Any]:
    """A run: its record, its tasks, its nodes, its events and its files."""
    run = _run(root, name)
    record = run.record()
    option = " --local" if loopback(record.endpoint) else ""
    return {
        **msgspec.to_builtins(record),
        "seconds": compare.seconds(record),
        "card": [pasted(row, option, "") for row in record.failure.card] if record.failure else [],
        "metrics": [row._asdict() for row in compare.metric_rows(record)],
        "tasks": [records.shown(task, TASK) for task in finished.Run(run).tasks.in_words(run.tasks()[:ROWS])],
        "attempts": [row._asdict() for row in compare.attempt_rows(record, run.attempts()[:ROWS])],
        "node_records": msgspec.to_builtins(run.nodes()[:ROWS]),
        "events": msgspec.to_builtins(run.events()[-MOST_EVENTS:]),
        "files": files(run),
    }


def curves(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """The curves of a run, by metric, then by task and rank."""
    curves_of: dict[str, dict[str, list[tuple[int, float | None, Value]]]] = {}
    for task, point in _run(root, name).points():
        who = point.node or ("" if point.rank is None else str(point.rank))
        key = f"{task} {who}".rstrip()
        step = point.epoch if point.step is None else point.step
        for metric, value in point.values.items():
            if value is not None:
                curves_of.setdefault(metric, {}).setdefault(key, []).append(
                    (point.attempt, step, (step, point.t or 0.0, value))
                )
    return {
        metric: {key: columns(continued(values)) for key, values in ranks.items()}
        for metric, ranks in curves_of.items()
    }


def compared(root: Path, names: Sequence[str]) -> dict[str, Any]:
    """Runs beside one another: what differs, their metrics, and the curves of each run's first task and rank."""
    if len(names) < 2:
        raise UsageError("name at least two runs: /api/v1/runs/compare?id=A&id=B")
    runs = [_run(root, name) for name in names]
    rows = [{"name": row.name, "values": list(row.values)} for row in compare.compare(runs)]
    drawn: dict[str, dict[str, Any]] = {}
    for run in runs:
        for metric, series in curves(root, run.name).items():
            first = min(series)
            drawn.setdefault(metric, {})[run.name] = series[first]
    return {"runs": [_row(run) for run in runs], "rows": rows, "curves": drawn}


def files(run: RunDirectory) -> list[dict[str, Any]]:
    """The logs and results in a run directory."""
    paths = (path for top in ("logs", "outputs", "config") for path in sorted((run.path / top).rglob("*")))
    regular_files = islice((path for path in paths if path.is_file() and not path.is_symlink()), MOST_FILES)
    return [{"path": path.relative_to(run.path).as_posix(), "size": path.stat().st_size} for path in regular_files]


def file(root: Path, name: str, path: str) -> Path:
    """A file of a run. Raises NotFound, also for a path or a link that leads out of the run."""
    base = _run(root, name).path.resolve()
    target = (base / path).resolve()
    if not target.is_relative_to(base) or not target.is_file():
        raise NotFound(f"run {name} has no file `{path}`", code="FileNotFound")
    return target


def of_job(root: Path, job_id: str, created: datetime | None) -> str:
    """The name of the run that created a job; empty if there is none."""
    rows = [row for row in listed(root) if row["job"] == job_id and created is not None]
    during = (row for row in rows if row["started"] <= created and (row["ended"] is None or created <= row["ended"]))
    return next((row["id"] for row in during), "")


def _run(root: Path, name: str) -> RunDirectory:
    """A run below the root, by its whole name. Raises NotFound."""
    run = RunDirectory(root / name)
    if "/" in name or name.startswith(".") or not (run.path / "run.json").is_file():
        raise NotFound(f"{root} has no run `{name}`; `batchtrain runs list` lists them")
    return run


def _record(run: RunDirectory) -> RunRecord:
    path = run.path / "run.json"
    changed = path.stat().st_mtime_ns
    before = _RECORDS.get(path)
    if before is None or before[0] != changed:
        _RECORDS[path] = before = (changed, run.record())
    return before[1]


def _row(run: RunDirectory) -> dict[str, Any] | None:
    try:
        record = _record(run)
    except (BatchtrainError, OSError):
        return None
    results = [
        {"name": name, "last": metric.last, "unit": metric.unit} for name, metric in compare.ranked(record.summary)
    ]
    return {
        "id": run.name,
        "job": record.job,
        "state": record.state,
        "started": record.started,
        "ended": record.ended,
        "seconds": compare.seconds(record),
        "nodes": record.nodes,
        "vm_size": record.vm_size,
        "node_hours": record.node_hours,
        "cost": compare.cost(record),
        "settings": record.settings,
        "results": results[:3],
        "failure": record.failure.message if record.failure else "",
    }
