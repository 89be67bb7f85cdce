"""Recorded runs: their list, one run, its curves, and several beside one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from batchtrain import records
from batchtrain.dashboard.run_tasks import RunTask
from batchtrain.errors import BatchtrainError, NotFound, UsageError
from batchtrain.hints import pasted
from batchtrain.runs import compare, directory, finished, restore, source_copy
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.runs.recording import is_of_account
from batchtrain.service.connect import Account, loopback

ROWS = 200
TASK = (*records.Task.columns, "parameters")
"""What is shown of a task."""
MOST_EVENTS, MOST_FILES = 500, 1000
MOST_TEXT = 1 << 20
_RECORDS: dict[Path, tuple[int, RunRecord]] = {}
"""The records that were read, with the time of their last change."""


def listed(root: Path, *, skip: int = 0) -> tuple[list[dict[str, Any]], int | None]:
    """The runs, the newest first, and how many to skip for more. One that cannot be read is left out."""
    newest = _newest(root)
    rows = [row for run in newest[skip : skip + ROWS] if (row := _row(run))]
    return rows, skip + ROWS if len(newest) > skip + ROWS else None


def _of_job(root: Path, job_id: str) -> Iterator[dict[str, Any]]:
    """The runs of a job, the newest first."""
    return (row for run in _newest(root) if (row := _row(run)) and row["job"] == job_id)


def _newest(root: Path) -> list[RunDirectory]:
    return sorted(directory.runs(root), key=lambda run: run.name, reverse=True)


def shown(root: Path, name: str, account: Account | None = None, skip: int = 0) -> dict[str, Any]:
    """A run: its record, its tasks (the failed first), its nodes, its events and its files. It is `live` while it runs
    on the account of this dashboard."""
    run = _run(root, name)
    record = run.record()
    option = " --local" if loopback(record.endpoint) else ""
    fabric = None
    if check := run.fabric():
        rows = [row._asdict() for row in check.judged]
        fabric = {"rows": rows, "slow_nodes": check.slow_nodes, "matrix": list(check.measured.matrix())}
    every = run.attempts()
    again = {attempt.task for attempt in every if attempt.number > 1}
    attempts = [attempt for attempt in every if attempt.task in again][:ROWS]
    all_tasks = sorted(run.tasks(), key=lambda task: not task.failed)
    tasks = [records.shown(task, TASK) for task in finished.Run(run).tasks.in_words(all_tasks[skip : skip + ROWS])]
    task_ids = list(dict.fromkeys([task["id"] for task in tasks] or [attempt.task for attempt in every[:ROWS]]))
    return {
        **msgspec.to_builtins(record),
        "outcome": outcome(record),
        "diverged": compare.diverged(record),
        "seconds": compare.seconds(record),
        "card": [pasted(row, option, "") for row in record.failure.card] if record.failure else [],
        "metrics": [row._asdict() for row in compare.metric_rows(record)],
        "candidates": [row._asdict() for row in compare.placement_rows(record)],
        "live": record.state == "running" and account is not None and is_of_account(record, account),
        "tasks": tasks,
        "task_count": len(all_tasks),
        "next": skip + ROWS if len(all_tasks) > skip + ROWS else None,
        "task_ids": task_ids,
        "log_folders": {task_id: run.logs(task_id).relative_to(run.path).as_posix() for task_id in task_ids},
        "attempts": [
            {**row._asdict(), "ended": attempt.ended, "reason": attempt.reason}
            for row, attempt in zip(compare.attempt_rows(record, attempts), attempts, strict=True)
        ],
        "node_records": msgspec.to_builtins(run.nodes()[:ROWS]),
        "events": msgspec.to_builtins(run.events()[-MOST_EVENTS:]),
        "files": files(run),
        "fabric": fabric,
    }


def outcome(record: RunRecord) -> str:
    """How a run ended; `completed` alone would not say that it succeeded."""
    return compare.state_of(record, completed="succeeded")


def curves(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """The curves of a run, by metric, then by task and rank."""
    run = _run(root, name)
    curves_of: dict[str, dict[str, Any]] = {}
    for path in sorted((run.path / "metrics").glob("*.jsonl")):
        for metric, lines in RunTask(run, path.stem).metrics().items():
            named = {f"{path.stem} {key}".rstrip(): columns for key, columns in lines.items()}
            curves_of.setdefault(metric, {}).update(named)
    return curves_of


def task(root: Path, name: str, task_id: str) -> RunTask:
    """A task of a run. Raises NotFound for a run that does not exist."""
    return RunTask(_run(root, name), task_id)


def ranks(root: Path, name: str, task_id: str) -> dict[str, Any]:
    """The ranks of a task of a run."""
    of_task = task(root, name, task_id)
    return of_task.ranks(_record(of_task.run))


def configuration(root: Path, name: str) -> dict[str, Any]:
    """The plan of a run, what differs from the run of the same job before, and its source."""
    run = _run(root, name)
    record = _record(run)
    before = next((row for row in _of_job(root, record.job) if row["id"] < name), None)
    previous = RunDirectory(root / before["id"]) if before else None
    metrics = {f"{name} (s)" for name in record.phases} | record.summary.keys()
    differing = [row for row in compare.compare([previous, run]) if row.name not in metrics] if previous else []
    copy = source_copy.read(run)
    return {
        "plan": _text(run.config / "plan.json"),
        "settings": _text(run.config / "effective.yaml"),
        "previous": before["id"] if before else "",
        "differences": [{"name": row.name, "values": row.values} for row in differing],
        "source_difference": restore.difference(previous, run)[:MOST_TEXT] if previous else "",
        "source": [
            {"path": f"{source.name}/{file.name}", "size": file.size}
            for source in (copy.sources if copy else ())
            for file in source.files[:MOST_FILES]
        ],
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:MOST_TEXT]
    except OSError:
        return ""


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
    try:
        target = (base / path).resolve(strict=True)
    except (OSError, ValueError):  # no such file, or no path at all
        target = base
    if not target.is_relative_to(base) or not target.is_file():
        raise NotFound(f"run {name} has no file `{path}`", code="FileNotFound")
    return target


def newest(root: Path, job_id: str) -> str:
    """The name of the newest run of a job; empty if there is none."""
    return next((row["id"] for row in _of_job(root, job_id)), "")


def of_job(root: Path, job_id: str, created: datetime | None) -> str:
    """The name of the run that created a job; empty if there is none."""
    rows = _of_job(root, job_id) if created is not None else ()
    during = (row for row in rows if row["started"] <= created and (row["ended"] is None or created <= row["ended"]))
    return next((row["id"] for row in during), "")


def _run(root: Path, name: str) -> RunDirectory:
    """A run below the root, by its whole name. Raises NotFound."""
    run = RunDirectory(root / name)
    is_name = "/" not in name and not name.startswith(".") and len(name) < 256
    if not is_name or not (run.path / "run.json").is_file():
        raise NotFound(f"{root} has no run `{name}`; `batchtrain runs list` lists them")
    return run


def _record(run: RunDirectory) -> RunRecord:
    path = run.path / "run.json"
    changed = path.stat().st_mtime_ns
    before = _RECORDS.get(path)
    if before is None or before[0] != changed or before[1].state == "running":  # its process may have ended
        _RECORDS[path] = before = (changed, run.record())
    return before[1]


def _row(run: RunDirectory) -> dict[str, Any] | None:
    try:
        record = _record(run)
    except (BatchtrainError, OSError):
        return None
    results = [
        {"name": name, "last": metric.last, "text": f"{name} {metric.text(4)} {metric.unit}".rstrip()}
        for name, metric in compare.ranked(record.summary)
    ]
    return {
        "id": run.name,
        "job": record.job,
        "state": record.state,
        "outcome": outcome(record),
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
