"""report.html: one file about one run, with curves as inline SVG; needs no network."""

from __future__ import annotations

import html as escaping
import math
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from batchtrain.runs.directory import FileRecord, RunDirectory, RunRecord, TaskRecord

Point = tuple[float, float]
WIDTH, HEIGHT, MARGIN = 640, 200, 44
MOST_POINTS, MOST_CURVES, MOST_ROWS = 1000, 12, 200
_PLACES = frozenset({"t", "rank", "step", "epoch"})
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;margin:.5rem 0}td,th{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top}
pre{background:#f3f3f3;padding:.6rem;overflow:auto}figure{margin:1rem 0}svg{max-width:100%;height:auto}
.bad{color:#a40000}text{font:11px system-ui,sans-serif;fill:#555}
@media(prefers-color-scheme:dark){body{background:#161616;color:#eee}pre{background:#262626}.bad{color:#ff8a80}
text{fill:#bbb}}
"""


def html(run: RunDirectory) -> str:
    """The report of a run."""
    record = run.record()
    tasks = run.tasks()
    parts = [
        f"<h1>{_text(record.job)} <small>{_text(record.state)}</small></h1>",
        _failure(record),
        _table((), _facts(record)),
        _summary(record),
        *(_curves(run, task) for task in tasks[:MOST_ROWS]),
        "<h2>Tasks</h2>" if tasks else "",
        _table(("task", "state", "exit code", "seconds", "node"), map(_task, tasks[:MOST_ROWS])),
        _files(run.files()),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return (
        f"<!doctype html><html lang=en><head>{head}<title>{_text(record.id)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _failure(record: RunRecord) -> str:
    if record.failure is None:
        return ""
    card = _text("\n".join(record.failure.card))
    return f'<p class="bad">{_text(record.failure.message)}</p>' + (f"<pre>{card}</pre>" if card else "")


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
    }
    return [(name, value) for name, value in facts.items() if value]


def _summary(record: RunRecord) -> str:
    rows = [(name, _short(metric.last), _short(metric.best)) for name, metric in record.summary.items()]
    return f"<h2>Numbers</h2>{_table(('metric', 'last', 'best'), rows)}" if rows else ""


def _task(task: TaskRecord) -> Sequence[str]:
    code = "" if task.exit_code is None else str(task.exit_code)
    return task.id, task.state, code, "" if task.seconds is None else f"{task.seconds:.1f}", task.node


def _files(files: Sequence[FileRecord]) -> str:
    shown = [record for record in files if not record.fetched or record.fetched.startswith("outputs/")][:MOST_ROWS]
    rows = [(record.fetched or record.path, f"{record.size:,}", record.reason) for record in shown]
    return f"<h2>Files</h2>{_table(('file', 'bytes', ''), rows)}" if rows else ""


# --- curves ---------------------------------------------------------------------------------------------------------


def _curves(run: RunDirectory, task: TaskRecord) -> str:
    found = points(run, task.id)
    drawn = [_curve(f"{task.id}: {name}", values) for name, values in list(found.items())[:MOST_CURVES]]
    return "".join(drawn)


def points(run: RunDirectory, task: str) -> dict[str, list[Point]]:
    """The curve of each metric of a task: its values over steps, else over epochs, else over time; the lowest rank's
    where several have it."""
    path = run.metrics_file(task)
    found: dict[str, dict[int, list[Point]]] = {}
    if not path.exists():
        return {}
    with path.open("rb") as file:
        for number, line in enumerate(file):
            _take(found, number, line)
    return {name: ranks[min(ranks)] for name, ranks in found.items() if len(ranks[min(ranks)]) > 1}


def _take(found: dict[str, dict[int, list[Point]]], number: int, line: bytes) -> None:
    try:
        values = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        return
    at = next((values[name] for name in ("step", "epoch", "t") if isinstance(values.get(name), (int, float))), number)
    rank = values.get("rank")
    for name, value in values.items():
        plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if name not in _PLACES and plain and isinstance(at, (int, float)) and isinstance(value, (int, float)):
            ranks = found.setdefault(name, {})
            ranks.setdefault(rank if isinstance(rank, int) else -1, []).append((float(at), float(value)))


def _curve(title: str, values: Sequence[Point]) -> str:
    """One curve as SVG, with its lowest and highest value."""
    kept = values[:: max(len(values) // MOST_POINTS, 1)]
    left, right = min(x for x, _ in kept), max(x for x, _ in kept)
    low, high = min(y for _, y in kept), max(y for _, y in kept)
    across, up = (WIDTH - 2 * MARGIN) / ((right - left) or 1), (HEIGHT - 2 * 24) / ((high - low) or 1)
    line = " ".join(f"{MARGIN + (x - left) * across:.1f},{HEIGHT - 24 - (y - low) * up:.1f}" for x, y in kept)
    label = f"{title}: from {_short(values[0][1])} to {_short(values[-1][1])}"
    return (
        f'<figure><figcaption>{_text(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img"'
        f' aria-label="{_text(label)}"><polyline fill="none" stroke="#0067b8" stroke-width="1.5" points="{line}"/>'
        f'<text x="0" y="28">{_short(high)}</text><text x="0" y="{HEIGHT - 24}">{_short(low)}</text>'
        f'<text x="{MARGIN}" y="{HEIGHT - 6}">{_short(left)}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 6}" text-anchor="end">{_short(right)}</text></svg></figure>'
    )


# --- text -----------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{_text(cell)}</th>" for cell in heads)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>" if body else ""


def _text(value: str) -> str:
    return escaping.escape(value)


def _short(value: float) -> str:
    return f"{value:.6g}"


def _moment(value: datetime | None) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC" if value else ""
