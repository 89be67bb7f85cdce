"""`run`: runs a recipe from start to end, streams its output, fetches its results, and deletes what it created."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.client import orphans
from batchtrain.client.ending import Ending
from batchtrain.client.existing import refuse_existing
from batchtrain.client.interrupts import Interrupts
from batchtrain.client.jobs import pool_of
from batchtrain.client.leaving import Ask, stops
from batchtrain.client.limits import UNLIMITED, Guard, Limits, hour_for
from batchtrain.client.placement import Placement, patience_of
from batchtrain.client.planning import left_out_by_git
from batchtrain.client.work import Command, Work, whole
from batchtrain.config.candidates import ordered, region_at
from batchtrain.config.types import Recipe
from batchtrain.errors import BatchtrainError, LimitReached, TaskFailed, UsageError
from batchtrain.life import intents
from batchtrain.life.endings import cause_of
from batchtrain.life.intents import Intent
from batchtrain.plan.idling import with_idle_timeout
from batchtrain.records import Metric, Table, Task, events
from batchtrain.runs import directory
from batchtrain.runs.beginnings import Beginning, resume_of
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.recording import QUIET, Origin, Progress, Recording, begin, now
from batchtrain.service import watch
from batchtrain.service.deadlines import POOL_SECONDS
from batchtrain.service.notices import Notices
from batchtrain.service.register import KINDS, Register

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.client.planning import Foreseen
    from batchtrain.service.watch import Tell


class Outcome(NamedTuple):
    """The result of a recipe: its tasks, the failure of the first failed task or the limit that ended them, what else
    went wrong (something could not be fetched, deleted or written), and the run directories with the metrics of their
    tasks."""

    tasks: Table[Task]
    failure: TaskFailed | LimitReached | None = None
    problem: BaseException | None = None
    runs: tuple[RunDirectory, ...] = ()
    metrics: tuple[dict[str, dict[str, Metric]], ...] = ()
    """By task, for each of `runs`."""


def run(
    client: Operations,
    recipe: Recipe,
    *,
    tell: Tell,
    timeout: float | None = None,
    intent: Intent = intents.RUN,
    origin: Origin | None = None,
    progress: Progress = QUIET,
    limits: Limits = UNLIMITED,
    beginning: Beginning | None = None,
    afterwards: Callable[[Register], None] | None = None,
    ask: Ask = stops,
    ranks: Iterable[int] = (),
) -> Outcome:
    """Create the pool and the jobs, follow them to their end, fetch their results, and delete what was created (also
    after Ctrl-C), as `intent` and the rules of `life/endings.py` say.

    Raises the error that stopped the work, and UsageError for work without an end.
    timeout: seconds for each wait; by default what `seconds_for` says. origin: where the run directories are made; none
    without it. limits: at one of them the tasks are terminated, and the results are fetched.
    beginning: where the tasks with checkpoints begin; by default they continue the run before. afterwards: called once
    the tasks have ended, while the pool and the jobs exist; what it creates through the register is deleted with them.
    ask: whether the run continues after Ctrl-C; a run whose results are in storage continues when its terminal closes.
    ranks: those of a gang whose output is shown.
    """
    _refuse_unfit(recipe)
    recipe = with_idle_timeout(recipe) if intent.reuses else recipe
    if limits.price is not None and "pool" in intent.keeps:
        raise UsageError("a limit of the price deletes the pool, and `keep` and `reuse` keep it; give one of them")
    region = client.account.region or ""
    options = ordered(recipe, region)
    hours = [hour_for(limits, option.recipe, region_at(option, region)) for option in options]  # raises without a price
    guard = Guard(limits, hours[0], now)
    resume_of(recipe, beginning)  # raises for a beginning that the recipe cannot have
    plans = tuple((option, client.foresee(option.recipe)) for option in options)
    if origin is not None:
        directory.check(origin.root)
        pool_id = recipe.pool.id if recipe.needs_pool and recipe.pool is not None else ""
        job_ids = [job.id for job in recipe.jobs]
        orphans.adopt(client, origin.root, tell, pool_id=pool_id, job_ids=job_ids, reuse=intent.reuses)
    old_jobs = refuse_existing(client, recipe, origin, tell, reuse=intent.reuses)
    has_candidates = patience_of(recipe) is not None

    def work_through(work: Work) -> None:
        work.ranks, work.limits, work.old_jobs = tuple(ranks), limits, old_jobs
        work.plans, register = {option.path: plan for option, plan in plans}, work.ending.register
        Placement(client, options, work.create, register, work.tell, work, has_candidates=has_candidates).find()
        if afterwards is not None:
            afterwards(register)

    command = Command(client, recipe, intent, tell, origin, progress, guard, timeout, beginning, ask)
    return _outcome(command, plans[0][1], work_through)


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
    ranks: Iterable[int] = (),
) -> Outcome:
    """Add the jobs to their pool, follow them to their end, and fetch their results.

    timeout: seconds to wait while the pool grows. Ctrl-C ends only the following. fail_fast: the first refused task
    stops the addition. recreate: delete the jobs that exist before they are added; nothing else is deleted. ranks:
    those of a gang whose output is shown.
    """
    _refuse_schedules(recipe)
    if recipe.needs_pool:
        pool_of(client, recipe)  # no run directory is made for jobs that cannot be added
    foreseen = client.foresee(recipe)
    directory.check(origin.root)

    def add_and_follow(work: Work) -> None:
        client.jobs.add_all(
            recipe,
            tell=work.tell,
            timeout=timeout,
            foreseen=foreseen,
            fail_fast=fail_fast,
            recreate=recreate,
            register=work.ending.register,
        )
        work.ending.submitted, work.ranks = True, tuple(ranks)
        work.follow()

    command = Command(client, recipe, intents.FOLLOW, tell, origin, progress, Guard(UNLIMITED, None, now))
    return _outcome(command, foreseen, add_and_follow)


def _outcome(command: Command, foreseen: Foreseen, work_through: Callable[[Work], None]) -> Outcome:
    """Do the work, and end the command however the work ends. Raises what ended it before the tasks had ended."""
    client, recipe, tell, origin, intent = command.client, command.recipe, command.tell, command.origin, command.intent
    error: BaseException | None = None
    with Interrupts() as interrupts:
        recordings = dict[str, Recording]()
        for job in recipe.jobs if origin is not None else ():
            assert origin is not None
            sources, blobs = foreseen.sources, foreseen.blobs
            recordings[job.id] = begin(
                client.batch, client.account, recipe, job, whole(foreseen), origin, intent.keeps, sources, blobs
            )
            tell(events.RunRecorded(job.id, run=recordings[job.id].run.name))
        names = {job_id: recording.run.name for job_id, recording in recordings.items()}
        register = client.register(recipe, names, command.beginning)
        register.temporary_kinds = frozenset(KINDS).difference(intent.keeps)
        notices = Notices(recipe, client.account, tell)
        record = _recorded(tell, recordings, notices)
        ending = Ending(
            client,
            register,
            record,
            interrupts,
            intent,
            recordings,
            write=lambda: _written(ending, notices, error, next(iter(work.failures), None)),
            progress=command.progress,
            ask=command.ask,
            guard=command.guard,
        )
        ending.recipe = recipe
        work = Work(command, ending, record)
        try:
            try:
                for left_out in left_out_by_git(foreseen.sources) if recordings else ():
                    record(left_out)
                if lacks := client.account.lost_isolation:
                    text = "; ".join(filter(None, (lacks, client.account.plain_nodes_remedy)))
                    record(events.IsolationMissing("", text))
                with watch.limited(command.guard):
                    work_through(work)
            finally:
                interrupts.hold()
        except BaseException as exception:  # noqa: BLE001 - every end of the work is an end of the command
            error = exception
        ending.end(error)
        for recording in () if ending.leaver else recordings.values():  # not recorded: the records have ended
            with contextlib.suppress(OSError, ValueError):
                tell(recording.outcome())
    runs = tuple(recording.run for recording in recordings.values())
    tasks, limit = Table(work.tasks), None
    if isinstance(error, LimitReached) and runs:
        tasks = Table(task for run in runs for task in run.each_task())
        limit = LimitReached(f"{error}; its run directory is {', '.join(str(run.path) for run in runs)}")
    elif error is not None:
        raise error
    failure = limit or next(iter(work.failures), None)
    metrics = tuple(recording.metrics for recording in recordings.values())
    return Outcome(tasks, failure, ending.problem(successful=failure is None), runs, metrics)


def _recorded(tell: Tell, recordings: Mapping[str, Recording], notices: Notices) -> Tell:
    """Notes an event in the run directories, whose faults are kept for the end, and passes it on."""

    def record(event: events.Event) -> None:
        for recording in recordings.values():
            recording.tell(event)
        if isinstance(event, events.AttemptEnded):
            for recording in (item for item in recordings.values() if not item.has_ended):
                notices.see(recording.job_id, recording.run.name, event)
                break
        tell(event)

    return record


def _written(
    ending: Ending, notices: Notices, error: BaseException | None, failure: TaskFailed | None
) -> BaseException | None:
    """Write the end of all runs; returns the first error of the writing. error: what ended the command. failure: of the
    first failed task."""
    recordings, unwritten = ending.recordings.values(), None
    if ending.has_deleted_pool:
        for item in (*(recording.failure for recording in recordings), failure, error):
            if isinstance(item, BatchtrainError) and item.finding:  # name no command for the pool
                item.finding = item.finding.after_deletion()
    for recording in recordings:
        reason = recording.failure if recording.has_ended else error or failure
        state = cause_of(reason).state
        try:
            recording.end(state, reason)
            notices.ended(recording.job_id, recording.run.name, state, reason)
        except Exception as fault:  # noqa: BLE001 - a record that cannot be written ends no ending
            unwritten = unwritten or fault
    return unwritten


def _refuse_schedules(recipe: Recipe) -> None:
    """Refuse to follow a job schedule, which has no end."""
    for job in recipe.jobs:
        if job.recurrence is not None:
            raise UsageError(
                f"job {job.id} has a `recurrence`, and a job schedule has no end; add it with"
                " `batchtrain jobs add`, and end it with `batchtrain jobs del`"
            )


def _refuse_unfit(recipe: Recipe) -> None:
    """Refuse a job that `run` cannot end well: a job schedule has no end, a pool that is kept alive outlives its job,
    and a pool that ends with its job has no results any more."""
    _refuse_schedules(recipe)
    for job in recipe.jobs:
        if job.auto_pool is not None and job.auto_pool.keep_alive:
            raise UsageError(
                f"job {job.id} keeps its pool alive (`auto_pool.keep_alive`), and `run` deletes what it creates;"
                " remove that, or add the job with `batchtrain jobs add`"
            )
        if job.loses_files:
            raise UsageError(
                f"job {job.id} ends by itself (`auto_complete`), and the service deletes its `auto_pool` at once,"
                " before `run` has fetched the results; remove `auto_complete`, because `run` ends the job, or send the"
                " results to storage with `output_data` and add the job with `batchtrain jobs add`"
            )
