"""Reads files of tasks and nodes: block by block, the end, or new lines as it grows. No file is held whole."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from azure.batch import BatchClient

from batchtrain import foreign, state_files
from batchtrain.errors import BatchtrainError, NotFound, ServiceError
from batchtrain.records.rank_end import ENDS, RankEnd, first_failure
from batchtrain.service import downloads
from batchtrain.service.downloads import PAST_THE_END, RANGE, Tree
from batchtrain.service.failed import SEARCHED_LINES

Line = TypeVar("Line")
COMPARED = 64
"""Bytes before the current position that are read again: they show whether it is still the same file."""
END = 256 * 1024
"""Bytes of the end of a file that are searched for the cause of a failure."""
PIECE = 1 << 16
"""Bytes that become lines at once: the lines of a whole block need ten times its memory."""
NO_FILE = frozenset({"FileNotFound", "404"})
NOT_YET = frozenset({"TaskFilesUnavailable", "OperationInvalidForCurrentState"})
"""Codes of the service: the task has not written the file, or has not started."""


def blocks(client: BatchClient, tree: Tree, path: str) -> Iterator[bytes]:
    """A file from its beginning to its end, RANGE bytes at a time. Raises NotFound."""
    at = 0
    while content := block(client, tree, path, at):
        yield content
        at += len(content)
        if len(content) < RANGE:
            return


def block(client: BatchClient, tree: Tree, path: str, start: int, size: int = RANGE) -> bytes:
    """The bytes of a file from `start` on, at most `size`; empty at its end. Raises NotFound."""
    try:
        return downloads.read(client, tree, path, start, start + size)
    except ServiceError as error:
        if error.code in PAST_THE_END:
            return b""
        raise


def end_of(client: BatchClient, tree: Tree, path: str, size: int = END) -> bytes:
    """The last bytes of a file. Raises NotFound."""
    length = downloads.size_of(client, tree, path).size
    return downloads.read(client, tree, path, max(length - size, 0), length) if length else b""


def stderr_end(client: BatchClient, job_id: str, task_id: str) -> tuple[str, ...]:
    """The last lines of a task's stderr; none if they cannot be read, as for a task that never ran."""
    try:
        return last_lines(end_of(client, downloads.task_tree(job_id, task_id), "stderr.txt"), SEARCHED_LINES)
    except BatchtrainError:
        return ()


def first_end(client: BatchClient, job_id: str, task_id: str) -> RankEnd:
    """The end of the rank that failed first in a task's gang; without a record, nothing is known."""
    return first_failure(records(client, job_id, task_id, ENDS, RankEnd))


def records(
    client: BatchClient, job_id: str, task_id: str, path: str, kind: type[Line], size: int = RANGE
) -> tuple[Line, ...]:
    """The records at the beginning of a file of a task, a line of JSON each; none if they cannot be read. A line that
    is cut off, or that another version wrote, is left out."""
    try:
        content = block(client, downloads.task_tree(job_id, task_id), path, 0, size)
    except BatchtrainError:
        return ()
    return tuple(decoded_lines(content, kind))


def decoded_lines(content: bytes, kind: type[Line]) -> Iterator[Line]:
    """The records of the lines of a file."""
    for line in content.splitlines():
        if (record := foreign.read(line.decode("utf-8", "replace"), kind)) is not None:
            yield record


def local_records(path: Path, kind: type[Line]) -> tuple[Line, ...]:
    """The same of the beginning of a file that was fetched; none without the file."""
    try:
        with state_files.opened(path) as file:
            return tuple(decoded_lines(file.read(RANGE), kind))
    except OSError:
        return ()


def last_lines(content: bytes, count: int) -> tuple[str, ...]:
    """The last lines of a file's content."""
    return tuple(deque(content.decode("utf-8", "replace").splitlines(), maxlen=count))


def lines_of(content: Iterator[bytes]) -> Iterator[str]:
    """The lines of a file that comes in blocks, as str.splitlines cuts them."""
    decoder, parts = codecs.getincrementaldecoder("utf-8")("replace"), list[str]()
    for piece in _pieces(content):
        text = decoder.decode(piece)
        is_too_long = len(parts) * PIECE >= state_files.MOST_LINE
        if text.splitlines() == [text] and not is_too_long:  # of a line longer than a piece: joined once, when it ends
            parts.append(text)
            continue
        lines = "".join((*parts, text)).splitlines(keepends=True)
        parts = [] if is_too_long or not lines or lines[-1].endswith("\n") else [lines.pop()]
        yield from (line.splitlines()[0] for line in lines)
    yield from "".join((*parts, decoder.decode(b"", final=True))).splitlines()


def _pieces(content: Iterator[bytes]) -> Iterator[bytes]:
    return (part[at : at + PIECE] for part in content for at in range(0, len(part), PIECE))


class Follower:
    """Reads a task's growing file from its last position and returns complete lines."""

    def __init__(
        self, client: BatchClient, job_id: str, task_id: str, path: str, tree: downloads.Tree | None = None
    ) -> None:
        """tree: the directory of the task on another node than that of its primary."""
        self._client, self._tree, self.path = client, tree or downloads.task_tree(job_id, task_id), path
        self.missing: NotFound | None = None
        """The error of the last call, if there is no such file yet."""
        self._node = ""
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._end = b""
        self._partial: list[str] = []
        self._length = 0
        """Of the texts of `_partial`."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def new_lines(self, node: str, *, last: bool = False) -> Iterator[str]:
        """The lines that have come since the last call; with `last`, also an incomplete line at the end.

        node: where the task runs. On another node, the file is another one. On the same node, a retry may append to the
        file or write it anew. After an error, the next call continues where this one stopped.
        """
        if node != self._node:
            self._node = node
            self._begin()
        for piece in _pieces(self._new_blocks()):
            text = self._decoder.decode(piece)
            self._partial.append(text)
            self._length += len(text)
            if "\n" in text or self._length >= state_files.MOST_LINE:
                *lines, tail = "".join(self._partial).split("\n") if "\n" in text else ("".join(self._partial), "")
                self._partial, self._length = [tail], len(tail)
                yield from lines
        if last:
            tail, self._partial = "".join((*self._partial, self._decoder.decode(b"", final=True))), []
            yield from (tail,) if tail else ()

    def _new_blocks(self) -> Iterator[bytes]:
        """What was added to the file; from its beginning if it is not the file that was read before."""
        content: bytes | None = None
        while content is None or len(content) == RANGE:
            content = self._new_bytes()
            if content is None:
                self._begin()
            else:
                yield content

    def _new_bytes(self) -> bytes | None:
        """The next RANGE bytes that were added to the file; None if it is not the file that was read before."""
        start = self._offset - len(self._end)
        try:
            content = block(self._client, self._tree, self.path, start, len(self._end) + RANGE)
        except NotFound as error:
            if error.code not in NO_FILE:
                raise
            self.missing = error  # the task may not have opened it yet
            return b""
        except ServiceError as error:
            if error.code in NOT_YET:
                return b""
            raise
        self.missing = None
        if not content.startswith(self._end):
            return None
        self._offset = start + len(content)
        fresh, self._end = content[len(self._end) :], content[-COMPARED:]
        return fresh
