"""Downloads files of tasks and nodes byte for byte: several at once, in ranges, resumed after an interruption.

A file gets its final name only when it is complete. It is written as `.NAME.part`, read back, compared with the
received bytes, and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote_to_bytes

import msgspec
from azure.batch import BatchClient
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.rest import HttpRequest

from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable
from batchtrain.plan.wire import API_VERSION
from batchtrain.records import File
from batchtrain.records.record import Time
from batchtrain.service import requests, retry
from batchtrain.service.answer_body import InvalidAnswer
from batchtrain.service.at_once import WORKERS, AtOnce, Piece
from batchtrain.service.faults import code_of, faults
from batchtrain.service.local_files import read_at, write_at
from batchtrain.service.partial_files import PartialFile, partial, spans
from batchtrain.service.requests import query, quoted

RANGE = 8 << 20
"""Bytes of one request; larger files need several."""
BLOCK = 1 << 20
"""Bytes of the disk that are read at once."""
THREAD = "download"
TRIES = 3
"""Most attempts for a file that changes while it is fetched."""
PAST_THE_END = frozenset({"InvalidRange", "416"})
"""Codes of the service: the range begins at the end of the file, or after it."""
_GONE = frozenset({"NodeNotFound", "TaskNotFound", "JobNotFound", "PoolNotFound", "TaskFilesUnavailable",
                   "TaskFilesCleanedup", "NodeNotReady", "NodeStateUnusable"})  # fmt: skip
LINK = "a link to nothing, out of the node, or to a directory outside of its task; copy its target there instead"
"""Why a file that was listed as a link cannot be read."""

Found = TypeVar("Found")


class Tree(NamedTuple):
    """The location of files: the directory of a task on its node, or a directory of a node."""

    url: str
    name: str
    """The location in messages."""
    top: str = ""
    """The directory to which paths are relative."""

    def path(self, path: str) -> str:
        """A path in the form of the service."""
        return f"{self.top}/{path}".lstrip("/")

    def file_url(self, path: str, raw: bytes = b"") -> str:
        """The URL of a file. raw: its exact path from the top of the node or task, if its name is not UTF-8."""
        return f"{self.url}/files/{quote(raw, safe='') if raw else quoted(self.path(path))}"


def task_tree(job_id: str, task_id: str) -> Tree:
    """The directory of a task, on the node of its primary."""
    return Tree(f"/jobs/{quoted(job_id)}/tasks/{quoted(task_id)}", f"task {job_id}/{task_id}")


def node_tree(pool_id: str, node_id: str, top: str = "") -> Tree:
    """The files of a node, or those of one of its directories."""
    return Tree(f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}", f"node {node_id}", top.strip("/"))


def listed(client: BatchClient, tree: Tree) -> Iterator[File]:
    """The files of a tree, without its directories. Raises NotFound."""
    prefix = f"{tree.top}/" if tree.top else ""
    where = f"startswith(name,'{prefix.replace(chr(39), chr(39) * 2)}')" if prefix else ""
    url = f"{tree.url}/files{query({'recursive': 'true', '$filter': where})}"
    for item in requests.listed(client, url, f"list the files of {tree.name}", requests.Page[_Item]):
        if not item.isDirectory and item.name.startswith(prefix):
            details = item.properties or _Properties()
            raw = unquote_to_bytes(item.url.partition(f"{tree.url}/files/")[2]) if "\ufffd" in item.name else b""
            path = (
                _BYTES.sub(lambda byte: f"%{ord(byte[0]) & 0xFF:X}", raw.decode(errors="surrogateescape")) or item.name
            )
            yield File(path[len(prefix) :], int(details.contentLength), details.lastModified, details.is_link, raw)


_BYTES = re.compile("[\udc80-\udcff]")
"""What Python decodes from bytes that are not UTF-8."""


Size = Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | Annotated[str, msgspec.Meta(pattern="^[0-9]{1,18}$")]


class _Properties(msgspec.Struct):
    contentLength: Size = 0
    lastModified: Time | None = None
    fileMode: str = ""

    @property
    def is_link(self) -> bool:
        return re.fullmatch("0o12[0-7]{4}", self.fileMode) is not None


class _Item(msgspec.Struct):
    name: str
    url: str = ""
    isDirectory: bool = False
    properties: _Properties | None = None


# --- fetching -------------------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A file to fetch, and its target path."""

    tree: Tree
    file: File
    target: Path


class Fetched(NamedTuple):
    """The result for a wanted file."""

    wanted: Wanted
    size: int = 0
    sha256: str = ""
    """Empty if the file was not fetched."""
    reason: str = ""
    """Why it was not fetched, or a remark about the copy."""
    again: bool = False
    """Whether a later attempt may succeed: the file is still on its node."""


Look = Callable[[threading.Event], tuple[Found, Iterable[Wanted]]]
"""Lists files: returns its result and what is to be fetched. Ends early once the event is set."""


def fetch(
    client: BatchClient,
    items: Iterable[Wanted],
    root: Path,
    report: Callable[[int], None] = lambda _: None,
    *,
    patience: retry.Patience = retry.FAR,
    mode: int = 0o777,
) -> Iterator[Fetched]:
    """Fetch files, several at once; yields each file when it is done or has failed. A failed file does not stop the
    others. No further files are requested from a node or a service that was lost. root: the directory below which they
    are written; no link in it is followed. report: called with the number of bytes that came. mode: of new
    directories, and of files without execution."""
    batch = _Batch(client, root, report, patience, mode)
    work = AtOnce(THREAD, _pieces(batch, items), WORKERS)
    batch.stopped = work.stopped
    yield from work.results()


def fetch_found(
    client: BatchClient,
    looks: Iterable[Look[Found]],
    root: Path,
    report: Callable[[int], None] = lambda _: None,
    *,
    patience: retry.Patience = retry.FAR,
    mode: int = 0o777,
) -> Iterator[Fetched | Found]:
    """The same for files that are found meanwhile: several looks at once, each followed by its files. Yields the result
    of each look too. Raises the error of a look."""
    batch = _Batch(client, root, report, patience, mode)

    def piece(look: Look[Found]) -> Found:
        result, files = look(work.stopped)
        work.add(_pieces(batch, files))
        return result

    work: AtOnce[Fetched | Found] = AtOnce(THREAD, (functools.partial(piece, look) for look in looks), WORKERS)
    batch.stopped = work.stopped
    yield from work.results()


def _pieces(batch: _Batch, items: Iterable[Wanted]) -> Iterator[Piece[Fetched]]:
    for item in items:
        download = _Download(batch, item)
        for span in tuple(download.spans):
            yield functools.partial(download.piece, span)


class _Batch:
    """State that all files of one call share."""

    def __init__(
        self, client: BatchClient, root: Path, report: Callable[[int], None], patience: retry.Patience, mode: int
    ) -> None:
        self.client, self.root, self.moved, self.patience, self.mode = client, root, report, patience, mode
        self.stopped = threading.Event()
        self.lost: dict[str, str] = {}
        """Why no more files come from a tree, by its URL. The empty URL stands for the whole service."""

    def why_not(self, tree: Tree) -> str:
        return self.lost.get("") or self.lost.get(tree.url, "")

    def note(self, tree: Tree, error: ServiceError) -> None:
        """Remember a lost service or node, by its first error: all of its files have the same reason."""
        if isinstance(error, Unreachable):
            self.lost.setdefault("", str(error))
        elif error.code in _GONE:
            self.lost.setdefault(tree.url, str(error))


def _file(client: BatchClient, request: HttpRequest, *, stream: bool = False) -> Any:
    """The answer to a request for a file. Raises InvalidAnswer for a page of a proxy."""
    response = client.send_request(request, stream=stream)
    headers = response.headers
    if headers.get("Content-Type", "").startswith("text/html") and "ocp-batch-file-url" not in headers:
        response.close()
        raise InvalidAnswer("it is a page and not a file", response.request.url, b"" if stream else response.content)
    return response


class _Changed(Exception):
    """The file is not the one from which the first range came."""


class _Download:
    def __init__(self, batch: _Batch, request: Wanted) -> None:
        self._batch, self._wanted = batch, request
        self._url = request.tree.file_url(request.file.path, request.file.raw)
        self._partial = PartialFile(batch.root, request.target, batch.mode)
        self._lock = threading.Lock()
        self._failed: Fetched | None = None
        self._digests: dict[tuple[int, int], bytes] = {}
        self._grows = False
        self._begin(request.file.size)
        self._changed = request.file.link  # the size that was listed is that of the link
        if self._resumable:
            self._digests = self._partial.resumed(_version(request.file))
        self._due = set(self.spans)

    def _begin(self, size: int) -> None:
        self._size, self._version, self._changed = size, "", False
        self.spans = spans(size, RANGE) or ((0, 0),)
        self._digests = {}

    @property
    def _resumable(self) -> bool:
        return len(self.spans) > 1

    # one range

    def piece(self, span: tuple[int, int]) -> Fetched | None:
        """The work on a range."""
        self.take(span)
        return self.done(span)

    def take(self, span: tuple[int, int]) -> None:
        """Fetch a range; keeps an error for `done`."""
        if self._failed is None and not self._changed and span not in self._digests:
            try:
                self._read(span)
            except _Changed:
                self._changed = True
            except ServiceError as error:
                self._refused(error)
            except OSError as error:
                self._fail(_local(self._wanted.target, error), again=True)

    def _refused(self, error: ServiceError) -> None:
        self._batch.note(self._wanted.tree, error)
        why = self._batch.why_not(self._wanted.tree)
        if not why and self._wanted.file.link and isinstance(error, NotFound):
            self._fail(LINK, again=True)
        self._fail(why or str(error), again=isinstance(error, (Unreachable, NotAllowed)))

    def _fail(self, reason: str, *, again: bool) -> None:
        self._failed = self._failed or Fetched(self._wanted, reason=reason, again=again)

    def _read(self, span: tuple[int, int]) -> None:
        start, end = span
        if why := self._batch.why_not(self._wanted.tree):
            self._fail(why, again="" in self._batch.lost)
            return
        self._open()
        digest, at = hashlib.sha256(), start
        while at < end:
            before = at
            with faults(f"fetch files of {self._wanted.tree.name}"):  # no path: many files may have this reason
                at = self._some(at, end, digest.update)
            if at < end and self._batch.stopped.is_set():
                return
            if at == before:
                self._fail("the answer had none of its bytes", again=True)
                return
        self._digests[span] = digest.digest()

    def _some(self, start: int, end: int, update: Callable[[bytes], None]) -> int:
        """Read from `start` until `end` or a break. A break without a byte is repeated within the budget of retries."""
        at = start

        def attempt() -> None:
            nonlocal at
            for chunk in self._stream(at, end):
                write_at(self._fd, chunk, at)
                update(chunk)
                at += len(chunk)
                self._batch.moved(len(chunk))
                if self._batch.stopped.is_set():
                    return

        def again(outcome: object) -> bool:
            stopped = self._batch.stopped.is_set()
            return not stopped and at == start and isinstance(outcome, AzureError) and retry.transient(outcome)

        try:
            retry.repeated(attempt, again, self._batch.patience, retry.interruptible(self._batch.stopped))
        except InterruptedError:
            return at
        except AzureError as error:
            if at == start or not retry.transient(error):
                raise
        return at

    def _stream(self, start: int, end: int) -> Iterator[bytes]:
        headers = {"ocp-range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        request = HttpRequest("GET", self._url, params={"api-version": API_VERSION}, headers=headers)
        try:
            with _file(self._batch.client, request, stream=True) as response:
                version = response.headers.get("Last-Modified", "")
                with self._lock:
                    self._version = self._version or version
                is_shorter = int(response.headers.get("Content-Length", end - start)) != end - start
                if is_shorter or (version != self._version and not self._grows):
                    raise _Changed
                left = end - start
                for chunk in response.iter_raw():
                    if len(chunk) > left:
                        raise InvalidAnswer("it is longer than the range", response.request.url, chunk)
                    left -= len(chunk)
                    yield chunk
        except HttpResponseError as error:
            if error.status_code and code_of(error) in PAST_THE_END:
                raise _Changed from None
            raise

    def _open(self) -> None:
        with self._lock:
            self._fd = self._partial.open()

    # all ranges

    def done(self, span: tuple[int, int]) -> Fetched | None:
        """The result, if this was the last of the ranges."""
        with self._lock:
            self._due.discard(span)
            if self._due:
                return None
        try:
            return self._finished()
        except OSError as error:
            return Fetched(self._wanted, reason=_local(self._wanted.target, error), again=True)
        finally:
            self._tidy()

    def _finished(self) -> Fetched:
        note, digest = "", self._digest()
        for tries_left in reversed(range(TRIES - 1)):
            if digest or self._failed or self._interrupted:
                break
            self._repeat(grows=self._changed and tries_left == 0)
            digest = self._digest()
        if self._changed:
            return Fetched(self._wanted, reason="it changes while it is fetched; fetch it again later", again=True)
        if self._failed:
            return self._failed
        if self._interrupted:
            return Fetched(self._wanted, reason="interrupted", again=True)
        if not digest:
            part, _ = partial(self._wanted.target)
            reason = f"the copy in {part} is not what came from the node: check the disk of this machine"
            return Fetched(self._wanted, reason=reason, again=True)
        if (self._size != self._wanted.file.size and not self._wanted.file.link) or self._grows:
            note = f"it was being written while it was fetched: these are its first {self._size:,} bytes"
        modified = self._wanted.file.modified
        self._partial.finish(modified.timestamp() if modified else None)
        return Fetched(self._wanted, self._size, digest, note)

    @property
    def _interrupted(self) -> bool:
        return self._batch.stopped.is_set() and len(self._digests) < len(self.spans)

    def _repeat(self, *, grows: bool) -> None:
        """Fetch the current version of the file from its beginning. grows: only its first bytes are needed."""
        try:
            with faults(f"fetch files of {self._wanted.tree.name}"):
                request = HttpRequest("HEAD", self._url, params={"api-version": API_VERSION})
                head = _file(self._batch.client, request)
            self._begin(int(head.headers.get("Content-Length", 0)))
            self._grows = grows
            self._open()
            os.ftruncate(self._fd, 0)
        except ServiceError as error:
            self._changed = False
            self._refused(error)
        for span in self.spans:
            self.take(span)

    def _digest(self) -> str:
        """The digest of the file on the disk; empty if a range is missing or differs from the received bytes. Then all
        ranges are dropped."""
        if self._changed or self._failed or self._interrupted:
            return ""
        self._open()
        os.ftruncate(self._fd, self._size)
        total = hashlib.sha256()
        for start, end in self.spans:
            part, at = hashlib.sha256(), start
            while block := read_at(self._fd, min(BLOCK, end - at), at):
                part.update(block)
                total.update(block)
                at += len(block)
            if part.digest() != self._digests.get((start, end)):
                self._digests = {}
                return ""
        return total.hexdigest()

    def _tidy(self) -> None:
        """Keep the ranges of a large file that was not fetched; the next call continues with the rest."""
        with contextlib.suppress(OSError):
            if self._resumable and self._digests and not self._changed and not self._partial.is_finished:
                self._partial.keep(_version(self._wanted.file), self._digests)
            else:
                self._partial.drop()
        self._partial.close()


def _version(file: File) -> str:
    return f"{file.size} {file.modified}"


def _local(target: Path, error: OSError) -> str:
    """An error of this machine's file system as a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {target.parent} is full: free some space and fetch it again"
    return f"{target} cannot be written: {error.strerror or error}"


def read(client: BatchClient, tree: Tree, path: str, start: int, end: int) -> bytes:
    """The bytes of a file from `start` up to but excluding `end`."""
    headers = {"ocp-range": f"bytes={start}-{end - 1}"}
    request = HttpRequest("GET", tree.file_url(path), params={"api-version": API_VERSION}, headers=headers)
    with faults(f"read {path} of {tree.name}"):
        return bytes(_file(client, request).content)


def size_of(client: BatchClient, tree: Tree, path: str) -> File:
    """One file. Raises NotFound, also for a directory."""
    with faults(f"look at {path} of {tree.name}"):
        response = _file(client, HttpRequest("HEAD", tree.file_url(path), params={"api-version": API_VERSION}))
    if response.headers.get("ocp-batch-file-isdirectory", "").lower() == "true":
        raise NotFound(f"{path} of {tree.name} is a directory", operation="read a file", code="FileNotFound")
    return File(path, int(response.headers.get("Content-Length", 0)))
