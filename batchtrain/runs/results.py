"""Chooses the files of a task to fetch, and their names in the run directory."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain.config.task_paths import LINKED
from batchtrain.config.task_results import NAMED, NO_RESULTS, OUTPUT, UNKNOWN
from batchtrain.config.types import FetchSettings, Results, bytes_of
from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable
from batchtrain.metrics.stream import RECORDS
from batchtrain.records import File, TaskNode
from batchtrain.records.attempt import ATTEMPTS
from batchtrain.records.rank_end import ENDS
from batchtrain.records.stacks import STACKS
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.local_names import LocalNames, safe_path
from batchtrain.service import downloads, read, retry
from batchtrain.service.downloads import Fetched, Look, Tree, Wanted
from batchtrain.service.local_files import PRIVATE, status_below
from batchtrain.service.partial_files import partial

_OWN = ("stdout.txt", "stderr.txt")
_ABOUT = {
    ENDS: "ranks/ends.jsonl",
    ATTEMPTS: "ranks/attempts.jsonl",
    RECORDS: "ranks/stream.jsonl",
    STACKS: "ranks/stacks.jsonl",
    ".batchtrain-lineage.json": "lineage.json",
    ".batchtrain-packages.json": "packages.json",
}
"""Records that the launch leaves on the primary, with their names among the logs."""
_RANK = re.compile(r"wd/ranks/(?:rank-)?([\w-]+)\.(stdout|stderr)\.txt")
_METRICS = re.compile(r"wd/ranks/(attempt-\d{1,9}/)?(?:rank-)?([\w-]+)\.metrics\.jsonl")


def selects(patterns: Iterable[str], path: str) -> bool:
    """Whether a pattern matches a path: `*` and `?` match within a name, `**` matches directories, and a directory
    matches everything below it."""
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/?|\*|\?|\[!?\]?[^\]]*\])", pattern.removeprefix("./").rstrip("/"))
    for number, part in enumerate(parts):
        is_set = part.startswith("[") and part.endswith("]") and len(part) > 2
        parts[number] = _REGEXES.get(part) or (
            "[" + part[1:-1].replace("\\", "\\\\").replace("!", "^", 1) + "]" if is_set else re.escape(part)
        )
    text = "".join(parts)
    try:
        return re.compile(f"{text}(?:/.*)?", re.S)
    except re.error:  # not a valid set of characters: the text itself
        return re.compile(f"{re.escape(pattern)}(?:/.*)?", re.S)


_REGEXES = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Part(NamedTuple):
    """The files of a task on one of its nodes."""

    name: str
    """n0 is the primary."""
    node: str
    tree: Tree


def parts(job_id: str, task_id: str, places: tuple[TaskNode, ...]) -> tuple[Part, ...]:
    """The nodes of a task. The files on the primary are listed as the task's. The task may also have run on another
    node, which has the rest."""
    return tuple(
        Part(
            f"n{number}",
            node.node,
            downloads.node_tree(node.pool, node.node, node.directory)
            if number
            else downloads.task_tree(job_id, task_id),
        )
        for number, node in enumerate(places)
    )


Kind = Literal["", "named", "created"]
"""Why a file is a result: `output` or `results` names it, or the program created it; empty for any other file."""


def kind_of(settings: FetchSettings, path: str, *, is_primary: bool) -> Kind:
    """Whether a file of a working directory is a result, by its name. The same rule holds for the files of a node and
    for those that a detached run uploads."""
    results = settings.results or Results()
    if selects(results.exclude, path):
        return ""
    if (is_primary or results.from_ == "all") and selects(NAMED if results.include is None else results.include, path):
        return "named"
    if results.include is not None or selects((*NO_RESULTS, *settings.inputs), path):
        return ""
    has_all = results.from_ == "all" or (results.from_ is None and settings.every_node)
    return "created" if is_primary or has_all else ""


def is_unnamed(settings: FetchSettings, part: Part, path: str) -> bool:
    """Whether the program may have created a file that is no result only because `include` names others, or because it
    may be an input."""
    results = settings.results or Results()
    if not results.include or not path.startswith("wd/"):
        return False
    inputs = () if settings.inputs == UNKNOWN else settings.inputs
    unlimited = replace(settings, results=replace(results, include=None), inputs=inputs)
    return kind_of(unlimited, path.removeprefix("wd/"), is_primary=part.name == "n0") != ""


def why_unnamed(settings: FetchSettings) -> str:
    """Why such a file is not fetched."""
    if settings.inputs == UNKNOWN and settings.results is not None and settings.results.include == NAMED:
        return "the names of the task's inputs are not known before it runs; `results: {include: [...]}` names results"
    return "`results.include` names other files"


class Result(NamedTuple):
    """A file that is fetched: its path in the run directory, and why it is a result; empty for a log."""

    target: str
    kind: Kind = ""


def result_of(task_id: str, settings: FetchSettings, part: Part, path: str) -> Result | None:
    """What a file is in the run directory; None for a file that stays on its node."""
    task, is_primary = safe_path(task_id), part.name == "n0"
    if is_primary and path in _OWN:
        return Result(f"logs/{task}/{path}")
    if is_primary and path in _ABOUT:
        return Result(f"logs/{task}/{_ABOUT[path]}")
    if match := _RANK.fullmatch(path):
        return Result(f"logs/{task}/ranks/{match[1]}.{match[2]}.txt")
    if match := _METRICS.fullmatch(path):
        return Result(f"metrics/{task}/{match[1] or ''}{match[2]}.jsonl")
    inside = path.removeprefix("wd/")
    kind = kind_of(settings, inside, is_primary=is_primary) if inside != path else ""
    if not kind:
        return None
    has_directory = not is_primary or (settings.results or Results()).from_ == "all"
    node = f"{part.name}/" if has_directory else ""
    return Result(f"outputs/{task}/{node}{inside.removeprefix(f'{OUTPUT}/')}", kind)


class SourceFiles:
    """The files of a task's source on its nodes, which its working directories have links to."""

    def __init__(self, files: Iterable[tuple[Part, File]]) -> None:
        """files: those of the task."""
        self._linked: dict[str, datetime | None] = {}
        """By node, when the links were made."""
        self._originals: dict[tuple[str, str], File] = {}
        for part, file in files:
            if file.path == f"wd/{LINKED}":
                self._linked[part.name] = file.modified
            elif not file.path.startswith("wd/"):
                self._originals[part.name, f"wd/{file.path}"] = file

    def has(self, part: Part, file: File) -> bool:
        """Whether a file is a link to a file of the source that the program has not changed."""
        linked, original = self._linked.get(part.name), self._originals.get((part.name, file.path))
        if linked is None or file.modified is None or original is None:
            return False
        return file.modified <= linked and (file.link or file.size == original.size)


class Allowance:
    """What is left of the limits of results: `max_size` of those of a task, `max_created_size` of what the programs of
    a run created. Logs have no limit."""

    def __init__(self, results: Results, *, everything: bool = False, created: int = 0) -> None:
        """created: bytes of the created files of other tasks of the run."""
        self.created = created
        self._left: dict[Kind, float] = {
            "": math.inf,
            "named": math.inf if everything else bytes_of(results.max_size),
            "created": math.inf if everything else bytes_of(results.max_created_size) - created,
        }

    def takes(self, kind: Kind, size: int) -> bool:
        """Whether a file is fetched."""
        if size > self._left[kind]:
            return False
        self._left[kind] -= size
        self.created += size if kind == "created" else 0
        return True


class Selection(NamedTuple):
    """The files of a task to fetch, and those that are too large to fetch, each with its reason."""

    files: tuple[tuple[Part, File, str], ...]
    over: tuple[tuple[Part, File, Kind], ...]
    created: int = 0
    """The bytes of the files to fetch that the program created and that nothing names."""
    unnamed: tuple[str, ...] = ()
    """The created files that are not fetched, because nothing names them."""


def select(
    task_id: str,
    settings: FetchSettings,
    files: Iterable[tuple[Part, File]],
    *,
    everything: bool = False,
    logs: bool = True,
    created: int = 0,
) -> Selection:
    """Choose among the files of a task. everything: also files beyond the limits. Logs have no limit. created: bytes
    of the created files of other tasks of the run."""
    file_list = tuple(files)
    allowance = Allowance(settings.results or Results(), everything=everything, created=created)
    names, selected_files, over, unnamed = LocalNames(), [], [], list[str]()
    sources = SourceFiles(file_list)
    for part, file in file_list:
        result = result_of(task_id, settings, part, file.path)
        if result is None and is_unnamed(settings, part, file.path) and not (file.link or sources.has(part, file)):
            unnamed.append(file.path)
        if result is None or not (logs or result.kind):
            continue
        if result.kind and (sources.has(part, file) or (file.link and result.kind == "created")):
            continue
        if not allowance.takes(result.kind, file.size):
            over.append((part, file, result.kind))
            continue
        selected_files.append((part, file, names.of(f"{part.name}:{file.path}{file.raw.hex()}", result.target)))
    return Selection(tuple(selected_files), tuple(over), allowance.created - created, tuple(unnamed))


class Brought(NamedTuple):
    """The result for a file, and whether it is still on its node for a later attempt."""

    record: FileRecord
    again: bool = False
    is_too_large: bool = False
    """Whether it exceeds a limit of `results`."""


class FetchTask(NamedTuple):
    """A task whose files are fetched."""

    id: str
    settings: FetchSettings
    logs: bool = True
    """Whether its logs and metrics are fetched with its results."""


class Fetcher:
    """Fetches files of the tasks of a job to its run directory: several tasks at once, each if the disk has room."""

    def __init__(
        self,
        client: BatchClient,
        run: RunDirectory,
        job_id: str,
        *,
        everything: bool = False,
        patience: retry.Patience = retry.FAR,
        begin: Callable[[int, int], None] = lambda files, size: None,
        report: Callable[[int], None] = lambda size: None,
        free: Callable[[Path], int],
    ) -> None:
        """everything: also results beyond `max_size`. begin: called with the number of files and bytes of a task, by
        several threads. free: the free bytes of a disk."""
        self._client, self._run, self._job_id, self._everything = client, run, job_id, everything
        self._patience, self._begin, self._moved = patience, begin, report
        self._room = _Room(run.path, free)
        self._files: dict[Path, tuple[str, Part, str]] = {}
        """The task, node and local name of each file that is being fetched."""
        self._created, self._choosing = 0, threading.Lock()
        """The bytes of the files that the programs created and that nothing names."""
        self.unnamed: dict[str, list[str]] = {}
        """The created files that are not fetched, because nothing names them, by the reason."""
        self.places: dict[str, tuple[TaskNode, ...]] = {}
        """Where the tasks ran."""

    def bring(self, tasks: Iterable[FetchTask], many: Sequence[FetchTask] = ()) -> Iterator[Brought]:
        """Fetch the chosen files of tasks; yields the result for each file. A node that is gone is one record; the
        files of other nodes are still fetched. many: tasks that are not looked at one by one."""
        looks = (functools.partial(self._look_at_task, task) for task in tasks)
        every = itertools.chain[Look[list[Brought]]](looks, self._looks_at_nodes(many) if many else ())
        outcomes = downloads.fetch_found(
            self._client, every, self._run.path, self._moved, patience=self._patience, mode=PRIVATE
        )
        for result in outcomes:
            if isinstance(result, Fetched):
                task_id, part, name = self._files.pop(result.wanted.target)
                self._room.release(result.wanted)
                record = _record(task_id, part, result.wanted.file, sha256=result.sha256, reason=result.reason)
                if result.sha256:
                    record = replace(record, fetched=name, size=result.size)
                yield Brought(record, result.again)
            else:
                yield from result

    def _look_at_task(self, task: FetchTask, stopped: threading.Event) -> tuple[list[Brought], list[Wanted]]:
        files: list[tuple[Part, File]] = []
        results: list[Brought] = []
        try:
            self.places[task.id] = read.task_nodes(self._client, self._job_id, task.id)
        except NotFound as error:
            if error.code != "TaskNotFound":
                raise
            return [_lost(task, "", error)], []
        for part in parts(self._job_id, task.id, self.places[task.id]):
            with _faults_to(results, task, part.node):
                files += ((part, file) for file in downloads.listed(self._client, part.tree))
        others, downloads_due = self._choose(task, files)
        return results + others, downloads_due

    def _looks_at_nodes(self, many: Sequence[FetchTask]) -> Iterator[Look[list[Brought]]]:
        """One look for the tasks of each node: what it takes does not depend on how many tasks have no results."""
        by_id = {task.id: task for task in many}
        directories: dict[tuple[str, str, str], dict[str, FetchTask]] = {}
        for task_id, node in read.primary_nodes(self._client, self._job_id):
            if task_id in by_id:
                self.places[task_id] = (node,)
                above, _, name = node.directory.rpartition("/")
                directories.setdefault((node.pool, node.node, above), {})[name] = by_id[task_id]
        return (functools.partial(self._look_at_node, *key, by_name) for key, by_name in directories.items())

    def _look_at_node(
        self, pool: str, node: str, directory: str, by_name: Mapping[str, FetchTask], stopped: threading.Event
    ) -> tuple[list[Brought], list[Wanted]]:
        """The results of the tasks in a directory of a node. by_name: the tasks by the names of their directories."""
        part = Part("n0", node, downloads.node_tree(pool, node, directory))
        files: dict[str, list[File]] = {}
        try:
            for file in downloads.listed(self._client, part.tree):
                name, _, path = file.path.partition("/")
                if name in by_name and _concerns_results(by_name[name], part, path):
                    files.setdefault(name, []).append(replace(file, path=path))
                if stopped.is_set():
                    break
        except ServiceError as error:
            return [_lost(task, node, error) for task in by_name.values()], []
        results, downloads_due = list[Brought](), list[Wanted]()
        for name, files_of_task in files.items():
            below = part._replace(tree=part.tree._replace(top=f"{part.tree.top}/{name}"))
            some, due_of_task = self._choose(by_name[name], [(below, file) for file in files_of_task])
            results += some
            downloads_due += due_of_task
        return results, downloads_due

    def _choose(self, task: FetchTask, files: Iterable[tuple[Part, File]]) -> tuple[list[Brought], list[Wanted]]:
        """The results that need no download, and the downloads: none if the disk has no room for all of the task."""
        with self._choosing:
            selection = select(
                task.id, task.settings, files, everything=self._everything, logs=task.logs, created=self._created
            )
            self._created += selection.created
            if selection.unnamed:
                self.unnamed.setdefault(why_unnamed(task.settings), []).extend(selection.unnamed)
        limits = limits_of(task.settings.results or Results(), f"batchtrain jobs fetch {self._job_id} --all")
        results = [
            Brought(_record(task.id, part, file, reason=limits[kind]), True, True)
            for part, file, kind in selection.over
        ]
        missing: dict[Path, tuple[str, Part, str]] = {}
        downloads_due = []
        for part, file, name in selection.files:
            target = self._run.path / name
            if there(self._run.path, target, file):
                results.append(Brought(_record(task.id, part, file, fetched=name)))
            else:
                downloads_due.append(Wanted(part.tree, file, target))
                missing[target] = task.id, part, name
        if reason := self._room.reserve(task.id, downloads_due):
            refused_files = ((missing[item.target][1], item.file) for item in downloads_due)
            return [*results, *(Brought(_record(task.id, *pair, reason=reason), True) for pair in refused_files)], []
        self._files |= missing
        if downloads_due:
            self._begin(len(downloads_due), sum(item.file.size for item in downloads_due))
        return results, downloads_due


class _Room:
    """The free space of a disk, less what the files that are being fetched still need."""

    def __init__(self, directory: Path, free: Callable[[Path], int]) -> None:
        self._directory, self._free, self._lock = directory, free, threading.Lock()
        self._small, self._large = 0, dict[Path, Wanted]()
        """The bytes of files that take one request, and the other files."""
        self._refusal = ""

    def reserve(self, task_id: str, files: Sequence[Wanted]) -> str:
        """Reserve the space of files; returns why not if there is too little."""
        with self._lock:
            reserved_bytes = self._small + sum(map(self._still_needed, self._large.values()))
            free, demand = max(self._free(self._directory) - reserved_bytes, 0), sum(map(self._still_needed, files))
            if demand > free:
                self._refusal = self._refusal or (  # the first one, so that many files have the same reason
                    f"the disk of {self._directory} has {size(free)} free, and the files of task {task_id} need"
                    f" {size(demand)}: free some space and fetch them again"
                )
                return self._refusal
            large = {item.target: item for item in files if item.file.size > downloads.RANGE}
            self._large |= large
            self._small += sum(item.file.size for item in files if item.target not in large)
        return ""

    def release(self, item: Wanted) -> None:
        """The file is here, or was given up."""
        with self._lock:
            if self._large.pop(item.target, None) is None:
                self._small -= item.file.size

    def _still_needed(self, item: Wanted) -> int:
        """The bytes of a file, less what has come of it."""
        if item.file.size <= downloads.RANGE:
            return item.file.size
        if status := status_below(self._directory, partial(item.target)[0]):
            return max(item.file.size - getattr(status, "st_blocks", 0) * 512, 0)  # Windows counts no blocks
        return 0 if there(self._directory, item.target, item.file) else item.file.size


def size(number: float) -> str:
    """A size in bytes, in a readable form."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")


def _concerns_results(task: FetchTask, part: Part, path: str) -> bool:
    """Whether a file is a result, or shows which results are files of the source."""
    if path == f"wd/{LINKED}":
        return True
    if not path.startswith("wd/"):
        return path not in _OWN
    result = result_of(task.id, task.settings, part, path)
    return result is not None and result.kind != ""


def limits_of(results: Results, command: str) -> dict[Kind, str]:
    """Why a result that exceeds its limit is not fetched. command: fetches it."""
    fetches = f"`{command}` fetches it"
    return {
        "named": f"`results.max_size` is {results.max_size}; {fetches}",
        "created": f"`results.max_created_size` is {results.max_created_size} for the whole run; {fetches}",
    }


@contextlib.contextmanager
def _faults_to(results: list[Brought], task: FetchTask, node: str) -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        results.append(_lost(task, node, error))


def _lost(task: FetchTask, node: str, error: ServiceError) -> Brought:
    record = FileRecord(task=task.id, path="", node=node, size=0, reason=str(error))
    return Brought(record, again=isinstance(error, (Unreachable, NotAllowed)))


def there(root: Path, target: Path, file: File) -> bool:
    """Whether a file was fetched before and has not changed since. No link below `root` is followed."""
    status = status_below(root, target)
    if status is None or file.modified is None:
        return False
    return status.st_size == file.size and abs(status.st_mtime - file.modified.timestamp()) <= 0.001


def _record(task_id: str, part: Part, file: File, **more: str) -> FileRecord:
    return FileRecord(task=task_id, path=file.path, node=part.node, size=file.size, time=file.modified, **more)
