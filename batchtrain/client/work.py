"""The pool and the jobs of a command that follows them: created, added, followed and withdrawn."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.client.ending import Ending
from batchtrain.client.existing import refuse_existing, refuse_used, replace_job
from batchtrain.client.leaving import Ask, stops
from batchtrain.client.limits import UNLIMITED, Guard, hour_for
from batchtrain.client.node_watch import NodeWatch
from batchtrain.client.placement import patience_of, recovery_of
from batchtrain.client.watching import until_ended
from batchtrain.config import ids
from batchtrain.config.candidates import Candidate
from batchtrain.config.task_resources import longest_seconds
from batchtrain.config.types import Job as JobSettings
from batchtrain.config.types import Recipe, seconds_of
from batchtrain.errors import AlreadyExists, NotFound, TaskFailed
from batchtrain.life.intents import Intent
from batchtrain.plan.cost import hour_of, price_of
from batchtrain.plan.types import Plan
from batchtrain.records import Pool, Task, events
from batchtrain.runs.beginnings import Beginning
from batchtrain.runs.recording import Origin, Progress
from batchtrain.service import deletion, pool_users, read, watch
from batchtrain.service.deadlines import GONE_SECONDS, JOB_SECONDS, POOL_SECONDS
from batchtrain.service.register import Thing

if TYPE_CHECKING:
    from batchtrain.client.job import Job
    from batchtrain.client.operations import Operations
    from batchtrain.client.planning import Foreseen
    from batchtrain.service.watch import Tell


class Command(NamedTuple):
    """What a command was called with."""

    client: Operations
    recipe: Recipe
    intent: Intent
    tell: Tell
    origin: Origin | None
    """Where the run directories are made; none without it."""
    progress: Progress
    guard: Guard
    timeout: float | None = None
    """Seconds for each wait."""
    beginning: Beginning | None = None
    ask: Ask = stops


class Work:
    """The pool and the jobs of a command, at one candidate of the pool after the other."""

    def __init__(self, command: Command, ending: Ending, record: Tell) -> None:
        """record: records an event, and passes it on."""
        self.client, self.recipe, self.guard, self.ending = command.client, command.recipe, command.guard, ending
        self._timeout, self._origin, self._progress = command.timeout, command.origin, command.progress
        self._record, timeout = record, command.timeout
        self._addition_timeout = POOL_SECONDS if timeout is None else timeout
        self._patience, self._recovery = patience_of(self.recipe), recovery_of(self.recipe)
        self.foreseen: Foreseen | None = None
        self.ranks: tuple[int, ...] = ()
        """Those whose output is shown; all if empty."""
        self.limits = UNLIMITED
        self.plans: Mapping[tuple[str | int, ...], Foreseen] = {}
        """The plan of the recipe at each candidate, by the path of the candidate."""
        self.old_jobs: Mapping[str, datetime | None] = {}
        """The completed jobs that are replaced, each with its creation time."""
        self.tasks, self.failures = list[Task](), list[TaskFailed]()
        """Of the jobs that were followed."""

    def tell(self, event: events.Event) -> None:
        """Record an event, pass it on, and count the nodes that it shows."""
        self._record(event)
        self.guard.note(event)

    def create(self, client: Operations, candidate: Candidate) -> Pool | None:
        """The pool with ready nodes; None if each job makes its own."""
        foreseen, ending, recipe, account = self.plans[candidate.path], self.ending, candidate.recipe, client.account
        ending.price, ending.planned = price_of(recipe, account.region), hour_of(recipe, account.region)
        self.client, self.recipe, self.foreseen = client, recipe, foreseen
        if self._patience is not None:
            self.guard.move(hour_for(self.limits, recipe, account.region))
            ending.client, ending.recipe = client, recipe
            for recording in ending.recordings.values():
                recording.move(client.batch, account, recipe, whole(foreseen))
        if candidate.account:
            refuse_existing(client, recipe, None, self.tell, reuse=ending.intent.reuses)
        if not recipe.needs_pool:
            return None
        create_pool = client.pools.ready if ending.intent.reuses else client.pools.add
        timeout, register = self._addition_timeout, ending.register
        try:
            ending.pool = create_pool(
                recipe, timeout=timeout, tell=self.tell, foreseen=foreseen, register=register, patience=self._patience
            )
        except AlreadyExists as error:
            if error.code == "PoolExists":
                refuse_used(client, Thing("pool", candidate.pool.id), self._origin)
            raise
        return ending.pool

    def add(self) -> None:
        """Add all jobs, in place of completed ones that are replaced."""
        register, old_jobs, self.old_jobs = self.ending.register, self.old_jobs, {}
        for job_id, created in old_jobs.items():
            replace_job(self.client, job_id, created, self.tell)
        foreseen, timeout = self.foreseen, self._addition_timeout
        self.client.jobs.add_all(
            self.recipe, tell=self.tell, timeout=timeout, foreseen=foreseen, resume=False, register=register
        )
        for pool in register.things("shared"):
            pool_users.join(self.client.batch, pool.id, register.marks(pool).run)
        self.ending.submitted = True

    def withdraw(self) -> None:
        """Delete the jobs, which are to be added again."""
        client, ending = self.client, self.ending
        for recording in ending.recordings.values():
            recording.restart()
        for job in (thing for thing in ending.register.things("ours", "pending") if thing.kind == "job"):
            with contextlib.suppress(NotFound):
                with watch.Deadline(GONE_SECONDS, f"the deletion of {job.name}", self.tell):
                    deletion.request(client.batch, job, ending.register.runs)
                deletion.gone(client.batch, job, client.pace, self.tell)
            ending.register.note(job, None)
        ending.submitted = ending.register.tasks_added = False
        ending.ended.clear()

    def follow(self) -> None:
        """Follow the jobs one after the other, and fetch the results of each."""
        jobs = self.recipe.jobs
        self.tasks, self.failures = [], []
        for number, settings in enumerate(jobs, 1):
            job = self.client.jobs.handle(settings.id)
            tasks = self._followed(job, settings)
            self.ending.ended.add(job.id)
            self.tasks.extend(tasks)
            recording = self.ending.recordings.get(job.id)
            if recording is not None:
                recording.fetch(tasks, progress=self._progress)
            run = recording.run if recording is not None else None
            failure = job.first_failure(tasks, run=run)  # made now, while the task's files can still be read
            if failure is not None:
                self.failures.append(failure)
                if number < len(jobs):
                    self.tell(events.JobFailed(job.id, f"{failure}; the next jobs continue"))
            if recording is not None:
                recording.job_ended(failure)

    def _followed(self, job: Job, settings: JobSettings) -> tuple[Task, ...]:
        """Show the output of a job's tasks until all have ended; returns the tasks."""
        client, pool = self.client, self.recipe.pool
        seconds = seconds_for(settings) if self._timeout is None else self._timeout
        deadline = watch.Deadline(seconds, watch.tasks_of(job.id), self.tell)
        is_ours = pool is not None and self.ending.register.state(Thing("pool", pool.id)) == "ours"
        patience, pool_id = self._recovery if is_ours else None, pool.id if pool is not None else ""
        nodes = NodeWatch(client, pool_id, deadline.tell, deadline.now, patience=patience, recipe=self.recipe)
        recording = self.ending.recordings.get(job.id)
        lines = recording.lines if recording is not None else None
        follow = until_ended(
            client,
            job,
            self.ending.intent,
            deadline,
            lines=lines,
            ranks=self.ranks,
            nodes=nodes,
            count_nodes=partial(self._count_nodes, job.id),
            runs=self.ending.register.runs,
        )
        tasks = job.tasks
        if settings.merge_task is not None:
            follow.show_ended(task for task in tasks if task.id == ids.merge_id(settings.merge_task))
        return tasks

    def _count_nodes(self, job_id: str) -> int:
        """If that is due, report the nodes of a job to the views, and those of the pools that other jobs of the run
        have (`auto_pool`) to the limits. Returns the number of requests."""
        if not self.guard.due():
            return 0
        batch, others = self.client.batch, [job.id for job in self.recipe.jobs if job.auto_pool and job.id != job_id]
        pool_of_job = read.job(batch, job_id).pool
        pools = {pool_of_job, *(read.job(batch, other_id).pool for other_id in others)} - {""}
        for pool_id in pools:
            watch.show_nodes(batch, pool_id, self.tell if pool_id == pool_of_job else self.guard.note)
        return 1 + len(others) + 2 * len(pools)


def whole(foreseen: Foreseen) -> Plan:
    """The plan of the pool and of the jobs."""
    return foreseen.jobs._replace(steps=(*foreseen.pool.steps, *foreseen.jobs.steps))


def seconds_for(job: JobSettings) -> float:
    """The time limit of a job's tasks: its wall-clock limit, otherwise the sum of its tasks' limits, plus an hour for
    nodes to start; 24 hours without limits.
    """
    if job.max_wall_time is not None:
        return seconds_of(job.max_wall_time) + POOL_SECONDS
    times = [None if task.task_factory is not None else longest_seconds(job, task) for task in job.tasks]
    total = sum(filter(None, times))
    return total + POOL_SECONDS if total and None not in times and job.merge_task is None else JOB_SECONDS
