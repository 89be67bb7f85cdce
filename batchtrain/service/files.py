"""Reads files of tasks and nodes: the whole file, its end, or new lines as it grows."""

from __future__ import annotations

import codecs
from collections import deque
from typing import Any

from azure.batch import BatchClient
from azure.core.pipeline import PipelineResponse
from azure.core.rest import HttpRequest

from batchtrain.errors import BatchtrainError, NotFound, ServiceError
from batchtrain.service import downloads
from batchtrain.service.failed import SEARCHED_LINES
from batchtrain.service.faults import faults
from batchtrain.service.requests import API_VERSION, quoted

COMPARED = 64
"""Bytes before the current position that are read again: they show whether it is still the same file."""
END = 256 * 1024
"""Bytes of the end of a file that are searched for the cause of a failure."""
NOTHING_MORE = frozenset({"InvalidRange", "416"})
NO_FILE = frozenset({"FileNotFound", "404"})
NOT_YET = frozenset({"TaskFilesUnavailable", "OperationInvalidForCurrentState"})
"""Codes of the service: the range begins at the end of the file, or the task has not written the file or has not
started."""


def task_file(client: BatchClient, job_id: str, task_id: str, path: str, start: int = 0) -> bytes:
    """A task's file from byte `start`; empty if there are no more bytes. Raises NotFound."""
    url = f"/jobs/{quoted(job_id)}/tasks/{quoted(task_id)}/files/{quoted(path)}"
    return _read(client, url, f"read {path} of task {job_id}/{task_id}", start)


def task_file_end(client: BatchClient, job_id: str, task_id: str, path: str, size: int = END) -> bytes:
    """The last bytes of a task's file. Raises NotFound."""
    tree = downloads.task_tree(job_id, task_id)
    length = downloads.size_of(client, tree, path).size
    return downloads.read(client, tree, path, max(length - size, 0), length) if length else b""


def stderr_end(client: BatchClient, job_id: str, task_id: str) -> tuple[str, ...]:
    """The last lines of a task's stderr; none if they cannot be read, as for a task that never ran."""
    try:
        return last_lines(task_file_end(client, job_id, task_id, "stderr.txt"), SEARCHED_LINES)
    except BatchtrainError:
        return ()


def node_file(client: BatchClient, pool_id: str, node_id: str, path: str) -> bytes:
    """A node's file. Raises NotFound."""
    url = f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}/files/{quoted(path)}"
    return _read(client, url, f"read {path} of node {node_id}", 0)


def last_lines(content: bytes, count: int) -> tuple[str, ...]:
    """The last lines of a file's content."""
    return tuple(deque(content.decode("utf-8", "replace").splitlines(), maxlen=count))


def _read(client: BatchClient, url: str, operation: str, start: int) -> bytes:
    headers = {"ocp-range": f"bytes={start}-"} if start else {}
    request = HttpRequest("GET", url, params={"api-version": API_VERSION}, headers=headers)
    try:
        with faults(operation):
            # Streamed, or the pipeline would try to decode the file; the hook reads it where it is still retried.
            return client.send_request(request, stream=True, raw_response_hook=_read_whole).read()
    except ServiceError as error:
        if start and error.code in NOTHING_MORE:
            return b""
        raise


def _read_whole(response: PipelineResponse[Any, Any]) -> None:
    response.http_response.read()


class Follower:
    """Reads a task's growing file from its last position and returns complete lines."""

    def __init__(self, client: BatchClient, job_id: str, task_id: str, path: str) -> None:
        self._client, self._job_id, self._task_id, self._path = client, job_id, task_id, path
        self.missing: NotFound | None = None
        self._node = ""
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._end = b""
        self._partial = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def new_lines(self, node: str, *, last: bool = False) -> list[str]:
        """The lines that have come since the last call; with `last`, also an incomplete line at the end.

        node: where the task runs. On another node, the file is another one. On the same node, a retry may append to the
        file or write it anew.
        """
        if node != self._node:
            self._node = node
            self._begin()
        content = self._new_bytes()
        if content is None:
            self._begin()
            content = self._new_bytes() or b""
        text = self._partial + self._decoder.decode(content, final=last)
        lines = text.split("\n")
        self._partial = lines.pop()
        if last and self._partial:
            lines.append(self._partial)
            self._partial = ""
        return lines

    def _new_bytes(self) -> bytes | None:
        """The bytes that were added to the file; None if it is not the file that was read before."""
        start = self._offset - len(self._end)
        try:
            content = task_file(self._client, self._job_id, self._task_id, self._path, start)
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
        added, self._end = content[len(self._end) :], content[-COMPARED:]
        return added
