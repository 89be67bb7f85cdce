"""Output files: uploads files of a task to a storage container, with the failure codes of Batch. Logs of nodes, too."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import escape

from batchtrain.emulator.interface import CodedError, Upload
from batchtrain.emulator.machine.resource_files import STORAGE_VERSION, TIMEOUT_SECONDS, blob_url, opener, shown
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.machine.walk import Walk

OUT, ERR = "fileuploadout.txt", "fileuploaderr.txt"
"""Files beside stdout.txt that list what was uploaded and what failed."""
BLOCK = 64 << 20
"""Larger files are sent in blocks of this size."""
CHUNK = 1 << 20
TRIES, PAUSE_SECONDS = 3, 0.5
STATUS_CODES = {401: "AccessDenied", 403: "AccessDenied", 404: "ContainerNotFound", 409: "AccessDenied"}
_WILD = re.compile(r"[*?[]")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class UploadError(CodedError):
    """An upload that failed; `code` is the failure code of Batch."""


class Source(NamedTuple):
    """The files of a task."""

    node: RootedPath
    """The directory of the node. Nothing outside of it is sent, except from mounted file systems."""
    inside: str
    """Its path as the task sees it."""
    directory: str
    """Variables of the task."""
    environment: Mapping[str, str]


def applies(upload: Upload, code: int | None) -> bool:
    """Whether an upload is due after a command with this exit code."""
    return {"tasksuccess": code == 0, "taskfailure": code != 0}.get(upload.condition, True)


def send(uploads: tuple[Upload, ...], source: Source, called_off: Callable[[], bool]) -> None:
    """Send all matching files. Blocks. A failure does not stop the other uploads; the first is raised at the end."""
    first: UploadError | None = None
    with _report(source, OUT) as out, _report(source, ERR) as err:
        for upload in uploads:
            any_match = False
            for path, name in matching(upload, source):
                any_match = True
                try:
                    with _opened(source.node, path) as file:
                        put(blob_url(upload.container_url, name), file, dict(upload.headers), called_off)
                except UploadError as error:
                    first = first or error
                    err.write(f"{name}: {error}\n")
                else:
                    out.write(f"{name}\n")
            if not any_match:
                out.write(f"nothing matches {upload.pattern}\n")
    if first is not None:
        raise first


def _report(source: Source, name: str) -> TextIO:
    return open(source.node.append(f"{source.directory}/{name}"), "a", encoding="utf-8", errors="surrogateescape")


@contextlib.contextmanager
def _opened(node: RootedPath, path: str) -> Iterator[BinaryIO]:
    """Raises UploadError, also for an error while the file is read."""
    try:
        with open(node.open(path), "rb") as file:
            yield file
    except OSError as error:
        name = path.rpartition("/")[2]
        raise UploadError("FileUploadMiscError", f"{name} cannot be read: {error.strerror or error}") from None


# What is sent --------------------------------------------------------------------------------------------------------


def matching(upload: Upload, source: Source) -> Iterator[tuple[str, str]]:
    """Each matching file as a path of the node, and the name of its blob: `path` itself for a pattern without
    wildcards, else `path` and the name of the file below the fixed directories of the pattern."""
    pattern = _VARIABLE.sub(lambda match: source.environment.get(match[1] or match[2], ""), upload.pattern)
    start = [source.directory, "wd"]
    if pattern == source.inside or pattern.startswith(f"{source.inside}/"):
        pattern, start = pattern[len(source.inside) :].lstrip("/"), []
    if pattern.startswith("/"):
        return
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not _WILD.search(pattern):
        if _is_file(source.node, path := "/".join([*start, *parts])):
            yield path, upload.path or parts[-1]
        return
    first_wild = next(number for number, part in enumerate(parts) if _WILD.search(part))
    top = "/".join([*start, *parts[:first_wild]])
    for below in _below(source.node, top, parts[first_wild:]):
        yield f"{top}/{below}".lstrip("/"), f"{upload.path.rstrip('/')}/{below}" if upload.path else below


def _below(node: RootedPath, top: str, parts: list[str]) -> Iterator[str]:
    """The files below a directory whose paths match, in order."""
    try:
        walk = Walk(node, top, depth=None if "**" in parts else len(parts), follow=True)
    except OSError:
        return
    for entry in walk:
        if _fits(entry.path.split("/"), parts) and _is_file(node, f"{top}/{entry.path}".lstrip("/")):
            yield entry.path


def _fits(names: list[str], parts: list[str]) -> bool:
    """`**` matches any number of directories, also none; at the end it matches files, too. A wildcard matches no name
    that begins with a dot."""
    parts = [*parts, "*"] if parts[-1] == "**" else parts
    indexes = {0}
    for name in names:
        for index in sorted(indexes):
            while parts[index : index + 1] == ["**"]:
                indexes.add(index := index + 1)
        indexes = {
            index + (parts[index] != "**") for index in indexes if index < len(parts) and _takes(parts[index], name)
        }
    return len(parts) in indexes


def _takes(part: str, name: str) -> bool:
    hidden = name.startswith(".") and not part.startswith(".")
    return not hidden and (part == "**" or fnmatchcase(name, part))


def _is_file(node: RootedPath, path: str) -> bool:
    """A regular file that is, links followed, in the directory of the node or on a mounted file system."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(node.status(path).st_mode)
    return False


# Sending -------------------------------------------------------------------------------------------------------------


def put(url: str, file: BinaryIO, headers: Mapping[str, str], called_off: Callable[[], bool]) -> str:
    """Upload a file with its current size. Returns its ETag. Raises UploadError, OSError."""
    size = os.fstat(file.fileno()).st_size
    if size <= BLOCK:
        return _request(url, _Part(file, 0, size, called_off), {"x-ms-blob-type": "BlockBlob", **headers})
    names: list[str] = []
    for start in range(0, size, BLOCK):
        names.append(base64.b64encode(f"{len(names):08d}".encode()).decode())
        part = _Part(file, start, min(BLOCK, size - start), called_off)
        _request(_asking(url, comp="block", blockid=names[-1]), part, {})
    blocks = "".join(f"<Latest>{escape(name)}</Latest>" for name in names)
    body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()
    renamed = {"content-type": "x-ms-blob-content-type"}  # the content type of the blob, with a block list
    properties = {renamed.get(name.lower(), name): value for name, value in headers.items()}
    return _request(_asking(url, comp="blocklist"), body, properties)


def put_text(url: str, text: bytes) -> None:
    """Upload a text. Raises UploadError."""
    _request(url, text, {"x-ms-blob-type": "BlockBlob"})


class _Part:
    """Part of a file, of exactly the promised length."""

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
        count = self._left if size < 0 else min(size, self._left)
        data = self._file.read(count)
        if count and not data:
            raise UploadError("FileUploadMiscError", "the file became shorter while it was sent")
        self._left -= len(data)
        return data


def _request(url: str, body: _Part | bytes, headers: Mapping[str, str]) -> str:
    """One PUT, retried after transient faults of the storage service. Returns the ETag."""
    for tries_left in reversed(range(TRIES)):
        if isinstance(body, _Part):
            body.rewind()
        try:
            return _put_once(url, body, headers)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 or not tries_left:
                code = f"FileUpload{STATUS_CODES.get(error.code, 'MiscError')}"
                raise UploadError(code, f"{shown(url)}: HTTP {error.code} {error.reason}") from None
        except (OSError, HTTPException) as error:
            if not tries_left:
                raise UploadError("FileUploadMiscError", f"{shown(url)}: {error}") from None
        time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


def _put_once(url: str, body: _Part | bytes, headers: Mapping[str, str]) -> str:
    all_headers = {
        "x-ms-version": STORAGE_VERSION,
        "Content-Type": "application/octet-stream",
        "Content-Length": str(len(body)),
        **headers,
    }
    request = urllib.request.Request(url, data=body, headers=all_headers, method="PUT")
    with opener(url).open(request, timeout=TIMEOUT_SECONDS) as answer:
        answer.read()
        return (answer.headers.get("ETag") or "").strip('"')  # a list gives it without quotes


def _asking(url: str, **query: str) -> str:
    where = urlsplit(url)
    return where._replace(query="&".join(filter(None, (urlencode(query, quote_via=quote), where.query)))).geturl()


# A node's logs -------------------------------------------------------------------------------------------------------


def send_logs(data_dir: Path, node_id: str, container_url: str, directory: str) -> None:
    """Upload a node's logs: that of its agent, and the emulator's lines that name it. Blocks. Raises UploadError."""
    agent = b"".join(path.read_bytes() for path in sorted(data_dir.glob(f"machine/*/nodes/{node_id}/agent.log")))
    put_text(blob_url(container_url, f"{directory}/agent.log"), agent)
    logs = (data_dir / name for name in ("emulator.log.1", "emulator.log"))
    events = b"".join(line for log in logs for line in _lines(log, node_id))
    put_text(blob_url(container_url, f"{directory}/events.log"), events)


def _lines(log: Path, word: str) -> Iterator[bytes]:
    if log.exists():
        with log.open("rb") as file:
            yield from (line for line in file if word.encode() in line)
