"""Completes the directory of a detached run, on any machine, from its account and its container in storage."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from batchtrain.client import controller
from batchtrain.client.detach import only_link
from batchtrain.config.source_directory import sha256_of
from batchtrain.config.types import Recipe, Results
from batchtrain.errors import NotFound, ServiceError, TaskFailed, UsageError
from batchtrain.records import Task
from batchtrain.records.attempt import number_of
from batchtrain.records.rank_end import ENDS, RankEnd
from batchtrain.runs import directory
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.finished import stderr_end
from batchtrain.runs.local_names import LocalNames
from batchtrain.runs.recording import Recording, secrets_of_job
from batchtrain.runs.results import Part, destination
from batchtrain.service import downloads, read
from batchtrain.service.failed import ended_early, failed, unfinished
from batchtrain.service.files import decoded_lines
from batchtrain.service.local_files import PRIVATE
from batchtrain.service.register import Thing, read_marks
from batchtrain.storage import blob
from batchtrain.storage.download import download
from batchtrain.storage.run_container import LIVE, RUN, container_of

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.storage.blob import Stored
    from batchtrain.storage.blob_requests import Storage

DETACHED = "detached"
"""The state of a run that the service ends."""
ENDED_BY_TASKS = ("AllTasksComplete", "JMComplete", "TaskFailed")
"""Why a job of Azure Batch ends whose tasks were all added and have ended."""


def storage_of(client: Operations, link: str | None = None) -> Storage:
    """The storage account of detached runs: this link, or the only one of the credentials.

    Raises UsageError without one."""
    links = tuple(client.credentials.storage)
    link = link or only_link(links, emulated=bool(client.account.home))
    if not link:
        next_step = (
            f"has several accounts ({', '.join(links)}); name one with --link"
            if links
            else "has no account; write `storage.NAME.account` (and `account_key`) there; --configdir DIR names another"
            " directory"
        )
        raise UsageError(f"the results of a detached run are in a storage account, and credentials.yaml {next_step}")
    return client.storage(Recipe(directory=".", credentials=client.credentials))(link)


def fetch(client: Operations, storage: Storage, root: Path, name: str) -> Recording:
    """Fetch what the tasks of a detached run have uploaded, and write its end once its job has ended. Doing it again
    changes nothing.

    name: of the run, in full if this machine has no directory of it. Raises NotFound, and UsageError for another run.
    """
    run = begin(storage, root, name)
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
        before = {task.id: _take_live(storage, run, task) for task in tasks}
        files = [file for task in tasks for file in _of_task(storage, run, job.id, task, results[task.id])]
        recording.take(tasks, files, before)
        if is_over:
            with contextlib.suppress(ServiceError):  # a reader may delete nothing, and the pool has no nodes
                controller.end(client, record.job, name)
        if is_over and record.state == DETACHED:
            failure = failure_of(client, run, record.job)
            recording.end("failed" if failure else "completed", failure)
    finally:
        recording.release()
    return recording


def begin(storage: Storage, root: Path, name: str) -> RunDirectory:
    """The directory of a detached run; on another machine it is made as the first one began it.

    Raises NotFound for a run without a container in storage."""
    run = directory.named(root, name)
    container = container_of(name)
    blobs: list[Stored] = []
    with contextlib.suppress(NotFound):
        blobs = list(blob.below(storage, container, RUN))
    if not blobs:
        raise NotFound(
            f"run {name} is not detached: storage account {storage.account} has no container of it;"
            " `batchtrain jobs fetch JOB` fetches from its nodes, and `batchtrain runs list --account` names its job"
        )
    if not (run.path / "run.json").is_file():
        directory.check(root)
        run.path.mkdir(mode=PRIVATE, exist_ok=True)
        names = LocalNames()
        files = {names.of(item.name.removeprefix(f"{RUN}/")): item for item in blobs}
        record = files.pop("run.json", None)  # last: a directory that has it is whole
        _download(storage, container, run, files)
        _download(storage, container, run, {"run.json": record} if record else {})
    return run


def failure_of(client: Operations, run: RunDirectory, job_id: str) -> TaskFailed | None:
    """Why the first task that failed did so, from the fetched files, or what ended the job before its tasks had; None
    if all tasks succeeded."""
    count = 0
    for task in run.each_task():
        count += 1
        if task.state != "completed":
            return unfinished(job_id, task)
        if task.failed:
            logs = run.logs(task.id)
            ends = logs / ENDS.removeprefix("wd/")
            first = next(decoded_lines(ends.read_bytes(), RankEnd), None) if ends.is_file() else None
            return failed(job_id, task, stderr_end(logs), first or RankEnd())
    reason = read.job(client.batch, job_id).reason
    return None if reason in ENDED_BY_TASKS or count >= _planned_tasks(run) else ended_early(job_id, reason)


def _planned_tasks(run: RunDirectory) -> float:
    """The number of tasks in the plan of a run, with its job manager; infinite if they are made only while they are
    added."""
    steps = msgspec.json.decode((run.config / "plan.json").read_bytes())["steps"]
    bodies = [step["body"] for step in steps if step["action"] == "task.add"]
    numbers = [len(body["value"]) if "value" in body else 1 if "commandLine" in body else math.inf for body in bodies]
    return sum(numbers) + sum("jobManagerTask" in step["body"] for step in steps if step["action"] == "job.add")


def _of_task(storage: Storage, run: RunDirectory, job_id: str, task: Task, results: Results | None) -> list[FileRecord]:
    container, top = container_of(run.name), f"tasks/{task.id}"
    part, names = Part("n0", task.node or "", downloads.task_tree(job_id, task.id)), LocalNames()
    targets: dict[str, tuple[Stored, str]] = {}
    for item in blob.below(storage, container, top):
        path = item.name.removeprefix(f"{top}/")
        if target := destination(task.id, results or Results(), part, path):
            targets[names.of(path, target)] = item, path
    _download(storage, container, run, {target: item for target, (item, _) in targets.items()})
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
        for target, (item, path) in targets.items()
    ]


def _take_live(storage: Storage, run: RunDirectory, task: Task) -> int:
    """What a gang printed while it ran: of its earlier attempts, whose nodes may be lost, and of one that runs. Returns
    how many attempts ran before a controller added the job again."""
    container, top = container_of(run.name), f"{LIVE}/{task.id}"
    starts: dict[str, list[Stored]] = {}
    for item in blob.below(storage, container, top):
        starts.setdefault(item.name.split("/")[2], []).append(item)
    last = max(number_of(task), len(starts))
    for number, start in enumerate(sorted(starts, key=int), last - len(starts) + 1):
        if number < last or task.state != "completed":
            logs = run.logs(task.id, number if number < last else None).relative_to(run.path).as_posix()
            names = LocalNames()
            files = {names.of(f"{logs}/{item.name.rpartition('/')[2]}"): item for item in starts[start]}
            _download(storage, container, run, files)
    return last - number_of(task)


def _download(storage: Storage, container: str, run: RunDirectory, files: Mapping[str, Stored]) -> None:
    """Download blobs to paths in a run directory."""
    pairs = ((item, run.path / target) for target, item in files.items())
    for moved in download(storage, container, pairs, run.path, mode=PRIVATE):
        if moved.error is not None:
            raise moved.error
