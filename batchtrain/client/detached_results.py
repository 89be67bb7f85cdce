"""Completes the directory of a detached run, on any machine, from its account and its container in storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchtrain.config.source_directory import sha256_of
from batchtrain.config.types import Results
from batchtrain.errors import NotFound, UsageError
from batchtrain.records import Task
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.local_names import LocalNames
from batchtrain.runs.recording import Recording, secrets_of_job
from batchtrain.runs.results import Part, destination
from batchtrain.service import downloads, read
from batchtrain.service.local_files import PRIVATE
from batchtrain.service.register import Thing, read_marks
from batchtrain.storage import blob
from batchtrain.storage.download import download
from batchtrain.storage.run_container import RUN, container_of

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.storage.blob import Stored
    from batchtrain.storage.blob_requests import Storage

DETACHED = "detached"
"""The state of a run that the service ends."""


def fetch(client: Operations, storage: Storage, root: Path, name: str) -> Recording:
    """Fetch what the tasks of a detached run have uploaded, and write its end once its job has ended. Doing it again
    changes nothing.

    name: of the run, in full if this machine has no directory of it. Raises NotFound, and UsageError for another run.
    """
    run = RunDirectory(root / name)
    if not run.path.exists():
        _begin(storage, run)
    record = run.record()
    job = client.jobs.handle(record.job)
    if read_marks(client.batch, Thing("job", record.job)).run != name:
        raise NotFound(f"job {record.job} was added by another run than {name}, so the end of this run is unknown")
    is_over = client.jobs.state(record.job) == "completed"
    secrets = secrets_of_job(client.batch, record.job)
    recording = Recording(
        client.batch, client.account, run, record, job_ended=read.job(client.batch, record.job).ended, secrets=secrets
    )
    if not recording.is_ours:
        raise UsageError(f"another command fetches run {name}; wait for it")
    try:
        tasks = job.tasks
        settings = read.all_fetch_settings(client.batch, record.job)
        results = {task.id: settings[task.id].results if task.id in settings else None for task in tasks}
        recording.take(
            tasks, [file for task in tasks for file in _of_task(storage, run, job.id, task, results[task.id])]
        )
        if is_over and record.state == DETACHED:
            failed = next((task for task in tasks if task.failed or task.state != "completed"), None)
            recording.end("failed" if failed else "completed", job.failure_of(failed) if failed else None)
    finally:
        recording.release()
    return recording


def _begin(storage: Storage, run: RunDirectory) -> None:
    """Make the directory of a run of another machine, as that machine began it."""
    container = container_of(run.path.name)
    blobs = list(blob.below(storage, container, RUN))
    if not blobs:
        raise NotFound(f"storage has no run {run.path.name}; `batchtrain runs list` lists those of this machine")
    run.path.mkdir(mode=PRIVATE, parents=True)
    _download(storage, container, [(item, run.path / item.name.removeprefix(f"{RUN}/")) for item in blobs])


def _of_task(storage: Storage, run: RunDirectory, job_id: str, task: Task, results: Results | None) -> list[FileRecord]:
    container, top = container_of(run.name), f"tasks/{task.id}"
    part, names = Part("n0", task.node or "", downloads.task_tree(job_id, task.id)), LocalNames()
    wanted: list[tuple[Stored, str, str]] = []
    for item in blob.below(storage, container, top):
        path = item.name.removeprefix(f"{top}/")
        if target := destination(task.id, results or Results(), part, path):
            wanted.append((item, path, names.of(path, target)))
    _download(storage, container, [(item, run.path / target) for item, _, target in wanted])
    return [
        FileRecord(
            task=task.id,
            path=path,
            node=part.node,
            size=item.size,
            time=item.changed,
            fetched=target,
            sha256=sha256_of(run.path / target),
        )
        for item, path, target in wanted
    ]


def _download(storage: Storage, container: str, files: list[tuple[Stored, Path]]) -> None:
    for moved in download(storage, container, files):
        if moved.error is not None:
            raise moved.error
    for _, target in files:
        target.chmod(PRIVATE & 0o666)
