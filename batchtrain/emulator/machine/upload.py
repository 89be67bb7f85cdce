"""Output files: what a task wrote goes to a storage container, with Batch's failure codes. Nodes' logs too."""

from __future__ import annotations

import base64
import glob
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import escape

from batchtrain.emulator.machine.download import STORAGE_VERSION, TIMEOUT_SECONDS, blob_url, opener, shown
from batchtrain.emulator.machine.types import Upload

OUT, ERR = "fileuploadout.txt", "fileuploaderr.txt"
"""What was sent, and what could not be, beside stdout.txt."""
BLOCK = 64 << 20
"""Larger files go in blocks of this size."""
CHUNK = 1 << 20
TRIES, PAUSE_SECONDS = 3, 0.5
STATUS_CODES = {401: "AccessDenied", 403: "AccessDenied", 404: "ContainerNotFound", 409: "AccessDenied"}
_WILD = re.compile(r"[*?[]")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class UploadError(Exception):
    """An upload that failed; `code` is Batch's failure code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Place(NamedTuple):
    """Where a task's files lie."""

    root: Path
    """The node's directory: nothing outside it is sent, but for what stands for mounted file systems."""
    inside: str
    """The same as the task sees it."""
    directory: Path
    """The task's."""
    mounts: Path
    """What stands for mounted file systems lies below it."""
    environment: Mapping[str, str]


def applies(upload: Upload, code: int | None) -> bool:
    """Whether an upload is due after a command that ended so."""
    return {"tasksuccess": code == 0, "taskfailure": code != 0}.get(upload.condition, True)


def send(uploads: tuple[Upload, ...], place: Place, called_off: Callable[[], bool]) -> None:
    """Send all that matches. Blocks. What fails does not keep the rest; the first failure is raised at the end."""
    first: UploadError | None = None
    with (place.directory / OUT).open("a") as out, (place.directory / ERR).open("a") as err:
        for one in uploads:
            found = False
            for file, name in matching(one, place):
                found = True
                try:
                    put(blob_url(one.container_url, name), file, dict(one.headers), called_off)
                except UploadError as error:
                    first = first or error
                    err.write(f"{name}: {error}\n")
                else:
                    out.write(f"{name}\n")
            if not found:
                out.write(f"nothing matches {one.pattern}\n")
    if first is not None:
        raise first


# What is sent --------------------------------------------------------------------------------------------------------


def matching(upload: Upload, place: Place) -> Iterator[tuple[Path, str]]:
    """Each file that an upload means and its blob's name: `path` itself for a pattern without wildcards, else `path`
    and the file's name below the pattern's fixed directories."""
    pattern = _VARIABLE.sub(lambda match: place.environment.get(match[1] or match[2], ""), upload.pattern)
    start = place.directory / "wd"
    if pattern == place.inside or pattern.startswith(f"{place.inside}/"):
        pattern, start = pattern[len(place.inside) :].lstrip("/"), place.root
    if pattern.startswith("/"):
        return
    if not _WILD.search(pattern):
        file = start / pattern
        if _ours(file, place):
            yield file, upload.path or file.name
        return
    base = _fixed(pattern)
    for name in sorted(glob.glob(pattern, root_dir=start, recursive=True)):  # noqa: PTH207 - Path.glob's * takes .hidden
        file = start / name
        if _ours(file, place):
            below = PurePosixPath(name).relative_to(base).as_posix()
            yield file, f"{upload.path.rstrip('/')}/{below}" if upload.path else below


def _fixed(pattern: str) -> PurePosixPath:
    """The directories a pattern begins with, as far as they have no wildcard."""
    parts = []
    for part in PurePosixPath(pattern).parts[:-1]:
        if _WILD.search(part):
            break
        parts.append(part)
    return PurePosixPath(*parts)


def _ours(file: Path, place: Place) -> bool:
    """A regular file that lies, links followed, in the node's directory or on a mounted file system."""
    try:
        real = file.resolve(strict=True)
        homes = (place.root.resolve(), place.mounts.resolve())
        return real.is_file() and any(real.is_relative_to(home) for home in homes)
    except (OSError, RuntimeError):
        return False


# Sending -------------------------------------------------------------------------------------------------------------


def put(url: str, file: Path, headers: Mapping[str, str], called_off: Callable[[], bool]) -> None:
    """Make a blob of a file as long as it is now. Raises UploadError."""
    try:
        size = file.stat().st_size
        with file.open("rb") as body:
            if size <= BLOCK:
                _request(url, _Part(body, 0, size, called_off), {"x-ms-blob-type": "BlockBlob", **headers})
                return
            names: list[str] = []
            for start in range(0, size, BLOCK):
                names.append(base64.b64encode(f"{len(names):08d}".encode()).decode())
                part = _Part(body, start, min(BLOCK, size - start), called_off)
                _request(_asking(url, comp="block", blockid=names[-1]), part, {})
    except OSError as error:
        raise UploadError("FileUploadMiscError", f"{file.name} cannot be read: {error.strerror or error}") from None
    listed = "".join(f"<Latest>{escape(name)}</Latest>" for name in names)
    whole = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode()
    _request(_asking(url, comp="blocklist"), whole, _as_properties(headers))


def put_text(url: str, text: bytes) -> None:
    """Make a blob of some text. Raises UploadError."""
    _request(url, text, {"x-ms-blob-type": "BlockBlob"})


class _Part:
    """Part of a file, neither longer nor shorter than promised."""

    def __init__(self, file: BinaryIO, start: int, length: int, called_off: Callable[[], bool]) -> None:
        self._file, self._start, self._length, self._called_off = file, start, length, called_off
        self._left = length

    def __len__(self) -> int:
        return self._length

    def rewind(self) -> None:
        self._file.seek(self._start)
        self._left = self._length

    def read(self, size: int = -1) -> bytes:
        if self._called_off():
            raise UploadError("FileUploadMiscError", "called off")
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        if wanted and not data:
            raise UploadError("FileUploadMiscError", "the file became shorter while it was sent")
        self._left -= len(data)
        return data


def _request(url: str, body: _Part | bytes, headers: Mapping[str, str]) -> None:
    """One PUT, tried again when the storage service has trouble of its own."""
    for left in reversed(range(TRIES)):
        if isinstance(body, _Part):
            body.rewind()
        try:
            _put_once(url, body, headers)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 or not left:
                code = f"FileUpload{STATUS_CODES.get(error.code, 'MiscError')}"
                raise UploadError(code, f"{shown(url)}: HTTP {error.code} {error.reason}") from None
        except (OSError, HTTPException) as error:
            if not left:
                raise UploadError("FileUploadMiscError", f"{shown(url)}: {error}") from None
        else:
            return
        time.sleep(PAUSE_SECONDS)


def _put_once(url: str, body: _Part | bytes, headers: Mapping[str, str]) -> None:
    given = {
        "x-ms-version": STORAGE_VERSION,
        "Content-Type": "application/octet-stream",
        "Content-Length": str(len(body)),
        **headers,
    }
    request = urllib.request.Request(url, data=body, headers=given, method="PUT")
    with opener(url).open(request, timeout=TIMEOUT_SECONDS) as answer:
        answer.read()


def _asking(url: str, **query: str) -> str:
    where = urlsplit(url)
    return where._replace(query="&".join(filter(None, (urlencode(query, quote_via=quote), where.query)))).geturl()


def _as_properties(headers: Mapping[str, str]) -> dict[str, str]:
    """With a block list the blob's own content type has another name."""
    names = {"content-type": "x-ms-blob-content-type"}
    return {names.get(name.lower(), name): value for name, value in headers.items()}


# A node's logs -------------------------------------------------------------------------------------------------------


def send_logs(data_dir: Path, node_id: str, container_url: str, directory: str) -> None:
    """What there is to read of a node: its agent's log and the lines of the emulator's that name it. Blocks.

    Raises UploadError.
    """
    agent = b"".join(path.read_bytes() for path in sorted(data_dir.glob(f"machine/*/nodes/{node_id}/agent.log")))
    put_text(blob_url(container_url, f"{directory}/agent.log"), agent)
    put_text(blob_url(container_url, f"{directory}/events.log"), b"".join(_lines(data_dir / "emulator.log", node_id)))


def _lines(log: Path, word: str) -> Iterator[bytes]:
    if log.exists():
        with log.open("rb") as file:
            yield from (line for line in file if word.encode() in line)
