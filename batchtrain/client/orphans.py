"""Runs whose process ended without finishing them: the next `run` in their directory, or the next command of this host
that needs one, ends it as `run` would have: it fetches the results, deletes what the run created, and writes the end of
its record, in this order."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from batchtrain.catalog.prices import money
from batchtrain.client.ending import Ending
from batchtrain.client.interrupts import Interrupts
from batchtrain.errors import AlreadyExists, BatchtrainError, NotFound, counted
from batchtrain.life import lost
from batchtrain.life.endings import cause_of
from batchtrain.life.intents import ADOPT
from batchtrain.life.lost import SeenLost
from batchtrain.plan.marks import Marks
from batchtrain.records.events import Event, RunAdopted, Standing
from batchtrain.records.record import minute
from batchtrain.runs import directory, lease
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.runs.recording import QUIET, Progress, Recording, is_of_account, secrets_of_job
from batchtrain.service import pool_users
from batchtrain.service.connect import Account, loopback
from batchtrain.service.register import KINDS, Kind, Register, Thing, marks_or_none

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.service.watch import Tell


SHOWN = 5
"""The runs that `run` does not end and names; more are counted."""


class Orphan(NamedTuple):
    """A run that no process records any more."""

    run: RunDirectory
    record: RunRecord
    kept_kinds: tuple[Kind, ...]
    """The kinds of things that the run would not have deleted."""
    host: str
    """Where it was started."""

    @property
    def job(self) -> Thing:
        return Thing("job", self.record.job)

    @property
    def what(self) -> str:
        """The run and its state, as the subject of a message."""
        return f"run {self.run.name} {'was left' if self.record.left_by else 'lost its process'}"

    @property
    def things(self) -> tuple[Thing, ...]:
        """What the run may have created."""
        return (self.job, Thing("pool", self.record.pool)) if self.record.pool else (self.job,)

    @property
    def price(self) -> str:
        """What an hour of its nodes costs, with a comma before it; empty if that is unknown."""
        cost = self.record.cost
        return f", {money(cost.hour, cost.currency)} an hour" if cost is not None and cost.hour is not None else ""

    def is_here(self, account: Account) -> bool:
        """Whether it is of this host and of an account, so that it can be ended here."""
        return self.host == platform.node() and is_of_account(self.record, account)

    def remark(self, account: Account) -> str:
        """Why it is not ended: what it is, since when, what it costs, and the command that ends it."""
        record = self.record
        facts = f"job {record.job} since {minute(record.started)}{self.price}"
        if self.is_here(account):
            return f"{self.what} and still runs ({facts}); `batchtrain jobs wait {record.job}` waits for it and ends it"
        if not is_of_account(record, account):  # without the options of this command
            option = " --local" if loopback(record.endpoint) else ""
            step = f"with its credentials, `jobs wait {record.job}{option}` ends it"
            return f"{self.what} in account {record.account} ({facts}); {step}"
        return f"{self.what} on host {self.host} ({facts}); there, `batchtrain jobs wait {record.job}` ends it"


def lost_runs(root: Path) -> Iterator[Orphan]:
    """The runs that were left or lost their process, the newest first."""
    for run in reversed(tuple(directory.runs(root))):
        with contextlib.suppress(BatchtrainError):
            record, lease_record = run.record(), lease.read(run.path)
            if record.state in ("lost", "left") and lease_record is not None:
                kept_kinds = tuple(kind for kind in KINDS if kind in lease_record.kept_kinds)
                yield Orphan(run, record, kept_kinds, lease_record.host)


def orphan_of(client: Operations, root: Path, job_id: str) -> Orphan | None:
    """The lost run of this host that added the existing job; None without one."""
    for orphan in lost_runs(root):
        is_of_job = orphan.record.job == job_id and orphan.is_here(client.account)
        if is_of_job and _has_mark(client, orphan.job, orphan):
            return orphan
    return None


def adopt(
    client: Operations, root: Path, tell: Tell, *, pool_id: str = "", job_ids: Collection[str] = (), reuse: bool = False
) -> None:
    """End the lost runs whose tasks have ended, before a new run needs a pool and jobs, and report each other one in a
    line. reuse: the pool that the run needs stays.

    Raises AlreadyExists for a job that still runs and is in the way, and the errors of `end` for a run that is.
    """
    needed, others, remarks = list[Orphan](), list[Orphan](), list[str]()
    for orphan in lost_runs(root):
        is_here = orphan.is_here(client.account)
        has_pool, has_job = bool(pool_id) and orphan.record.pool == pool_id, orphan.record.job in job_ids
        works = is_here and _is_open(client, orphan)
        match lost.decide(SeenLost(is_here, works, has_job, has_pool, reuse)).act:
            case "name":
                remarks.append(orphan.remark(client.account))
            case "refuse":
                _refuse(orphan)
            case "end first":
                needed.append(orphan)
            case "end":
                others.append(orphan)
    if needed:
        end(client, needed, tell, kept_kinds=("pool",) if reuse else ())
    remarks += filter(None, [_failure_of_end(client, orphan, tell) for orphan in others])
    if count := len(remarks[SHOWN:]):
        remarks[SHOWN:] = [f"and {counted(count, 'more run')} without a process; `batchtrain runs list` names them"]
    for text in remarks:
        tell(Standing("", text))


def _failure_of_end(client: Operations, orphan: Orphan, tell: Tell) -> str:
    """End a run that a new run does not need; returns why that failed."""
    try:
        (recording,) = end(client, [orphan], tell)
    except BatchtrainError as error:
        return f"{orphan.what}, and could not be ended: {error}"
    tell(recording.outcome())
    return ""


def _is_open(client: Operations, orphan: Orphan) -> bool:
    """Whether tasks of its job have not ended."""
    with contextlib.suppress(NotFound):  # it was deleted meanwhile
        return _has_mark(client, orphan.job, orphan) and client.jobs.handle(orphan.record.job).open
    return False


def _refuse(orphan: Orphan) -> NoReturn:
    job_id = orphan.record.job
    raise orphan.job.exists(
        f"job {job_id} of run {orphan.run.name} still runs, but the process of that run has ended;"
        f" `batchtrain jobs wait {job_id}` waits for its tasks, fetches its results and ends the run;"
        f" `batchtrain jobs term {job_id}` ends its tasks"
    )


def end(
    client: Operations,
    met: Sequence[Orphan],
    tell: Tell,
    *,
    kept_kinds: tuple[Kind, ...] = (),
    everything: bool = False,
    progress: Progress = QUIET,
) -> tuple[Recording, ...]:
    """End orphans whose tasks have ended. The results of all are fetched before the first deletion: they may share a
    pool. kept_kinds: kinds of things that stay, beside those that the run would have kept.

    Raises ResultsLeft if results are still on a node, and the error of a deletion; the run stays an orphan then.
    """
    recordings = list[Recording]()
    with Interrupts() as interrupts:
        try:
            for orphan in met:
                tell(RunAdopted(orphan.run.name, f"{orphan.what}; it is ended first"))
                recordings.append(_recording(client, orphan))
                _fetch(client, orphan, recordings[-1], everything, progress)
            interrupts.hold()
            ending = _ending(client, met, recordings, tell, interrupts, kept_kinds)
            ending.end()
            if error := ending.results_left or ending.failure(successful=False):
                raise error
            for orphan in met:
                for thing in (item for item in orphan.things if item.kind in kept_kinds):
                    if _has_mark(client, thing, orphan):
                        pool_users.hand_over(client.batch, thing.id)
        except BaseException:
            for recording in recordings:
                recording.release()
            raise
        for orphan, recording in zip(met, recordings, strict=True):
            if recording.has_fetched:
                state = cause_of(recording.failure).state if recording.failure else _last_state(orphan.run)
                ends = (task.ended for task in orphan.run.tasks() if task.ended)
                recording.end(state, recording.failure, max(ends, default=None))
            else:
                recording.close(_last_state(orphan.run))
    return tuple(recordings)


def fetch(
    client: Operations, orphan: Orphan, tell: Tell, *, everything: bool = False, progress: Progress = QUIET
) -> Recording:
    """Fetch what the tasks of an orphan have written so far, and end it if they have ended; otherwise its record stays
    open."""
    job = client.jobs.handle(orphan.record.job)
    if not job.open:
        (recording,) = end(client, [orphan], tell, everything=everything, progress=progress)
        return recording
    tell(Standing("", f"{orphan.what}, and its tasks still run; `batchtrain jobs wait {job.id}` ends it"))
    recording = _recording(client, orphan)
    try:
        recording.fetch(job.tasks, all_tasks=True, everything=everything, progress=progress)
    finally:
        recording.release()
    return recording


def _fetch(client: Operations, orphan: Orphan, recording: Recording, everything: bool, progress: Progress) -> None:
    """Fetch the results of an orphan, if its job is there."""
    if _has_mark(client, orphan.job, orphan):
        job = client.jobs.handle(orphan.record.job)
        tasks = job.tasks
        recording.fetch(tasks, all_tasks=True, everything=everything, progress=progress)
        recording.failure = job.first_failure(tasks, run=orphan.run)


def _recording(client: Operations, orphan: Orphan) -> Recording:
    secrets = secrets_of_job(client.batch, orphan.record.job)
    recording = Recording(client.batch, client.account, orphan.run, orphan.record, secrets=secrets)
    if not recording.is_ours:
        raise AlreadyExists(
            f"run {orphan.run.name} is being ended by another command; wait for it",
            operation=f"end run {orphan.run.name}",
        )
    return recording


def _ending(
    client: Operations,
    met: Sequence[Orphan],
    recordings: Sequence[Recording],
    tell: Tell,
    interrupts: Interrupts,
    kept_kinds: tuple[Kind, ...],
) -> Ending:
    """The ending of runs: of what they created, and of pools that end with them."""
    register = Register(Marks(met[0].run.name))
    for orphan in met:
        for thing in (item for item in orphan.things if item.kind not in kept_kinds):
            marks = marks_or_none(client.batch, thing)
            if marks.run == orphan.run.name and thing.kind in orphan.kept_kinds:
                register.note(thing, "existing")
            elif marks.run == orphan.run.name:
                register.adopt(thing, marks.run)
            elif thing.kind == "pool" and marks.ends_with and "job" not in orphan.kept_kinds:
                register.note(thing, register.state(thing) or "shared")

    def tell_alive(event: Event) -> None:
        lease.touch()  # a long deletion has an event each minute
        tell(event)

    jobs = {
        orphan.record.job: recording for orphan, recording in zip(met, recordings, strict=True) if recording.has_fetched
    }
    ending = Ending(client, register, tell_alive, interrupts, ADOPT._replace(keeps=kept_kinds), jobs)
    ending.submitted, ending.ended = True, {orphan.record.job for orphan in met}
    ending.planned = "; ".join(f"pool {orphan.record.pool}{orphan.price}" for orphan in met if orphan.price)
    return ending


def _last_state(run: RunDirectory) -> str:
    """The state of a run as far as its directory knows it; without tasks it was killed before it sent them."""
    tasks = run.tasks()
    if not tasks or any(task.state != "completed" for task in tasks):
        return "interrupted"
    return "failed" if any(task.failed for task in tasks) else "completed"


def _has_mark(client: Operations, thing: Thing, orphan: Orphan) -> bool:
    """Whether a thing exists and was created by the run."""
    return marks_or_none(client.batch, thing).run == orphan.run.name
