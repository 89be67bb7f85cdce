"""What a client does with the jobs and job schedules of an account."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from batchtrain import records
from batchtrain.client.job import Job
from batchtrain.client.local import refuse
from batchtrain.client.planning import Foreseen, gathered, pool_id_of, refuse_unattended
from batchtrain.client.session import Session
from batchtrain.client.shown_progress import SHOW, Tell, displayed
from batchtrain.config.types import Recipe
from batchtrain.config.unfilled import require_filled
from batchtrain.errors import NotFound, UsageError
from batchtrain.plan import plan_jobs, planned_facts
from batchtrain.plan.idling import idles
from batchtrain.plan.types import Plan, PoolFacts
from batchtrain.records import Table
from batchtrain.records.events import Deleted, JobKept, RecipeCopied
from batchtrain.runs.beginnings import copied_from
from batchtrain.runs.recording import now
from batchtrain.service import deletion, pool_users, read, submit, watch
from batchtrain.service.deadlines import GONE_SECONDS, POOL_SECONDS
from batchtrain.service.job_addition import AddOptions
from batchtrain.service.meant_version import REPLACED
from batchtrain.service.register import Register, Thing

MOST_COUNTED = 20
"""The jobs of a list whose tasks are counted; Azure refuses more requests in a minute."""


class Jobs:
    """The jobs of an account."""

    def __init__(self, client: Session) -> None:
        self._client = client

    @displayed("interrupted; a job that was added stays; `client.jobs.add` continues")
    def add(
        self,
        recipe: Recipe,
        *,
        tell: Tell = SHOW,
        timeout: float = POOL_SECONDS,
        resume: bool = True,
        fail_fast: bool = False,
    ) -> Job:
        """Add the recipe's one job, as `add_all` does. Raises UsageError when it has several, or a job schedule."""
        self._client.recipe_here(recipe, makes=False)  # refuses a path
        if len(recipe.jobs) != 1:
            raise UsageError(f"{recipe.directory} has {len(recipe.jobs)} jobs; use jobs.add_all")
        if recipe.jobs[0].recurrence is not None:
            raise UsageError(f"job {recipe.jobs[0].id} has a recurrence and becomes a job schedule; use jobs.add_all")
        self.add_all(recipe, tell=tell, timeout=timeout, resume=resume, fail_fast=fail_fast)
        return self.handle(recipe.jobs[0].id)

    @displayed("interrupted; a job that was added stays; `client.jobs.add_all` continues")
    def add_all(
        self,
        recipe: Recipe,
        *,
        tell: Tell = SHOW,
        timeout: float = POOL_SECONDS,
        foreseen: Foreseen | None = None,
        resume: bool = True,
        fail_fast: bool = False,
        recreate: bool = False,
        register: Register | None = None,
    ) -> tuple[Job | JobSchedule, ...]:
        """Add every job of the recipe with its tasks, or its job schedule. A job that exists already with the same plan
        gets the tasks that it lacks.

        A gang is checked against the existing pool after waiting up to `timeout` seconds for it to stop growing;
        `pool_current_*` is its count. As long is the wait for the account's quota of active jobs. Raises PlanError for
        tasks that can never run, TasksRefused for refused tasks after the others were added (with `fail_fast` at
        once), Differs for a job or tasks that differ from the plan, AlreadyExists for a job that has completed, and
        without `resume` for any that exists. recreate: delete the jobs that exist first, once everything is planned.
        """
        recipe = self._client.recipe_here(recipe, tell if register is None else None)
        tell = tell or SHOW
        todo = self._planned(recipe, foreseen, timeout, tell)
        if copied := copied_from(recipe):
            text = (
                f"this recipe was copied from {copied.path}, so its checkpoints are not continued;"
                " `batchtrain run --resume RUN` continues those of a run"
            )
            tell(RecipeCopied(copied.id, text))
        if recreate:
            self.remove_all(recipe, tell=tell)
        self._client.carry_out(todo, recipe, tell, AddOptions(resume, fail_fast, timeout), register)
        return tuple(self.schedule(job.id) if job.recurrence else self.handle(job.id) for job in recipe.jobs)

    def _planned(self, recipe: Recipe, foreseen: Foreseen | None, timeout: float, tell: watch.Tell) -> Plan:
        """The plan of the jobs for the existing pool; the precomputed plan if the pool is as assumed."""
        if foreseen is None:
            require_filled(recipe, emulated=self._client.account.emulated)
            recipe = self._client.with_storage(recipe)
            refuse(recipe, self._client.account)
            refuse_unattended(recipe)
        pool = self._pool_facts(recipe, timeout, tell) if recipe.needs_pool else None
        if foreseen is None:
            return plan_jobs(recipe, *gathered(recipe, self._client.account, self._client.storage(recipe), pool=pool))
        if pool == foreseen.facts.pool:
            return foreseen.jobs
        return plan_jobs(recipe, foreseen.facts._replace(pool=pool), foreseen.sources)

    def _pool_facts(self, recipe: Recipe, timeout: float, tell: watch.Tell) -> PoolFacts:
        pool, planned = pool_of(self._client, recipe), planned_facts(recipe) if idles(recipe) else None
        if planned is not None and pool.autoscale:
            # It may have no nodes now, and a task brings them back.
            return read.facts_of(pool)._replace(dedicated=planned.dedicated, low_priority=planned.low_priority)
        if not any(task.multi_instance for job in recipe.jobs if job.auto_pool is None for task in job.tasks):
            return read.facts_of(pool)
        return read.facts_of(watch.pool_steady(self._client.batch, pool.id, timeout, self._client.pace, tell))

    def remove_all(self, recipe: Recipe, *, tell: Tell = SHOW) -> None:
        """Delete the jobs and job schedules of the recipe that exist, and wait until they are gone."""
        for settings in recipe.jobs:
            existing = self.schedule(settings.id) if settings.recurrence else self.handle(settings.id)
            with contextlib.suppress(NotFound):
                existing.delete()
                (tell or SHOW)(Deleted(settings.id, f"deleted job {settings.id}"))

    def get(self, job_id: str) -> Job:
        """An existing job. Raises NotFound."""
        read.job(self._client.batch, job_id)
        return self.handle(job_id)

    def state(self, job_id: str) -> str:
        """The state of a job; empty if the job does not exist."""
        job = read.job_or_none(self._client.batch, job_id)
        return job.state if job else ""

    def handle(self, job_id: str) -> Job:
        """A handle on a job; sends no request until it is used."""
        return Job(self._client, job_id)

    def list(self, *, counted: bool = False) -> Table[records.Job]:
        """All jobs. counted: with the counts and the rate of their tasks, for which the newest MOST_COUNTED jobs take a
        request each."""
        rows = read.jobs(self._client.batch)
        newest = heapq.nlargest(MOST_COUNTED if counted else 0, rows, key=lambda row: row.created or read.LONG_AGO)
        ids = {row.id for row in newest}
        return Table(self._counted(row) if row.id in ids else row for row in rows)

    def _counted(self, row: records.Job) -> records.Job:
        try:
            counts = read.counts(self._client.batch, row.id)
        except NotFound:  # deleted since it was listed
            return row
        seconds = ((row.ended or now()) - row.created).total_seconds() if row.created else 0.0
        rate = round(counts.ended / seconds, 2) if seconds > 0 and counts.ended else None
        return replace(row, rate=rate, **counts._asdict())

    def ended_before(self, time: datetime) -> Table[records.Job]:
        """The jobs that completed before a time, which `delete` may tidy up; without those that their run deletes once
        it has their results. `runs clean` deletes the jobs of lost runs."""
        return Table(job for job in read.jobs_ended_before(self._client.batch, time) if not pool_users.is_living(job))

    def delete_seen(self, jobs: Iterable[records.Job], *, tell: Tell = SHOW) -> Table[records.Job]:
        """Delete jobs without waiting, and return those that this deletes. A job that was deleted and added again since
        it was seen is kept."""
        return Table([job for job in jobs if self._delete_seen(job, tell or SHOW)])

    def _delete_seen(self, job: records.Job, tell: watch.Tell) -> bool:
        try:
            deletion.request_named(self._client.batch, Thing("job", job.id), tell, created=job.created)
        except NotFound as error:
            if error.code == REPLACED:
                tell(JobKept(job.id, f"job {job.id} was added again meanwhile, and is kept"))
            return False
        return True

    def schedule(self, schedule_id: str) -> JobSchedule:
        """A handle on a job schedule; sends no request until it is used."""
        return JobSchedule(self._client, schedule_id)

    def schedules(self) -> Table[records.JobSchedule]:
        """All job schedules."""
        return Table(read.schedules(self._client.batch))


class JobSchedule:
    """A job schedule: its state, and the last job it created."""

    def __init__(self, client: Session, schedule_id: str) -> None:
        self._client, self.id = client, schedule_id

    def __repr__(self) -> str:
        return f"JobSchedule({self.id!r})"

    @property
    def seen(self) -> records.JobSchedule:
        """The schedule now. Raises NotFound."""
        return read.schedule(self._client.batch, self.id)

    @property
    def job(self) -> Job | None:
        """The last job it created; None before the first."""
        name = self.seen.job
        return Job(self._client, name) if name else None

    def terminate(self) -> None:
        """Terminate the schedule: it creates no more jobs, and its running job is terminated."""
        submit.terminate(self._client.batch, Thing("job schedule", self.id))

    def delete(self, *, wait: bool = True, timeout: float = GONE_SECONDS) -> None:
        """Delete the schedule with its jobs. Raises NotFound."""
        thing = Thing("job schedule", self.id)
        deletion.request_named(self._client.batch, thing, None, seconds=timeout)
        if wait:
            deletion.gone(self._client.batch, thing, self._client.pace, None, timeout)


def pool_of(client: Session, recipe: Recipe) -> records.Pool:
    """The pool to which the jobs of a recipe are added. Raises NotFound."""
    pool_id = pool_id_of(recipe)
    if (pool := read.pool_or_none(client.batch, pool_id)) is None:
        text = f"there is no pool {pool_id} for the jobs; `batchtrain pool add` creates it"
        raise NotFound(text, operation=f"look at pool {pool_id}", code="PoolNotFound")
    return pool
