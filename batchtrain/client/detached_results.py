"""Completes the directory of a detached run, on any machine, from its account and its container in storage."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from batchtrain.client import controller
from batchtrain.client.detach import only_link
from batchtrain.config.types import Recipe
from batchtrain.errors import NotFound, ServiceError, UsageError
from batchtrain.life.endings import cause_of
from batchtrain.runs import stored_results
from batchtrain.runs.finished import failure_of
from batchtrain.runs.recording import Recording, secrets_of_job
from batchtrain.runs.stored_results import StoredResults
from batchtrain.service import read
from batchtrain.service.register import Thing, read_marks

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.storage.blob_requests import Storage

DETACHED = "detached"
"""The state of a run that the service ends."""


def storage_of(client: Operations, link: str | None = None) -> Storage:
    """The storage account of detached runs: this link, or the only one of the credentials.

    Raises UsageError without one."""
    links = tuple(client.credentials.storage)
    link = link or only_link(links, emulated=bool(client.account.home))
    if not link:
        next_step = (
            f"has several accounts ({', '.join(links)}); name one (`--link`, in Python `link`)"
            if links
            else "has no account; write `storage.NAME.account` (and `account_key`) there, or take those of"
            " another directory (`--configdir DIR`, in Python `credentials` of `connect`)"
        )
        raise UsageError(f"the results of a detached run are in a storage account, and credentials.yaml {next_step}")
    return client.storage(Recipe(directory=".", credentials=client.credentials))(link)


def fetch(client: Operations, storage: Storage, root: Path, name: str, *, everything: bool = False) -> Recording:
    """Fetch what the tasks of a detached run have uploaded, and write its end once its job has ended. Doing it again
    changes nothing.

    name: of the run, in full if this machine has no directory of it. everything: results of any size. Raises NotFound,
    and UsageError for another run.
    """
    run = stored_results.begin(storage, root, name)
    record = run.record()
    job = client.jobs.handle(record.job)
    _refuse_other_job(client, storage, record.job, name)
    is_over = client.jobs.state(record.job) == "completed"
    secrets = secrets_of_job(client.batch, record.job)
    recording = Recording(
        client.batch, client.account, run, record, job_ended=read.job(client.batch, record.job).ended, secrets=secrets
    )
    if not recording.is_ours:
        raise UsageError(f"another command fetches run {name}; wait for it")
    try:
        tasks = tuple(job.tasks)
        files, before = StoredResults(client.batch, storage, run).bring(tasks, everything=everything)
        recording.take(tasks, files, before)
        if recording.unsaved and recording.missing:
            raise recording.missing
        if is_over:
            _end_controller(client, storage, record.job, name)
            failure = failure_of(client.batch, run, record.job)
            recording.end(cause_of(failure).state, failure)
    finally:
        recording.release()
    return recording


def _refuse_other_job(client: Operations, storage: Storage, job_id: str, name: str) -> None:
    """Raise NotFound if the job of a run is gone, or that of another run."""
    try:
        if read_marks(client.batch, Thing("job", job_id)).run == name:
            return
        error = NotFound(f"job {job_id} was added by another run than {name}, so the end of this run is unknown")
    except NotFound as missing:
        error = missing
    if not controller.moves(client, job_id, name):
        _end_controller(client, storage, job_id, name)
    raise error


def _end_controller(client: Operations, storage: Storage, job_id: str, name: str) -> None:
    """Delete what is left of the controller of a run that is over. A reader may delete nothing, and its pool has no
    nodes."""
    with contextlib.suppress(ServiceError):
        controller.end(client, job_id, name)
    with contextlib.suppress(ServiceError):
        controller.forget(storage, name)
