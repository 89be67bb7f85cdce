"""Queries: the pools, nodes, jobs and tasks that currently exist."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any, TypeVar

from azure.batch import BatchClient, models
from azure.core.pipeline import PipelineResponse
from azure.core.rest import HttpRequest

from batchtrain.errors import NotFound, ServiceError
from batchtrain.plan.diff import Living
from batchtrain.plan.types import PoolFacts
from batchtrain.records.seen import (
    Endpoint,
    ImageSeen,
    JobSeen,
    NodeSeen,
    PlaceSeen,
    PoolSeen,
    ScheduleSeen,
    node_hours,
)
from batchtrain.service import clock_difference
from batchtrain.service.faults import faults
from batchtrain.service.requests import API_VERSION
from batchtrain.service.tasks import counts

Value = TypeVar("Value")

_POOL = ["id", "state", "allocationState", "vmSize", "currentDedicatedNodes", "targetDedicatedNodes",
         "currentLowPriorityNodes", "targetLowPriorityNodes", "enableInterNodeCommunication", "taskSlotsPerNode",
         "resizeErrors"]  # fmt: skip
_NODE = ["id", "state", "ipAddress", "startTaskInfo", "errors", "allocationTime", "isDedicated"]
_JOB = ["id", "state", "creationTime", "executionInfo", "poolInfo"]
_SCHEDULE = ["id", "state", "executionInfo"]


def pools(client: BatchClient) -> tuple[PoolSeen, ...]:
    """All pools."""
    with faults("list pools"):
        return tuple(_pool(item) for item in client.list_pools(select=_POOL))


def pool(client: BatchClient, pool_id: str) -> PoolSeen:
    """One pool. Raises NotFound."""
    with faults(f"look at pool {pool_id}"):
        return _pool(client.get_pool(pool_id, select=_POOL))


def facts_of(seen: PoolSeen) -> PoolFacts:
    """The properties of an existing pool that planning needs."""
    return PoolFacts(seen.id, seen.vm_size.upper(), seen.dedicated, seen.spot, seen.inter_node, seen.slots)


def nodes(client: BatchClient, pool_id: str) -> tuple[NodeSeen, ...]:
    """The nodes of a pool."""
    with faults(f"list nodes of pool {pool_id}"):
        return tuple(_node(item) for item in client.list_nodes(pool_id, select=_NODE))


def endpoints(client: BatchClient, pool_id: str, port: int) -> tuple[Endpoint, ...]:
    """The outside address of a port of each node; nodes without one are omitted."""
    with faults(f"list the endpoints of pool {pool_id}"):
        nodes = tuple(client.list_nodes(pool_id, select=["id", "endpointConfiguration"]))
    return tuple(
        Endpoint(node.id, endpoint.public_ip_address or endpoint.public_fqdn or "", endpoint.frontend_port)
        for node in nodes
        if node.endpoint_configuration
        for endpoint in node.endpoint_configuration.inbound_endpoints
        if endpoint.backend_port == port
    )


def with_node_hours(client: BatchClient, seen: Iterable[PoolSeen], now: datetime) -> tuple[PoolSeen, ...]:
    """The pools with their node hours: one request for each pool with nodes."""
    return tuple(
        pool._replace(node_hours=node_hours(nodes(client, pool.id), now) if pool.dedicated + pool.spot else 0.0)
        for pool in seen
    )


def images(client: BatchClient) -> tuple[ImageSeen, ...]:
    """The images from which the account can start nodes."""
    with faults("list supported images"):
        return tuple(_image(item) for item in client.list_supported_images())


def clock_skew(client: BatchClient) -> float | None:
    """Seconds that this machine's clock is ahead of the service's, to about a second; None if the service sends no
    date. A refusal has a date too, so this also works if the sign-in fails."""
    request = HttpRequest("GET", "/pools", params={"api-version": API_VERSION, "maxresults": "1"})
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


def jobs(client: BatchClient, where: str | None = None) -> tuple[JobSeen, ...]:
    """All jobs, or those of a filter of the service."""
    with faults("list jobs"):
        return tuple(_job(item) for item in client.list_jobs(select=_JOB, filter=where))


def jobs_ended_before(client: BatchClient, time: datetime) -> tuple[JobSeen, ...]:
    """The jobs that completed before a time."""
    text = time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return jobs(client, f"state eq 'completed' and executionInfo/endTime lt DateTime'{text}'")


def job(client: BatchClient, job_id: str) -> JobSeen:
    """One job with the counts of its tasks. Raises NotFound."""
    with faults(f"look at job {job_id}"):
        seen = _job(client.get_job(job_id, select=_JOB))
    return seen._replace(**counts(client, job_id)._asdict())


def job_created(client: BatchClient, job_id: str) -> datetime | None:
    """When a job was created. Raises NotFound."""
    with faults(f"look at job {job_id}"):
        return client.get_job(job_id, select=["creationTime"]).creation_time


def schedules(client: BatchClient) -> tuple[ScheduleSeen, ...]:
    """All job schedules."""
    with faults("list job schedules"):
        return tuple(_schedule(item) for item in client.list_job_schedules(select=_SCHEDULE))


def schedule(client: BatchClient, schedule_id: str) -> ScheduleSeen:
    """One job schedule. Raises NotFound."""
    with faults(f"look at job schedule {schedule_id}"):
        return _schedule(client.get_job_schedule(schedule_id, select=_SCHEDULE))


def job_state(client: BatchClient, job_id: str) -> tuple[str, str]:
    """A job's state and its pool; the pool is empty as long as an auto pool does not exist. Raises NotFound."""
    with faults(f"look at job {job_id}"):
        job = _job(client.get_job(job_id, select=["id", "state", "poolInfo", "executionInfo"]))
    return job.state, job.pool


def job_or_none(client: BatchClient, job_id: str) -> tuple[str, str] | None:
    """A job's state and its pool; None if the job does not exist."""
    return _if_there(lambda: job_state(client, job_id))


def places(client: BatchClient, job_id: str, task_id: str) -> tuple[PlaceSeen, ...]:
    """Where a task ran, its primary first; empty for a task that has not run. Raises NotFound."""
    with faults(f"look at task {job_id}/{task_id}"):
        task = client.get_task(job_id, task_id, select=["id", "nodeInfo", "multiInstanceSettings"])
        infos = [task.node_info]
        if task.multi_instance_settings:
            infos += [subtask.node_info for subtask in client.list_subtasks(job_id, task_id)]
    return tuple(
        PlaceSeen(info.node_id, info.pool_id or "", info.task_root_directory or "")
        for info in infos
        if info is not None and info.node_id
    )


# --- whole documents, to compare with a plan -------------------------------------------------------------------------


def pool_or_none(client: BatchClient, pool_id: str) -> PoolSeen | None:
    """One pool; None if it does not exist."""
    return _if_there(lambda: pool(client, pool_id))


def living(client: BatchClient, wanted: Iterable[tuple[str, tuple[str, ...], Any]]) -> Living:
    """The existing pools, jobs, job schedules and tasks of a plan (`plan.diff.wanted`), as the service's JSON."""
    names: dict[str, dict[str, None]] = {}
    for kind, name, _ in wanted:
        names.setdefault(kind, {})[name[0]] = None
    jobs = _each(names.get("job", ()), lambda name: job_document(client, name))
    tasks = {name: task_documents(client, name) for name in names.get("task", ()) if name in jobs}
    return Living(
        pools=_each(names.get("pool", ()), lambda name: pool_document(client, name)),
        jobs=jobs,
        schedules=_each(names.get("schedule", ()), lambda name: schedule_document(client, name)),
        tasks={(name, task): body for name, bodies in tasks.items() for task, body in bodies.items()},
    )


def _each(names: Iterable[str], read: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The documents of the existing ones."""
    documents = ((name, _if_there(functools.partial(read, name))) for name in names)
    return {name: body for name, body in documents if body is not None}


def _if_there(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except NotFound:
        return None


def pool_document(client: BatchClient, pool_id: str) -> dict[str, Any]:
    """A pool as the service's JSON. Raises NotFound."""
    with faults(f"look at pool {pool_id}"):
        return _document(client.get_pool(pool_id))


def job_document(client: BatchClient, job_id: str) -> dict[str, Any]:
    """A job as the service's JSON. Raises NotFound."""
    with faults(f"look at job {job_id}"):
        return _document(client.get_job(job_id))


def schedule_document(client: BatchClient, schedule_id: str) -> dict[str, Any]:
    """A job schedule as the service's JSON. Raises NotFound."""
    with faults(f"look at job schedule {schedule_id}"):
        return _document(client.get_job_schedule(schedule_id))


def task_documents(client: BatchClient, job_id: str) -> dict[str, dict[str, Any]]:
    """The tasks of a job as the service's JSON, by id. Raises NotFound."""
    with faults(f"list tasks of job {job_id}"):
        return {item.id: _document(item) for item in client.list_tasks(job_id)}


def _document(item: Any) -> dict[str, Any]:
    """The JSON of a model."""
    built: dict[str, Any] = item.as_dict()
    return built


def _pool(item: models.BatchPool) -> PoolSeen:
    return PoolSeen(
        id=item.id,
        state=_word(item.state),
        allocation=_word(item.allocation_state),
        vm_size=item.vm_size,
        dedicated=item.current_dedicated_nodes or 0,
        target_dedicated=item.target_dedicated_nodes or 0,
        spot=item.current_low_priority_nodes or 0,
        target_spot=item.target_low_priority_nodes or 0,
        inter_node=bool(item.enable_inter_node_communication),
        slots=item.task_slots_per_node or 1,
        resize_errors=tuple(f"{error.code}: {error.message}" for error in item.resize_errors or ()),
    )


def _node(item: models.BatchNode) -> NodeSeen:
    start = item.start_task_info
    return NodeSeen(
        id=item.id,
        state=_word(item.state),
        address=item.ip_address or "",
        start_task=_start(start) if start else "",
        errors=tuple(f"{error.code}: {error.message}" for error in item.errors or ()),
        allocated=item.allocation_time,
        prepared=_span(start) if start else None,
        dedicated=item.is_dedicated is not False,
    )


def _image(item: models.BatchSupportedImage) -> ImageSeen:
    reference = item.image_reference
    return ImageSeen(
        publisher=reference.publisher or "",
        offer=reference.offer or "",
        sku=reference.sku or "",
        node_agent=item.node_agent_sku_id,
        capabilities=tuple(item.capabilities or ()),
        ends=item.batch_support_end_of_life,
    )


def _span(info: models.BatchStartTaskInfo) -> float | None:
    """The seconds that a start task took, if it has ended."""
    return (info.end_time - info.start_time).total_seconds() if info.end_time and info.start_time else None


def _start(info: models.BatchStartTaskInfo) -> str:
    if _word(info.state) == "running":
        return "running"
    return "ok" if info.exit_code == 0 else f"exit code {info.exit_code}"


def _job(item: models.BatchJob) -> JobSeen:
    info = item.execution_info
    return JobSeen(
        id=item.id,
        state=_word(item.state),
        pool=(item.pool_info.pool_id if item.pool_info else "") or (info.pool_id if info else "") or "",
        created=item.creation_time,
        ended=info.end_time if info else None,
        reason=(info.termination_reason or "") if info else "",
    )


def _schedule(item: models.BatchJobSchedule) -> ScheduleSeen:
    info = item.execution_info
    return ScheduleSeen(
        id=item.id,
        state=_word(item.state),
        next_run=info.next_run_time if info else None,
        ended=info.end_time if info else None,
        job=(info.recent_job.id or "") if info and info.recent_job else "",
    )


def _word(value: Any) -> str:
    """The value of an enum or a text, as text."""
    return str(getattr(value, "value", value) or "")
