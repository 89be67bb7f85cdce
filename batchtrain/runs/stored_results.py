"""What is in storage of a detached run: the beginning of its directory, and what its tasks have uploaded."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain.config.source_directory import sha256_of
from batchtrain.config.task_paths import LINKED, NODES
from batchtrain.config.task_results import for_job
from batchtrain.config.types import FetchSettings, Results
from batchtrain.errors import BatchtrainError, NotFound, ServiceError
from batchtrain.records import Task
from batchtrain.records.attempt import MOST_MORE, number_of
from batchtrain.runs import directory, source_copy
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.local_names import LocalNames
from batchtrain.runs.results import Allowance, Brought, Part, limits_of, parts, result_of
from batchtrain.runs.source_copy import SourceFile
from batchtrain.service import downloads, job_actions, read
from batchtrain.service.local_files import PRIVATE, Folder
from batchtrain.storage import blob
from batchtrain.storage.download import download
from batchtrain.storage.moving import Moved, of_all
from batchtrain.storage.run_container import LIVE, RUN, container_of, control_of

if TYPE_CHECKING:
    from batchtrain.storage.blob import Stored
    from batchtrain.storage.blob_requests import Storage

_OF_NODE = re.compile(rf"{re.escape(NODES)}/([\w.-]+)/(.+)", re.S)
_MISSING = re.compile(rf"{re.escape(NODES)}/([\w.:-]+)\.missing")
LIVE_BLOB = re.compile(r"(?P<start>[0-9]{1,15})/(?P<file>std(?:out|err)\.txt)")
"""The end of the name of a blob that the launcher of a gang writes while it runs. START is in milliseconds."""


def begin(storage: Storage, root: Path, name: str) -> RunDirectory:
    """The directory of a detached run; on another machine it is made as the first one began it.

    Raises NotFound for a run without a container in storage."""
    run = directory.named(root, name)
    with directory.naming_results(run):
        container, blobs = _beginning(storage, name)
    if not (run.path / "run.json").is_file():
        _bring_beginning(storage, container, run, blobs)
    return run


def _bring_beginning(storage: Storage, container: str, run: RunDirectory, blobs: Iterable[Stored]) -> None:
    """Make the directory of a run as its client began it. run.json comes last: a directory that has it is whole."""
    directory.check(run.path.parent)
    run.path.mkdir(mode=PRIVATE, exist_ok=True)
    names = LocalNames()
    names.of("run.json")  # before any name like it
    files = {names.of(item.name.removeprefix(f"{RUN}/")): item for item in blobs}
    remote_files = [_Remote(item, item.name, target) for target, item in files.items()]
    others = list(_download(storage, container, run, [file for file in remote_files if file.target != "run.json"]))
    run.write_files(file.record for file in others if file.record.reason)
    _refuse_missing(run, (file for file in others if file.again))
    last = _download(storage, container, run, [file for file in remote_files if file.target == "run.json"])
    _refuse_missing(run, last)


def _refuse_missing(run: RunDirectory, files: Iterable[Brought]) -> None:
    for file in files:
        if reason := file.record.reason:
            raise ServiceError(f"the beginning of run {run.name} cannot be fetched: {file.record.path}: {reason}")


def _beginning(storage: Storage, name: str) -> tuple[str, list[Stored]]:
    """The container with the beginning of a run, and its blobs. Raises NotFound."""
    for container in (control_of(name), container_of(name)):  # the second one of a run of an earlier version
        with contextlib.suppress(NotFound):
            if blobs := list(blob.below(storage, container, RUN)):
                return container, blobs
    raise NotFound(
        f"run {name} is not detached: storage account {storage.account} has no container of it;"
        " `batchtrain jobs fetch JOB` fetches from its nodes, and `batchtrain runs list --account` names its job"
    )


class StoredResults:
    """What the tasks of a run have uploaded."""

    def __init__(self, batch: BatchClient, storage: Storage, run: RunDirectory) -> None:
        self._batch, self._storage, self._run, self._job = batch, storage, run, run.record().job
        self._source = _source_files(run)

    def bring(self, tasks: Sequence[Task], *, everything: bool) -> tuple[list[Brought], dict[str, int]]:
        """Fetch it into the run directory. Returns also by task how many attempts ran before a controller added the job
        again. everything: results of any size."""
        settings = read.all_fetch_settings(self._batch, self._job)
        before, files, created = dict[str, int](), list[Brought](), 0
        for task in tasks:
            before[task.id], live = self._live(task)
            of_task = for_job(settings.get(task.id, FetchSettings()), len(tasks))
            allowance = Allowance(of_task.results or Results(), everything=everything, created=created)
            files += (*live, *self._of_task(task, of_task, allowance))
            created = allowance.created
        return files, before

    def _of_task(self, task: Task, settings: FetchSettings, allowance: Allowance) -> Iterator[Brought]:
        """Fetch what the service uploaded of a task, which may put blobs of any size there."""
        top, names = f"tasks/{task.id}/", LocalNames()
        files, left_out = list[_Remote](), list[Brought]()
        limits = limits_of(settings.results or Results(), f"batchtrain runs fetch {self._run.name} --all")
        items = {item.name.removeprefix(top): item for item in self._uploads(top)}
        if not items and task.state == "completed" and task.started:  # every task has at least its output
            reason = "the service uploaded nothing: its node was lost, the upload failed, or another program added it"
            yield Brought(FileRecord(task=task.id, path=f"what task {task.id} wrote", size=0, reason=reason))
        source = self._source if f"wd/{LINKED}" in items else {}
        primary = Part("n0", task.node or "", downloads.task_tree(self._job, task.id))
        others = self._other_nodes(task.id) if any(name.startswith(NODES) for name in items) else ()
        for name, item in items.items():
            if match := _MISSING.fullmatch(name):
                item = item._replace(name=f"what the program created on node {match[1]}")
                left_out.append(_skipped(task, item, "the node did not send all of it to the primary"))
                continue
            part, path = _place_of(name, primary, others)
            result = result_of(task.id, settings, part, path)
            is_source = any(file.size == item.size for file in source.get(path, ()))  # only its digest is proof
            if result and (is_source or allowance.takes(result.kind, item.size)):
                files.append(_Remote(item, path, names.of(name, result.target), task.id, part.node))
            elif result:
                left_out.append(_skipped(task, item._replace(name=path), limits[result.kind]))
        downloaded_files = _download(self._storage, container_of(self._run.name), self._run, files)
        yield from _without_source(self._run, downloaded_files, source)
        yield from left_out

    def _uploads(self, top: str) -> Iterator[Stored]:
        """What the service uploaded below a name; nothing if a job was added only in part, before its container.

        Raises NotFound for the container of a whole job: it was deleted."""
        try:
            yield from blob.below(self._storage, container_of(self._run.name), top)
        except NotFound:
            if job_actions.is_whole(read.job_document(self._batch, self._job)):
                raise

    def _other_nodes(self, task_id: str) -> tuple[Part, ...]:
        with contextlib.suppress(NotFound):  # any task can have named its files so
            return parts(self._job, task_id, read.task_nodes(self._batch, self._job, task_id))[1:]
        return ()

    def _live(self, task: Task) -> tuple[int, list[Brought]]:
        """Fetch what a gang printed while it ran: of its earlier attempts, whose nodes may be lost, and of one that
        runs. Returns how many attempts ran before a controller added the job again, too."""
        top, results = f"{LIVE}/{task.id}/", list[Brought]()
        starts: dict[int, dict[str, Stored]] = {}
        for item in self._uploads(top):
            if match := LIVE_BLOB.fullmatch(item.name.removeprefix(top)):
                starts.setdefault(int(match["start"]), {})[match["file"]] = item
            else:
                results.append(_skipped(task, item, "its name is not that of an output of a gang"))
        most = number_of(task) + MOST_MORE
        for start in sorted(starts)[:-most]:
            results += (_skipped(task, item, "it is of too many attempts") for item in starts.pop(start).values())
        last = max(number_of(task), len(starts))
        files = list[_Remote]()
        for number, start in enumerate(sorted(starts), last - len(starts) + 1):
            if number < last or task.state != "completed":
                logs = self._run.logs(task.id, number if number < last else None).relative_to(self._run.path).as_posix()
                files += (_Remote(item, item.name, f"{logs}/{name}", task.id) for name, item in starts[start].items())
        live = _download(self._storage, container_of(self._run.name), self._run, files)
        return last - number_of(task), [*results, *(result for result in live if result.record.reason)]


def _place_of(name: str, primary: Part, others: Sequence[Part]) -> tuple[Part, str]:
    """The node of an uploaded file, and its path there. A node that the service does not list is named by its id."""
    if not (match := _OF_NODE.fullmatch(name)):
        return primary, name
    other = next((part for part in others if part.node == match[1]), primary._replace(name=match[1], node=match[1]))
    return other, f"wd/{match[2]}"


def _source_files(run: RunDirectory) -> dict[str, list[SourceFile]]:
    """The files of the sources by the path at which a working directory has a link to one of them."""
    files = dict[str, list[SourceFile]]()
    with contextlib.suppress(BatchtrainError):  # a record that cannot be read
        record = source_copy.read(run)
        for file in (file for source in record.sources for file in source.files) if record else ():
            files.setdefault(f"wd/{file.name}", []).append(file)
    return files


def _without_source(
    run: RunDirectory, files: Iterable[Brought], source: Mapping[str, Sequence[SourceFile]]
) -> Iterator[Brought]:
    """The files of a task without those of the source that the program has not changed: the service uploads what a
    link leads to."""
    for file in files:
        if all(original.sha256 != file.record.sha256 for original in source.get(file.record.path, ())):
            yield file
            continue
        path = run.path / file.record.fetched
        with contextlib.suppress(OSError), Folder(run.path, path.parent) as folder:
            folder.unlink(path.name)


class _Remote(NamedTuple):
    """A blob to fetch."""

    item: Stored
    path: str
    """As the run directory records it."""
    target: str
    """Its path in the run directory."""
    task: str = ""
    node: str = ""


def _skipped(task: Task, item: Stored, reason: str) -> Brought:
    return Brought(FileRecord(task=task.id, path=item.name, size=item.size, time=item.changed, reason=reason))


def _download(storage: Storage, container: str, run: RunDirectory, files: Iterable[_Remote]) -> Iterator[Brought]:
    """Fetch blobs, in the order of their paths. One that cannot be fetched does not stop the others. Raises the errors
    of the whole container."""
    files_by_blob: dict[str, _Remote] = {}

    def pairs() -> Iterator[tuple[Stored, Path]]:
        for file in files:
            if files_by_blob.setdefault(file.item.name, file) is file:  # a service may list a blob twice
                yield file.item, run.path / file.target

    results = []
    for moved in download(storage, container, pairs(), run.path, mode=PRIVATE):
        if moved.error is not None and of_all(moved.error):
            raise moved.error
        results.append(_record_of(run, container, files_by_blob[moved.name], moved))
    yield from sorted(results, key=lambda result: result.record.path)


def _record_of(run: RunDirectory, container: str, file: _Remote, moved: Moved) -> Brought:
    record = FileRecord(
        task=file.task, path=file.path, node=file.node, size=file.item.size, time=file.item.changed, fetched=file.target
    )
    if moved.error is not None:
        reason = str(moved.error).removeprefix(f"download {container}/{file.item.name}: ")
        return Brought(replace(record, fetched="", reason=reason), moved.is_local)
    return Brought(replace(record, sha256=sha256_of(run.path / file.target)))
