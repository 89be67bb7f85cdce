"""A directory of this machine and a directory of a container: download, make both the same, delete."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from batchtrain.errors import ServiceError
from batchtrain.service.at_once import AtOnce
from batchtrain.storage import blob
from batchtrain.storage.blob import Stored
from batchtrain.storage.blob_requests import Storage
from batchtrain.storage.download import download
from batchtrain.storage.ingress import walk
from batchtrain.storage.moving import UNWATCHED, Moved, Tally, Watcher
from batchtrain.storage.upload import Local

Names = Callable[[str], str]
"""Gives each path below a directory a safe local path, the same each time (`batchtrain.runs.local_names`)."""


def get(
    storage: Storage,
    container: str,
    blobs: Sequence[Stored],
    path: str,
    destination: Path,
    names: Names,
    watcher: Watcher = UNWATCHED,
) -> Tally:
    """Download blobs below `path` to a directory, or the blob `path` itself to a file; files that are the same there
    are skipped. No link in the directory is followed. names: the local path of each path in it."""
    blobs = [item for item in blobs if not blob.is_directory(item)]
    tally = Tally(str(destination), len(blobs), sum(item.size for item in blobs), watcher)
    downloads = []
    for item in blobs:
        target = target_of(item.name, path, destination, names)
        if target is None:
            message = f"the blob {item.name} would be written outside of {destination}: rename it, or get it by itself"
            tally.add(Moved(item.name, error=ServiceError(message)))
        else:
            downloads.append((item, target))
    root = destination if destination.is_dir() or any(item.name != path for item in blobs) else destination.parent
    for result in download(storage, container, downloads, root, watcher.moved):
        tally.add(result)
    return tally


def target_of(name: str, path: str, destination: Path, names: Names) -> Path | None:
    """The file of a blob; None if its name would leave the destination or name another file there."""
    if name == path:
        return destination / names(name.rpartition("/")[2]) if destination.is_dir() else destination
    below = name[len(path) :].removeprefix("/") if path else name
    parts = below.split("/")
    if not below or "\0" in below or any(part in ("", ".", "..") for part in parts):
        return None
    return destination / names(below)


def surplus_blobs(blobs: Iterable[Stored], base: str, files: Iterable[Local]) -> list[str]:
    """The blobs below `base` for which there is no file."""
    names = {base + file.name for file in files}
    return [item.name for item in blobs if item.name not in names]


def surplus_files(blobs: Iterable[Stored], path: str, destination: Path, names: Names) -> list[Path]:
    """The files below a directory for which there is no blob. names: as for `get`."""
    targets = {target_of(item.name, path, destination, names) for item in blobs}
    return [file.path for file in walk(destination) if file.path not in targets] if destination.is_dir() else []


def remove(storage: Storage, container: str, names: Sequence[str]) -> Tally:
    """Delete blobs, several at once."""
    tally = Tally(container, len(names))

    def delete(name: str) -> Moved:
        try:
            blob.delete(storage, container, name, crew.stopped)
        except ServiceError as error:
            return Moved(name, error=error)
        return Moved(name, moved=True)

    crew: AtOnce[Moved] = AtOnce("delete", (functools.partial(delete, name) for name in names))
    for result in crew.results():
        tally.add(result)
    return tally


def remove_files(directory: Path, files: Sequence[Path]) -> Tally:
    """Delete files of this machine; of a link the link."""
    tally = Tally(str(directory), len(files))
    for path in files:
        tally.add(_unlinked(path))
    return tally


def _unlinked(path: Path) -> Moved:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return Moved(str(path), error=ServiceError(f"{path} cannot be deleted: {error.strerror or error}"))
    return Moved(str(path), moved=True)
