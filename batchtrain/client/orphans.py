"""Runs whose process ended without finishing them: the next command of this host that meets one ends it as `run` would
have: it fetches the results, deletes what the run created, and writes the end of its record, in this order."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.client.ending import Ending, Interrupts
from batchtrain.config.types import Recipe
from batchtrain.errors import AlreadyExists, BatchtrainError, NotFound, ResultsLeft, TaskFailed
from batchtrain.plan.marks import Marks
from batchtrain.records.events import Event, RunAdopted
from batchtrain.runs import directory, lease
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.runs.recording import QUIET, Progress, Recording, is_of_account, secrets_of_job
from batchtrain.service import pool_users
from batchtrain.service.connect import Account
from batchtrain.service.register import Kind, Register, Thing, read_marks

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.client.shown_progress import Tell


class Orphan(NamedTuple):
    """A run of this host that no process records any more."""

    run: RunDirectory
    record: RunRecord
    kept_kinds: tuple[str, ...]
    """The kinds of things that the run would not have deleted."""

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


def orphans(root: Path, account: Account) -> Iterator[Orphan]:
    """The runs of an account that were started on this host and were left or lost their process, the newest first."""
    for run in reversed(tuple(directory.runs(root))):
        with contextlib.suppress(BatchtrainError):
            record, lease_record = run.record(), lease.read(run.path)
            if record.state not in ("lost", "left") or lease_record is None or lease_record.host != platform.node():
                continue
            if is_of_account(record, account):
                yield Orphan(run, record, lease_record.kept_kinds)


def orphan_of(client: Operations, root: Path, job_id: str) -> Orphan | None:
    """The lost run that added the existing job; None without one."""
    for orphan in orphans(root, client.account):
        if orphan.record.job == job_id and _has_mark(client, orphan.job, orphan):
            return orphan
    return None


def end_met(client: Operations, recipe: Recipe, root: Path, tell: Tell, *, reuse: bool) -> None:
    """End the orphans whose job or pool a new run of a recipe needs. reuse: pools stay.

    Raises AlreadyExists for a job of this recipe that still runs, and the errors of `end`.
    """
    pool_id, job_ids = recipe.pool.id if recipe.pool else "", {job.id for job in recipe.jobs}
    met = []
    for orphan in orphans(root, client.account):
        shares_pool = bool(pool_id) and orphan.record.pool == pool_id
        if orphan.record.job not in job_ids and not shares_pool:
            continue
        if _has_mark(client, orphan.job, orphan) and client.jobs.handle(orphan.record.job).open:
            if orphan.record.job not in job_ids and reuse:
                continue  # another job on the same pool
            job_id = orphan.record.job
            raise AlreadyExists(
                f"job {job_id} of run {orphan.run.name} still runs, but the process of that run has ended;"
                f" `batchtrain jobs wait {job_id}` waits for its tasks, fetches its results and ends the run;"
                f" `batchtrain jobs term {job_id}` ends its tasks",
                operation=f"add job {job_id}",
                code="JobExists",
            )
        met.append(orphan)
    if met:
        end(client, met, tell, kept_kinds=("pool",) if reuse else ())


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
    recordings = []
    with Interrupts() as interrupts:
        try:
            for orphan in met:
                tell(RunAdopted(orphan.run.name, f"{orphan.what}; it is ended first"))
                recordings.append((orphan, *_fetched(client, orphan, everything, progress)))
            for orphan, recording, _ in recordings:
                if recording.unsaved:
                    raise ResultsLeft(
                        f"results of run {orphan.run.name} are still on its nodes: {'; '.join(recording.unsaved)};"
                        f" `batchtrain jobs fetch {orphan.record.job}` fetches them"
                    )
            for orphan, *_ in recordings:
                _delete(client, orphan, tell, interrupts, kept_kinds)
        except BaseException:
            for _, recording, _ in recordings:
                recording.release()
            raise
        for orphan, recording, failure in recordings:
            if recording.has_fetched:
                recording.end("failed" if failure else _last_state(orphan.run), failure)
            else:
                recording.close(_last_state(orphan.run))
    return tuple(recording for _, recording, _ in recordings)


def fetch_running(client: Operations, orphan: Orphan, *, everything: bool, progress: Progress) -> Recording:
    """Fetch what the tasks of an orphan have written so far. Its record stays open."""
    recording = _recording(client, orphan)
    try:
        recording.fetch(
            client.jobs.handle(orphan.record.job).tasks, all_tasks=True, everything=everything, progress=progress
        )
    finally:
        recording.release()
    return recording


def _fetched(
    client: Operations, orphan: Orphan, everything: bool, progress: Progress
) -> tuple[Recording, TaskFailed | None]:
    """Fetch the results of an orphan; returns the failure of its first failed task, too."""
    recording, failure = _recording(client, orphan), None
    if _has_mark(client, orphan.job, orphan):
        job = client.jobs.handle(orphan.record.job)
        try:
            tasks = job.tasks
            recording.fetch(tasks, all_tasks=True, everything=everything, progress=progress)
            job.raise_failed(tasks, logs=str(orphan.run.path / "logs"))
        except TaskFailed as error:
            failure = error
        except BaseException:
            recording.release()
            raise
    return recording, failure


def _recording(client: Operations, orphan: Orphan) -> Recording:
    secrets = secrets_of_job(client.batch, orphan.record.job)
    recording = Recording(client.batch, client.account, orphan.run, orphan.record, secrets=secrets)
    if not recording.is_ours:
        raise AlreadyExists(
            f"run {orphan.run.name} is being ended by another command; wait for it",
            operation=f"end run {orphan.run.name}",
        )
    return recording


def _delete(
    client: Operations, orphan: Orphan, tell: Tell, interrupts: Interrupts, kept_kinds: tuple[Kind, ...]
) -> None:
    """Delete what a run created and did not want to keep. Raises the error of a deletion."""
    register = Register(Marks(orphan.run.name))
    for thing in orphan.things:
        marks = _marks(client, thing)
        if marks.run != orphan.run.name and marks.ends_with and thing.kind == "pool" not in kept_kinds:
            register.note(thing, "shared")
        elif marks.run == orphan.run.name and thing.kind in kept_kinds:
            pool_users.hand_over(client.batch, thing.id)
        elif marks.run == orphan.run.name and thing.kind not in orphan.kept_kinds:
            register.note(thing, "ours")

    def tell_alive(event: Event) -> None:
        lease.touch()  # a long deletion has an event each minute
        tell(event)

    ending = Ending(client, register, tell_alive, interrupts)
    ending.delete()
    if error := ending.failure(successful=False):
        raise error


def _last_state(run: RunDirectory) -> str:
    """The state of a run as far as its directory knows it; without tasks it was killed before it sent them."""
    tasks = run.tasks()
    if not tasks or any(task.state != "completed" for task in tasks):
        return "interrupted"
    return "failed" if any(task.result == "failure" or task.exit_code for task in tasks) else "completed"


def _has_mark(client: Operations, thing: Thing, orphan: Orphan) -> bool:
    """Whether a thing exists and was created by the run."""
    return _marks(client, thing).run == orphan.run.name


def _marks(client: Operations, thing: Thing) -> Marks:
    """The marks of a thing; empty ones if it does not exist."""
    try:
        return read_marks(client.batch, thing)
    except NotFound:
        return Marks("")
