"""`run`: runs a recipe from start to end, streams its output, fetches its results, and deletes what it created."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.client import orphans
from batchtrain.client.ending import Ending, Interrupts
from batchtrain.client.idling import with_idle_timeout
from batchtrain.client.leaving import Ask, Leaver, leave, leaver_of, stops
from batchtrain.client.limits import UNLIMITED, Guard, Limits, hour_for
from batchtrain.client.local import lost_isolation
from batchtrain.client.log_follower import Follow
from batchtrain.client.notices import Notices
from batchtrain.client.placement import attempt_of, discard, patience_of, place, recovery_of
from batchtrain.client.recovering import NodeWatch
from batchtrain.client.replacing import Replacer
from batchtrain.client.unfetched import keep_nodes
from batchtrain.config import ids
from batchtrain.config.candidates import Candidate, ordered, region_at
from batchtrain.config.task_resources import longest_seconds
from batchtrain.config.types import Job as JobSettings
from batchtrain.config.types import Recipe, seconds_of
from batchtrain.errors import (
    AlreadyExists,
    BatchtrainError,
    CannotRun,
    LimitReached,
    NodesLost,
    NotAllowed,
    NotFound,
    ReplacementFailed,
    ResultsLeft,
    ServiceError,
    TaskFailed,
    TimedOut,
    Unreachable,
    UsageError,
    WaitOver,
)
from batchtrain.plan.cost import hour_of, price_of
from batchtrain.plan.types import Plan
from batchtrain.records import Metric, Pool, Table, Task, events
from batchtrain.runs import directory
from batchtrain.runs.beginnings import Beginning, resume_of
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.runs.recording import QUIET, Origin, Progress, Recording, begin, now
from batchtrain.service import faults, job_actions, pool_users, read, retry, watch
from batchtrain.service.deadlines import JOB_SECONDS, POOL_SECONDS, STOP_SECONDS
from batchtrain.service.register import KINDS, Kind, Register, Thing, read_marks
from batchtrain.service.tasks import Glance

if TYPE_CHECKING:
    from batchtrain.client.job import Job
    from batchtrain.client.operations import Operations
    from batchtrain.client.planning import Foreseen
    from batchtrain.client.shown_progress import Tell

GONE = frozenset({"PoolNotFound", "JobNotFound", "TaskNotFound"})
"""The service's codes for deleted work; any other 404 is about something else."""


class Outcome(NamedTuple):
    """The result of a recipe: its tasks, the failure of the first failed task, what else went wrong (something could
    not be fetched, deleted or written), and the run directories with the metrics of their tasks."""

    tasks: Table[Task]
    failure: TaskFailed | None = None
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
    keep: bool = False,
    reuse: bool = False,
    origin: Origin | None = None,
    progress: Progress = QUIET,
    limits: Limits = UNLIMITED,
    beginning: Beginning | None = None,
    afterwards: Callable[[Register], None] | None = None,
    expendable: bool = False,
    ask: Ask = stops,
    ranks: Iterable[int] = (),
) -> Outcome:
    """Create the pool and the jobs, follow them to their end, fetch their results, and delete what was created (also
    after Ctrl-C).

    Raises the error that stopped the work, and UsageError for work without an end. Nothing is deleted after a deadline,
    if the service cannot be reached, or if results are still on a node. With `keep`, everything is kept. With `reuse`,
    an existing pool that matches the plan is used, and the pool is kept; a completed job of the same id is replaced.
    timeout: seconds for each wait; by default what `seconds_for` says. origin: where the run directories are made; none
    without it. limits: at one of them the tasks are terminated and LimitReached is raised; the results are fetched.
    beginning: where the tasks with checkpoints begin; by default they continue the run before. afterwards: called once
    the tasks have ended, while the pool and the jobs exist; what it creates through the register is deleted with them.
    expendable: delete everything, also after a deadline, and although results are still on a node.
    ask: whether the run continues after Ctrl-C; a run whose results are in storage continues when its terminal closes.
    ranks: those of a gang whose output is shown.
    """
    _refuse_unfit(recipe)
    recipe = with_idle_timeout(recipe) if reuse else recipe
    if limits.price is not None and (keep or reuse):
        raise UsageError("a limit of the price deletes the pool, and `keep` and `reuse` keep it; give one of them")
    region = client.account.region or ""
    options = ordered(recipe, region)
    hours = [hour_for(limits, option.recipe, region_at(option, region)) for option in options]  # raises without a price
    guard = Guard(limits, hours[0], now)
    resume_of(recipe, beginning)  # raises for a beginning that the recipe cannot have
    plans = tuple((option, client.foresee(option.recipe)) for option in options)
    foreseen = plans[0][1]
    if origin is not None:
        directory.check(origin.root)
        pool_id = recipe.pool.id if recipe.needs_pool and recipe.pool is not None else ""
        job_ids = [job.id for job in recipe.jobs]
        orphans.adopt(client, origin.root, tell, pool_id=pool_id, job_ids=job_ids, reuse=reuse)
    old_jobs = _refuse_standing(client, recipe, origin, tell, reuse=reuse)
    return _outcome(
        client,
        recipe,
        lambda work: _create_and_follow(
            work._replace(ranks=tuple(ranks), limits=limits), plans, old_jobs, afterwards, reuse=reuse
        ),
        foreseen=foreseen,
        kept_kinds=KINDS if keep else ("pool",) if reuse else (),
        guard=guard,
        timeout=timeout,
        tell=tell,
        origin=origin,
        progress=progress,
        beginning=beginning,
        expendable=expendable,
        ask=ask,
    )


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
    _refuse_unfit(recipe)
    foreseen = client.foresee(recipe)
    directory.check(origin.root)

    def add_and_follow(work: _Work) -> Outcome:
        client.jobs.add_all(
            recipe,
            tell=work.tell,
            timeout=timeout,
            foreseen=foreseen,
            fail_fast=fail_fast,
            recreate=recreate,
            register=work.ending.register,
        )
        work.ending.submitted = True
        return _all_followed(work._replace(ranks=tuple(ranks)))

    return _outcome(
        client,
        recipe,
        add_and_follow,
        foreseen=foreseen,
        kept_kinds=KINDS,
        guard=Guard(UNLIMITED, None, now),
        timeout=None,
        tell=tell,
        origin=origin,
        progress=progress,
    )


def watch_job(
    client: Operations,
    job_id: str,
    *,
    tell: Tell,
    timeout: float = JOB_SECONDS,
    output: bool = True,
    ranks: Iterable[int] = (),
) -> Job:
    """Show the nodes, the counts, the failures and the output of a job, of all ranks or some, until its tasks have
    ended. Fetches and deletes nothing."""
    job = client.jobs.handle(job_id)
    with contextlib.suppress(NotFound):
        watch.show_nodes(client.batch, read.job(client.batch, job_id).pool, tell)
    deadline = watch.Deadline(timeout, watch.tasks_of(job_id), tell)
    follow = Follow(client.batch, job, deadline.tell, turns=client.pace.turns, output=output, ranks=ranks)
    watch.tasks_ended(client.batch, job_id, deadline, client.pace, follow.look)
    return job


def _outcome(
    client: Operations,
    recipe: Recipe,
    work_through: Callable[[_Work], Outcome],
    *,
    foreseen: Foreseen,
    kept_kinds: tuple[Kind, ...],
    guard: Guard,
    timeout: float | None,
    tell: Tell,
    origin: Origin | None,
    progress: Progress,
    beginning: Beginning | None = None,
    expendable: bool = False,
    ask: Ask = stops,
) -> Outcome:
    """Do the work, and end the command however the work ends. Raises what ended it before the tasks had ended."""
    error: BaseException | None = None
    problem: BaseException | None = None
    outcome = Outcome(Table())
    with Interrupts() as interrupts:
        recorder = Recorder(client, recipe, foreseen, tell, origin, progress, kept_kinds)
        register = client.register(recipe, recorder.names, beginning)
        register.temporary_kinds = frozenset(KINDS).difference(kept_kinds)
        ending = Ending(client, register, recorder.tell, interrupts, kept_kinds)
        try:
            try:
                if lacks := "; ".join(filter(None, lost_isolation(client.account))):
                    recorder.tell(events.IsolationMissing("", lacks))
                outcome = work_through(_Work(client, recipe, foreseen, ending, recorder, guard, timeout))
            finally:
                interrupts.hold()
                guard.armed = False  # a limit ends the work, and not the cleaning up after it
        except BaseException as exception:  # noqa: BLE001 - every end of the work is an end of the command
            error = exception
        leaver: Leaver = ""
        with contextlib.suppress(Exception, KeyboardInterrupt), interrupts.answering():
            leaver = leaver_of(error, recipe, ending, ask)
        if leaver and leave(ending.client, recorder.recipe, ending, guard, leaver):
            ending.say_left(error)
            recorder.leave(leaver)
        else:
            problem = _end(ending, recorder, error, outcome.failure, expendable=expendable)
    if error is not None:
        raise error
    return outcome._replace(problem=problem, runs=recorder.runs, metrics=recorder.metrics)


def _end(
    ending: Ending,
    recorder: Recorder,
    error: BaseException | None,
    failure: TaskFailed | None = None,
    *,
    expendable: bool = False,
) -> BaseException | None:
    """Fetch what is missing, delete what may be deleted, say what is left, and write the records, in this order.

    error: what ended the work before the tasks had ended. failure: of the first failed task. Returns why a command
    whose work succeeded fails.
    """
    ending.settle()
    has_tasks, is_submitted = ending.register.tasks_added, ending.submitted
    stays = error is not None and leaves(error, has_tasks=has_tasks, is_submitted=is_submitted) and not expendable
    unsafe = recorder.fetch_rest(ending, error, stops=not stays) if error is not None and has_tasks else recorder.unsafe
    unsafe = {} if expendable else unsafe
    on_nodes = recorder.are_on_nodes_alone(unsafe)
    if unsafe:
        ending.exceeds_limit = recorder.exceed_limit(unsafe)
    if unsafe and not on_nodes:
        ending.kept_kinds |= {"job"}
    if not stays and not on_nodes and any(thing.kind == "pool" for thing in ending.delete()):
        recorder.correct_next_steps(error)
    if not stays and on_nodes:
        keep_nodes(ending)
    ending.say_left(error)
    unwritten = recorder.end_all(error or failure)
    recorder.say()
    if unsafe:
        reasons = "; ".join(f"job {job_id}: {reason}" for job_id, reason in unsafe.items())
        if not on_nodes:
            return ResultsLeft(f"results are in storage and not on this machine, so their job was kept: {reasons}")
        return ResultsLeft(
            f"results are still on the nodes, so nothing was deleted: {reasons}; {_next_attempt(unsafe)}"
        )
    return ending.failure(successful=failure is None) or recorder.missing or unwritten


Plans = Sequence[tuple[Candidate, "Foreseen"]]
"""The candidates of the pool in their order, each with the plan of the recipe there."""


class _Work(NamedTuple):
    client: Operations
    recipe: Recipe
    foreseen: Foreseen
    ending: Ending
    recorder: Recorder
    guard: Guard
    timeout: float | None
    ranks: tuple[int, ...] = ()
    """Those whose output is shown; all if empty."""
    limits: Limits = UNLIMITED
    patience: float | None = None
    """The seconds that the pool has to get its nodes back, before the job is moved; None if it is not."""

    def at(self, client: Operations, candidate: Candidate, foreseen: Foreseen) -> _Work:
        """The work at a candidate of the pool, before anything is created there."""
        recipe, account = candidate.recipe, client.account
        self.guard.move(hour_for(self.limits, recipe, account.region))
        self.ending.client = client
        self.ending.price, self.ending.planned = price_of(recipe, account.region), hour_of(recipe, account.region)
        self.recorder.move(client, recipe, foreseen)
        return self._replace(client=client, recipe=recipe, foreseen=foreseen)

    @property
    def tell(self) -> Tell:
        """Records an event, passes it on, and checks the limits."""

        def tell_and_note(event: events.Event) -> None:
            self.recorder.tell(event)
            self.guard.note(event)

        return tell_and_note


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
        kept_kinds: tuple[Kind, ...] = (),
    ) -> None:
        """kept_kinds: the kinds of things that the command does not delete."""
        self._client, self._tell, self._progress, self.origin = client, tell, progress, origin
        self.recipe = recipe
        """The recipe at the candidate where it runs."""
        self._notices = Notices(recipe, client.account, tell)
        self._recordings: dict[str, Recording] = {}
        self._fetched: set[str] = set()
        self._failures: dict[str, TaskFailed | None] = {}
        """The jobs that have ended, each with the failure of its first failed task."""
        self._skipped = False
        """Whether the user skipped the results that are not here."""
        for job in recipe.jobs if origin else ():
            assert origin is not None
            plan = _whole(foreseen)
            self._recordings[job.id] = begin(
                client.batch, client.account, recipe, job, plan, origin, kept_kinds, foreseen.sources, foreseen.blobs
            )
            self._tell(events.RunRecorded(job.id, run=self._recordings[job.id].run.name))

    def move(self, client: Operations, recipe: Recipe, foreseen: Foreseen) -> None:
        """The pool is to be created from another candidate."""
        self._client, self.recipe = client, recipe
        for recording in self._recordings.values():
            recording.move(client.batch, client.account, recipe, _whole(foreseen))

    def restart(self) -> None:
        """The jobs are to be added again."""
        for recording in self._recordings.values():
            recording.restart()

    @property
    def names(self) -> dict[str, str]:
        """The names of the run directories, by job."""
        return {job_id: recording.run.name for job_id, recording in self._recordings.items()}

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

    def tell(self, event: events.Event) -> None:
        """Note an event in the directories, whose faults are kept for the end, and pass it on."""
        for recording in self._recordings.values():
            recording.tell(event)
        if isinstance(event, events.AttemptEnded):
            job_id = next((job_id for job_id in self._recordings if job_id not in self._failures), None)
            if job_id is not None:
                self._notices.see(job_id, self._recordings[job_id].run.name, event)
        self._tell(event)

    def lines(self, job_id: str, task_id: str, stream: str, lines: Sequence[str]) -> None:
        """Lines of the output of a task."""
        if job_id in self._recordings:
            self._recordings[job_id].lines(task_id, stream, lines)

    def fetch(self, job_id: str, tasks: Iterable[Task]) -> None:
        """Fetch the results of a job."""
        if job_id in self._recordings:
            self._recordings[job_id].fetch(tasks, progress=self._progress)
            self._fetched.add(job_id)

    def end(self, job_id: str, failure: TaskFailed | None) -> None:
        """The tasks of a job have ended. It is written at the end of the command, when nothing can be lost any more."""
        self._failures[job_id] = failure
        if job_id in self._recordings:
            self._recordings[job_id].job_ended()

    @property
    def unsafe(self) -> dict[str, str]:
        """By job, why results that were listed are not on this machine, although they are still on their nodes."""
        if self._skipped:
            return {}
        recordings = self._recordings.items()
        return {job_id: "; ".join(recording.unsaved) for job_id, recording in recordings if recording.unsaved}

    def are_on_nodes_alone(self, job_ids: Iterable[str]) -> bool:
        """Whether a node has the only copy of a result of these jobs that is not on this machine."""
        return any(self._recordings[job_id].is_on_nodes_alone for job_id in job_ids)

    def exceed_limit(self, job_ids: Iterable[str]) -> bool:
        """Whether all results of these jobs that are not on this machine exceed a limit of `results`."""
        return all(self._recordings[job_id].exceeds_limit for job_id in job_ids)

    @property
    def missing(self) -> ResultsLeft | None:
        """The error of the first job with results that are not here, and that the user did not skip."""
        missing = (recording.missing for recording in self._recordings.values())
        return None if self._skipped else next((error for error in missing if error), None)

    def fetch_rest(self, ending: Ending, error: BaseException, *, stops: bool) -> dict[str, str]:
        """Fetch the results of the jobs that exist and were not followed to their end; returns why some are missing,
        by job. stops: their tasks are ended first, unless jobs are kept; otherwise they would run while the fetching
        does.

        A signal ends the fetching: what is not here then is not kept for it.
        """
        jobs = [thing.id for thing in ending.register.things() if thing.kind == "job" and thing.id in self._recordings]
        job_ids = [job_id for job_id in jobs if job_id not in self._fetched]
        if isinstance(error, (NotAllowed, TimedOut, Unreachable)) and not isinstance(error, WaitOver):
            return dict.fromkeys(job_ids, str(error))
        if job_ids and isinstance(error, (KeyboardInterrupt, LimitReached)):
            limit = isinstance(error, LimitReached)
            skips = "Ctrl-C skips them" if limit else "Ctrl-C again skips them"
            ending.tell(
                events.ResultsFetching("", f"{error if limit else 'interrupted'}; fetching the results ({skips})")
            )
        reasons: dict[str, str] = {}
        for job_id in job_ids if stops and "job" not in ending.kept_kinds else ():
            if ending.is_hurried:
                return self._skip(ending)
            if job_id not in ending.ended:
                failed = ending.error_of(partial(_stop, self._client, job_id, ending.tell))
                if isinstance(failed, KeyboardInterrupt):
                    return self._skip(ending)
                if isinstance(failed, Unreachable):
                    ending.tell(events.ResultsFailed(job_id, f"the results could not be fetched: {failed}"))
                    return dict.fromkeys(job_ids, str(failed))
        for job_id in job_ids:
            if ending.is_hurried:
                return self._skip(ending)
            failed = ending.error_of(partial(self._fetch_after_error, job_id))
            if isinstance(failed, KeyboardInterrupt):
                return self._skip(ending)
            if failed is not None:
                reasons[job_id] = str(failed)
                ending.tell(events.ResultsFailed(job_id, f"the results of job {job_id} could not be fetched: {failed}"))
        return reasons | self.unsafe

    def _skip(self, ending: Ending) -> dict[str, str]:
        """Give up the results that are not here; returns that none are kept for a later command."""
        self._skipped = True
        ending.tell(events.ResultsSkipped("", "fetching was interrupted; what is not here yet is lost"))
        return {}

    def _fetch_after_error(self, job_id: str) -> None:
        try:
            self.fetch(job_id, self._client.jobs.handle(job_id).tasks)
        except NotFound as error:
            if error.code not in GONE:
                raise

    def end_all(self, error: BaseException | None) -> BaseException | None:
        """Write the end of all runs; returns the first error of the writing. error: what ended the command."""
        unwritten: BaseException | None = None
        for job_id, recording in self._recordings.items():
            reason = self._failures.get(job_id, error)
            state = "completed"
            if reason is not None:
                state = "interrupted" if isinstance(reason, (KeyboardInterrupt, LimitReached)) else "failed"
            try:
                recording.end(state, reason)
                self._notices.ended(job_id, recording.run.name, state, reason)
            except Exception as fault:  # noqa: BLE001 - a record that cannot be written ends no ending
                unwritten = unwritten or fault
        return unwritten

    def correct_next_steps(self, error: BaseException | None) -> None:
        """Name no command for a pool that is deleted. error: what ended the command."""
        for failure in (*self._failures.values(), error):
            if isinstance(failure, BatchtrainError) and failure.finding:
                failure.finding = failure.finding.after_deletion()

    def leave(self, leaver: Leaver) -> None:
        """The runs continue without this command."""
        for recording in self._recordings.values():
            recording.leave(leaver)

    def say(self) -> None:
        """Say where the results are."""
        for recording in self._recordings.values():
            with contextlib.suppress(OSError, ValueError):
                self._tell(events.Results(recording.job_id, recording.conclusion(), recording.diverged))


def _whole(foreseen: Foreseen) -> Plan:
    return foreseen.jobs._replace(steps=(*foreseen.pool.steps, *foreseen.jobs.steps))


def _create_and_follow(
    work: _Work,
    plans: Plans,
    old_jobs: Mapping[str, datetime | None],
    afterwards: Callable[[Register], None] | None,
    *,
    reuse: bool,
) -> Outcome:
    unplaced_work, patience = work, recovery_of(work.recipe)
    while True:
        try:
            work = _submitted(unplaced_work, plans, old_jobs, reuse=reuse)
        except ServiceError as error:
            _start_again(unplaced_work, error)
            continue
        try:
            outcome = _all_followed(work._replace(patience=patience))
            break
        except NodesLost as error:
            plans, old_jobs = _moved_on(work, plans, error), {}
    if afterwards is not None:
        afterwards(work.ending.register)
    return outcome


def _submitted(work: _Work, plans: Plans, old_jobs: Mapping[str, datetime | None], *, reuse: bool) -> _Work:
    """The work where its pool is, once all jobs have been added there."""
    timeout = POOL_SECONDS if work.timeout is None else work.timeout
    work = _with_pool(work, plans, timeout, reuse=reuse)
    client, recipe, register = work.client, work.recipe, work.ending.register
    for job_id, created in old_jobs.items():
        _replace(client, job_id, created, work.tell)
    client.jobs.add_all(
        recipe, tell=work.tell, timeout=timeout, foreseen=work.foreseen, resume=False, register=register
    )
    for pool in register.things("shared"):
        pool_users.join(client.batch, pool.id, register.marks(pool).run)
    work.ending.submitted = True
    return work


def _start_again(work: _Work, error: ServiceError) -> None:
    """Delete the jobs that were added to a pool which another run has deleted meanwhile. Raises any other error."""
    register = work.ending.register
    pools = register.things("shared")
    if error.code == "PoolExists" and work.recipe.pool is not None:
        _refuse_used(work.ending.client, Thing("pool", work.recipe.pool.id), work.recorder.origin)
    if error.code not in pool_users.GONE or not pools:
        raise error
    for job in (thing for thing in register.things("ours", "pending") if thing.kind == "job"):
        with contextlib.suppress(NotFound):
            if register.is_ours(work.ending.client.batch, job):
                work.ending.client.jobs.handle(job.id).delete(tell=work.tell)
        register.note(job, None)
    for pool in pools:
        text = f"{pool.name} was deleted at the end of the run that added it; this run creates it again"
        work.tell(events.Waiting(pool.id, text))
        register.note(pool, None)
    register.tasks_added = False
    work.recorder.restart()


def _moved_on(work: _Work, plans: Plans, error: NodesLost) -> Plans:
    """Delete a job and the pool that lost its nodes; returns the candidates from the next one on. The job continues
    from its checkpoints, which are in storage."""
    client, register = work.client, work.ending.register
    number = next(number for number, (candidate, _) in enumerate(plans) if candidate.recipe is work.recipe)
    candidate = plans[number][0]
    attempt = attempt_of(client, candidate, now(), error)
    text = f"{candidate} does not get its nodes back ({error}); the job moves to the next candidate"
    work.tell(events.CandidateTried(candidate.pool.id, text, attempt=attempt))
    work.recorder.restart()
    for job in work.recipe.jobs:
        client.jobs.handle(job.id).delete(tell=work.tell)
        register.note(Thing("job", job.id), None)
    discard(client, candidate.pool.id, register, work.tell)
    work.ending.submitted = register.tasks_added = False
    return (*plans[number + 1 :], *plans[: number + 1])


def _with_pool(work: _Work, plans: Plans, timeout: float, *, reuse: bool) -> _Work:
    """The work where the pool is, with ready nodes; of several candidates, at the first one that has them."""
    ending, patience = work.ending, patience_of(work.recipe)
    foreseen = {candidate.path: plan for candidate, plan in plans}

    def create(client: Operations, candidate: Candidate) -> Pool:
        create_pool = client.pools.ready if reuse else client.pools.add
        return create_pool(
            candidate.recipe,
            timeout=timeout,
            tell=work.tell,
            foreseen=foreseen[candidate.path],
            register=ending.register,
            patience=patience,
        )

    def create_there(client: Operations, candidate: Candidate) -> Pool:
        work.at(client, candidate, foreseen[candidate.path])
        if candidate.account:
            _refuse_standing(client, candidate.recipe, None, work.tell, reuse=reuse)
        return create(client, candidate)

    if patience is None:
        region = work.client.account.region
        ending.price, ending.planned = price_of(work.recipe, region), hour_of(work.recipe, region)
        if work.recipe.needs_pool:
            ending.pool = create(work.client, plans[0][0])
        return work
    options = [candidate for candidate, _ in plans]
    client, candidate, ending.pool = place(work.client, options, create_there, ending.register, work.tell)
    return work._replace(client=client, recipe=candidate.recipe, foreseen=foreseen[candidate.path])


def _all_followed(work: _Work) -> Outcome:
    """Follow the jobs one after the other, and fetch the results of each."""
    recorder, jobs = work.recorder, work.recipe.jobs
    all_tasks: list[Task] = []
    failures: list[TaskFailed] = []
    for number, settings in enumerate(jobs, 1):
        job = work.client.jobs.handle(settings.id)
        tasks = _followed(work, job, settings)
        work.ending.ended.add(job.id)
        all_tasks.extend(tasks)
        recorder.fetch(job.id, tasks)
        failure = None
        try:
            job.raise_failed(tasks, logs=recorder.logs(job.id))
        except TaskFailed as error:  # made now, while the task's files can still be read
            failures.append(failure := error)
            if number < len(jobs):
                work.tell(events.JobFailed(job.id, f"{failure}; the next jobs continue"))
        recorder.end(job.id, failure)
    return Outcome(Table(all_tasks), failures[0] if failures else None)


def _followed(work: _Work, job: Job, settings: JobSettings) -> tuple[Task, ...]:
    """Show the output of a job's tasks until all have ended; returns the tasks. At a limit they are stopped, shown
    to their last line, and LimitReached is raised."""
    client, guard, tell = work.client, work.guard, work.tell
    seconds = seconds_for(settings) if work.timeout is None else work.timeout
    deadline = watch.Deadline(seconds, watch.tasks_of(job.id), tell, clock=retry.CLOCK._replace(sleep=guard.sleep))
    replacer = Replacer(client, work.recipe, deadline.tell)
    follow = Follow(
        client.batch, job, replacer.note, lines=work.recorder.lines, turns=client.pace.turns, ranks=work.ranks
    )

    pool, nodes = work.recipe.pool, None
    if work.patience and pool and work.ending.register.state(Thing("pool", pool.id)) == "ours":
        nodes = NodeWatch(client, pool.id, work.patience, tell, deadline.now)

    def look_within_limits(glance: Glance) -> int:
        requests = follow.look(glance)
        replacer.replace()
        requests += nodes.look() if nodes is not None else 0
        return requests + (_look_at_nodes(work, job.id) if guard.due() else 0)

    try:
        moves = nodes is not None
        watch.tasks_ended(client.batch, job.id, deadline, client.pace, look_within_limits, moves=moves)
    except LimitReached:
        with contextlib.suppress(BatchtrainError):  # it ends by itself, or the service does not answer
            _stop(client, job.id, tell)
            follow.look(job.glance())
        raise
    tasks = job.tasks
    if settings.merge_task is not None:
        follow.show_ended(task for task in tasks if task.id == ids.merge_id(settings.merge_task))
    return tasks


def _look_at_nodes(work: _Work, job_id: str) -> int:
    """Report the nodes of a job to the views, and those of the pools that other jobs of the run have (`auto_pool`) to
    the limits. Returns the number of requests."""
    batch, others = work.client.batch, [job.id for job in work.recipe.jobs if job.auto_pool and job.id != job_id]
    pool_of_job = read.job(batch, job_id).pool
    pools = {pool_of_job, *(read.job(batch, other_id).pool for other_id in others)} - {""}
    for pool_id in pools:
        watch.show_nodes(batch, pool_id, work.tell if pool_id == pool_of_job else work.guard.note)
    return 1 + len(others) + 2 * len(pools)


def _stop(client: Operations, job_id: str, tell: Tell) -> None:
    """End the tasks of a job, whose results are fetched then. Raises NotFound, and TimedOut if tasks still run."""
    deadline = watch.Deadline(STOP_SECONDS, f"{watch.tasks_of(job_id)} to end", tell)
    job_actions.stop(client.batch, job_id, deadline, client.pace)


def _replace(client: Operations, job_id: str, created: datetime | None, tell: Tell) -> None:
    """Delete a job that has completed, for the one of the same id that is added next.

    Raises AlreadyExists if it was added anew since it was seen: another run may have replaced it.
    """
    with contextlib.suppress(NotFound):
        if read.job(client.batch, job_id).created != created:
            raise AlreadyExists(
                f"job {job_id} was added anew while this run waited for the pool; wait for it with"
                f" `batchtrain jobs wait {job_id}`",
                operation=f"replace job {job_id}",
                code="JobExists",
            )
        tell(events.JobReplaced(job_id, f"replacing job {job_id}, which has completed"))
        client.jobs.handle(job_id).delete(tell=tell)


def seconds_for(job: JobSettings) -> float:
    """The time limit of a job's tasks: its wall-clock limit, otherwise the sum of its tasks' limits, plus an hour for
    nodes to start; 24 hours without limits.
    """
    if job.max_wall_time is not None:
        return seconds_of(job.max_wall_time) + POOL_SECONDS
    times = [None if task.task_factory is not None else longest_seconds(job, task) for task in job.tasks]
    total = sum(filter(None, times))
    return total + POOL_SECONDS if total and None not in times and job.merge_task is None else JOB_SECONDS


def leaves(error: BaseException, *, has_tasks: bool, is_submitted: bool) -> bool:
    """Whether everything is kept after an error: a running training is worth more than the cost of its nodes.

    has_tasks: some task was added. is_submitted: all were. Everything is deleted after Ctrl-C, at a limit, after a
    refused submission, if a faulty node was not replaced, if the tasks never start, and if the work was deleted. A
    deadline, a lost connection, and a bug of batchtrain are unrelated to the training.
    """
    if isinstance(error, (KeyboardInterrupt, LimitReached, ReplacementFailed, CannotRun, WaitOver)):
        return False
    if isinstance(error, (TimedOut, Unreachable)):
        return True
    if isinstance(error, NotFound) and error.code in GONE:
        return False
    return is_submitted if isinstance(error, BatchtrainError) else has_tasks


def _refuse_standing(
    client: Operations, recipe: Recipe, origin: Origin | None, tell: Tell, *, reuse: bool
) -> dict[str, datetime | None]:
    """Raise AlreadyExists for a pool or job that stands: whatever ends this run later, it is not to be deleted. The
    user may delete it then, so results of its run that are still on its nodes are fetched before.

    With `reuse`, returns the creation times of the existing completed jobs, which may be replaced.
    """
    pools = [recipe.pool] if recipe.needs_pool and not reuse and recipe.pool is not None else []
    standing_pools = [pool.id for pool in pools if client.pools.stands(pool.id)]
    states = {job.id: state for job in recipe.jobs if (state := client.jobs.state(job.id))}
    if origin is not None:
        for thing in (*(Thing("pool", name) for name in standing_pools), *(Thing("job", name) for name in states)):
            _fetch_results_left(client, thing, origin, tell)
    for pool_id in standing_pools:
        _refuse_used(client, Thing("pool", pool_id), origin)
        raise faults.failure(f"add pool {pool_id}", "PoolExists", "The specified pool already exists.")
    for job_id, state in states.items():
        _refuse_used(client, Thing("job", job_id), origin)
        if reuse and state != "completed":
            raise AlreadyExists(
                f"job {job_id} is {state}, and only a completed job is replaced; wait for it with"
                f" `batchtrain jobs wait {job_id}`, or delete it with `batchtrain jobs del {job_id}`",
                operation=f"replace job {job_id}",
                code="JobExists",
            )
        if not reuse:
            raise faults.failure(f"add job {job_id}", "JobExists", f"The specified job already exists, and is {state}.")
    return {job_id: read.job(client.batch, job_id).created for job_id in states}


def _refuse_used(client: Operations, thing: Thing, origin: Origin | None) -> None:
    """Raise AlreadyExists for a pool or a job that a living run uses, without advice to delete it."""
    users = pool_users.users(client.batch, thing.id) if thing.kind == "pool" else ()
    with contextlib.suppress(NotFound):
        users = tuple(user for user in users if client.jobs.handle(user.job).open or _running(user.run, origin))
        marks = read_marks(client.batch, thing)
        record = _running(marks.run, origin)
        is_followed = thing.kind == "job" and marks.ends_with and client.jobs.handle(thing.id).open
        if not users and (is_followed or record):  # of a run whose job is this one, or that has no job yet
            users = (pool_users.PoolUser(marks.run, "", record.started if record else None, ends=True),)
    if not users:
        return
    step = f"`batchtrain jobs wait {thing.id}` waits for it; or use another id"
    if thing.kind == "pool":
        step = "`batchtrain run --reuse` runs on it, too; or use another id"
    raise AlreadyExists(
        f"{thing.name} is used by {', '.join(map(str, users))}; {step}",
        operation=f"add {thing.name}",
        code=f"{thing.kind.capitalize()}Exists",
    )


def _running(run: str, origin: Origin | None) -> RunRecord | None:
    """The record of a run of the same directory that a process records; None for any other run."""
    record = directory.named(origin.root, run).record_or_none() if origin and run else None
    return record if record is not None and record.state == "running" else None


def _fetch_results_left(client: Operations, thing: Thing, origin: Origin, tell: Tell) -> None:
    """Fetch the results of the run that added a thing, if that run could not, and its tasks have ended. Raises
    ResultsLeft."""
    try:
        run = directory.named(origin.root, read_marks(client.batch, thing).run)
        record = run.record()
        if record.results != "partial" or read_marks(client.batch, Thing("job", record.job)).run != run.name:
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
            f" {_next_attempt((job.id,))}, and `{thing.command('del', '')}` gives them up"
        )
    tell(events.Results(job.id, recording.conclusion(), recording.diverged))


def _next_attempt(job_ids: Iterable[str]) -> str:
    return f"{' and '.join(f'`batchtrain jobs fetch {job_id}`' for job_id in job_ids)} tries again"


def _refuse_unfit(recipe: Recipe) -> None:
    """Refuse a job that `run` cannot end well: a job schedule has no end, a pool that is kept alive outlives its job,
    and a pool that ends with its job has no results any more."""
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
        if job.auto_pool is not None and job.auto_complete:
            raise UsageError(
                f"job {job.id} ends by itself (`auto_complete`), and the service deletes its `auto_pool` at once,"
                " before `run` has fetched the results; remove `auto_complete`, because `run` ends the job, or send the"
                " results to storage with `output_data` and add the job with `batchtrain jobs add`"
            )
