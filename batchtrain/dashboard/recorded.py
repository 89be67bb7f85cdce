"""Recorded runs: their list, one run, its curves, and several beside one another."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from batchtrain import records
from batchtrain.dashboard.run_tasks import RunTask, inside
from batchtrain.errors import BatchtrainError, NotFound, UsageError
from batchtrain.hints import pasted
from batchtrain.records.metric import MAIN
from batchtrain.runs import compare, directory, finished, outcome, restore, source_copy
from batchtrain.runs.continuations import continuation_rows
from batchtrain.runs.curves import joined, placed
from batchtrain.runs.directory import Labels, RunDirectory, RunRecord, checked_tags
from batchtrain.runs.recording import is_of_account
from batchtrain.runs.so_far import so_far
from batchtrain.service.connect import Account, loopback

ROWS = 200
TASK = (*records.Task.columns, "parameters", "outcome")
"""What is shown of a task."""
MOST_EVENTS, MOST_FILES = 500, 1000
FILES = ("outputs/**/*", "report.html", "metrics/**/*", "*.json*", "logs/**/*", "config/**/*")
"""The patterns of the files of a run, in the order in which they are shown."""
MOST_TEXT = 1 << 20
_RECORDS: dict[Path, tuple[int, RunRecord]] = {}
"""The records that were read, with the time of their last change."""


def listed(root: Path, *, skip: int = 0, text: str = "", sort: str = "") -> tuple[list[dict[str, Any]], int | None]:
    """The runs, and how many to skip for more. One that cannot be read is left out. text: only those with these words
    in their name, state, tags or note. sort: by the best last value of this metric; by default the newest first."""
    words = text.casefold().split()
    every: Iterable[compare.Listed] = (run for path in _newest(root) if (run := _listed(path)))
    if sort:
        every = compare.by_metric(every, sort)
    texts = ((row, f"{row['id']} {row['outcome']} {row['labels']}".casefold()) for row in map(_row, every))
    fitting = (row for row, content in texts if all(word in content for word in words))
    rows = list(itertools.islice(fitting, skip, skip + ROWS + 1))
    return rows[:ROWS], skip + ROWS if len(rows) > ROWS else None


def _of_job(root: Path, job_id: str) -> Iterator[RunRecord]:
    """The runs of a job, the newest first."""
    return (record for run in _newest(root) if (record := _readable(run)) and record.job == job_id)


def _newest(root: Path) -> list[RunDirectory]:
    return sorted(directory.runs(root), key=lambda run: run.name, reverse=True)


def shown(root: Path, name: str, account: Account | None = None, skip: int = 0) -> dict[str, Any]:
    """A run: its record, its tasks (the failed first), its nodes, its events and its files. It is `live` while it runs
    on the account of this dashboard."""
    run = _run(root, name)
    record, progress = so_far(run, run.record())
    labels = _labels(run)
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
        "outcome": compare.state_of(record),
        "goes_on": record.goes_on,
        "diverged": compare.diverged(record),
        "seconds": compare.seconds(record),
        "card": [pasted(row, option, "") for row in record.failure.card] if record.failure else [],
        "metrics": [
            {**row._asdict(), "finite": record.summary[row.metric].last is not None}
            for row in compare.metric_rows(record)
        ],
        "results": compare.row(record, labels, progress).results,
        "facts": [fact._asdict() for fact in outcome.facts(record, all_tasks, run.files())],
        "labels": str(labels),
        "tags": ", ".join(labels.tags),
        "note": labels.note,
        "phases": [row._asdict() for row in compare.phase_rows(record)],
        "continues": [row._asdict() for row in continuation_rows(run)],
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


def curves(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """The curves of a run, by metric, then by task and rank. Those of several tasks have their places: the failed are
    first, then the best."""
    run = _run(root, name)
    ids = [path.stem for path in sorted((run.path / "metrics").glob("*.jsonl"))]
    failed = {task.id for task in run.each_task() if task.failed} if len(ids) > 1 else set()
    of_tasks = ((task_id, RunTask(run, task_id).metrics()) for task_id in ids)
    return joined(of_tasks if len(ids) < 2 else ((task, placed(lines, task in failed)) for task, lines in of_tasks))


def task(root: Path, name: str, task_id: str) -> RunTask:
    """A task of a run. Raises NotFound for a run that does not exist."""
    return RunTask(_run(root, name), task_id)


def ranks(root: Path, run: str, task: str) -> dict[str, Any]:
    """The ranks of a task of a run, those that matter first."""
    directory_ = _run(root, run)
    return RunTask(directory_, task).ranks(_record(directory_))


def configuration(root: Path, name: str) -> dict[str, Any]:
    """The plan of a run, what differs from the run of the same job before, and its source."""
    run = _run(root, name)
    record = _record(run)
    before = next((other.id for other in _of_job(root, record.job) if other.id < name), "")
    previous = RunDirectory(root / before) if before else None
    metrics = {f"{name} (s)" for name in record.phases} | record.summary.keys()
    differing = [row for row in compare.compare([previous, run]) if row.name not in metrics] if previous else []
    copy = source_copy.read(run)
    return {
        "plan": _text(run.config / "plan.json"),
        "settings": "\n".join(f"{path}={value}" for path, value in compare.leaves(compare.effective_of(run))),
        "previous": before,
        "differences": [row._asdict() for row in differing],
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
    rows = [row._asdict() for row in compare.compare(runs)]
    drawn: dict[str, dict[str, Any]] = {}
    for run in runs:
        for metric, series in curves(root, run.name).items():
            first = min(series)
            drawn.setdefault(metric, {})[run.name] = series[first]
    return {"runs": [_row(each) for run in runs if (each := _listed(run))], "rows": rows, "curves": drawn}


def files(run: RunDirectory) -> list[dict[str, Any]]:
    """The files of a run directory, the results first."""
    paths = itertools.chain.from_iterable(sorted(run.path.glob(pattern)) for pattern in FILES)
    regular_files = itertools.islice((path for path in paths if path.is_file() and not path.is_symlink()), MOST_FILES)
    return [{"path": path.relative_to(run.path).as_posix(), "size": path.stat().st_size} for path in regular_files]


def file(root: Path, name: str, path: str) -> Path:
    """A file of a run. Raises NotFound, also for a path or a link that leads out of the run."""
    run = _run(root, name)
    return inside(run, run.path, path)


def newest(root: Path, job_id: str) -> str:
    """The name of the newest run of a job; empty if there is none."""
    return next((record.id for record in _of_job(root, job_id)), "")


def of_job(root: Path, job_id: str, created: datetime | None) -> str:
    """The name of the run that created a job; empty if there is none."""
    if created is None:
        return ""
    runs = _of_job(root, job_id)
    during = (run.id for run in runs if run.started <= created and (run.ended is None or created <= run.ended))
    return next(during, "")


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


def _labels(run: RunDirectory) -> Labels:
    """Damaged labels hide no run."""
    with contextlib.suppress(BatchtrainError):
        return run.labels()
    return Labels()


def _readable(run: RunDirectory) -> RunRecord | None:
    with contextlib.suppress(BatchtrainError, OSError):
        return msgspec.structs.replace(_record(run), id=run.name)
    return None


def _listed(run: RunDirectory) -> compare.Listed | None:
    record = _readable(run)
    return compare.Listed(*so_far(run, record), _labels(run)) if record else None


def _row(run: compare.Listed) -> dict[str, Any]:
    record, row = run.record, compare.row(run.record, run.labels, run.progress)
    return {
        "outcome": row.state,
        **row._asdict(),
        "id": record.id,
        "job": record.job,
        "state": record.state,
        "ended": record.ended,
        "settings": record.settings,
        "metrics": [name for name in MAIN if name in record.summary],
        "diverged": compare.diverged(record),
        "failure": record.failure.message if record.failure else "",
    }


def label(root: Path, name: str, body: Mapping[str, Any]) -> None:
    """Replace the tags, written with commas between them, and the note of a run. Raises NotFound, UsageError."""
    try:
        words = msgspec.convert(body, dict[str, str])
    except msgspec.ValidationError as error:
        raise UsageError(f"`tags` and `note` are texts: {error}") from None
    tags = checked_tags(filter(str.strip, words.get("tags", "").split(",")))
    _run(root, name).write_labels(Labels(tags, words.get("note", "").strip()))
