"""Compares the existing tasks of a job with its plan, in little memory."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

import msgspec
from azure.batch import BatchClient

from batchtrain.plan.canonical import mark
from batchtrain.plan.task_stream import TaskDocument
from batchtrain.plan.wire import TaskCreate
from batchtrain.service import read
from batchtrain.service.at_once import WORKERS

COMPARED = ",".join(field.encode_name for field in msgspec.structs.fields(TaskCreate))
"""The properties of a task that are compared."""
FEW = 200
"""Up to this number, tasks are read one by one; above it, all tasks are listed."""
KEY = 8
"""Bytes of the hash of an id."""


class Standing:
    """The tasks of a job: about 57 bytes for each, with a hash of its id and one of its content."""

    def __init__(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        self._entries = sorted(_key(task["id"]) + mark(task) for task in tasks)

    def __len__(self) -> int:
        return len(self._entries)

    def mark_of(self, task_id: str) -> bytes | None:
        """The mark of a task (`plan.canonical.mark`); None if the job has no such task."""
        key = _key(task_id)
        index = bisect_left(self._entries, key)
        entry = self._entries[index] if index < len(self._entries) else b""
        return entry[KEY:] if entry.startswith(key) else None


class Comparison:
    """Compares the tasks of a plan with those of its job."""

    def __init__(self, existing: Standing, retries: int = 0) -> None:
        """retries: those of the job, for planned tasks without constraints."""
        self._standing, self._retries = existing, retries
        self.equal = 0
        self.differing: list[str] = []
        """The ids of the tasks that differ from the plan."""

    @property
    def others(self) -> int:
        """How many tasks are not in the plan, after all of the plan was compared."""
        return len(self._standing) - self.equal - len(self.differing)

    def missing(self, documents: Iterable[TaskDocument]) -> Iterator[TaskDocument]:
        """The documents without a task; counts the others."""
        return (document for document in documents if not self.has(document.id, marked(document, self._retries)))

    def has(self, task_id: str, plan_mark: bytes) -> bool:
        """Whether the task exists; counts it as equal or differing."""
        task_mark = self._standing.mark_of(task_id)
        if task_mark == plan_mark:
            self.equal += 1
        elif task_mark is not None:
            self.differing.append(task_id)
        return task_mark is not None


def marked(document: TaskDocument, retries: int) -> bytes:
    """The mark of a planned task."""
    return mark(msgspec.json.decode(document.body), retries)


def listed(client: BatchClient, job_id: str) -> Standing:
    """All tasks of a job. Raises NotFound."""
    return Standing(read.task_documents(client, job_id, COMPARED))


def looked_up(client: BatchClient, job_id: str, task_ids: Sequence[str]) -> Standing:
    """Some tasks of a job. Raises NotFound."""
    if len(task_ids) > FEW:
        return listed(client, job_id)
    with ThreadPoolExecutor(WORKERS) as threads:
        return Standing(threads.map(functools.partial(read.task_document, client, job_id), task_ids))


def _key(task_id: str) -> bytes:
    """A hash of an id; the service ignores the case of ids."""
    return blake2b(task_id.lower().encode(), digest_size=KEY).digest()
