"""Uploads files of this machine to containers, several at once, and only changed files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError
from batchtrain.plan.ingress import ACTION
from batchtrain.plan.types import Plan
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import Storage
from batchtrain.storage.moving import UNWATCHED, Tally, Watcher
from batchtrain.storage.upload import Local, upload


def carry_out(todo: Plan, recipe: Recipe, connect: blob.Connect, watcher: Watcher = UNWATCHED) -> tuple[Tally, ...]:
    """Carry out the plan's uploads of files. Raises UsageError for a source that does not exist, before any upload."""
    steps = [step for step in todo.steps if step.action == ACTION]
    sources = [local_files(Path(recipe.directory) / step.document["source"], step.document) for step in steps]
    tallies = []
    for step, files in zip(steps, sources, strict=True):
        link, container, prefix = blob.place_of(step.subject)
        tallies.append(bring(connect(link), f"{link}/{container}", prefix, files, watcher))
    return tuple(tallies)


def bring(storage: Storage, box: str, prefix: str, files: Sequence[Local], watcher: Watcher = UNWATCHED) -> Tally:
    """Bring files below a prefix of a container (`link/container`); those that are the same there are skipped."""
    container = box.partition("/")[2]
    base = f"{prefix.rstrip('/')}/" if prefix else ""
    blob.make_container(storage, container)
    existing_blobs = {stored_blob.name: stored_blob for stored_blob in blob.stored(storage, container, base)}
    tally = Tally(f"{box}/{base}".rstrip("/"), len(files), sum(file.size for file in files), watcher)
    targets = ((file, base + file.name) for file in files)
    for result in upload(storage, container, targets, existing_blobs, watcher.moved):
        tally.add(result)
    return tally


def local_files(source: Path, patterns: Mapping[str, Any]) -> list[Local]:
    """The file, or those below the directory, that fit `include` (or all) and no `exclude`; links to directories are
    not followed. Raises UsageError if there is none."""
    if not source.exists():
        raise UsageError(f"{source} is not there; `global_resources.files` names it")
    include, exclude = patterns.get("include", ()), patterns.get("exclude", ())
    files = [
        file for file in walk(source) if (not include or fits(file.name, include)) and not fits(file.name, exclude)
    ]
    if not files:
        raise UsageError(f"no file of {source} fits its `include` and `exclude`")
    return _stripped(source, files, patterns.get("strip", 1))


def _stripped(source: Path, files: list[Local], strip: int) -> list[Local]:
    """The files with the names that `--strip-components` leaves: the first component is the directory itself. Raises
    UsageError if two files would have the same name."""
    by_name: dict[str, Local] = {}
    for file in files:
        parts = file.name.split("/") if source.is_file() else [source.resolve().name, *file.name.split("/")]
        name = "/".join(parts[min(strip, len(parts) - 1) :])
        if name in by_name:
            both = f"{by_name[name].path} and {file.path}"
            raise UsageError(
                f"with `--strip-components {strip}`, {both} would both become {name}; use a smaller number"
            )
        by_name[name] = file._replace(name=name)
    return list(by_name.values())


def walk(source: Path) -> Iterator[Local]:
    """The file, or the files below the directory, in order. What cannot be read is among them, for the upload to
    report."""
    if not source.is_dir():
        yield _local(str(source), source.name, source.stat())
        return
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(source / folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            yield _unread(str(source / folder), folder)
            continue
        waiting += [f"{folder}{entry.name}/" for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]
        for entry in entries:
            if not entry.is_dir():
                yield _entry(entry, folder + entry.name)


def _entry(entry: os.DirEntry[str], name: str) -> Local:
    try:
        return _local(entry.path, name, entry.stat())
    except OSError:  # a link to nothing
        return _unread(entry.path, name)


def _local(path: str, name: str, status: os.stat_result) -> Local:
    return Local(Path(path), name, status.st_size, datetime.fromtimestamp(status.st_mtime, timezone.utc))


def _unread(path: str, name: str) -> Local:
    return Local(Path(path), name, 0, datetime.max.replace(tzinfo=timezone.utc))


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
