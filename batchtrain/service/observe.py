"""The one place that looks at a job whose tasks are awaited, for the rules of `batchtrain/life`."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain.errors import NotFound
from batchtrain.life import rules
from batchtrain.life.seen import Seen
from batchtrain.records import Counts, Job, Node, Pool
from batchtrain.service import read, tasks

MORE_PAGES = 4
"""The pages of the open tasks of a large job that one look reads after the first."""
RUNNING, IDLE = 2, 6
"""The most requests of a look while a task runs, and while none does; `extra` adds to the latter."""


class Look(NamedTuple):
    """What was seen, and the number of requests that this took."""

    seen: Seen
    requests: int


def look(client: BatchClient, job_id: str, counts: Counts, job: Job | None = None) -> Look:
    """A job with its pool, and if its tasks wait, with its nodes and its open tasks. Raises NotFound.

    counts: of its tasks. job: if it was read already.
    """
    seen, requests = _with_pool(client, job or read.job(client, job_id))
    requests += job is None
    if counts.running or not counts.active or seen.job.is_ending:
        return Look(seen, requests)
    with_tasks = tasks_of(client, seen._replace(nodes=_nodes(client, seen.pool)), counts)
    return Look(with_tasks.seen, requests + (seen.pool is not None) + with_tasks.requests)


def extra(seen: Seen) -> int:
    """The further requests of a look at a job with a preparation, and at a pool that a quota refused nodes."""
    return seen.job.must_prepare + (seen.pool is not None and seen.pool.refusal.is_core_quota)


def has_work(client: BatchClient, job_id: str) -> bool:
    """Whether a task of a job runs, or may still start. Raises NotFound."""
    if not tasks.any_open(client, job_id):
        return False
    job = read.counted_job(client, job_id)
    decision = rules.decide(look(client, job_id, job.counts, job).seen)
    return job.state != "completed" and (decision is None or decision.act != "end")


def is_used(client: BatchClient, job_id: str, run_state: str, job: Job | None = None) -> bool:
    """Whether a run still uses a job: a process follows the run, a task of the job runs or may still start, or the
    service ends the job of a detached run. run_state: as far as the directory of the run is here. job: if it was read
    already."""
    if run_state == "running":
        return True
    with contextlib.suppress(NotFound):  # it was deleted meanwhile
        is_over = (job or read.job(client, job_id)).is_over
        return not is_over and (run_state == "detached" or has_work(client, job_id))
    return False


def tasks_of(client: BatchClient, seen: Seen, counts: Counts) -> Look:
    """The same with its tasks, those that are open and those that failed, of many only the first page; and with its
    preparation and the pools that hold the quota."""
    job_id, requests = seen.job.id, 1 + extra(seen)
    if seen.job.must_prepare:
        seen = seen._replace(preparations=read.preparations(client, job_id))
    seen = seen._replace(holders=read.holders(client, seen.pool))
    if counts.total <= tasks.FEW:
        few = tuple(read.tasks(client, job_id, select=read.EXAMINED_TASK))
        return Look(seen._replace(tasks=few, is_whole=True), requests)
    failed = tuple(read.tasks(client, job_id, where=tasks.FAILED, select=read.EXAMINED_TASK, limit=read.PAGE))
    seen, pages = more(client, seen._replace(tasks=failed), 1)
    return Look(seen, requests + pages)


def more(client: BatchClient, seen: Seen, pages: int = MORE_PAGES) -> Look:
    """The same with further pages of the open tasks."""
    rows, token, requests = {task.id: task for task in seen.tasks or ()}, seen.next_page, 0
    while requests < pages and (token or not requests):
        page = read.task_page(
            client, seen.job.id, where=tasks.OPEN, select=read.EXAMINED_TASK, limit=read.PAGE, skip=token
        )
        rows |= {task.id: task for task in page.tasks}
        token, requests = page.next, requests + 1
    return Look(seen._replace(tasks=tuple(rows.values()), next_page=token), requests)


def _with_pool(client: BatchClient, job: Job) -> Look:
    if not job.pool:
        return Look(Seen(job), 0)
    pool = read.pool_or_none(client, job.pool, read.EXAMINED_POOL)
    if pool is not None:
        return Look(Seen(job, pool), 1)
    state = read.job(client, job.id).state  # a job that has ended meanwhile took its own pool with it
    return Look(Seen(replace(job, state=state)), 2)


def _nodes(client: BatchClient, pool: Pool | None) -> tuple[Node, ...] | None:
    try:
        return read.nodes(client, pool.id) if pool is not None else None
    except NotFound:  # deleted since
        return None
