"""What is done with a whole job: its failed tasks run again, it moves to another pool, and its tasks are stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from azure.batch import BatchClient

from batchtrain.config.types import span_of
from batchtrain.errors import PlanError, ServiceError, UsageError
from batchtrain.plan.wire_times import duration
from batchtrain.records.events import Event, JobDisabled
from batchtrain.records.jobs import OVER
from batchtrain.service import read, submit, tasks
from batchtrain.service.meant_version import IsMeant, look, of_runs, of_time, update_job
from batchtrain.service.register import Thing
from batchtrain.service.task_actions import ACTIONS, Changed, change
from batchtrain.service.watch import Deadline, Pace

COMPLETED = frozenset({"completed"})
STOPPED = frozenset({"completed", "disabled"})
"""The states of a job none of whose tasks runs."""


def resubmit_failed(client: BatchClient, job_id: str, progress: Callable[[int], None]) -> Changed:
    """Reactivate the failed tasks of a job. Raises ServiceError for a job that is over."""
    state = read.job(client, job_id).state
    if state in OVER:
        raise ServiceError(
            f"job {job_id} is {state}, and the service runs tasks again only in a job that continues; delete it with"
            f" `batchtrain jobs del {job_id}` and add it again (`auto_complete: false` lets a job continue after its"
            " last task)",
            operation=f"resubmit job {job_id}",
            code="JobCompleted",
        )
    ids = [task.id for task in read.tasks(client, job_id, where=tasks.FAILED, select="id")]
    return change(client, job_id, ACTIONS["reactivate"], ids, progress)


def migrate(
    client: BatchClient,
    job_id: str,
    pool_id: str,
    running: str,
    deadline: Deadline,
    pace: Pace,
    tell: Callable[[Event], None],
) -> None:
    """Move a job to another pool: disable it, change its pool, enable it. A disabled job stays disabled.

    running: what happens to running tasks (`requeue`, `terminate`, `wait`).
    """
    job, document = read.job_with_document(client, job_id)
    former, is_meant = _movable(document, pool_id), of_time(job.created)
    read.pool(client, pool_id)
    if job.state != "disabled":
        submit.disable_job(client, job_id, running, is_meant)
    try:
        with deadline:
            until(client, job_id, frozenset({"disabled"}), is_meant, deadline, pace)
            update_job(client, job_id, "move", {"poolInfo": {"poolId": pool_id}}, is_meant)
            former = pool_id
            if job.state in ("disabled", "disabling"):
                tell(JobDisabled(job_id, f"job {job_id} stays disabled: `batchtrain jobs enable {job_id}`"))
            else:
                submit.enable_job(client, job_id, is_meant)
    except BaseException:
        text = f"job {job_id} is disabled; `batchtrain jobs enable {job_id}` continues it on pool {former}"
        tell(JobDisabled(job_id, text))
        raise


def _movable(document: dict[str, Any], pool_id: str) -> str:
    """The pool of a job. Raises an error if the job cannot be moved from it."""
    job_id, state, info = document.get("id", ""), document.get("state", ""), document.get("poolInfo", {})
    if state in OVER:
        text = f"job {job_id} is {state}, so no task of it can run on pool {pool_id}"
        raise ServiceError(text, operation=f"migrate job {job_id}", code="JobCompleted")
    if "autoPoolSpecification" in info:
        raise PlanError(
            f"job {job_id} has a pool of its own (`auto_pool`), which cannot be changed; add the job again with"
            f" pool {pool_id}"
        )
    if info.get("poolId", "").lower() == pool_id.lower():
        raise UsageError(f"job {job_id} has pool {pool_id} already; `batchtrain jobs show {job_id}` shows its state")
    return str(info.get("poolId", ""))


def stop(client: BatchClient, job_id: str, runs: Collection[str], deadline: Deadline, pace: Pace) -> None:
    """End the running tasks of a job that one of the runs added, start no more, and wait until they have ended. Their
    files stay on their nodes: a job with a pool of its own is only disabled, because the service deletes that pool as
    soon as its job has ended."""
    document, is_meant = read.job_document(client, job_id), of_runs(runs)
    with deadline:
        if document.get("state") not in STOPPED:
            if "autoPoolSpecification" in document.get("poolInfo", {}):
                submit.disable_job(client, job_id, "terminate", is_meant)
            else:
                submit.terminate(client, Thing("job", job_id), is_meant)
            until(client, job_id, STOPPED, is_meant, deadline, pace)


def limit(client: BatchClient, job_id: str, runs: Collection[str], seconds: float, now: datetime) -> None:
    """End a job of one of the runs so many seconds from now at the latest. Its own wall clock stays, if it is
    shorter."""
    job, document = read.job_with_document(client, job_id)
    age = (now - (job.created or now)).total_seconds()
    if job.wall_clock is None or age + seconds < job.wall_clock:
        limits = {**document.get("constraints", {}), "maxWallClockTime": duration(span_of(age + seconds))}
        update_job(client, job_id, "limit", {"constraints": limits}, of_runs(runs))


def complete(client: BatchClient, job_id: str, runs: Collection[str]) -> None:
    """Let a job of one of the runs end with its last task."""
    update_job(client, job_id, "complete", {"onAllTasksComplete": "terminatejob"}, of_runs(runs))


def is_whole(document: dict[str, Any]) -> bool:
    """Whether a job that ends with its tasks has all of them: the rule is set after the last one was added."""
    return document.get("onAllTasksComplete") == "terminatejob"


def until(
    client: BatchClient, job_id: str, states: frozenset[str], is_meant: IsMeant, deadline: Deadline, pace: Pace
) -> None:
    """Wait until a job is in one of the states. Raises NotFound, also once another job has its id."""
    for pause in pace.steps():
        state = look(client, Thing("job", job_id), "wait for", is_meant).state
        if state in states:
            return
        deadline.pause(pause, f"the job is {state}")
