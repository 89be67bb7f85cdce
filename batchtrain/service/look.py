"""Questions to the service: what pools, nodes, jobs and tasks there are now."""

from __future__ import annotations

from typing import Any

from azure.batch import BatchClient, models

from batchtrain.plan.types import PoolFacts
from batchtrain.service.faults import faults
from batchtrain.service.seen import JobSeen, NodeSeen, PoolSeen, TaskSeen

_POOL = ["id", "state", "allocationState", "vmSize", "currentDedicatedNodes", "targetDedicatedNodes",
         "currentLowPriorityNodes", "targetLowPriorityNodes", "enableInterNodeCommunication", "taskSlotsPerNode",
         "resizeErrors"]  # fmt: skip
_NODE = ["id", "state", "ipAddress", "startTaskInfo", "errors"]
_JOB = ["id", "state", "creationTime", "executionInfo", "poolInfo"]
_TASK = ["id", "state", "executionInfo", "nodeInfo"]


def pools(client: BatchClient) -> tuple[PoolSeen, ...]:
    """All pools."""
    with faults("list pools"):
        return tuple(_pool(item) for item in client.list_pools(select=_POOL))


def pool(client: BatchClient, pool_id: str) -> PoolSeen:
    """One pool. Raises NotFound."""
    with faults(f"look at pool {pool_id}"):
        return _pool(client.get_pool(pool_id, select=_POOL))


def facts_of(seen: PoolSeen) -> PoolFacts:
    """What planning needs to know of a living pool."""
    return PoolFacts(seen.id, seen.vm_size, seen.dedicated, seen.spot, seen.inter_node, seen.slots)


def nodes(client: BatchClient, pool_id: str) -> tuple[NodeSeen, ...]:
    """The nodes of a pool."""
    with faults(f"list nodes of pool {pool_id}"):
        return tuple(_node(item) for item in client.list_nodes(pool_id, select=_NODE))


def jobs(client: BatchClient) -> tuple[JobSeen, ...]:
    """All jobs."""
    with faults("list jobs"):
        return tuple(_job(item) for item in client.list_jobs(select=_JOB))


def job(client: BatchClient, job_id: str) -> JobSeen:
    """One job with the counts of its tasks. Raises NotFound."""
    with faults(f"look at job {job_id}"):
        seen = _job(client.get_job(job_id, select=_JOB))
        counts = client.get_job_task_counts(job_id).task_counts
    return seen._replace(active=counts.active, running=counts.running, succeeded=counts.succeeded, failed=counts.failed)


def job_state(client: BatchClient, job_id: str) -> tuple[str, str]:
    """A job's state and its pool. Raises NotFound."""
    with faults(f"look at job {job_id}"):
        found = _job(client.get_job(job_id, select=["id", "state", "poolInfo"]))
    return found.state, found.pool


def tasks(client: BatchClient, job_id: str) -> tuple[TaskSeen, ...]:
    """The tasks of a job. Raises NotFound."""
    with faults(f"list tasks of job {job_id}"):
        return tuple(_task(item) for item in client.list_tasks(job_id, select=_TASK))


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
    )


def _start(info: models.BatchStartTaskInfo) -> str:
    if _word(info.state) == "running":
        return "running"
    return "ok" if info.exit_code == 0 else f"exit code {info.exit_code}"


def _job(item: models.BatchJob) -> JobSeen:
    info = item.execution_info
    return JobSeen(
        id=item.id,
        state=_word(item.state),
        pool=(item.pool_info.pool_id or "") if item.pool_info else "",
        created=item.creation_time,
        ended=info.end_time if info else None,
        reason=(info.termination_reason or "") if info else "",
    )


def _task(item: models.BatchTask) -> TaskSeen:
    info = item.execution_info
    if info is None:
        return TaskSeen(item.id, _word(item.state))
    took = (info.end_time - info.start_time).total_seconds() if info.end_time and info.start_time else None
    return TaskSeen(
        id=item.id,
        state=_word(item.state),
        result=_word(info.result).lower() if info.result else "",
        exit_code=info.exit_code,
        node=(item.node_info.node_id or "") if item.node_info else "",
        seconds=took,
        failure=f"{info.failure_info.code}: {info.failure_info.message}" if info.failure_info else "",
        retries=info.retry_count or 0,
        requeues=info.requeue_count or 0,
    )


def _word(value: Any) -> str:
    """An enum's or a text's value as text."""
    return str(getattr(value, "value", value) or "")
