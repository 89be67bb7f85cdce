"""`run`: runs a recipe from start to end, streams its output, fetches its results, and deletes what it created."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.config.types import Job as JobSettings
from batchtrain.config.types import Recipe, seconds_of
from batchtrain.created import Created
from batchtrain.errors import (
    AlreadyExists,
    BatchtrainError,
    LimitReached,
    NotAllowed,
    NotFound,
    ServiceError,
    TaskFailed,
    TimedOut,
    Unreachable,
    UsageError,
)
from batchtrain.following import Follow
from batchtrain.limits import UNLIMITED, Guard, Limits, price_for
from batchtrain.plan.cost import price_of
from batchtrain.plan.job import merge_id, needs_pool
from batchtrain.records.events import (
    Event,
    JobFailed,
    JobReplaced,
    Results,
    ResultsFailed,
    ResultsFetching,
    ResultsSkipped,
)
from batchtrain.records.seen import Table, TaskSeen
from batchtrain.runs import directory
from batchtrain.runs.directory import Metric, RunDirectory
from batchtrain.runs.recording import QUIET, Origin, Progress, Recording, begin, now
from batchtrain.service import look, retry, watch
from batchtrain.service.deadlines import JOB_SECONDS, POOL_SECONDS
from batchtrain.service.faults import failure
from batchtrain.service.tasks import Glance

if TYPE_CHECKING:
    from batchtrain.foreseen import Foreseen
    from batchtrain.operations import Job, Operations, Tell

ENDING_SECONDS = 120.0
"""For the tasks to end that were terminated at a limit."""
GONE = frozenset({"PoolNotFound", "JobNotFound", "TaskNotFound"})
"""The service's codes for deleted work; any other 404 is about something else."""


class Outcome(NamedTuple):
    """The result of a recipe: its tasks, the failure of the first failed task, why something was not deleted or not
    fetched, and the run directories with the metrics of their tasks."""

    tasks: Table[TaskSeen]
    failure: TaskFailed | None = None
    standing: BaseException | None = None
    runs: tuple[RunDirectory, ...] = ()
    metrics: tuple[dict[str, dict[str, Metric]], ...] = ()
    """By task, for each of `runs`."""


def run(
    client: Operations,
    recipe: Recipe,
    *,
    tell: Tell,
    timeout: float | None = None,
    keep: bool = False,
    reuse: bool = False,
    origin: Origin | None = None,
    progress: Progress = QUIET,
    limits: Limits = UNLIMITED,
) -> Outcome:
    """Create the pool and the jobs, follow them to their end, fetch their results, and delete what was created (also
    after Ctrl-C).

    Raises the error that stopped the work, and UsageError for work without an end. Nothing is deleted after a deadline,
    if the service cannot be reached, or if results are still on a node. With `keep`, everything is kept. With `reuse`,
    an existing pool that matches the plan is used, and the pool is kept; a completed job of the same id is replaced.
    timeout: seconds for each wait; by default what `seconds_for` says. origin: where the run directories are made; none
    without it. limits: at one of them the tasks are terminated and LimitReached is raised; the results are fetched.
    """
    _refuse_endless(recipe)
    if limits.price is not None and (keep or reuse):
        raise UsageError("a limit of the price deletes the pool, and `keep` and `reuse` keep it; give one of them")
    guard = Guard(limits, price_for(limits, recipe, client.account), now)
    foreseen = client.foresee(recipe)
    if origin is not None:
        directory.check(origin.root)
    replaced = _refuse_standing(client, recipe, reuse=reuse)
    kept = Recorder(client, recipe, foreseen, tell, origin, progress)
    made = Created(client, guarded(kept.tell, guard), keep=("pool",) if reuse else ())
    made.price = price_of(recipe, client.account.region)
    try:
        outcome = _work(client, recipe, foreseen, made, replaced, timeout, kept, guard)
        guard.armed = False  # a limit ends the work, and not the cleaning up after it
        kept.end_all("failed" if outcome.failure else "completed", outcome.failure)
    except BaseException as error:
        guard.armed = False
        made.settle(error)
        left = keep or leaves(error, added=made.added, submitted=made.submitted)
        unsaved = kept.stop(error, made.submitted, ask=not isinstance(error, (NotAllowed, TimedOut, Unreachable)))
        if not left and not unsaved:
            made.clean_up(successful=False)
        made.say_left(error)
        kept.say()
        raise
    standing = None if keep or kept.unsaved else made.clean_up(successful=outcome.failure is None)
    made.say_left()
    kept.say()
    return outcome._replace(standing=standing or kept.missing, runs=kept.runs, metrics=kept.metrics)


def guarded(tell: Tell, guard: Guard) -> Tell:
    """Pass events on, then let the guard take them."""

    def tell_and_note(event: Event) -> None:
        tell(event)
        guard.note(event)

    return tell_and_note


def follow(
    client: Operations,
    recipe: Recipe,
    *,
    tell: Tell,
    timeout: float = POOL_SECONDS,
    origin: Origin,
    progress: Progress = QUIET,
    fail_fast: bool = False,
    recreate: bool = False,
) -> Outcome:
    """Add the jobs to their pool, follow them to their end, and fetch their results.

    timeout: seconds to wait while the pool grows. Ctrl-C ends only the following. fail_fast: the first refused task
    stops the addition. recreate: delete the jobs that exist before they are added; nothing else is deleted.
    """
    _refuse_endless(recipe)
    foreseen = client.foresee(recipe)
    directory.check(origin.root)
    kept = Recorder(client, recipe, foreseen, tell, origin, progress)
    made = Created(client, kept.tell)
    try:
        client.jobs.add_all(
            recipe, tell=made.tell, timeout=timeout, foreseen=foreseen, fail_fast=fail_fast, recreate=recreate
        )
        made.submitted = True
        outcome = _all_followed(client, recipe, made, None, kept, Guard(UNLIMITED, None, now))
    except BaseException as error:
        made.settle(error)
        kept.end_all("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", error)
        made.say_left(error)
        raise
    kept.say()
    return outcome._replace(standing=kept.missing, runs=kept.runs, metrics=kept.metrics)


def watch_job(client: Operations, job_id: str, *, tell: Tell, timeout: float = JOB_SECONDS) -> Job:
    """Show the nodes, the counts and the output of a job until its tasks have ended. Fetches and deletes nothing."""
    job = client.jobs.handle(job_id)
    with contextlib.suppress(NotFound):
        watch.show_nodes(client.batch, look.job_state(client.batch, job_id)[1], tell)
    deadline = watch.Deadline(timeout, watch.tasks_of(job_id), tell)
    follow = Follow(client.batch, job, deadline.tell, turns=client.pace.turns)
    watch.tasks_ended(client.batch, job_id, deadline, client.pace, follow.look)
    return job


class Recorder:
    """The run directories of the jobs of one recipe; without an origin there are none."""

    def __init__(
        self,
        client: Operations,
        recipe: Recipe,
        foreseen: Foreseen,
        tell: Tell,
        origin: Origin | None,
        progress: Progress = QUIET,
    ) -> None:
        self._client, self._tell, self._progress = client, tell, progress
        self._recordings: dict[str, Recording] = {}
        self._ended: set[str] = set()
        for job in recipe.jobs if origin else ():
            assert origin is not None
            steps = (*foreseen.pool.steps, *foreseen.jobs.steps)
            plan = foreseen.jobs._replace(steps=steps)
            self._recordings[job.id] = begin(client.batch, client.account, recipe, job, plan, origin)

    @property
    def runs(self) -> tuple[RunDirectory, ...]:
        """The directories, in the order of the jobs."""
        return tuple(recording.run for recording in self._recordings.values())

    @property
    def metrics(self) -> tuple[dict[str, dict[str, Metric]], ...]:
        """The metrics of the tasks, in the order of the jobs."""
        return tuple(recording.metrics for recording in self._recordings.values())

    def logs(self, job_id: str) -> str:
        """The directory of the output of a job's tasks; empty if none is kept."""
        return str(self._recordings[job_id].run.path / "logs") if job_id in self._recordings else ""

    @property
    def unsaved(self) -> bool:
        """Whether results are on a node that could not be fetched now, but may be later."""
        return any(recording.unsaved for recording in self._recordings.values())

    @property
    def missing(self) -> ServiceError | None:
        """The error of the first job whose results are not all here."""
        return next((error for recording in self._recordings.values() if (error := recording.missing)), None)

    def tell(self, event: Event) -> None:
        """Note an event in the directories, and pass it on."""
        for recording in self._recordings.values():
            recording.tell(event)
        self._tell(event)

    def lines(self, job_id: str, task_id: str, stream: str, lines: Sequence[str]) -> None:
        """Lines of the output of a task."""
        if job_id in self._recordings:
            self._recordings[job_id].lines(task_id, stream, lines)

    def fetch(self, job_id: str, tasks: Iterable[TaskSeen]) -> None:
        """Fetch the results of a job."""
        if job_id in self._recordings:
            self._recordings[job_id].fetch(tasks, progress=self._progress)

    def end(self, job_id: str, state: str, error: BaseException | None) -> None:
        """Write the end of a job's run."""
        if job_id in self._recordings and job_id not in self._ended:
            self._ended.add(job_id)
            self._recordings[job_id].end(state, error)

    def end_all(self, state: str, error: BaseException | None) -> None:
        """Write the end of all runs that have none yet."""
        for job_id in self._recordings:
            self.end(job_id, state, error)

    def stop(self, error: BaseException, submitted: bool, *, ask: bool) -> bool:
        """Fetch what there is after an error; returns whether results are still on a node.

        ask: whether the service is asked. Another Ctrl-C ends the fetching, and nothing is kept for it.
        """
        limit, unsaved = isinstance(error, LimitReached), False
        state = "interrupted" if limit or isinstance(error, KeyboardInterrupt) else "failed"
        if ask and submitted and self._recordings and state == "interrupted":
            skips = "Ctrl-C skips them" if limit else "Ctrl-C again skips them"
            text = f"{error if limit else 'interrupted'}; fetching the results ({skips})"
            self._tell(ResultsFetching("", text))
        try:
            for job_id in self._recordings if ask and submitted else ():
                if job_id not in self._ended:
                    unsaved |= not self._fetch_after_error(job_id)
            unsaved |= self.unsaved
        except KeyboardInterrupt:
            self._tell(ResultsSkipped("", "fetching was interrupted; what is not here yet is lost"))
        self.end_all(state, error)
        return unsaved

    def _fetch_after_error(self, job_id: str) -> bool:
        """Fetch the results of a job that is to be deleted; returns whether nothing more can be fetched."""
        try:
            self.fetch(job_id, self._client.jobs.handle(job_id).tasks)
        except BatchtrainError as error:
            if isinstance(error, NotFound) and error.code in GONE:
                return True
            self._tell(ResultsFailed(job_id, f"the results of job {job_id} could not be fetched: {error}"))
            return False
        return True

    def say(self) -> None:
        """Say where the results are."""
        for recording in self._recordings.values():
            self._tell(Results(recording.job_id, recording.conclusion()))


def _work(
    client: Operations,
    recipe: Recipe,
    foreseen: Foreseen,
    made: Created,
    replaced: Mapping[str, str],
    timeout: float | None,
    kept: Recorder,
    guard: Guard,
) -> Outcome:
    starts = POOL_SECONDS if timeout is None else timeout
    if needs_pool(recipe):
        make = client.pools.ready if "pool" in made.keep else client.pools.add
        made.pool = make(recipe, timeout=starts, tell=made.tell, foreseen=foreseen)
    for job_id, created in replaced.items():
        _replace(client, job_id, created, made.tell)
    client.jobs.add_all(recipe, tell=made.tell, timeout=starts, foreseen=foreseen, resume=False)
    made.submitted = True
    return _all_followed(client, recipe, made, timeout, kept, guard)


def _all_followed(
    client: Operations, recipe: Recipe, made: Created, timeout: float | None, kept: Recorder, guard: Guard
) -> Outcome:
    """Follow the jobs one after the other, and fetch the results of each."""
    ended: list[TaskSeen] = []
    failures: list[TaskFailed] = []
    for number, settings in enumerate(recipe.jobs, 1):
        job = client.jobs.handle(settings.id)
        tasks = _followed(client, job, settings, made.tell, timeout, kept, guard)
        made.ended.add(job.id)
        ended.extend(tasks)
        kept.fetch(job.id, tasks)
        try:
            job.raise_failed(tasks, logs=kept.logs(job.id))
        except TaskFailed as failure:  # made now, while the task's files can still be read
            failures.append(failure)
            kept.end(job.id, "failed", failure)
            if number < len(recipe.jobs):
                made.tell(JobFailed(job.id, f"{failure}; the next jobs continue"))
        kept.end(job.id, "completed", None)
    return Outcome(Table(ended), failures[0] if failures else None)


def _followed(
    client: Operations,
    job: Job,
    settings: JobSettings,
    tell: Tell,
    timeout: float | None,
    kept: Recorder,
    guard: Guard,
) -> tuple[TaskSeen, ...]:
    """Show the output of a job's tasks until all have ended; returns the tasks. At a limit they are terminated, shown
    to their last line, and LimitReached is raised."""
    seconds = seconds_for(settings) if timeout is None else timeout
    clock = retry.CLOCK._replace(sleep=guard.sleep)
    deadline = watch.Deadline(seconds, watch.tasks_of(job.id), tell, clock=clock)
    follow = Follow(client.batch, job, deadline.tell, lines=kept.lines, turns=client.pace.turns)

    def look_within_limits(seen: Glance) -> int:
        requests = follow.look(seen)
        if guard.due():
            pool_id = look.job_state(client.batch, job.id)[1]
            requests += 1
            if pool_id:
                watch.show_nodes(client.batch, pool_id, tell)
                requests += 2
        return requests

    try:
        watch.tasks_ended(client.batch, job.id, deadline, client.pace, look_within_limits)
    except LimitReached:
        job.terminate()
        with contextlib.suppress(TimedOut):
            ends = watch.Deadline(ENDING_SECONDS, watch.tasks_of(job.id), tell)
            watch.tasks_ended(client.batch, job.id, ends, client.pace, follow.look)
        raise
    tasks = job.tasks
    if settings.merge_task is not None:
        follow.show_ended(task for task in tasks if task.id == merge_id(settings.merge_task))
    return tasks


def _replace(client: Operations, job_id: str, created: str, tell: Tell) -> None:
    """Delete a job that has completed, for the one of the same id that is added next.

    Raises AlreadyExists if it was added anew since it was seen: another run may have replaced it.
    """
    with contextlib.suppress(NotFound):
        if client.creation("job", job_id).time != created:
            raise AlreadyExists(
                f"job {job_id} was added anew while this run waited for the pool; wait for it with"
                f" `batchtrain jobs wait {job_id}`",
                operation=f"replace job {job_id}",
                code="JobExists",
            )
        tell(JobReplaced(job_id, f"replacing job {job_id}, which has completed"))
        client.jobs.handle(job_id).delete(tell=tell)


def seconds_for(job: JobSettings) -> float:
    """The time limit of a job's tasks: its wall-clock limit, otherwise the sum of its tasks' limits, plus an hour for
    nodes to start; 24 hours without limits.
    """
    if job.max_wall_time is not None:
        return seconds_of(job.max_wall_time) + POOL_SECONDS
    total = 0.0
    for task in job.tasks:
        retries = task.max_task_retries if task.max_task_retries is not None else job.max_task_retries or 0
        if task.max_wall_time is None or task.task_factory is not None or retries < 0:
            return JOB_SECONDS
        total += seconds_of(task.max_wall_time) * (1 + retries)
    return total + POOL_SECONDS if total and job.merge_task is None else JOB_SECONDS


def leaves(error: BaseException, *, added: bool, submitted: bool) -> bool:
    """Whether everything is kept after an error: a running training is worth more than the cost of its nodes.

    added: some task was added. submitted: everything was. Everything is deleted after Ctrl-C, at a limit, after a
    refused submission, and if the work was deleted. A deadline, a lost connection, and a bug of batchtrain are
    unrelated to the training.
    """
    if isinstance(error, (KeyboardInterrupt, LimitReached)):
        return False
    if isinstance(error, (TimedOut, Unreachable)):
        return True
    if isinstance(error, NotFound) and error.code in GONE:
        return False
    return submitted if isinstance(error, BatchtrainError) else added


def _refuse_standing(client: Operations, recipe: Recipe, *, reuse: bool) -> dict[str, str]:
    """Raise AlreadyExists for a pool or job that stands: whatever ends this run later, it is not to be deleted.

    With `reuse`, returns the creation times of the existing completed jobs, which may be replaced.
    """
    if needs_pool(recipe) and not reuse and recipe.pool is not None and client.pools.stands(recipe.pool.id):
        raise failure(f"add pool {recipe.pool.id}", "PoolExists", "The specified pool already exists.")
    states = {job.id: state for job in recipe.jobs if (state := client.jobs.state(job.id))}
    for job_id, state in states.items():
        if reuse and state != "completed":
            raise AlreadyExists(
                f"job {job_id} is {state}, and only a completed job is replaced; wait for it with"
                f" `batchtrain jobs wait {job_id}`, or delete it with `batchtrain jobs del {job_id}`",
                operation=f"replace job {job_id}",
                code="JobExists",
            )
        if not reuse:
            raise failure(f"add job {job_id}", "JobExists", f"The specified job already exists, and is {state}.")
    return {job_id: client.creation("job", job_id).time for job_id in states}


def _refuse_endless(recipe: Recipe) -> None:
    """A job schedule has no end, and a pool that is kept alive outlives its job: `run` could not clean up either."""
    for job in recipe.jobs:
        if job.recurrence is not None:
            raise UsageError(
                f"job {job.id} has a `recurrence`, and a job schedule has no end; add it with"
                " `batchtrain jobs add`, and end it with `batchtrain jobs del`"
            )
        if job.auto_pool is not None and job.auto_pool.keep_alive:
            raise UsageError(
                f"job {job.id} keeps its pool alive (`auto_pool.keep_alive`), and `run` deletes what it creates;"
                " remove that, or add the job with `batchtrain jobs add`"
            )
