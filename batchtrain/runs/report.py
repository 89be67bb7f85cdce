"""report.html: one file about one run, with the charts of the page; needs no network."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from batchtrain.errors import DamagedState, shortened
from batchtrain.markup import RED, Point, badge, fold, page, short, table, text
from batchtrain.records import FabricCheck, Task, cells, columns
from batchtrain.runs import compare
from batchtrain.runs.charts import Charts, charts
from batchtrain.runs.curves import MOST_LINES, continued, curves_in, joined, place, placed
from batchtrain.runs.directory import RunDirectory, RunRecord, points_of

MOST_NUMBERS, MOST_ROWS, MOST_FOLDED = 50, 200, 10_000
MOST_POINTS, MOST_SERIES = 300, 800
"""Points of a line, and lines of all charts."""
TITLES = ("About", "Fabric", "Numbers", "Curves", "Tasks", "Candidates", "Attempts", "Files")
_Value = tuple[int, float | None, Point]
_Values = dict[int, list[_Value]]
"""By rank, each with its attempt and its place."""


def html(run: RunDirectory) -> str:
    """The report of a run."""
    record = run.record()
    top = f"<h1>{text(record.job)} <small>{badge(compare.state_of(record))}</small></h1>"
    drawn = _charts(run, record)
    parts = {**sections(run, record), "Curves": drawn.body}
    heads = {title: "" if title == "Curves" else f"<h2>{title}</h2>" for title in TITLES}  # charts have their own
    body = "".join(f"{heads[title]}{parts[title]}" for title in TITLES if parts.get(title))
    return page(record.id, top + failure(record) + body, drawn.head)


def sections(run: RunDirectory, record: RunRecord) -> dict[str, str]:
    """The parts of a report that have content, by their titles."""
    tasks = sorted(run.each_task(), key=lambda task: not task.failed)
    attempts = compare.attempt_rows(record, run.attempts())
    placements = compare.placement_rows(record)
    rows = [(row.metric, row.last, row.best) for row in compare.metric_rows(record)]
    numbers = table(("metric", "last", "best"), rows)
    files = run.files()
    records = [record for record in files if not record.fetched or record.fetched.startswith("outputs/")]
    fetched = [(record.fetched or record.path, f"{record.size:,}", record.reason) for record in records]
    parts = {
        "About": table((), _facts(record)),
        "Fabric": _fabric_of(run),
        "Numbers": fold(compare.row(record).results, numbers) if len(rows) > MOST_NUMBERS else numbers,
        "Tasks": _cut(("task", "state", "exit code", "seconds", "node"), list(map(_task, tasks))),
        "Candidates": table(columns(placements), map(cells, placements)) if placements else "",
        "Attempts": _cut(columns(attempts), list(map(cells, attempts))) if attempts else "",
        "Files": _cut(("file", "bytes", ""), fetched),
    }
    return {title: part for title, part in parts.items() if part}


def _charts(run: RunDirectory, record: RunRecord) -> Charts:
    """The curves of the first tasks in the order of a job's tasks, and what their nodes measured."""
    failed = {task.id for task in run.each_task() if task.failed}
    ids = sorted(path.stem for path in run.path.glob("metrics/*.jsonl"))
    best = compare.best_of_tasks(record)
    name = best.metric if best else ""
    last = {task: metric.last for task in ids if (metric := record.summary.get(f"{task}/{name}"))}
    ids.sort(key=lambda task: place(name, last.get(task), task in failed))
    tasks = [(task, curves_in(run.metrics_file(task), MOST_POINTS)) for task in ids[:MOST_LINES]]
    curves = tasks[0][1] if len(ids) == 1 else joined((task, placed(lines, task in failed)) for task, lines in tasks)
    names = compare.by_meaning(curves)
    sizes = itertools.accumulate(len(curves[name]) for name in names)
    names = [name for name, size in zip(names, sizes, strict=True) if size <= MOST_SERIES]
    if not names:
        return Charts()
    notes = [f"{count:,} of {total:,} {what}" for count, total, what in (
        (len(tasks), len(ids), "tasks, the failed first, then the best"), (len(names), len(curves), "metrics"),
    ) if count < total]  # fmt: skip
    drawn = charts({name: curves[name] for name in names})
    note = f"<p>{'; '.join(notes)}; the run directory has all</p>" if notes else ""
    return drawn._replace(body=drawn.body + note)


def _cut(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first rows as a table, the others one click away."""
    others = rows[MOST_ROWS:MOST_FOLDED]
    note = f"{MOST_ROWS + len(others):,} of {len(rows):,}; the run directory has all" if len(rows) > MOST_FOLDED else ""
    return table(heads, rows[:MOST_ROWS]) + (
        fold(f"{len(others):,} more of {len(rows):,}", table(heads, others), note=note) if others else ""
    )


def _fabric_of(run: RunDirectory) -> str:
    try:
        check = run.fabric()
    except DamagedState as error:  # it may come from the container of the run
        return f"<p>{text(error)}</p>"
    return _fabric(check) if check else ""


def _fabric(check: FabricCheck) -> str:
    """The values beside their marks, and the matrix of pairs."""
    heads = ("metric", "value", "expected", "state", "source")
    rows = [
        (row.metric, short(row.value), "" if row.expected is None else short(row.expected), row.verdict, row.source)
        for row in check.judged
    ]
    nodes = range(len(check.measured.nodes))
    matrix = table(("GB/s", *(f"n{node}" for node in nodes)), check.measured.matrix()) if check.measured.pairs else ""
    names = ", ".join(f"n{node} {name}" for node, name in enumerate(check.measured.nodes))
    slow = f"<p style='color:{RED}'>slow: {text(', '.join(check.slow_nodes))}</p>" if check.slow_nodes else ""
    return f"{table(heads, rows)}{slow}{matrix}<p>{text(names)}</p>"


def failure(record: RunRecord) -> str:
    """Why the run failed, and the cause with its next step; or which of its numbers are not finite."""
    if record.failure is None:
        return f'<p style="color:{RED}">{text(why)}</p>' if (why := compare.diverged(record)) else ""
    card = text("\n".join(record.failure.card))
    message = f'<p style="white-space:pre-wrap;color:{RED}">{text(record.failure.message)}</p>'
    return message + (f"<pre>{card}</pre>" if card else "")


def _facts(record: RunRecord) -> Iterable[Sequence[str]]:
    commit = record.commit
    facts = {
        "run": record.id,
        "started": _moment(record.started),
        "ended": _moment(record.ended),
        "pool": f"{record.pool} ({record.nodes} × {record.vm_size})" if record.pool else "",
        "account": record.account,
        "commit": f"{commit.id[:12]}{' with changes' if commit.dirty else ''}" if commit else "",
        "command": " ".join(record.command),
        "settings": ", ".join(f"{name}={value}" for name, value in record.settings.items()),
        "batchtrain": record.versions.get("batchtrain", ""),
        "warnings": "; ".join(record.warnings),
    }
    return [(name, value) for name, value in facts.items() if value]


def _task(task: Task) -> Sequence[str]:
    code = "" if task.exit_code is None else str(task.exit_code)
    return (task.id, task.outcome, code, "" if task.seconds is None else f"{task.seconds:.1f}", shortened(task.node))


# --- curves ---------------------------------------------------------------------------------------------------------


def points(run: RunDirectory, task: str) -> dict[str, list[Point]]:
    """The curve of each metric of a task: its values over its places, else over time; in each attempt the
    lowest rank's where several have it. Several attempts are one curve."""
    curves, began = dict[str, _Values](), None
    for number, point in enumerate(points_of(run.metrics_file(task))):
        rank, global_step = -1 if point.rank is None else point.rank, point.global_step
        began = point.t if began is None else began
        x = float(number) if point.t is None or began is None else point.t - began
        x = x if global_step is None else float(global_step)
        for name, value in point.values.items() if not point.node else ():
            if value is not None:
                curves.setdefault(name, {}).setdefault(rank, []).append((point.attempt, global_step, (x, value)))
    lines = {name: continued(_of_lowest_ranks(ranks)) for name, ranks in curves.items()}
    return {name: line for name, line in lines.items() if len(line) > 1}


def _of_lowest_ranks(ranks: Mapping[int, Sequence[_Value]]) -> list[_Value]:
    """The values of each attempt's lowest rank: an attempt whose node was lost at once may be known without ranks."""
    lowest: dict[int, int] = {}
    for rank in sorted(ranks):
        for attempt, _, _ in ranks[rank]:
            lowest.setdefault(attempt, rank)
    return [value for rank in sorted(ranks) for value in ranks[rank] if lowest[value[0]] == rank]


def _moment(value: datetime | None) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC" if value else ""
