"""Chooses the files of a task to fetch, and their names in the run directory."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from azure.batch import BatchClient

from batchtrain.config.types import Results, bytes_of
from batchtrain.errors import NotAllowed, ServiceError, Unreachable
from batchtrain.records.seen import PlaceSeen
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.local_names import LocalNames, safe_path
from batchtrain.service import downloads, retry
from batchtrain.service.downloads import Fetched, FileSeen, Tree, Wanted

OUTPUT = "output"
"""The directory of results in a working directory."""
_OWN = ("stdout.txt", "stderr.txt")
_RANK = re.compile(r"wd/ranks/(?:rank-)?([\w-]+)\.(stdout|stderr)\.txt")
_METRICS = re.compile(r"wd/ranks/(?:rank-)?([\w-]+)\.metrics\.jsonl")


def selects(patterns: Iterable[str], path: str) -> bool:
    """Whether a pattern matches a path: `*` and `?` match within a name, `**` matches directories, and a directory
    matches everything below it."""
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/?|\*|\?|\[!?\]?[^\]]*\])", pattern.removeprefix("./").rstrip("/"))
    text = "".join(_REGEXES.get(part) or _set_or_text(part) for part in parts)
    try:
        return re.compile(f"{text}(?:/.*)?", re.S)
    except re.error:  # not a valid set of characters: the text itself
        return re.compile(f"{re.escape(pattern)}(?:/.*)?", re.S)


_REGEXES = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _set_or_text(part: str) -> str:
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        return "[" + part[1:-1].replace("\\", "\\\\").replace("!", "^", 1) + "]"
    return re.escape(part)


class Part(NamedTuple):
    """The files of a task on one of its nodes."""

    name: str
    """n0 is the primary."""
    node: str
    tree: Tree


def parts(job_id: str, task_id: str, places: tuple[PlaceSeen, ...]) -> tuple[Part, ...]:
    """The nodes of a task. The files on the primary are listed as the task's. The task may also have run on another
    node, which has the rest."""
    return tuple(
        Part(
            f"n{number}",
            seen.node,
            downloads.node_tree(seen.pool, seen.node, seen.directory)
            if number
            else downloads.task_tree(job_id, task_id),
        )
        for number, seen in enumerate(places)
    )


def destination(task_id: str, results: Results, part: Part, path: str) -> str:
    """The path of a file in the run directory; empty for a file that stays on its node."""
    task = safe_path(task_id)
    if part.name == "n0" and path in _OWN:
        return f"logs/{task}/{path}"
    if match := _RANK.fullmatch(path):
        return f"logs/{task}/ranks/{match[1]}.{match[2]}.txt"
    if match := _METRICS.fullmatch(path):
        return f"metrics/{task}/{match[1]}.jsonl"
    inside = path.removeprefix("wd/")
    if inside == path or (part.name != "n0" and results.from_ == "primary"):
        return ""
    if not selects(results.include, inside) or selects(results.exclude, inside):
        return ""
    node = f"{part.name}/" if results.from_ == "all" else ""
    return f"outputs/{task}/{node}{inside.removeprefix(f'{OUTPUT}/')}"


class Selection(NamedTuple):
    """The files of a task to fetch, and those that are too large to fetch."""

    wanted: tuple[tuple[Part, FileSeen, str], ...]
    over: tuple[tuple[Part, FileSeen], ...]


def select(
    task_id: str, results: Results, files: Iterable[tuple[Part, FileSeen]], *, everything: bool = False
) -> Selection:
    """Choose among the files of a task. everything: also files beyond `max_size`. Logs have no limit."""
    names, room = LocalNames(), bytes_of(results.max_size)
    wanted, over = [], []
    for part, file in files:
        target = destination(task_id, results, part, file.path)
        if not target:
            continue
        if target.startswith("outputs/") and not everything:
            if file.size > room:
                over.append((part, file))
                continue
            room -= file.size
        wanted.append((part, file, names.of(f"{part.name}:{file.path}", target)))
    return Selection(tuple(wanted), tuple(over))


class Brought(NamedTuple):
    """The result for a file, and whether it is still on its node for a later attempt."""

    record: FileRecord
    again: bool = False


def bring(
    client: BatchClient,
    run: RunDirectory,
    job_id: str,
    task_id: str,
    places: tuple[PlaceSeen, ...],
    results: Results,
    *,
    everything: bool = False,
    patience: retry.Patience = retry.FAR,
    begin: Callable[[int, int], None] = lambda files, size: None,
    moved: Callable[[int], None] = lambda size: None,
) -> Iterator[Brought]:
    """Fetch the chosen files of a task; yields the result for each file. A node that is gone is one record; the files
    of the other nodes are still fetched. begin: called with the number of files and bytes."""
    seen, lost = _listed(client, parts(job_id, task_id, places))
    for node, error in lost:
        record = FileRecord(task=task_id, path="", node=node, size=0, reason=str(error))
        yield Brought(record, again=isinstance(error, (Unreachable, NotAllowed)))
    chosen = select(task_id, results, seen, everything=everything)
    for part, file in chosen.over:
        why = f"`results.max_size` is {results.max_size}; `batchtrain jobs fetch {job_id} --all` fetches it"
        yield Brought(_record(task_id, part, file, reason=why), again=True)
    begin(len(chosen.wanted), sum(file.size for _, file, _ in chosen.wanted))
    missing = {}
    for part, file, name in chosen.wanted:
        if there(run.path / name, file):
            yield Brought(_record(task_id, part, file, fetched=name))
        else:
            missing[run.path / name] = part, file, name
    wanted = (Wanted(part.tree, file, target) for target, (part, file, _) in missing.items())
    for done in downloads.fetch(client, wanted, moved, patience=patience, mode=downloads.PRIVATE):
        part, _, name = missing[done.wanted.target]
        yield Brought(_fetched(task_id, part, name, done), done.again)


def _listed(
    client: BatchClient, places: tuple[Part, ...]
) -> tuple[list[tuple[Part, FileSeen]], list[tuple[str, ServiceError]]]:
    """The files of every node, and why the files of some nodes cannot be listed."""
    seen: list[tuple[Part, FileSeen]] = []
    lost: list[tuple[str, ServiceError]] = []
    for part in places:
        with _noted(part, lost):
            seen += [(part, file) for file in downloads.listed(client, part.tree)]
    return seen, lost


@contextlib.contextmanager
def _noted(part: Part, lost: list[tuple[str, ServiceError]]) -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        lost.append((part.node, error))


def there(target: Path, file: FileSeen) -> bool:
    """Whether a file was fetched before and has not changed since."""
    try:
        status = target.stat()
    except OSError:
        return False
    changed = file.modified is None or abs(status.st_mtime - file.modified.timestamp()) > 0.001
    return status.st_size == file.size and not changed


def _record(task_id: str, part: Part, file: FileSeen, **more: str) -> FileRecord:
    return FileRecord(task=task_id, path=file.path, node=part.node, size=file.size, time=file.modified, **more)


def _fetched(task_id: str, part: Part, name: str, done: Fetched) -> FileRecord:
    record = _record(task_id, part, done.wanted.file, sha256=done.sha256, reason=done.reason)
    return msgspec.structs.replace(record, fetched=name, size=done.size) if done.sha256 else record
