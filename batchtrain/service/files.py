"""Files of tasks and nodes: read whole, read the end, or followed as they grow."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable

from azure.batch import BatchClient
from azure.core.exceptions import HttpResponseError

from batchtrain.errors import NotFound
from batchtrain.service.faults import code_of, faults

_NOTHING_MORE = frozenset({"InvalidRange", "416"})
_NOT_YET = frozenset({"FileNotFound", "TaskFilesUnavailable", "OperationInvalidForCurrentState", "404"})


def task_file(client: BatchClient, job_id: str, task_id: str, path: str, start: int = 0) -> bytes:
    """A task's file from byte `start` on. Raises NotFound."""
    with faults(f"read {path} of task {job_id}/{task_id}"):
        return _read(lambda where: client.download_task_file(job_id, task_id, path, ocp_range=where), start)


def node_file(client: BatchClient, pool_id: str, node_id: str, path: str) -> bytes:
    """A node's file. Raises NotFound."""
    with faults(f"read {path} of node {node_id}"):
        return _read(lambda where: client.download_node_file(pool_id, node_id, path, ocp_range=where), 0)


def last_lines(content: bytes, count: int) -> tuple[str, ...]:
    """The last lines of a file's content."""
    return tuple(deque(content.decode("utf-8", "replace").splitlines(), maxlen=count))


def _read(download: Callable[..., object], start: int) -> bytes:
    try:
        return b"".join(download(f"bytes={start}-" if start else None))  # type: ignore[arg-type]  # chunks of bytes
    except HttpResponseError as error:
        if start and code_of(error) in _NOTHING_MORE:
            return b""
        raise


class Follower:
    """Reads a task's growing file from where it last stopped and gives complete lines."""

    def __init__(self, client: BatchClient, job_id: str, task_id: str, path: str) -> None:
        self._client, self._job_id, self._task_id, self._path = client, job_id, task_id, path
        self._offset = 0
        self._partial = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def new_lines(self, *, last: bool = False) -> list[str]:
        """Lines that have come since the last call; with `last`, what is left without an end of line too."""
        text = self._partial + self._decoder.decode(self._new_bytes(), final=last)
        lines = text.split("\n")
        self._partial = lines.pop()
        if last and self._partial:
            lines.append(self._partial)
            self._partial = ""
        return lines

    def _new_bytes(self) -> bytes:
        try:
            content = task_file(self._client, self._job_id, self._task_id, self._path, self._offset)
        except NotFound:
            return b""
        except Exception as error:
            if getattr(error, "code", "") in _NOT_YET:
                return b""
            raise
        self._offset += len(content)
        return content
