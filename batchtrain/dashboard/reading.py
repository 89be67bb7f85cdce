"""What can be read: one row for each document of the API, with its cost in requests and its time between two reads."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from batchtrain.config.masking import masked_request
from batchtrain.dashboard import recorded
from batchtrain.dashboard.board import DocumentTopic, Topic
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.job_numbers import job_numbers
from batchtrain.dashboard.output import part
from batchtrain.dashboard.run_tasks import RunTask
from batchtrain.dashboard.search import matches
from batchtrain.dashboard.tasks import LIMIT, STDOUT, TaskOutputs, task_row
from batchtrain.errors import UsageError
from batchtrain.hints import program
from batchtrain.markup import TONES
from batchtrain.records import Node, shown
from batchtrain.records.metric import MAIN
from batchtrain.records.stacks import alike, in_words
from batchtrain.service import read
from batchtrain.service import tasks as service_tasks
from batchtrain.version import __version__

ROWS = 200
"""Rows of a page."""
COUNTED_JOBS, COUNTED_NEAR = 5, 50
"""Jobs of a list whose tasks are counted, on Azure and on the emulator: each costs a request."""
BARS = 1000
"""Tasks of a timeline."""
FAILED_FIRST = (
    service_tasks.FAILED, service_tasks.STATES["running"], f"state eq 'active' or {service_tasks.STATES['succeeded']}",
)  # fmt: skip
"""The filters of the tasks of a job, in the order in which they are shown."""
PLANNED_TASKS = 20
"""Tasks of a job whose requests are shown."""
FIRST_RECIPE = "mpi4py-MPICH"
"""What the page suggests to run on an empty account."""


class Asked(NamedTuple):
    """A request for a document: the names in its path, and its query."""

    names: Mapping[str, str]
    query: Mapping[str, Sequence[str]]

    def word(self, name: str) -> str:
        """A value of the query; empty if there is none."""
        return (self.query.get(name) or [""])[0]

    def number(self, name: str) -> int | None:
        """A number of the query. Raises UsageError."""
        text = self.word(name)
        if text and not (text.isascii() and text.isdigit() and len(text) < 19):
            raise UsageError(f"`{name}` is a whole number, not `{text}`")
        return int(text) if text else None


class Found(NamedTuple):
    """A part of a list, and the token of its next part."""

    value: Any
    next: str


class Document(NamedTuple):
    """A document of the API."""

    path: str
    read: Callable[[Connection, Asked], Any]
    cost: int = 1
    """The requests that it sends."""
    seconds: float = 15.0
    """The time between two reads on Azure while it is watched."""


def account(connection: Connection, _: Asked) -> dict[str, Any]:
    """The account, and what may be done with it."""
    batch_account = connection.account
    prepare = "images env" if batch_account is None or batch_account.emulated else "doctor"
    steps = [f"  batchtrain {words} {FIRST_RECIPE}" for words in ("recipe new", prepare, "run")]
    return {
        "name": batch_account.name if batch_account else "",
        "endpoint": batch_account.endpoint if batch_account else "",
        "emulated": bool(batch_account and batch_account.emulated),
        "program": program(),
        "option": connection.target,
        "start": [connection.completed(step).strip() for step in steps],
        "runs_dir": str(connection.runs),
        "changes": connection.changes,
        "version": __version__,
        "tones": TONES,
        "main_metrics": MAIN,
    }


def overview(connection: Connection, request: Asked) -> dict[str, Any]:
    """Pools with the states of their nodes, the newest jobs, and the newest runs."""
    runs = recorded.listed(connection.runs)[0][:8]
    if connection.account is None:
        return {"pools": [], "jobs": [], "runs": runs}
    return {"pools": pools(connection, request), "jobs": _jobs(connection)[:20], "runs": runs}


def pools(connection: Connection, _: Asked) -> list[dict[str, Any]]:
    """All pools, with the number of their nodes by state."""
    counts = read.node_counts(connection.batch)
    return [{**shown(pool), "node_states": counts.get(pool.id, {})} for pool in connection.client.pools.list()]


def pool(connection: Connection, request: Asked) -> dict[str, Any]:
    """One pool, with the price of an hour of its nodes."""
    pool = read.pool(connection.batch, request.names["pool"])
    price = connection.price(pool.vm_size)
    return {**shown(pool), "price": price._asdict() if price else None}


NODE = (
    "id", "state", "address", "size", "dedicated", "allocated", "booted", "since", "start_task", "errors",
    "running_tasks", "running_slots", "total_run", "recent",
)  # fmt: skip


def _node(node: Node) -> dict[str, Any]:
    now = datetime.now(timezone.utc)
    # By the minute: a value that changes with every read would be sent with every read.
    hours = round((now - node.allocated).total_seconds() / 60) / 60 if node.allocated else None
    return {**shown(node, NODE), "node_hours": None if hours is None else max(hours, 0.0)}


def jobs(connection: Connection, request: Asked) -> Found:
    """Jobs, the newest first. Query: state, prefix, skip."""
    state, prefix, skip = request.word("state"), request.word("prefix"), request.number("skip") or 0
    rows = [row for row in _jobs(connection) if row["id"].startswith(prefix) and (not state or row["state"] == state)]
    more = str(skip + ROWS) if len(rows) > skip + ROWS else ""
    return Found(rows[skip : skip + ROWS], more)


def _jobs(connection: Connection) -> list[dict[str, Any]]:
    """All jobs, the newest first; some with the counts of their tasks: first those that are not completed."""
    oldest = datetime.min.replace(tzinfo=timezone.utc)
    rows = sorted(connection.client.jobs.list(), key=lambda row: row.created or oldest, reverse=True)
    most = COUNTED_NEAR if connection.near else COUNTED_JOBS
    counted_ids = {row.id for row in sorted(rows, key=lambda row: row.state == "completed")[:most]}
    return [shown(read.counted_job(connection.batch, row.id) if row.id in counted_ids else row) for row in rows]


def job(connection: Connection, request: Asked) -> dict[str, Any]:
    """One job with the counts of its tasks, and its newest recorded run."""
    job = read.counted_job(connection.batch, request.names["job"])
    return {**shown(job), "run": recorded.of_job(connection.runs, job.id, job.created)}


def waits(connection: Connection, request: Asked) -> dict[str, str]:
    """Why the tasks of a job wait; empty while one runs, and if none is left."""
    step = connection.client.jobs.handle(request.names["job"]).reason_to_wait()
    return {"rule": step.rule.name, "text": step.text, "next_step": step.reason.next_step} if step else {}


def plan(connection: Connection, request: Asked) -> dict[str, Any]:
    """The requests of a job as the service keeps them, without secrets: the job, and its first tasks."""
    job_id = request.names["job"]
    first = read.task_page(connection.batch, job_id, limit=PLANNED_TASKS)
    tasks = [read.task_document(connection.batch, job_id, task.id) for task in first.tasks]
    document: dict[str, Any] = masked_request({"job": read.job_document(connection.batch, job_id), "tasks": tasks})
    return {**document, "more": bool(first.next)}


def timeline(connection: Connection, request: Asked) -> dict[str, Any]:
    """When which task ran on which node: the tasks of a job whose state changed last."""
    tasks = service_tasks.last(connection.batch, request.names["job"], BARS)
    names = ("id", "outcome", "node", "started", "ended")
    return {"tasks": [shown(task, names) for task in tasks], "more": len(tasks) == BARS}


def tasks(connection: Connection, request: Asked) -> Found:
    """A page of the tasks of a job: of the whole job first the failed ones, then the running ones, then the others.
    Query: state, prefix, skip, limit."""
    state, prefix, skip = request.word("state"), request.word("prefix"), request.word("skip")
    requested_limit = request.number("limit")
    limit = ROWS if requested_limit is None else requested_limit
    if not 0 < limit <= ROWS:
        raise UsageError(f"`limit` is a number of tasks from 1 to {ROWS}")
    filters = (service_tasks.filter_of(state),) if state else FAILED_FIRST
    number, _, token = skip.partition(":")
    rows: list[dict[str, Any]] = []
    for at in range(int(number) if number.isdecimal() else 0, len(filters)):
        if len(rows) == limit:
            return Found(rows, f"{at}:")
        where = service_tasks.both(filters[at], service_tasks.starting(prefix))
        page = read.task_page(connection.batch, request.names["job"], where=where, skip=token, limit=limit - len(rows))
        rows += map(task_row, connection.explained(request.names["job"], page.tasks))
        if page.next:
            return Found(rows, f"{at}:{page.next}")
        token = ""
    return Found(rows, "")


def task(connection: Connection, request: Asked) -> dict[str, Any]:
    """One task, its nodes, and why it failed."""
    document = _outputs(connection, request).document()
    if cause := document["cause"]:
        document["cause"] = {**cause, "card": [connection.completed(row) for row in cause["card"]]}
    return document


def logs(connection: Connection, request: Asked) -> dict[str, Any]:
    """A part of the output of a task, or of a task of a run. Query: file, rank, start or end, limit."""
    bounds = {name: request.number(name) for name in ("start", "end", "rank")}
    task, file = _task(connection, request), _file(request)
    size, read_part = functools.partial(task.size, file), functools.partial(task.read, file)
    return part(size, read_part, file, limit=request.number("limit") or LIMIT, **bounds)


def metrics(connection: Connection, request: Asked) -> dict[str, Any]:
    """The curves of a task, by metric and rank."""
    outputs = _outputs(connection, request)
    outputs.metrics().read()
    return outputs.numbers.metrics()


def ranks(connection: Connection, request: Asked) -> dict[str, Any]:
    """The ranks of a task, those that matter first: what each printed last, and how far it is."""
    outputs = _outputs(connection, request)
    outputs.ranks().read()
    return outputs.ranks_document()


def samples(connection: Connection, request: Asked) -> dict[str, Any]:
    """What the node of a task's primary measures, by metric and node."""
    outputs = _outputs(connection, request)
    outputs.samples().read()
    return outputs.numbers.metrics()


def stacks(connection: Connection, request: Asked) -> dict[str, str]:
    """Where the ranks of a running task stand now, or of a task of a run stood when a stall stopped it."""
    if "run" in request.names:
        task = _run_task(connection, request)
        return {"text": "\n".join(map(str, alike(task.run.stacks(task.id))))}
    rows, problems = connection.stacks(request.names["job"], request.names["task"])
    return {"text": "\n".join([*problems, in_words(rows)])}


def search(connection: Connection, request: Asked) -> dict[str, Any]:
    """Where a text is in the output of a task, or of a task of a run. Query: find, file, rank, skip."""
    task, file, rank, skip = _task(connection, request), _file(request), request.number("rank"), request.number("skip")
    return matches(task.size(file), functools.partial(task.read, file), request.word("find"), rank=rank, skip=skip or 0)


def times(connection: Connection, request: Asked) -> dict[str, Any]:
    """When a part of the output of a task, or of a task of a run, was printed: times (seconds since 1970) of positions.
    Query: file, start, end."""
    start, end = request.number("start") or 0, request.number("end")
    return _task(connection, request).times(_file(request), start, 1 << 62 if end is None else end)


def _task(connection: Connection, request: Asked) -> TaskOutputs | RunTask:
    """A task of the account, or of a run."""
    return _run_task(connection, request) if "run" in request.names else _outputs(connection, request)


def _outputs(connection: Connection, request: Asked) -> TaskOutputs:
    return connection.outputs(request.names["job"], request.names["task"])


def _file(request: Asked) -> str:
    return request.word("file") or STDOUT


def job_run(connection: Connection, request: Asked) -> dict[str, str]:
    """The recorded run of a job; of one that is gone, the newest with its id."""
    job = read.job_or_none(connection.batch, request.names["job"])
    if job is None:
        return {"run": recorded.newest(connection.runs, request.names["job"])}
    return {"run": recorded.of_job(connection.runs, job.id, job.created)}


def runs(connection: Connection, request: Asked) -> Found:
    """The recorded runs. Query: skip, text, sort (a metric; by default the newest first)."""
    words = {name: request.word(name) for name in ("text", "sort")}
    rows, more = recorded.listed(connection.runs, skip=request.number("skip") or 0, **words)
    return Found(rows, str(more or ""))


def run(connection: Connection, request: Asked) -> dict[str, Any]:
    """One run. Query: skip (tasks)."""
    return recorded.shown(connection.runs, request.names["run"], connection.account, request.number("skip") or 0)


def _run_task(connection: Connection, request: Asked) -> RunTask:
    return recorded.task(connection.runs, request.names["run"], request.names["task"])


TASK = "/jobs/{job}/tasks/{task}"
RUN_TASK = "/runs/{run}/tasks/{task}"
DOCUMENTS = (
    Document("/account", account, cost=0),
    Document("/overview", overview, cost=8, seconds=30),
    Document("/pools", pools, cost=2, seconds=20),
    Document("/pools/{pool}", pool),
    Document(
        "/pools/{pool}/plan", lambda reach, asked: masked_request(read.pool_document(reach.batch, asked.names["pool"]))
    ),
    Document(
        "/pools/{pool}/nodes",
        lambda reach, asked: [_node(row) for row in read.nodes(reach.batch, asked.names["pool"], read.WORKING_NODE)],
    ),
    Document(
        "/pools/{pool}/nodes/{node}",
        lambda reach, asked: _node(read.node(reach.batch, asked.names["pool"], asked.names["node"])),
    ),
    Document("/jobs", jobs, cost=6, seconds=20),
    Document("/jobs/{job}", job, cost=2),
    Document("/jobs/{job}/waits", waits, cost=8, seconds=60),
    Document("/jobs/{job}/run", job_run),
    Document("/jobs/{job}/plan", plan, cost=PLANNED_TASKS, seconds=600),
    Document("/jobs/{job}/timeline", timeline, cost=3, seconds=30),
    Document(
        "/jobs/{job}/numbers",
        lambda reach, asked: job_numbers(reach.client.jobs.handle(asked.names["job"])),
        cost=4,
        seconds=30,
    ),
    Document("/jobs/{job}/tasks", tasks, cost=len(FAILED_FIRST)),
    Document(TASK, task),
    Document(f"{TASK}/files", lambda reach, asked: _outputs(reach, asked).files(), seconds=60),
    Document(f"{TASK}/logs", logs, cost=2),
    Document(f"{TASK}/metrics", metrics),
    Document(f"{TASK}/ranks", ranks),
    Document(f"{TASK}/samples", samples),
    Document(f"{TASK}/stacks", stacks, cost=3),
    Document(f"{TASK}/search", search, cost=2),
    Document(f"{TASK}/times", times, cost=0),
    Document("/runs", runs, cost=0),
    Document("/runs/compare", lambda reach, asked: recorded.compared(reach.runs, asked.query.get("id", ())), cost=0),
    Document("/runs/{run}", run, cost=0),
    Document("/runs/{run}/curves", lambda reach, asked: recorded.curves(reach.runs, asked.names["run"]), cost=0),
    Document(
        "/runs/{run}/configuration", lambda reach, asked: recorded.configuration(reach.runs, asked.names["run"]), cost=0
    ),
    Document(f"{RUN_TASK}/files", lambda reach, asked: _run_task(reach, asked).logs(), cost=0),
    Document(f"{RUN_TASK}/logs", logs, cost=0),
    Document(f"{RUN_TASK}/stacks", stacks, cost=0),
    Document(f"{RUN_TASK}/search", search, cost=0),
    Document(f"{RUN_TASK}/times", times, cost=0),
    Document(f"{RUN_TASK}/metrics", lambda reach, asked: _run_task(reach, asked).metrics(), cost=0),
    Document(f"{RUN_TASK}/ranks", lambda reach, asked: recorded.ranks(reach.runs, **asked.names), cost=0),
)
"""The order counts: the first path that matches is read."""

_PATTERNS = [(re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", row.path)), row) for row in DOCUMENTS]


def matched(url: str) -> tuple[Document, Asked]:
    """The document of a path and query. Raises UsageError if there is none."""
    parts = urlsplit(url)
    for pattern, document in _PATTERNS:
        if match := pattern.fullmatch(parts.path):
            names = {name: unquote(value) for name, value in match.groupdict().items()}
            return document, Asked(names, parse_qs(parts.query))
    raise UsageError(f"`{url}` cannot be watched")


def topic(connection: Connection, url: str) -> Topic:
    """What a viewer watches: the output of a task, or a document. Raises UsageError."""
    document, request = matched(url)
    if document.read is logs:
        return _task(connection, request).output(_file(request))
    if make := _OF_OUTPUT.get(document.read):
        return make(_outputs(connection, request))
    return DocumentTopic(functools.partial(_watched, document, connection, request), document.cost, document.seconds)


_OF_OUTPUT: Mapping[Callable[..., Any], Callable[[TaskOutputs], Topic]] = {
    metrics: TaskOutputs.metrics,
    ranks: TaskOutputs.ranks,
    samples: TaskOutputs.samples,
}


def _watched(document: Document, connection: Connection, request: Asked) -> Any:
    answer = document.read(connection, request)
    return {"rows": answer.value, "next": answer.next} if isinstance(answer, Found) else answer
