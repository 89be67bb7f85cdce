"""Queries for pages of rows: tasks and nodes with their times, without listing what is not shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from azure.batch import BatchClient

from batchtrain.config.masking import masked_request
from batchtrain.service import requests
from batchtrain.service import tasks as service_tasks
from batchtrain.service.requests import answer, query, quoted
from batchtrain.service.tasks import Execution, Fault, Listed, Node

ROWS = 200
"""Rows of a page."""


class TaskPage(NamedTuple):
    """Tasks, and the token of the next page; empty on the last."""

    rows: tuple[TaskRow, ...]
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
    client: BatchClient, job_id: str, *, where: str = "", prefix: str = "", skip: str = "", limit: int = ROWS
) -> TaskPage:
    """One page of the tasks of a job. where: a filter. prefix: the beginning of their ids. Raises NotFound."""
    terms = [f"({where})"] if where else []
    if prefix:
        terms.append(f"startswith(id,'{prefix.replace(chr(39), chr(39) * 2)}')")
    page = service_tasks.page(client, job_id, where=" and ".join(terms), select=_TASK, limit=limit, skip=skip)
    return TaskPage(tuple(map(_task_row, page.tasks)), page.next)


def task(client: BatchClient, job_id: str, task_id: str) -> TaskRow:
    """One task with its command, without secrets. Raises NotFound."""
    return _task_row(msgspec.convert(masked_request(task_document(client, job_id, task_id)), Listed))


def task_document(client: BatchClient, job_id: str, task_id: str) -> dict[str, Any]:
    """A task as the service's JSON. Raises NotFound."""
    return answer(client, _task_url(job_id, task_id), f"look at task {job_id}/{task_id}", dict[str, Any])


def _task_url(job_id: str, task_id: str) -> str:
    return f"/jobs/{quoted(job_id)}/tasks/{quoted(task_id)}"


def nodes(client: BatchClient, pool_id: str) -> tuple[NodeRow, ...]:
    """All nodes of a pool, 1,000 in each request. Raises NotFound."""
    url = f"/pools/{quoted(pool_id)}/nodes{query({'$select': _NODE})}"
    listed = requests.listed(client, url, f"list nodes of pool {pool_id}", requests.Page[_Node])
    return tuple(map(_node_row, listed))


def node(client: BatchClient, pool_id: str, node_id: str) -> NodeRow:
    """One node. Raises NotFound."""
    url = f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}"
    return _node_row(answer(client, url, f"look at node {node_id}", _Node))


def node_counts(client: BatchClient) -> dict[str, dict[str, int]]:
    """The number of nodes by state of each pool."""
    listed = requests.listed(client, "/nodecounts", "count the nodes", requests.Page[_Count])
    return {item.pool_id: _added(item.dedicated, item.low_priority) for item in listed}


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


class _Node(msgspec.Struct, rename="camel"):
    id: str
    state: str = ""
    ip_address: str = ""
    vm_size: str = ""
    is_dedicated: bool = True
    allocation_time: datetime | None = None
    last_boot_time: datetime | None = None
    state_transition_time: datetime | None = None
    start_task_info: Execution | None = None
    errors: tuple[Fault, ...] = ()
    running_tasks_count: int = 0
    running_task_slots_count: int = 0
    total_tasks_run: int = 0
    recent_tasks: tuple[RecentTask, ...] = ()


class _Count(msgspec.Struct, rename="camel"):
    pool_id: str
    dedicated: dict[str, int] = {}
    low_priority: dict[str, int] = {}


def _task_row(item: Listed) -> TaskRow:
    info, node_info = item.execution_info or Execution(), item.node_info or Node()
    return TaskRow(
        id=item.id,
        state=item.state,
        result=info.result.lower(),
        exit_code=info.exit_code,
        node=node_info.node_id,
        pool=node_info.pool_id,
        created=item.creation_time,
        started=info.start_time,
        ended=info.end_time,
        seconds=info.seconds,
        failure=str(info.failure_info or ""),
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
        errors=tuple(map(str, item.errors)),
        running_tasks=item.running_tasks_count,
        running_slots=item.running_task_slots_count,
        total_run=item.total_tasks_run,
        recent=item.recent_tasks,
    )


def _start(info: Execution) -> str:
    if info.state == "running":
        return "running"
    return "ok" if info.exit_code == 0 else f"exit code {info.exit_code}"
