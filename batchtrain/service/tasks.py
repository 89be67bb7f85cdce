"""The tasks of a job: counted, listed by pages and filters, or one alone."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec
from azure.batch import BatchClient

from batchtrain.config.factories import PARAMETERS
from batchtrain.errors import UsageError
from batchtrain.records.seen import Counts, TaskSeen
from batchtrain.service import requests
from batchtrain.service.requests import Creation, answer, creation, moment, query, quoted

PAGE = 1000
"""The largest page of the service."""
FEW = 20
"""A job with more tasks is never listed while it is watched."""
OPEN, FAILED = "state ne 'completed'", "executionInfo/result eq 'failure'"
STATES: Mapping[str, str] = {
    "active": "state eq 'active'",
    "running": "state eq 'running' or state eq 'preparing'",
    "completed": "state eq 'completed'",
    "succeeded": "executionInfo/result eq 'success'",
    "failed": FAILED,
}
"""The filter of each state that a user can name."""
FIRST_SECONDS, FURTHER = 1.0, 8
"""How far back the changes of a large job are asked for first, and the factor of each next time."""
LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
SEEN = "id,state,executionInfo,nodeInfo"
"""The properties that a TaskSeen is made of."""


class Glance(NamedTuple):
    """The first tasks of a job, the counts of all, and the number of requests that this took."""

    first: tuple[TaskSeen, ...]
    counts: Counts
    requests: int

    @property
    def whole(self) -> bool:
        """Whether `first` is every task of the job."""
        return self.requests == 1


def filter_of(state: str) -> str:
    """The filter of a state's tasks; empty for all tasks. Raises UsageError."""
    if state and state not in STATES:
        raise UsageError(f"`{state}` is not a state of a task; the states are {', '.join(STATES)}")
    return STATES[state] if state else ""


def glance(client: BatchClient, job_id: str, most: int = FEW) -> Glance:
    """The state of a job's tasks: one request for a job of up to `most` tasks, two for a larger one."""
    first = tuple(map(seen, listed(client, job_id, limit=most + 1)))
    if len(first) <= most:
        return Glance(first, _counted(first), 1)
    return Glance(first[:most], counts(client, job_id), 2)


def _counted(tasks: Iterable[TaskSeen]) -> Counts:
    numbers = dict.fromkeys(Counts._fields, 0)
    for task in tasks:
        numbers[count_of(task)] += 1
    return Counts(**numbers)


def count_of(task: TaskSeen) -> str:
    """The count that the service adds a task to."""
    if task.state == "completed":
        return "failed" if task.failed else "succeeded"
    return "active" if task.state == "active" else "running"


def counts(client: BatchClient, job_id: str) -> Counts:
    """The counts of a job's tasks. Raises NotFound."""
    path = f"/jobs/{quoted(job_id)}/taskcounts"
    counted = answer(client, path, f"count the tasks of job {job_id}", _CountsAnswer).task_counts
    return Counts(counted.active, counted.running, counted.succeeded, counted.failed)


def task(client: BatchClient, job_id: str, task_id: str) -> TaskSeen:
    """One task. Raises NotFound."""
    path = f"/jobs/{quoted(job_id)}/tasks/{quoted(task_id)}{query({'$select': SEEN})}"
    return seen(answer(client, path, f"look at task {job_id}/{task_id}", Listed))


def listed(
    client: BatchClient, job_id: str, *, where: str = "", select: str = SEEN, limit: int | None = None
) -> Iterator[Listed]:
    """The tasks of a job, page by page. where: a filter of the service. Raises NotFound."""
    size = PAGE if limit is None else min(limit, PAGE)
    url = f"/jobs/{quoted(job_id)}/tasks{query({'$filter': where, '$select': select, 'maxresults': str(size)})}"
    tasks = requests.listed(client, url, f"list tasks of job {job_id}", requests.Page[Listed])
    return itertools.islice(tasks, limit)


def last(client: BatchClient, job_id: str, count: int, where: str = "") -> list[Listed]:
    """The tasks whose state changed last, in the order of the changes. Raises NotFound.

    A job with more than one page of tasks is asked for the changes since a moment, which goes further back until they
    are enough.
    """
    select = f"{SEEN},stateTransitionTime"
    beginning = page(client, job_id, where=where, select=select, limit=PAGE)
    changes: Iterable[Listed] = beginning.tasks
    if beginning.next:
        created = creation(client, f"/jobs/{quoted(job_id)}")
        for since in (*_moments(created), ""):
            changed = f"stateTransitionTime gt DateTime'{since}'" if since else ""
            both = f"({where}) and {changed}" if where and changed else where or changed
            changes = heapq.nlargest(count, listed(client, job_id, where=both, select=select), key=_changed)
            if len(changes) == count:
                break
    return sorted(changes, key=_changed)[-count:]


def _changed(task: Listed) -> datetime:
    return task.state_transition_time or LONG_AGO


def _moments(created: Creation) -> Iterator[str]:
    """Moments further and further back, by the clock of the service, until a job was created."""
    seconds, age = FIRST_SECONDS, created.age or 0.0
    while seconds < age:
        yield (moment(created.time) + timedelta(seconds=age - seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        seconds *= FURTHER


def variable(client: BatchClient, job_id: str, name: str) -> Iterator[tuple[str, str]]:
    """The tasks of a job that have an environment variable, each with its value."""
    tasks = listed(client, job_id, select="id,environmentSettings")
    return ((task.id, item.value) for task in tasks for item in task.environment_settings if item.name == name)


def parameters(client: BatchClient, job_id: str) -> dict[str, dict[str, Any]]:
    """The named parameters of each task that a factory made with some. A variable that is not ours is ignored."""
    named = {}
    for task_id, text in variable(client, job_id, PARAMETERS):
        with contextlib.suppress(msgspec.DecodeError):
            named[task_id] = msgspec.json.decode(text, type=dict[str, Any])
    return named


class Page(NamedTuple):
    """Some tasks, and the token of the next page; empty on the last."""

    tasks: tuple[Listed, ...]
    next: str


def page(client: BatchClient, job_id: str, *, where: str, select: str, limit: int, skip: str = "") -> Page:
    """One page of the tasks of a job. skip: the token of an earlier page. Raises NotFound."""
    params = {"$filter": where, "$select": select, "maxresults": str(limit), "$skiptoken": skip}
    url = f"/jobs/{quoted(job_id)}/tasks{query(params)}"
    answered = answer(client, url, f"list tasks of job {job_id}", requests.Page[Listed])
    return Page(answered.value, skip_token(answered.next))


def skip_token(link: str) -> str:
    """The token of the next page; the rest of its link is not needed."""
    return parse_qs(urlsplit(link).query).get("$skiptoken", [""])[0]


# --- the wire -------------------------------------------------------------------------------------------------------


class Fault(msgspec.Struct):
    """Why a task failed, other than by its exit code, or the fault of a node."""

    code: str = ""
    message: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Execution(msgspec.Struct, rename="camel"):
    """The last run of a task."""

    start_time: datetime | None = None
    end_time: datetime | None = None
    exit_code: int | None = None
    result: str = ""
    state: str = ""
    """Of a start task."""
    failure_info: Fault | None = None
    retry_count: int = 0
    requeue_count: int = 0

    @property
    def seconds(self) -> float | None:
        """How long it took; None if it has not ended."""
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time).total_seconds()


class Node(msgspec.Struct, rename="camel"):
    """Where a task ran."""

    node_id: str = ""
    pool_id: str = ""
    task_root_directory: str = ""


class Gang(msgspec.Struct, rename="camel"):
    """The multi-instance settings of a task."""

    number_of_instances: int = 1


class Variable(msgspec.Struct):
    """An environment variable."""

    name: str
    value: str = ""


class Listed(msgspec.Struct, rename="camel"):
    """A task as the service's document has it; properties that were not selected have their defaults."""

    id: str
    state: str = ""
    state_transition_time: datetime | None = None
    creation_time: datetime | None = None
    execution_info: Execution | None = None
    node_info: Node | None = None
    multi_instance_settings: Gang | None = None
    required_slots: int = 1
    command_line: str = ""
    environment_settings: tuple[Variable, ...] = ()


def seen(item: Listed) -> TaskSeen:
    """A task as the user sees it. Tasks share equal texts, for there may be a million."""
    info = item.execution_info or Execution()
    return TaskSeen(
        id=item.id,
        state=sys.intern(item.state),
        result=sys.intern(info.result.lower()),
        exit_code=info.exit_code,
        node=sys.intern(item.node_info.node_id) if item.node_info else "",
        seconds=info.seconds,
        failure=str(info.failure_info or ""),
        retries=info.retry_count,
        requeues=info.requeue_count,
        started=info.start_time,
    )


class _Counts(msgspec.Struct):
    active: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class _CountsAnswer(msgspec.Struct, rename="camel"):
    task_counts: _Counts
