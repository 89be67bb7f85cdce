"""Runs whose process ended without finishing them: the next command of this host that meets one completes it."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.config.types import Recipe
from batchtrain.errors import AlreadyExists, BatchtrainError, NotFound, ResultsLeft
from batchtrain.records.events import Deleted, RunAdopted
from batchtrain.runs import directory, lease
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.runs.recording import QUIET, Origin, Progress, Recording, is_of_account
from batchtrain.service.connect import Account
from batchtrain.service.register import Thing, read_marks

if TYPE_CHECKING:
    from batchtrain.operations import Operations, Tell


class Orphan(NamedTuple):
    """A run of this host that no process records any more."""

    run: RunDirectory
    record: RunRecord
    keeps: tuple[str, ...]
    """The kinds of things that the run would not have deleted."""

    @property
    def job(self) -> Thing:
        return Thing("job", self.record.job)

    @property
    def pool(self) -> Thing | None:
        """Its pool; None if the job has its own."""
        return Thing("pool", self.record.pool) if self.record.pool else None


def orphans(root: Path, account: Account) -> Iterator[Orphan]:
    """The runs of an account that were started on this host and lost their process, the newest first."""
    for run in reversed(tuple(directory.runs(root))):
        with contextlib.suppress(BatchtrainError):
            record, held = run.record(), lease.read(run.path)
            if (
                record.state == "lost"
                and is_of_account(record, account)
                and held is not None
                and held.host == socket.gethostname()
            ):
                yield Orphan(run, record, held.keep)


def orphan_of(client: Operations, root: Path, job_id: str) -> Orphan | None:
    """The lost run that added the existing job; None without one."""
    for orphan in orphans(root, client.account):
        if orphan.record.job == job_id and _has_mark(client, orphan.job, orphan):
            return orphan
    return None


def complete(client: Operations, orphan: Orphan, *, everything: bool = False, progress: Progress = QUIET) -> Recording:
    """Fetch the results of an orphan, write the end of its record, and end its job once its tasks have ended."""
    job = client.jobs.handle(orphan.record.job)
    recording, _ = job.fetch(Origin(orphan.run.path.parent), everything=everything, progress=progress)
    if "job" not in orphan.keeps and all(task.state == "completed" for task in recording.run.each_task()):
        with contextlib.suppress(BatchtrainError):  # it ends by itself, or is deleted
            job.terminate()
    return recording


def replace(client: Operations, recipe: Recipe, root: Path, tell: Tell, *, reuse: bool) -> None:
    """Complete the orphans that a new run of a recipe meets, and delete the jobs and pools that they left.

    reuse: pools stay. Raises AlreadyExists for a job that still runs, ResultsLeft if results cannot be fetched.
    """
    pool_id, job_ids = recipe.pool.id if recipe.pool else "", {job.id for job in recipe.jobs}
    met = [
        orphan
        for orphan in orphans(root, client.account)
        if orphan.record.job in job_ids or orphan.record.pool == pool_id
    ]
    with_job = [(orphan, _has_mark(client, orphan.job, orphan)) for orphan in met]
    for orphan, has_job in with_job:
        if has_job:
            _refuse_running(client, orphan)
    for orphan, has_job in with_job:  # all of them before the first deletion: they may share a pool
        tell(RunAdopted(orphan.run.name, f"run {orphan.run.name} lost its process; it is completed first"))
        if has_job:
            _completed_safely(client, orphan)
        else:
            _close(client, orphan)
    for orphan, has_job in with_job:
        if has_job and "job" not in orphan.keeps:
            _delete(client, orphan.job, tell)
        pool = orphan.pool
        if pool is not None and not reuse and "pool" not in orphan.keeps and _has_mark(client, pool, orphan):
            _delete(client, pool, tell)


def _refuse_running(client: Operations, orphan: Orphan) -> None:
    job = client.jobs.handle(orphan.record.job)
    if any(itertools.chain(job.iter_tasks("running", limit=1), job.iter_tasks("active", limit=1))):
        raise AlreadyExists(
            f"job {job.id} of run {orphan.run.name} still runs, but the process of that run has ended;"
            f" `batchtrain jobs wait {job.id}` waits for its tasks and fetches its results, and"
            f" `batchtrain jobs term {job.id}` ends them",
            operation=f"add job {job.id}",
            code="JobExists",
        )


def _completed_safely(client: Operations, orphan: Orphan) -> None:
    recording = complete(client, orphan)
    if recording.unsaved:
        raise ResultsLeft(
            f"results of run {orphan.run.name} are still on its nodes: {'; '.join(recording.unsaved)};"
            f" `batchtrain jobs fetch {orphan.record.job}` fetches them"
        )


def _close(client: Operations, orphan: Orphan) -> None:
    """Write the end of an orphan whose job is gone, as far as its directory knows it."""
    tasks = orphan.run.tasks()
    state = "interrupted"
    if tasks and all(task.state == "completed" for task in tasks):
        state = "failed" if any(task.result == "failure" or task.exit_code for task in tasks) else "completed"
    Recording(client.batch, client.account, orphan.run, orphan.record).close(state)


def _delete(client: Operations, thing: Thing, tell: Tell) -> None:
    with contextlib.suppress(NotFound):
        if thing.kind == "pool":
            client.pools.delete(thing.id, tell=tell)
        else:
            client.jobs.handle(thing.id).delete(tell=tell)
        tell(Deleted(thing.name, f"deleted {thing.name} of the lost run"))


def _has_mark(client: Operations, thing: Thing, orphan: Orphan) -> bool:
    """Whether a thing exists and was created by the run."""
    try:
        return read_marks(client.batch, thing).run == orphan.run.name
    except NotFound:
        return False
