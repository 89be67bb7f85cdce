"""Files to blobs, several at once. A blob appears under its name when all its bytes are there, with their MD5.

A large file goes in blocks. The id of a block is made of its content, so an upload that was interrupted, even by the
end of the process, continues with the blocks that are missing; the service keeps them for a week.
"""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from batchtrain.errors import ServiceError, printable
from batchtrain.service.answer_body import is_size
from batchtrain.service.faults import faults
from batchtrain.storage.blob import Stored
from batchtrain.storage.blob_requests import Answer, LocalFault, Request, Span, Storage, blob_path, document
from batchtrain.storage.moving import Changed, Count, Moved, Moving

BLOCK = 8 << 20
"""Larger files go in blocks of this size."""
MOST_BLOCKS = 50_000
THREAD = "upload"


class Local(NamedTuple):
    """A file of this machine, and its name below its destination."""

    path: Path
    name: str
    size: int
    changed: datetime


def upload(
    storage: Storage,
    container: str,
    files: Iterable[tuple[Local, str]],
    existing_blobs: Mapping[str, Stored],
    count: Count = lambda size: None,
) -> Iterator[Moved]:
    """Upload files, each to the blob of its name. Those in `existing_blobs` are skipped: as many bytes with the same
    MD5, or, without an MD5, not older than the file. A file that fails does not stop the others, unless all would
    fail."""
    moving = Moving(THREAD, count)
    begun = (_Upload(moving, storage, container, file, name, existing_blobs.get(name)).begin for file, name in files)
    return moving.results(begun)


class _Upload:
    def __init__(
        self, moving: Moving, storage: Storage, container: str, file: Local, name: str, existing: Stored | None
    ) -> None:
        self._moving, self._storage, self._file = moving, storage, file
        self._operation = f"upload {container}/{name}"
        self._container, self._name = container, name
        self._known = existing if existing is not None and existing.size == file.size else None
        self._opened: BinaryIO | None = None
        self._lock = threading.Lock()
        self._failed: Moved | None = None

    def begin(self) -> Moved | None:
        """Upload a small file, or begin with a large one."""
        if self._known is not None and self._known.md5 is None and self._known.changed >= self._file.changed:
            return Moved(self._file.name)
        try:
            self._path = blob_path(self._container, self._name)
        except UnicodeEncodeError:
            text = f"{printable(str(self._file.path))}: its name is not UTF-8, so no blob can have it; rename the file"
            return Moved(printable(self._file.name), error=ServiceError(text))
        return self._closed(self._attempt(self._begun))

    def _attempt(self, work: Callable[[], Moved | None]) -> Moved | None:
        """The result of a step; what goes wrong is kept as the result of the file."""
        if self._failed is None and not self._moving.stopped:
            try:
                return work()
            except (ServiceError, LocalFault, Changed) as error:
                self._failed = self._failed or self._moving.failed(self._file.name, self._file.path, error)
        return self._failed

    def _begun(self) -> Moved | None:
        self._open()
        if self._file.size <= BLOCK:
            return self._whole()
        stored_md5 = self._known.md5 if self._known is not None else None
        self._md5 = self._digest() if stored_md5 else b""
        if self._md5 == stored_md5:
            return Moved(self._file.name)
        self._cut()
        return None

    def _whole(self) -> Moved:
        data = b"".join(Span(self._fd, 0, self._file.size))
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        if self._known is not None and self._known.md5 == digest:
            return Moved(self._file.name)
        self._check()
        md5 = base64.b64encode(digest).decode()
        headers = {"x-ms-blob-type": "BlockBlob", "Content-MD5": md5, "x-ms-blob-content-md5": md5}
        self._send(Request("PUT", self._path, headers=headers, body=data))
        self._moving.count(len(data))
        return Moved(self._file.name, len(data), moved=True)

    def _cut(self) -> None:
        """Add the pieces of a large file: its digest, which takes longest, and its blocks."""
        size = self._file.size
        block = max(BLOCK, -(-size // MOST_BLOCKS))
        spans = [(start, min(start + block, size)) for start in range(0, size, block)]
        self._ids = [""] * len(spans)
        self._there = self._staged()
        self._due = len(spans) + (not self._md5)
        if not self._md5:
            self._moving.add([functools.partial(self._take, self._hash)])
        blocks = (functools.partial(self._block, number, span) for number, span in enumerate(spans))
        self._moving.add(functools.partial(self._take, block) for block in blocks)

    def _take(self, work: Callable[[], None]) -> Moved | None:
        """Do a piece; the last one commits the blob."""
        self._attempt(work)
        with self._lock:
            self._due -= 1
            if self._due:
                return None
        return self._closed(self._attempt(self._commit))

    def _hash(self) -> None:
        self._md5 = self._digest()

    def _digest(self) -> bytes:
        digest = hashlib.md5(usedforsecurity=False)  # what Blob storage itself keeps of a blob
        for piece in Span(self._fd, 0, self._file.size):
            digest.update(piece)
            if self._failed is not None or self._moving.stopped:
                break
        return digest.digest()

    def _block(self, number: int, span: tuple[int, int]) -> None:
        content = hashlib.sha256()
        for piece in Span(self._fd, *span):
            content.update(piece)
        identity = base64.b64encode(number.to_bytes(4, "big") + content.digest()[:20]).decode()
        if self._there.get(identity) != span[1] - span[0]:
            query = {"comp": "block", "blockid": identity}
            self._send(Request("PUT", self._path, query, body=Span(self._fd, *span)))
        self._ids[number] = identity
        self._moving.count(span[1] - span[0])

    def _staged(self) -> dict[str, int]:
        """The blocks that an interrupted upload has left, with their sizes."""
        query = {"comp": "blocklist", "blocklisttype": "uncommitted"}
        answer = self._send(Request("GET", self._path, query), allow=(404,))
        if answer.status == 404:
            return {}
        with faults(self._operation):
            blocks = document(answer.body, "BlockList", answer.url).iter("Block")
        sizes = {block.findtext("Name") or "": block.findtext("Size") or "" for block in blocks}
        return {name: int(size) for name, size in sizes.items() if is_size(size)}

    def _send(self, request: Request, *, allow: tuple[int, ...] = ()) -> Answer:
        return self._storage.send(self._operation, request, allow=allow, stopped=self._moving.end)

    def _commit(self) -> Moved:
        self._check()
        blocks = "".join(f"<Latest>{identity}</Latest>" for identity in self._ids)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()
        headers = {"x-ms-blob-content-md5": base64.b64encode(self._md5).decode()}
        self._send(Request("PUT", self._path, {"comp": "blocklist"}, headers, body))
        return Moved(self._file.name, self._file.size, moved=True)

    def _open(self) -> None:
        try:
            if not stat.S_ISREG(self._file.path.stat().st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")  # to open a pipe would wait for its writer
            self._opened = self._file.path.open("rb")
        except OSError as error:
            raise LocalFault(error) from error
        self._fd = self._opened.fileno()
        self._seen = os.fstat(self._fd)
        if self._seen.st_size != self._file.size or not stat.S_ISREG(self._seen.st_mode):
            raise Changed

    def _check(self) -> None:
        """Raise Changed if the file is no longer as it was when it was opened."""
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self._seen.st_size, self._seen.st_mtime_ns):
            raise Changed

    def _closed(self, result: Moved | None) -> Moved | None:
        if result is not None and self._opened is not None:
            self._opened.close()
        return result
