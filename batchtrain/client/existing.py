"""Pools and jobs that exist under the ids of a new run: who uses them, and what is fetched or replaced first."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from batchtrain.client.ending import next_attempt
from batchtrain.config.types import Recipe
from batchtrain.errors import NotFound, ResultsLeft
from batchtrain.records import events
from batchtrain.runs import directory
from batchtrain.runs.directory import RunRecord
from batchtrain.runs.recording import Origin
from batchtrain.service import deletion, faults, observe, pool_users, read, register
from batchtrain.service.meant_version import REPLACED
from batchtrain.service.register import Thing

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.service.watch import Tell


def refuse_existing(
    client: Operations, recipe: Recipe, origin: Origin | None, tell: Tell, *, reuse: bool
) -> dict[str, datetime | None]:
    """Raise AlreadyExists for a pool or job that exists: whatever ends this run later, it is not to be deleted. The
    user may delete it then, so results of its run that are still on its nodes are fetched before.

    Returns the creation times of the existing completed jobs that may be replaced: all with `reuse`, otherwise those
    whose results are in the directory of the runs.
    """
    pools = [recipe.pool] if recipe.needs_pool and not reuse and recipe.pool is not None else []
    standing_pools = [pool.id for pool in pools if client.pools.stands(pool.id)]
    jobs = {job.id: seen for job in recipe.jobs if (seen := read.job_or_none(client.batch, job.id))}
    if origin is not None:
        for thing in (*(Thing("pool", name) for name in standing_pools), *(Thing("job", name) for name in jobs)):
            _fetch_results_left(client, thing, origin, tell)
    for pool_id in standing_pools:
        refuse_used(client, Thing("pool", pool_id), origin)
        raise faults.failure(f"add pool {pool_id}", "PoolExists", "The specified pool already exists.")
    replaced = {}
    for job_id, seen in jobs.items():
        state, record = seen.state, refuse_used(client, job := Thing("job", job_id), origin)
        if state == "completed" and (reuse or (record is not None and record.results == "complete")):
            replaced[job_id] = seen.created
        elif state == "completed" and record is not None and record.state == "detached":
            raise job.exists(
                f"job {job_id} of the detached run {record.id} has completed; `batchtrain runs fetch {record.id}` gets"
                " its results, and then this command replaces the job"
            )
        elif reuse:
            text = (
                f"job {job_id} is {state}, and only a completed job is replaced; wait for it with"
                f" `batchtrain jobs wait {job_id}`, or delete it with `batchtrain jobs del {job_id}`"
            )
            raise job.exists(text, "replace")
        else:
            raise faults.failure(f"add job {job_id}", "JobExists", f"The specified job already exists, and is {state}.")
    return replaced


def refuse_used(client: Operations, thing: Thing, origin: Origin | None) -> RunRecord | None:
    """Raise AlreadyExists for a pool or a job that a living run uses, without advice to delete it. Returns the record
    of the run that added it, if that is of the same directory."""
    users = tuple(
        user
        for user in (pool_users.users(client.batch, thing.id) if thing.kind == "pool" else ())
        if observe.is_used(client.batch, user.job, _state(_record(user.run, origin)))
    )
    marks = register.marks_or_none(client.batch, thing)
    record = _record(marks.run, origin)
    state = _state(record)
    is_job = thing.kind == "job" and (bool(marks.ends_with) or state == "detached")
    if not users and (state == "running" or (is_job and observe.is_used(client.batch, thing.id, state))):
        users = (pool_users.PoolUser(marks.run, "", record.started if record else None, ends=True),)
    if not users:
        return record
    step = f"`batchtrain jobs wait {thing.id}` waits for it; or use another id"
    if state == "detached":
        step = f"`batchtrain runs attach {marks.run}` follows it, and `batchtrain runs stop {marks.run}` ends it"
    elif thing.kind == "pool":
        step = "`batchtrain run --reuse` runs on it, too; or use another id"
    if client.account.emulated and origin and any(user.run and not _record(user.run, origin) for user in users):
        step += f"; that run is not in {origin.root}: BATCHTRAIN_EMULATOR_DIR=DIR gives each directory its own emulator"
    raise thing.exists(f"{thing.name} is used by {', '.join(map(str, users))}; {step}")


def _record(run: str, origin: Origin | None) -> RunRecord | None:
    """The record of a run of the same directory; None for any other run."""
    return directory.named(origin.root, run).record_or_none() if origin and run else None


def _state(record: RunRecord | None) -> str:
    return record.state if record is not None else ""


def _fetch_results_left(client: Operations, thing: Thing, origin: Origin, tell: Tell) -> None:
    """Fetch the results of the run that added a thing, if that run could not, and its tasks have ended. Raises
    ResultsLeft."""
    try:
        run = directory.named(origin.root, register.read_marks(client.batch, thing).run)
        record = run.record()
        if record.results != "partial" or register.read_marks(client.batch, Thing("job", record.job)).run != run.name:
            return
    except NotFound:  # of another program or directory, or gone
        return
    job = client.jobs.handle(record.job)
    if job.open:
        return
    tell(events.ResultsFetching(job.id, f"fetching the results of run {run.name}, which are still on its nodes"))
    recording, _ = job.fetch(Origin(origin.root))
    if recording.unsaved:
        raise ResultsLeft(
            f"results of run {run.name} are still on the nodes of {thing.name}: {'; '.join(recording.unsaved)};"
            f" {next_attempt((job.id,))}, and `{thing.command('del', '')}` gives them up"
        )
    tell(recording.outcome())


def replace_job(client: Operations, job_id: str, created: datetime | None, tell: Tell) -> None:
    """Delete a job that has completed, for the one of the same id that is added next.

    Raises AlreadyExists if it was added anew since it was seen: another run may have replaced it.
    """
    job = Thing("job", job_id)
    try:
        deletion.request_named(client.batch, job, tell, created=created)
    except NotFound as error:
        if error.code == REPLACED:
            text = (
                f"job {job_id} was added anew while this run waited for the pool; wait for it with"
                f" `batchtrain jobs wait {job_id}`"
            )
            raise job.exists(text, "replace") from None
        return
    tell(events.JobReplaced(job_id, f"replacing job {job_id}, which has completed"))
    deletion.gone(client.batch, job, client.pace, tell)
