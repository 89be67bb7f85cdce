"""Files of this machine brought to containers, several at once, and only those that changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from azure.storage.blob import BlobServiceClient

from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError
from batchtrain.plan.ingress import ACTION
from batchtrain.plan.types import Plan
from batchtrain.storage import blob

AT_ONCE = 8
"""Files that travel at the same time; the SDK's pool has ten connections."""


class Local(NamedTuple):
    """A file of this machine, and the name it goes by below its destination."""

    path: Path
    name: str
    size: int
    changed: datetime


class Progress(NamedTuple):
    """How far the files of one destination are; `name` is the one that was just dealt with."""

    place: str
    name: str
    sent: bool
    """Whether it travelled; it did not when the same was there already."""
    done: int
    of: int
    bytes: int
    """Bytes that travelled so far."""


class Total(NamedTuple):
    """What was brought to one destination."""

    place: str
    files: int
    sent: int
    unchanged: int
    bytes: int


Tell = Callable[[Progress], None]


def carry_out(todo: Plan, recipe: Recipe, connect: blob.Connect, tell: Tell = lambda _: None) -> tuple[Total, ...]:
    """Carry out the plan's uploads of files. Raises UsageError for a source that is not there, before any travels."""
    steps = [step for step in todo.steps if step.action == ACTION]
    found = [local_files(Path(recipe.directory) / step.document["source"], step.document) for step in steps]
    totals = []
    for step, files in zip(steps, found, strict=True):
        link, container, prefix = blob.place_of(step.subject)
        totals.append(bring(connect(link), f"{link}/{container}", prefix, files, tell))
    return tuple(totals)


def local_files(source: Path, wanted: Mapping[str, Any]) -> list[Local]:
    """The file, or those below the directory, that fit `include` (or all) and no `exclude`; links to directories are
    not followed. Raises UsageError when there is none."""
    if not source.exists():
        raise UsageError(f"{source} is not there; `global_resources.files` names it")
    include, exclude = wanted.get("include", ()), wanted.get("exclude", ())
    found = [
        _local(path, name)
        for path, name in _walk(source)
        if (not include or _fits(name, include)) and not _fits(name, exclude)
    ]
    if not found:
        raise UsageError(f"no file of {source} fits its `include` and `exclude`")
    return _stripped(source, found, wanted.get("strip", 1))


def _stripped(source: Path, files: list[Local], strip: int) -> list[Local]:
    """With the names that `--strip-components` leaves: the first component is the directory itself. Raises UsageError
    where two files would have one name."""
    named: dict[str, Local] = {}
    for file in files:
        parts = file.name.split("/") if source.is_file() else [source.resolve().name, *file.name.split("/")]
        name = "/".join(parts[min(strip, len(parts) - 1) :])
        if name in named:
            both = f"{named[name].path} and {file.path}"
            raise UsageError(
                f"with `--strip-components {strip}`, {both} would both become {name}; use a smaller number"
            )
        named[name] = file._replace(name=name)
    return list(named.values())


def _walk(source: Path) -> Iterator[tuple[Path, str]]:
    if source.is_file():
        yield source, source.name
        return
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                yield path, path.relative_to(source).as_posix()


def _local(path: Path, name: str) -> Local:
    status = path.stat()
    return Local(path, name, status.st_size, datetime.fromtimestamp(status.st_mtime, timezone.utc))


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# --- several at once ------------------------------------------------------------------------------------------------


def bring(client: BlobServiceClient, place: str, prefix: str, files: Sequence[Local], tell: Tell) -> Total:
    """Bring files below a prefix of a container (`link/container`).

    A file stays where it is when the container has as many bytes with the same MD5 under its name, or, for a blob
    without one, when that is not older. The first fault ends it; what travelled by then is there.
    """
    container = place.partition("/")[2]
    blob.make_container(client, container)
    base = f"{prefix.rstrip('/')}/" if prefix else ""
    there = {known.name: known for known in blob.stored(client, container, base)}

    def one(file: Local) -> bool:
        known = there.get(base + file.name)
        if known is not None and known.size != file.size:
            known = None
        if known is not None and known.md5 is None and known.changed >= file.changed:
            return False
        md5 = _md5(file.path)
        if known is not None and known.md5 == md5:
            return False
        blob.send(client, container, base + file.name, file.path, md5)
        return True

    sent = travelled = 0
    for done, (file, moved) in enumerate(_bounded(one, files), 1):
        sent += moved
        travelled += file.size if moved else 0
        tell(Progress(f"{place}/{base}", file.name, moved, done, len(files), travelled))
    return Total(f"{place}/{base}".rstrip("/"), len(files), sent, len(files) - sent, travelled)


def _bounded(work: Callable[[Local], bool], files: Iterable[Local]) -> Iterator[tuple[Local, bool]]:
    """Results as they come; only a few files are on their way, so an end is quick and the memory flat."""
    waiting = iter(files)
    with ThreadPoolExecutor(AT_ONCE, "batchtrain-ingress") as pool:
        running: dict[Future[bool], Local] = {pool.submit(work, file): file for file in islice(waiting, AT_ONCE)}
        while running:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                file = running.pop(future)
                moved = future.result()
                running.update({pool.submit(work, following): following for following in islice(waiting, 1)})
                yield file, moved


def _md5(path: Path) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)  # what Blob storage itself keeps of a blob
    with path.open("rb") as content:
        while part := content.read(1 << 20):
            digest.update(part)
    return digest.digest()
