"""The one place that reads pools, nodes, jobs and tasks: each query answers with records, or with whole documents.

`select` names the properties of the service's document that a query asks for.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from azure.batch import BatchClient
from azure.core.pipeline import PipelineResponse
from azure.core.rest import HttpRequest
from msgspec.structs import replace

from batchtrain import foreign
from batchtrain.catalog import api_versions
from batchtrain.config.masking import masked_request
from batchtrain.config.types import FETCH_VARIABLE, FetchSettings
from batchtrain.errors import NotFound, ServiceError
from batchtrain.plan import wire
from batchtrain.plan.diff import Living
from batchtrain.plan.types import PoolFacts
from batchtrain.records import Counts, Endpoint, Image, Job, JobSchedule, Node, Pool, Task, TaskNode, node_hours
from batchtrain.records.jobs import Preparation
from batchtrain.records.record import Time
from batchtrain.service import answers, clock_difference
from batchtrain.service.answers import Named, NodeCounts, NodeEndpoints, SubtaskAnswer, TaskAnswer, TaskCounts
from batchtrain.service.faults import faults
from batchtrain.service.requests import Page, answer, answer_as, listed, listed_as, query, quoted

Value = TypeVar("Value")

PAGE = 1000
"""The largest page of the service."""
POOL = (
    "id,state,allocationState,vmSize,currentDedicatedNodes,targetDedicatedNodes,currentLowPriorityNodes,"
    "targetLowPriorityNodes,enableInterNodeCommunication,taskSlotsPerNode,resizeErrors,enableAutoScale,"
    "allocationStateTransitionTime,creationTime"
)
EXAMINED_POOL = f"{POOL},autoScaleRun,autoScaleEvaluationInterval"
NODE = "id,state,ipAddress,startTaskInfo,errors,allocationTime,isDedicated"
LOST_NODE = f"{NODE},lastBootTime,stateTransitionTime"
WORKING_NODE = (
    f"{NODE},vmSize,lastBootTime,stateTransitionTime,runningTasksCount,runningTaskSlotsCount,totalTasksRun,recentTasks"
)
LISTED_JOB = "id,state,creationTime,executionInfo,poolInfo"
JOB = f"{LISTED_JOB},jobPreparationTask"
EXAMINED_JOB = f"{JOB},constraints"
SCHEDULE = "id,state,executionInfo"
TASK = "id,state,executionInfo,nodeInfo"
TIMED_TASK = f"{TASK},creationTime,multiInstanceSettings"
MARKED = "id,state,creationTime,metadata"
MARKED_POOL = f"{MARKED},vmSize,currentDedicatedNodes,currentLowPriorityNodes"
COUNTED_TASK = f"{TIMED_TASK},requiredSlots"
EXAMINED_TASK = f"{TASK},multiInstanceSettings,requiredSlots,dependsOn,exitConditions,constraints,containerSettings"


# --- pools and nodes ------------------------------------------------------------------------------------------------


def pools(client: BatchClient, select: str = POOL) -> tuple[Pool, ...]:
    """All pools."""
    return tuple(_records(client, _url("pools", select=select), "list pools", functools.partial(answers.record, Pool)))


def pool(client: BatchClient, pool_id: str, select: str = POOL) -> Pool:
    """One pool. Raises NotFound."""
    url = _url("pools", pool_id, select=select)
    return _record(client, url, f"look at pool {pool_id}", functools.partial(answers.record, Pool))


def pool_or_none(client: BatchClient, pool_id: str, select: str = POOL) -> Pool | None:
    """One pool; None if it does not exist."""
    return _if_there(lambda: pool(client, pool_id, select))


def holders(client: BatchClient, pool: Pool | None) -> tuple[Pool, ...]:
    """The other pools of the account that have nodes, if a quota of cores refused the nodes of this one."""
    if pool is None or not pool.refusal.is_core_quota:
        return ()
    return tuple(other for other in pools(client) if other.nodes and other.id != pool.id)


class Version(msgspec.Struct, frozen=True):
    """What a conditional change of a pool, a job or a job schedule needs."""

    id: str
    etag: str = msgspec.field(default="", name="eTag")
    created: Time | None = msgspec.field(default=None, name="creationTime")
    state: str = ""
    metadata: tuple[dict[str, str], ...] = ()


def version(client: BatchClient, kind: str, collection: str, thing_id: str) -> Version:
    """The version of a thing. Raises NotFound."""
    return answer(client, _url(collection, thing_id), f"look at {kind} {thing_id}", Version)


def facts_of(pool: Pool) -> PoolFacts:
    """The properties of an existing pool that planning needs."""
    return PoolFacts(pool.id, pool.vm_size.upper(), pool.dedicated, pool.spot, pool.inter_node, pool.slots)


def with_node_hours(client: BatchClient, pools: Iterable[Pool], now: datetime) -> tuple[Pool, ...]:
    """The pools with their node hours, without those that are deleted meanwhile: one request for each pool with
    nodes."""
    of_pools = ((pool, nodes_or_none(client, pool.id) if pool.nodes else ()) for pool in pools)
    return tuple(replace(pool, node_hours=node_hours(nodes, now)) for pool, nodes in of_pools if nodes is not None)


def nodes(client: BatchClient, pool_id: str, select: str = NODE) -> tuple[Node, ...]:
    """The nodes of a pool. Raises NotFound."""
    url = _url("pools", pool_id, "nodes", select=select)
    return tuple(_records(client, url, f"list nodes of pool {pool_id}", answers.node))


def nodes_or_none(client: BatchClient, pool_id: str, select: str = NODE) -> tuple[Node, ...] | None:
    """The nodes of a pool; None if it does not exist."""
    return _if_there(lambda: nodes(client, pool_id, select))


def node(client: BatchClient, pool_id: str, node_id: str) -> Node:
    """One node. Raises NotFound."""
    return _record(client, _url("pools", pool_id, "nodes", node_id), f"look at node {node_id}", answers.node)


def endpoints(client: BatchClient, pool_id: str, port: int) -> tuple[Endpoint, ...]:
    """The outside address of a port of each node; nodes without one are omitted."""
    url = _url("pools", pool_id, "nodes", select="id,endpointConfiguration")
    nodes = listed(client, url, f"list nodes of pool {pool_id}", Page[NodeEndpoints])
    return tuple(endpoint for node in nodes for endpoint in node.of(port))


def node_counts(client: BatchClient) -> dict[str, dict[str, int]]:
    """The number of nodes by state of each pool."""
    counts = listed(client, _url("nodecounts"), "count the nodes", Page[NodeCounts])
    return {count.pool_id: count.states for count in counts}


def images(client: BatchClient) -> tuple[Image, ...]:
    """The images from which the account can start nodes."""
    read = functools.partial(answers.record, Image)
    return tuple(_records(client, _url("supportedimages"), "list supported images", read))


def clock_skew(client: BatchClient) -> float | None:
    """Seconds that this machine's clock is ahead of the service's, to about a second; None if the service sends no
    date. A refusal has a date too, so this also works if the sign-in fails."""
    request = HttpRequest("GET", "/pools", params={"api-version": wire.API_VERSION, "maxresults": "1"})
    dates: list[str] = []

    def note(response: PipelineResponse[Any, Any]) -> None:
        dates.append(response.http_response.headers.get("Date", ""))

    try:
        with faults("ask for the time"):
            client.send_request(request, raw_response_hook=note)
    except ServiceError:
        if not dates:
            raise
    return clock_difference.ahead(dates[-1]) if dates else None


# --- jobs -----------------------------------------------------------------------------------------------------------


def jobs(client: BatchClient, select: str = LISTED_JOB, where: str = "") -> tuple[Job, ...]:
    """All jobs, or those of a filter of the service."""
    return tuple(_records(client, _url("jobs", select=select, filter=where), "list jobs", answers.job))


def jobs_ended_before(client: BatchClient, time: datetime) -> tuple[Job, ...]:
    """The jobs that completed before a time, with their metadata."""
    text = time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return jobs(client, f"{JOB},metadata", f"state eq 'completed' and executionInfo/endTime lt DateTime'{text}'")


def job(client: BatchClient, job_id: str, select: str = JOB) -> Job:
    """One job without the counts of its tasks. Raises NotFound."""
    return _record(client, _url("jobs", job_id, select=select), f"look at job {job_id}", answers.job)


def job_or_none(client: BatchClient, job_id: str, select: str = JOB) -> Job | None:
    """The same; None if the job does not exist."""
    return _if_there(lambda: job(client, job_id, select))


def counted_job(client: BatchClient, job_id: str, select: str = JOB) -> Job:
    """One job with the counts of its tasks. Raises NotFound."""
    return replace(job(client, job_id, select), **counts(client, job_id)._asdict())


def counts(client: BatchClient, job_id: str) -> Counts:
    """The counts of a job's tasks. Raises NotFound."""
    url = _url("jobs", job_id, "taskcounts")
    numbers = answer(client, url, f"count the tasks of job {job_id}", TaskCounts).task_counts
    return Counts(*(numbers.get(name, 0) for name in Counts._fields))


def preparations(client: BatchClient, job_id: str) -> tuple[Preparation, ...]:
    """The job preparation task of a job that has one, on each node where it started. Raises NotFound."""
    url, operation = _url("jobs", job_id, "jobpreparationandreleasetaskstatus"), f"look at the nodes of job {job_id}"
    return tuple(_records(client, url, operation, functools.partial(answers.record, Preparation)))


def schedules(client: BatchClient, select: str = SCHEDULE) -> tuple[JobSchedule, ...]:
    """All job schedules."""
    read = functools.partial(answers.record, JobSchedule)
    return tuple(_records(client, _url("jobschedules", select=select), "list job schedules", read))


def schedule(client: BatchClient, schedule_id: str) -> JobSchedule:
    """One job schedule. Raises NotFound."""
    url, read = _url("jobschedules", schedule_id, select=SCHEDULE), functools.partial(answers.record, JobSchedule)
    return _record(client, url, f"look at job schedule {schedule_id}", read)


# --- tasks ----------------------------------------------------------------------------------------------------------


class TaskPage(NamedTuple):
    """Tasks, and the token of the next page; empty on the last."""

    tasks: tuple[Task, ...]
    next: str


class Change(NamedTuple):
    """A task, and when its state changed last."""

    time: datetime
    task: Task


LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


def task(client: BatchClient, job_id: str, task_id: str, select: str = TASK) -> Task:
    """One task. Raises NotFound. select: empty for all properties."""
    url = _url("jobs", job_id, "tasks", task_id, select=select)
    return answer(client, url, f"look at task {job_id}/{task_id}", TaskAnswer).record


class Repeats(NamedTuple):
    """How often a task may be retried (-1: without a limit), and when the service last started it again."""

    retries: int
    retried_at: datetime | None
    requeued_at: datetime | None


def repeats(client: BatchClient, job_id: str, task_id: str) -> Repeats:
    """Why a task runs again. Raises NotFound."""
    url = _url("jobs", job_id, "tasks", task_id, select="id,executionInfo,constraints")
    item = answer(client, url, f"look at task {job_id}/{task_id}", TaskAnswer)
    run = item.execution_info
    return Repeats(item.constraints.max_task_retry_count, run.last_retry_time, run.last_requeue_time)


def masked_task(client: BatchClient, job_id: str, task_id: str) -> Task:
    """One task with all properties, without secrets. Raises NotFound."""
    url, operation = _url("jobs", job_id, "tasks", task_id), f"look at task {job_id}/{task_id}"
    return _record(client, url, operation, lambda item: msgspec.convert(masked_request(item), TaskAnswer).record)


def tasks(
    client: BatchClient, job_id: str, *, where: str = "", select: str = TASK, limit: int | None = None
) -> Iterator[Task]:
    """The tasks of a job, page by page. where: a filter of the service. Raises NotFound."""
    return (item.record for item in _tasks(client, job_id, where, select, limit))


def task_page(
    client: BatchClient, job_id: str, *, where: str = "", select: str = TIMED_TASK, limit: int, skip: str = ""
) -> TaskPage:
    """One page of the tasks of a job. skip: the token of an earlier page. Raises NotFound."""
    page = _page(client, job_id, where, select, limit, skip)
    token = parse_qs(urlsplit(page.next).query).get("$skiptoken", [""])[0]  # the rest of the link is not needed
    return TaskPage(tuple(item.record for item in page.value), token)


def changes(client: BatchClient, job_id: str, where: str) -> Iterator[Change]:
    """The tasks of a job with the times of their last changes. Raises NotFound."""
    return map(_change, _tasks(client, job_id, where, f"{TASK},stateTransitionTime"))


def first_changes(client: BatchClient, job_id: str, where: str) -> tuple[list[Change], bool]:
    """The same for one page, and whether there are more. Raises NotFound."""
    page = _page(client, job_id, where, f"{TASK},stateTransitionTime", PAGE)
    return list(map(_change, page.value)), bool(page.next)


def variables(client: BatchClient, job_id: str, name: str) -> Iterator[tuple[str, str]]:
    """The tasks of a job that have an environment variable, each with its value."""
    items = _tasks(client, job_id, "", "id,environmentSettings")
    pairs = ((item.id, variable) for item in items for variable in item.environment_settings)
    return ((task_id, variable.value) for task_id, variable in pairs if variable.name == name)


def fetch_settings(client: BatchClient, job_id: str, task_id: str) -> FetchSettings:
    """The `results` and `metrics` with which a task was added; nothing for a task of another program. Raises
    NotFound."""
    url = _url("jobs", job_id, "tasks", task_id, select="id,environmentSettings")
    item = answer(client, url, f"look at task {job_id}/{task_id}", TaskAnswer)
    value = next((variable.value for variable in item.environment_settings if variable.name == FETCH_VARIABLE), "{}")
    return _settings(value)


def all_fetch_settings(client: BatchClient, job_id: str) -> dict[str, FetchSettings]:
    """The same for all tasks of a job that have some."""
    return {task_id: _settings(value) for task_id, value in variables(client, job_id, FETCH_VARIABLE)}


def _settings(value: str) -> FetchSettings:
    return foreign.read(value, FetchSettings) or FetchSettings()  # of another program, or of a later version


def task_nodes(client: BatchClient, job_id: str, task_id: str) -> tuple[TaskNode, ...]:
    """Where a task ran, its primary first; empty for a task that has not run. Raises NotFound."""
    path, operation = ("jobs", job_id, "tasks", task_id), f"look at task {job_id}/{task_id}"
    item = answer(client, _url(*path, select="id,nodeInfo,multiInstanceSettings"), operation, TaskAnswer)
    subtasks = listed(client, _url(*path, "subtasksinfo"), operation, Page[SubtaskAnswer])
    each = (item, *subtasks) if item.multi_instance_settings else (item,)
    return tuple(part.node for part in each if part.node.node)


def primary_nodes(client: BatchClient, job_id: str) -> Iterator[tuple[str, TaskNode]]:
    """Where each task of a job that has run ran, or its primary."""
    return ((item.id, item.node) for item in _tasks(client, job_id, "", "id,nodeInfo") if item.node.node)


def _tasks(client: BatchClient, job_id: str, where: str, select: str, limit: int | None = None) -> Iterator[TaskAnswer]:
    size = PAGE if limit is None else min(limit, PAGE)
    url = _url("jobs", job_id, "tasks", select=select, filter=where, maxresults=str(size))
    return itertools.islice(listed(client, url, f"list tasks of job {job_id}", Page[TaskAnswer]), limit)


def _page(client: BatchClient, job_id: str, where: str, select: str, size: int, skip: str = "") -> Page[TaskAnswer]:
    url = _url("jobs", job_id, "tasks", select=select, filter=where, maxresults=str(size), skiptoken=skip)
    return answer(client, url, f"list tasks of job {job_id}", Page[TaskAnswer])


def _change(item: TaskAnswer) -> Change:
    return Change(item.state_transition_time or LONG_AGO, item.record)


# --- whole documents, to compare with a plan and to show --------------------------------------------------------------


def living(client: BatchClient, resources: Iterable[tuple[str, tuple[str, ...], Any]]) -> Living:
    """The existing pools, jobs, job schedules and tasks of a plan (`plan.diff.wanted`), as the service's JSON."""
    names: dict[str, dict[str, None]] = {}
    versions: dict[str, str] = {}
    for kind, name, body in resources:
        names.setdefault(kind, {})[name[0]] = None
        if kind == "pool":
            versions[name[0]] = api_versions.needed("pool", body)
    jobs = _each(names.get("job", ()), lambda name: job_document(client, name))
    tasks = {name: list(task_documents(client, name)) for name in names.get("task", ()) if name in jobs}
    return Living(
        pools=_each(names.get("pool", ()), lambda name: pool_document(client, name, versions[name])),
        jobs=jobs,
        schedules=_each(names.get("schedule", ()), lambda name: document(client, "job schedule", "jobschedules", name)),
        tasks={(name, body["id"]): body for name, bodies in tasks.items() for body in bodies},
    )


def document(client: BatchClient, kind: str, *path: str) -> dict[str, Any]:
    """One thing as the service's JSON. kind: its kind in messages. path: of its URL. Raises NotFound."""
    return _record(client, _url(*path), f"look at {kind} {'/'.join(path[1::2])}", answers.checked)


def pool_document(client: BatchClient, pool_id: str, version: str = wire.API_VERSION) -> dict[str, Any]:
    """A pool as the service's JSON. version: an API version that has its properties. Raises NotFound."""
    url = f"/pools/{quoted(pool_id)}{query({'api-version': version})}"
    return _record(client, url, f"look at pool {pool_id}", answers.checked)


def job_document(client: BatchClient, job_id: str) -> dict[str, Any]:
    """A job as the service's JSON. Raises NotFound."""
    return document(client, "job", "jobs", job_id)


def job_with_document(client: BatchClient, job_id: str) -> tuple[Job, dict[str, Any]]:
    """The same, after its record."""
    document = job_document(client, job_id)
    return answers.job(document), document


def task_document(client: BatchClient, job_id: str, task_id: str) -> dict[str, Any]:
    """A task as the service's JSON. Raises NotFound."""
    url = _url("jobs", job_id, "tasks", task_id)
    return _record(client, url, f"look at task {job_id}/{task_id}", functools.partial(answers.checked, kind=Named))


def task_documents(client: BatchClient, job_id: str, select: str = "") -> Iterator[dict[str, Any]]:
    """The tasks of a job as the service's JSON. Raises NotFound."""
    url = _url("jobs", job_id, "tasks", select=select)
    return _records(client, url, f"list tasks of job {job_id}", functools.partial(answers.checked, kind=Named))


def _record(client: BatchClient, url: str, operation: str, read: Callable[[dict[str, Any]], Value]) -> Value:
    return answer_as(client, url, operation, dict[str, Any], read)


def _records(client: BatchClient, url: str, operation: str, read: Callable[[dict[str, Any]], Value]) -> Iterator[Value]:
    return listed_as(client, url, operation, Page[dict[str, Any]], read)


def _each(names: Iterable[str], read: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The documents of the existing ones."""
    documents = ((name, _if_there(functools.partial(read, name))) for name in names)
    return {name: body for name, body in documents if body is not None}


def _if_there(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except NotFound:
        return None


def _url(*path: str, select: str = "", filter: str = "", maxresults: str = "", skiptoken: str = "") -> str:
    params = {"$select": select, "$filter": filter, "maxresults": maxresults, "$skiptoken": skiptoken}
    return "".join(f"/{quoted(segment)}" for segment in path) + query(params)
