"""Reads what a diagnosis needs: a job, its first failed or waiting tasks, its pool, and the end of their output."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import islice
from typing import Any

from azure.batch import BatchClient, models

from batchtrain.diagnosis.finding import Diagnosis
from batchtrain.diagnosis.findings import judged
from batchtrain.diagnosis.record import Failure, JobRecord, NodeRecord, PoolRecord, Record, TaskRecord
from batchtrain.errors import BatchtrainError, Finding, NotFound
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.causes import cause
from batchtrain.service.downloads import Tree, node_tree, task_tree
from batchtrain.service.faults import faults
from batchtrain.service.files import end_of, first_end, last_lines

TASKS = 20
"""Tasks that are examined: the first failed tasks, otherwise some that wait or run."""
NODES = 5
"""Nodes whose start task's output is read."""
LINES = 2000
ENDLESS_DAYS = 10_000_000
FAILED, NOT_ENDED = "executionInfo/result eq 'failure'", "state eq 'active' or state eq 'running'"
_TASK = [
    "id",
    "state",
    "executionInfo",
    "nodeInfo",
    "multiInstanceSettings",
    "requiredSlots",
    "dependsOn",
    "constraints",
]
_NODE = ["id", "state", "errors", "startTaskInfo", "isDedicated"]


def job(
    client: BatchClient, job_id: str, task_id: str | None = None, hints: tuple[str, ...] = (), logs: str = ""
) -> Diagnosis:
    """The diagnosis of a job, or of one of its tasks. Raises NotFound. Changes nothing.

    hints: why its tasks wait, as far as the emulator knows it. logs: the directory of this machine that keeps the
    output of its tasks. At most 20 tasks and 5 nodes are examined.
    """
    unread: list[str] = []
    with faults(f"look at job {job_id}"):
        item = client.get_job(job_id)
        counts = client.get_job_task_counts(job_id).task_counts
    tasks = _tasks(client, job_id, task_id, unread)
    info, pool_id = item.execution_info, _pool_of(item)
    record = JobRecord(
        id=item.id,
        state=_word(item.state),
        pool=pool_id,
        reason=(info.termination_reason or "") if info else "",
        failure=_failure(info.scheduling_error) if info else None,
        wall_clock=_limit(item.constraints),
        max_parallel_tasks=item.max_parallel_tasks if item.max_parallel_tasks is not None else -1,
        active=counts.active,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        tasks=tasks,
        logs=logs,
    )
    there = _pool_or_none(client, pool_id, unread)
    return judged(Record(record, there, hints=hints, unread=tuple(unread)))


def task(client: BatchClient, job_id: str, task_id: str) -> tuple[TaskRecord, Finding | None]:
    """A task, and the cause of its failure as far as itself and its output tell it. Raises NotFound."""
    (record,) = _tasks(client, job_id, task_id, [])
    return record, judged(Record(JobRecord(job_id, "", tasks=(record,)), None)).first


def pool(client: BatchClient, pool_id: str) -> Diagnosis:
    """The diagnosis of a pool. Raises NotFound. Changes nothing."""
    unread: list[str] = []
    return judged(Record(None, _pool(client, pool_id, unread), unread=tuple(unread)))


# --- tasks ----------------------------------------------------------------------------------------------------------


def _tasks(client: BatchClient, job_id: str, task_id: str | None, unread: list[str]) -> tuple[TaskRecord, ...]:
    with faults(f"look at the tasks of job {job_id}"):
        if task_id is not None:
            listed = [client.get_task(job_id, task_id, select=_TASK)]
        else:
            listed = _first(client, job_id, FAILED) or _first(client, job_id, NOT_ENDED)
    listed.sort(key=_ended)
    return tuple(_task(client, job_id, item, unread) for item in listed)


def _first(client: BatchClient, job_id: str, which: str) -> list[models.BatchTask]:
    return list(islice(client.list_tasks(job_id, filter=which, select=_TASK, max_results=TASKS), TASKS))


def _ended(task: models.BatchTask) -> float:
    info = task.execution_info
    return info.end_time.timestamp() if info and info.end_time else float("inf")


def _task(client: BatchClient, job_id: str, item: models.BatchTask, unread: list[str]) -> TaskRecord:
    info, settings = item.execution_info, item.multi_instance_settings
    failed = bool(info and _word(info.result).lower() == "failure")
    tree = task_tree(job_id, item.id)
    stderr, stdout = (_lines(client, tree, name, unread) if failed else () for name in ("stderr.txt", "stdout.txt"))
    return TaskRecord(
        id=item.id,
        state=_word(item.state),
        exit_code=info.exit_code if info else None,
        failed=failed,
        node=(item.node_info.node_id or "") if item.node_info else "",
        failure=_failure(info.failure_info) if info else None,
        retries=(info.retry_count or 0) if info else 0,
        requeues=(info.requeue_count or 0) if info else 0,
        instances=(settings.number_of_instances or 1) if settings else 1,
        slots=item.required_slots or 1,
        depends_on=tuple(item.depends_on.task_ids or ()) if item.depends_on else (),
        seconds=(info.end_time - info.start_time).total_seconds()
        if info and info.end_time and info.start_time
        else None,
        wall_clock=_limit(item.constraints),
        cause=cause(stderr, first_end(client, job_id, item.id) if failed and settings else RankEnd()),
        stderr=stderr,
        stdout=stdout,
    )


def _lines(client: BatchClient, tree: Tree, path: str, unread: list[str]) -> tuple[str, ...]:
    """The last lines of a file; none if it is not there, which is usual for a task that did not start."""
    try:
        content = end_of(client, tree, path)
    except NotFound:
        return ()
    except BatchtrainError as error:
        unread.append(str(error))
        return ()
    return last_lines(content, LINES)


# --- pool and nodes -------------------------------------------------------------------------------------------------


def _pool_or_none(client: BatchClient, pool_id: str, unread: list[str]) -> PoolRecord | None:
    try:
        return _pool(client, pool_id, unread) if pool_id else None
    except NotFound:
        return None


def _pool(client: BatchClient, pool_id: str, unread: list[str]) -> PoolRecord:
    with faults(f"look at pool {pool_id}"):
        item = client.get_pool(pool_id)
        listed = list(client.list_nodes(pool_id, select=_NODE))
    bad = [node for node in listed if _word(node.state) == "starttaskfailed"][:NODES]
    run = item.auto_scale_run
    return PoolRecord(
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
        autoscale=bool(item.enable_auto_scale),
        autoscale_error=f"{run.error.code}: {run.error.message}" if run and run.error else "",
        resize_errors=_failures(item.resize_errors),
        nodes=tuple(_node(client, pool_id, node, unread, read=node in bad) for node in listed),
    )


def _node(client: BatchClient, pool_id: str, item: models.BatchNode, unread: list[str], *, read: bool) -> NodeRecord:
    start = item.start_task_info
    lines: tuple[str, ...] = ()
    for name in ("startup/stdout.txt", "startup/stderr.txt") if read else ():
        lines += _lines(client, node_tree(pool_id, item.id), name, unread)
    return NodeRecord(
        id=item.id,
        state=_word(item.state),
        spot=item.is_dedicated is False,
        errors=_failures(item.errors),
        start_exit_code=start.exit_code if start else None,
        start_failure=_failure(start.failure_info) if start else None,
        start_lines=lines,
    )


def _pool_of(item: models.BatchJob) -> str:
    """The job's pool: the one that it names, or the one that the service made for it."""
    info = item.execution_info
    return (info.pool_id if info else None) or (item.pool_info.pool_id if item.pool_info else None) or ""


def _failures(errors: Iterable[Any] | None) -> tuple[Failure, ...]:
    return tuple(failure for error in errors or () if (failure := _failure(error)))


def _failure(error: Any) -> Failure | None:
    """A failure of any of the service's kinds."""
    if error is None:
        return None
    pairs = getattr(error, "details", None) or getattr(error, "values_property", None) or ()
    message = error.message or ""
    details = tuple(pair.value for pair in pairs if pair.value and pair.value not in (message, error.code))
    return Failure(error.code or "", message, details)


def _limit(constraints: Any) -> float | None:
    """A limit of run time in seconds; None for no limit, which the service shows as an endless time."""
    limit = getattr(constraints, "max_wall_clock_time", None)
    return limit.total_seconds() if isinstance(limit, timedelta) and limit.days < ENDLESS_DAYS else None


def _word(value: Any) -> str:
    return str(getattr(value, "value", value) or "")
