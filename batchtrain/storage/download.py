"""Blobs to files, several at once. A file has its name only when it is complete and its MD5 is right.

A large blob comes in ranges to `.NAME.part`; `.NAME.ranges` has the ranges that are there, so a download that was
interrupted, even by the end of the process, continues with the rest.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.client import IncompleteRead
from pathlib import Path
from typing import NamedTuple

from batchtrain.errors import ServiceError, Unreachable
from batchtrain.service.answer_body import QUOTED, InvalidAnswer
from batchtrain.service.at_once import Piece
from batchtrain.service.local_files import Folder, status_below, write_at
from batchtrain.service.partial_files import PartialFile, spans
from batchtrain.storage.blob import Stored
from batchtrain.storage.blob_requests import PIECE, Answer, LocalFault, Request, Span, Storage, blob_path, received
from batchtrain.storage.moving import Count, Moved, Moving

RANGE = 8 << 20
"""Larger blobs come in ranges of this size."""
THREAD = "download"
_OTHER = (412, 416)
"""Statuses of a blob that is no longer the one that was listed."""
NOTED_SECONDS = 1.0
"""Between two records of the ranges that are there: a record has all of them."""
TRIES = 2
"""How often a blob is fetched whose bytes have another MD5."""


def download(
    storage: Storage,
    container: str,
    blobs: Iterable[tuple[Stored, Path]],
    root: Path,
    count: Count = lambda size: None,
    mode: int = 0o777,
) -> Iterator[Moved]:
    """Download blobs, each to its file. A file that is the same already is skipped: as many bytes with the same MD5,
    or, without an MD5, not older than the blob. A blob that fails does not stop the others, unless all would fail.
    root: the directory below which they are written; no link in it is followed. mode: of new directories, and of files
    without execution."""
    moving = Moving(THREAD, count)
    common = _Container(moving, storage, container, root, mode)
    return moving.results(_Download(common, blob, target).begin for blob, target in blobs)


class _Container(NamedTuple):
    """The common parts of the downloads of one call."""

    moving: Moving
    storage: Storage
    name: str
    root: Path
    mode: int = 0o777


class _Download:
    def __init__(self, container: _Container, blob: Stored, target: Path) -> None:
        self._moving, self._storage, self._root = container.moving, container.storage, container.root
        self._blob, self._target = blob, target
        self._operation = f"download {container.name}/{blob.name}"
        self._path = blob_path(container.name, blob.name)
        self._file = PartialFile(container.root, target, container.mode)
        self._hashing = threading.Lock()
        self._lock = threading.Lock()
        self._failed: Moved | None = None
        self._tries_left = TRIES
        self._noted = float("-inf")

    def begin(self) -> Moved | None:
        """Download a small blob, or begin with a large one."""
        return self._closed(self._attempt(self._begun))

    def _attempt(self, work: Callable[[], Moved | None]) -> Moved | None:
        """The result of a step; what goes wrong is kept as the result of the blob."""
        if self._failed is None and not self._moving.stopped:
            try:
                return work()
            except (ServiceError, LocalFault) as error:
                self._failed = self._failed or self._moving.failed(self._blob.name, self._target, error)
            except OSError as error:
                self._failed = self._failed or self._moving.failed(self._blob.name, self._target, LocalFault(error))
        return self._failed

    def _begun(self) -> Moved | None:
        if self._same():
            return Moved(self._blob.name)
        self._fd = self._file.open()
        ranges = set(self._file.resumed(self._blob.version))
        if ranges and os.fstat(self._fd).st_size < max(end for _, end in ranges):
            ranges = set()
        return self._cut(ranges)

    def _same(self) -> bool:
        """Whether the file is there already."""
        status = status_below(self._root, self._target)
        if status is None or status.st_size != self._blob.size:
            return False
        if self._blob.md5 is None:
            return status.st_mtime >= self._blob.changed.timestamp()
        with (
            Folder(self._root, self._target.parent) as folder,
            os.fdopen(folder.open(self._target.name, os.O_RDONLY), "rb") as file,
        ):
            digest = hashlib.md5(usedforsecurity=False)
            while piece := file.read(PIECE):
                digest.update(piece)
        return digest.digest() == self._blob.md5

    def _cut(self, ranges: set[tuple[int, int]]) -> Moved | None:
        """Fetch the only range, or add the ranges of a large blob that are not there."""
        size = self._blob.size
        self._spans = list(spans(size, RANGE))
        self._there = ranges.intersection(self._spans)
        self._hashed, self._digest = 0, hashlib.md5(usedforsecurity=False)
        if len(self._spans) > 1:
            missing = [span for span in self._spans if span not in self._there]
            self._due = len(missing) + 1
            self._moving.add(self._piece(span) for span in missing)
            return self._take(None)
        for span in self._spans:
            self._fetch(span)
        return self._finish()

    def _piece(self, span: tuple[int, int]) -> Piece[Moved]:
        return lambda: self._closed(self._take(span))

    def _take(self, span: tuple[int, int] | None) -> Moved | None:
        """Fetch a range; the last one completes the file."""
        if span is not None:
            self._attempt(lambda: self._fetch(span))
        with self._lock:
            self._due -= 1
            if self._due:
                return None
        return self._attempt(self._finish)

    def _fetch(self, span: tuple[int, int]) -> None:
        start, end = span
        view = memoryview(bytearray(min(PIECE, end - start)))
        at = start
        while at < end:
            if self._failed is not None or self._moving.stopped:
                return
            at = self._some(at, end, view)
        with self._lock:
            self._there.add(span)
            if len(self._spans) > 1 and time.monotonic() - self._noted >= NOTED_SECONDS:
                self._noted = time.monotonic()
                self._file.keep(self._blob.version, dict.fromkeys(self._there, b""))
        self._hash()

    def _some(self, start: int, end: int, view: memoryview) -> int:
        """Read from `start` until `end` or a break; a break without a byte is repeated."""
        at = start

        def attempt() -> Answer:
            nonlocal at
            headers = {"Range": f"bytes={at}-{end - 1}", "If-Match": self._blob.version}
            with self._storage.answer(Request("GET", self._path, headers=headers)) as response:
                if response.status >= 400:
                    return received(response)
                if response.status != 206:
                    why = f"the status {response.status} is not that of a part of a blob"
                    raise InvalidAnswer(why, response.geturl(), response.read(QUOTED))
                while size := response.readinto(view[: end - at]):
                    self._write(view[:size], at)
                    at += size
                    self._moving.count(size)
                    if self._moving.stopped:
                        break
                if at < end and not self._moving.stopped:
                    raise IncompleteRead(b"", end - at)
            return received(response, b"")

        try:
            answer = self._storage.checked(
                self._operation, attempt, lambda: at == start, allow=_OTHER, stopped=self._moving.end
            )
        except Unreachable:
            if at == start:
                raise
            return at
        if answer.status in _OTHER:
            raise ServiceError(f"{self._operation}: it was changed or deleted after it was listed; run it again")
        return at

    def _write(self, view: memoryview, at: int) -> None:
        try:
            write_at(self._fd, view, at)
        except OSError as error:
            raise LocalFault(error) from error

    def _hash(self, *, wait: bool = False) -> None:
        """Hash the ranges that follow without a gap. One thread does it while the others fetch. wait: wait for it."""
        if not self._hashing.acquire(blocking=wait):
            return
        try:
            while self._hashed < len(self._spans) and self._spans[self._hashed] in self._there:
                for piece in Span(self._fd, *self._spans[self._hashed]):
                    self._digest.update(piece)
                self._hashed += 1
        finally:
            self._hashing.release()

    def _finish(self) -> Moved | None:
        """Give the file its name, or fetch it again if its bytes are not those of the blob."""
        if not self._there.issuperset(self._spans):
            return None  # the download was stopped
        self._hash(wait=True)
        if self._blob.md5 is not None and self._digest.digest() != self._blob.md5:
            self._file.forget()
            self._tries_left -= 1
            if self._tries_left:
                return self._cut(set())
            self._file.drop()
            raise ServiceError(f"{self._operation}: its bytes have another MD5 than the one it was stored with")
        os.ftruncate(self._fd, self._blob.size)
        self._file.finish(self._blob.changed.timestamp())
        return Moved(self._blob.name, self._blob.size, moved=True)

    def _closed(self, result: Moved | None) -> Moved | None:
        if result is not None:
            if result.error is not None and self._blob.size <= RANGE:
                self._file.drop()
            elif result.error is not None:
                self._file.keep(self._blob.version, dict.fromkeys(self._there, b""))
            self._file.close()
        return result
