"""Queries for pages of rows: tasks and nodes with their times, without listing what is not shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from azure.batch import BatchClient
from azure.core.rest import HttpRequest

from batchtrain.errors import UsageError
from batchtrain.service.faults import faults
from batchtrain.service.requests import API_VERSION, quoted

Row = TypeVar("Row")
ROWS = 200
"""Rows of a page."""
STATES = {
    "active": "state eq 'active'",
    "preparing": "state eq 'preparing'",
    "running": "state eq 'running'",
    "completed": "state eq 'completed'",
    "failed": "executionInfo/result eq 'failure'",
    "succeeded": "executionInfo/result eq 'success'",
}
"""The filters of tasks by name."""


class Page(NamedTuple, Generic[Row]):
    """Rows, and the token of the next page; empty on the last."""

    rows: tuple[Row, ...]
    next: str


class TaskRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task with its times."""

    id: str
    state: str
    result: str = ""
    exit_code: int | None = None
    node: str = ""
    pool: str = ""
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    seconds: float | None = None
    failure: str = ""
    retries: int = 0
    requeues: int = 0
    instances: int = 1
    command: str = ""


class RecentTask(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task that a node ran, or runs."""

    job_id: str = ""
    task_id: str = ""
    task_state: str = ""
    subtask_id: int | None = None


class NodeRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node with its times and what it runs."""

    id: str
    state: str
    address: str = ""
    size: str = ""
    dedicated: bool = True
    allocated: datetime | None = None
    booted: datetime | None = None
    since: datetime | None = None
    """The time of the last change of its state."""
    start_task: str = ""
    errors: tuple[str, ...] = ()
    running_tasks: int = 0
    running_slots: int = 0
    total_run: int = 0
    recent: tuple[RecentTask, ...] = ()


# --- queries --------------------------------------------------------------------------------------------------------


def tasks(
    client: BatchClient, job_id: str, *, state: str = "", prefix: str = "", skip: str = "", limit: int = ROWS
) -> Page[TaskRow]:
    """One page of the tasks of a job. state: a key of STATES. prefix: the beginning of their ids. Raises NotFound."""
    if state and state not in STATES:
        raise UsageError(f"`{state}` is no state of tasks; the states are {', '.join(STATES)}")
    terms = [STATES[state]] if state else []
    if prefix:
        terms.append(f"startswith(id,'{prefix.replace(chr(39), chr(39) * 2)}')")
    params = {"$select": _TASK, "maxresults": str(limit), "$filter": " and ".join(terms), "$skiptoken": skip}
    page = _get(client, f"/jobs/{quoted(job_id)}/tasks", params, f"list tasks of job {job_id}", _Tasks)
    return Page(tuple(map(_task_row, page.value)), _skip_token(page.next))


def task(client: BatchClient, job_id: str, task_id: str) -> TaskRow:
    """One task with its command. Raises NotFound."""
    url = f"/jobs/{quoted(job_id)}/tasks/{quoted(task_id)}"
    return _task_row(_get(client, url, {}, f"look at task {job_id}/{task_id}", _Task))


def task_document(client: BatchClient, job_id: str, task_id: str) -> dict[str, Any]:
    """A task as the service's JSON. Raises NotFound."""
    url = f"/jobs/{quoted(job_id)}/tasks/{quoted(task_id)}"
    return _get(client, url, {}, f"look at task {job_id}/{task_id}", dict[str, Any])


def nodes(client: BatchClient, pool_id: str) -> tuple[NodeRow, ...]:
    """All nodes of a pool, 1,000 in each request. Raises NotFound."""
    rows: list[NodeRow] = []
    skip = ""
    while True:
        params = {"$select": _NODE, "$skiptoken": skip}
        page = _get(client, f"/pools/{quoted(pool_id)}/nodes", params, f"list nodes of pool {pool_id}", _Nodes)
        rows += map(_node_row, page.value)
        if not (skip := _skip_token(page.next)):
            return tuple(rows)


def node(client: BatchClient, pool_id: str, node_id: str) -> NodeRow:
    """One node. Raises NotFound."""
    url = f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}"
    return _node_row(_get(client, url, {}, f"look at node {node_id}", _Node))


def node_counts(client: BatchClient) -> dict[str, dict[str, int]]:
    """The number of nodes by state of each pool."""
    page = _get(client, "/nodecounts", {}, "count the nodes", _Counts)
    return {item.pool_id: _added(item.dedicated, item.low_priority) for item in page.value}


def _added(*counts: Mapping[str, int]) -> dict[str, int]:
    states = dict.fromkeys(state for each in counts for state in each if state != "total")
    sums = {state.lower(): sum(each.get(state, 0) for each in counts) for state in states}
    return {state: number for state, number in sums.items() if number}


# --- the wire -------------------------------------------------------------------------------------------------------

_TASK = "id,state,creationTime,executionInfo,nodeInfo,multiInstanceSettings"
_NODE = (
    "id,state,ipAddress,vmSize,isDedicated,allocationTime,lastBootTime,stateTransitionTime,startTaskInfo,errors,"
    "runningTasksCount,runningTaskSlotsCount,totalTasksRun,recentTasks"
)


class _Fault(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Execution(msgspec.Struct, rename="camel"):
    start_time: datetime | None = None
    end_time: datetime | None = None
    exit_code: int | None = None
    result: str = ""
    state: str = ""
    failure_info: _Fault | None = None
    retry_count: int = 0
    requeue_count: int = 0


class _Place(msgspec.Struct, rename="camel"):
    node_id: str = ""
    pool_id: str = ""


class _Gang(msgspec.Struct, rename="camel"):
    number_of_instances: int = 1


class _Task(msgspec.Struct, rename="camel"):
    id: str
    state: str = ""
    creation_time: datetime | None = None
    execution_info: _Execution | None = None
    node_info: _Place | None = None
    multi_instance_settings: _Gang | None = None
    command_line: str = ""


class _Tasks(msgspec.Struct):
    value: list[_Task]
    next: str = msgspec.field(name="odata.nextLink", default="")


class _Node(msgspec.Struct, rename="camel"):
    id: str
    state: str = ""
    ip_address: str = ""
    vm_size: str = ""
    is_dedicated: bool = True
    allocation_time: datetime | None = None
    last_boot_time: datetime | None = None
    state_transition_time: datetime | None = None
    start_task_info: _Execution | None = None
    errors: tuple[_Fault, ...] = ()
    running_tasks_count: int = 0
    running_task_slots_count: int = 0
    total_tasks_run: int = 0
    recent_tasks: tuple[RecentTask, ...] = ()


class _Nodes(msgspec.Struct):
    value: list[_Node]
    next: str = msgspec.field(name="odata.nextLink", default="")


class _Count(msgspec.Struct, rename="camel"):
    pool_id: str
    dedicated: dict[str, int] = {}
    low_priority: dict[str, int] = {}


class _Counts(msgspec.Struct):
    value: list[_Count]


Document = TypeVar("Document")


def _get(client: BatchClient, path: str, params: Mapping[str, str], operation: str, kind: type[Document]) -> Document:
    given = {"api-version": API_VERSION, **{name: value for name, value in params.items() if value}}
    with faults(operation):
        response = client.send_request(HttpRequest("GET", path, params=given))
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=kind)


def _skip_token(link: str) -> str:
    """The token of the next page; the rest of its link is not needed."""
    return parse_qs(urlsplit(link).query).get("$skiptoken", [""])[0]


def _task_row(item: _Task) -> TaskRow:
    info, place = item.execution_info or _Execution(), item.node_info or _Place()
    took = (info.end_time - info.start_time).total_seconds() if info.end_time and info.start_time else None
    return TaskRow(
        id=item.id,
        state=item.state,
        result=info.result.lower(),
        exit_code=info.exit_code,
        node=place.node_id,
        pool=place.pool_id,
        created=item.creation_time,
        started=info.start_time,
        ended=info.end_time,
        seconds=took,
        failure=_sentence(info.failure_info),
        retries=info.retry_count,
        requeues=info.requeue_count,
        instances=item.multi_instance_settings.number_of_instances if item.multi_instance_settings else 1,
        command=item.command_line,
    )


def _node_row(item: _Node) -> NodeRow:
    start = item.start_task_info
    return NodeRow(
        id=item.id,
        state=item.state,
        address=item.ip_address,
        size=item.vm_size,
        dedicated=item.is_dedicated,
        allocated=item.allocation_time,
        booted=item.last_boot_time,
        since=item.state_transition_time,
        start_task=_start(start) if start else "",
        errors=tuple(map(_sentence, item.errors)),
        running_tasks=item.running_tasks_count,
        running_slots=item.running_task_slots_count,
        total_run=item.total_tasks_run,
        recent=item.recent_tasks,
    )


def _start(info: _Execution) -> str:
    if info.state == "running":
        return "running"
    return "ok" if info.exit_code == 0 else f"exit code {info.exit_code}"


def _sentence(fault: _Fault | None) -> str:
    return f"{fault.code}: {fault.message}" if fault else ""
