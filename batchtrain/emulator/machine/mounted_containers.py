"""Mounted containers: a directory that all nodes see, and a container of the account's own storage, with the same
files.

Azure mounts a container with blobfuse. Here files are copied both ways: before a command, after it, and in between.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request

from batchtrain import state_files
from batchtrain.emulator.interface import Download, StorageAccount
from batchtrain.emulator.machine import output_files
from batchtrain.emulator.machine.resource_files import (
    STORAGE_VERSION,
    TIMEOUT_SECONDS,
    DownloadError,
    blob_url,
    fetch,
    listed,
    opener,
)
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.machine.storage_links import container_url
from batchtrain.emulator.machine.walk import Walk

logger = logging.getLogger("batchtrain.emulator.machine")

EVERY_SECONDS = 10.0
"""Seconds between two copies of the files of running tasks."""
AT_ONCE = 4

Stamp = tuple[int, int]
"""The size and time of a file, which show a change."""


class _Pair(NamedTuple):
    """A file and its blob, at the last time when they were equal."""

    stamp: Stamp
    etag: str


class _Blob(NamedTuple):
    etag: str
    changed: float


class MountedContainer:
    """One container and its directory. `copy` may be called from several threads."""

    def __init__(self, data_dir: Path, directory: str, container: str) -> None:
        self._name, self._tree = container, RootedPath(data_dir / directory)
        self._state = data_dir / "storage" / "mounted" / f"{container}.json"
        self._copying = threading.Lock()
        # An empty directory is a new one, whatever is noted: its container must not be emptied.
        has_files = next(Walk(self._tree, depth=1), None)
        self._pairs = (state_files.cached(self._state, dict[str, _Pair]) if has_files else None) or {}
        self._told: set[str] = set()
        self._url = ""

    def create(self, account: StorageAccount) -> None:
        """Create the container if it does not exist. Raises OSError."""
        try:
            _ask("PUT", f"{container_url(account, self._name)}&restype=container")
            self._pairs.clear()  # a new container: what is missing in it was not deleted
        except HTTPError as error:
            error.close()
            if error.code != 409:
                raise

    def copy(self, account: StorageAccount) -> None:
        """Synchronize both. A file that cannot be copied is logged, and is tried again the next time."""
        with self._copying:
            self._url = container_url(account, self._name)
            try:
                files, blobs = dict(self._files()), dict(self._blobs())
            except (OSError, DownloadError) as error:
                self._tell("", f"cannot be read: {error}")
                return
            names = sorted(files.keys() | blobs.keys() | self._pairs.keys())
            acts = [act for name in names if (act := self._act(name, files.get(name), blobs.get(name)))]
            if acts:
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    list(pool.map(lambda act: act(), acts))
                try:
                    self._state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    state_files.write_atomically(self._state, json.dumps(self._pairs))
                except OSError as error:
                    self._tell("", f"has copies that cannot be noted: {error}")

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        for entry in Walk(self._tree):
            if stat.S_ISREG(entry.status.st_mode) and self._can_travel(entry.path):
                yield entry.path, _stamp(entry.status)

    def _blobs(self) -> Iterator[tuple[str, _Blob]]:
        for blob in listed(Download(self._url, "", container=True)):
            if self._can_travel(blob.name):
                changed = email.utils.parsedate_to_datetime(blob.changed).timestamp()
                yield blob.name, _Blob(blob.etag.strip('"'), changed)

    def _can_travel(self, name: str) -> bool:
        if all(part not in ("", ".", "..") for part in name.split("/")) and name.isprintable() and len(name) <= 1024:
            return True
        self._tell(ascii(name), "cannot be the name of both a file and a blob, so it is not copied")
        return False

    def _act(self, name: str, stamp: Stamp | None, blob: _Blob | None) -> Callable[[], None] | None:
        """The copy or deletion that makes a file and its blob equal. If both changed, the later change wins; an
        existing file or blob wins over a deletion."""
        pair = self._pairs.get(name)
        file_changed = stamp != (pair.stamp if pair else None)
        blob_changed = (blob.etag if blob else None) != (pair.etag if pair else None)
        if file_changed and blob_changed and stamp and blob:
            file_changed = stamp[1] / 1e9 > blob.changed
        if file_changed and stamp:
            return lambda: self._try(name, lambda: self._send(name, stamp))
        if blob_changed and blob:
            return lambda: self._try(name, lambda: self._fetch(name, blob))
        if not stamp and not blob:
            return lambda: self._forget(name)
        if file_changed:
            return lambda: self._try(name, lambda: self._delete_blob(name))
        return (lambda: self._try(name, lambda: self._delete_file(name))) if blob_changed else None

    def _try(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, HTTPException, ValueError, DownloadError, output_files.UploadError) as error:
            self._tell(name, f"is not copied: {error}")

    def _send(self, name: str, stamp: Stamp) -> None:
        with open(self._tree.open(name), "rb") as file:
            etag = output_files.put(blob_url(self._url, name), file, {}, lambda: False)
        self._pairs[name] = _Pair(stamp, etag)

    def _fetch(self, name: str, blob: _Blob) -> None:
        folder, _, file_name = name.rpartition("/")
        fetch(Download(blob_url(self._url, name), file_name, "0777"), folder or ".", self._tree, lambda: False)
        self._pairs[name] = _Pair(_stamp(self._tree.status(name, follow=False)), blob.etag)

    def _delete_blob(self, name: str) -> None:
        with contextlib.suppress(HTTPError):  # it is gone already
            _ask("DELETE", blob_url(self._url, name))
        self._forget(name)

    def _delete_file(self, name: str) -> None:
        self._tree.remove(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._pairs.pop(name, None)

    def _tell(self, name: str, problem: str) -> None:
        """Log each problem of a name once."""
        line = f"container {self._name}, mounted: {name} {problem}"
        if line not in self._told:
            self._told.add(line)
            logger.warning("%s", line)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


def _ask(verb: str, url: str) -> None:
    request = Request(url, method=verb, headers={"x-ms-version": STORAGE_VERSION, "Content-Length": "0"})
    with opener(url).open(request, timeout=TIMEOUT_SECONDS) as answer:
        answer.read()
