"""Watches the attempts of tasks. The service keeps no history of them: a client must see when one begins and ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain.errors import ServiceError, shortened
from batchtrain.records import Attempt, AttemptEvent, Node, Task
from batchtrain.records.attempt import ATTEMPTS, LOSSES, Reason, attempts_of, lost_node, number_of
from batchtrain.records.events import AttemptEnded, AttemptSeen, Event
from batchtrain.service import files, read
from batchtrain.service.read import Repeats

LOOKS = 10
"""Looks at the records of the runtime for the exit code of an attempt that failed."""
WORDS: Mapping[Reason, str] = {**LOSSES, "exit code": "it failed on node {node}"}


class _Failed(NamedTuple):
    """An attempt that failed, and its task at that time."""

    attempt: Attempt
    before: Task
    looks: int = 0


def events_of(client: BatchClient, job_id: str, task_id: str) -> tuple[AttemptEvent, ...]:
    """What the runtime recorded of the attempts of a task; nothing for a command without files of batchtrain."""
    return files.records(client, job_id, task_id, ATTEMPTS, AttemptEvent)


class Attempts:
    """The attempts of the tasks of a job, as glances at the tasks tell them."""

    def __init__(self, client: BatchClient, job_id: str) -> None:
        self._client, self._job_id = client, job_id
        self._tasks: dict[str, Task] = {}
        self._current: dict[str, Attempt] = {}
        self._failed: dict[str, _Failed] = {}
        self.requests = 0
        """The requests that all looks took."""

    def look(self, task: Task) -> Iterator[Event]:
        """What has happened to the attempts of a task since the last look."""
        before, attempt = self._tasks.get(task.id), self._current.get(task.id)
        self._tasks[task.id] = task
        if attempt is None or before is None:
            self._current[task.id] = attempt = Attempt(task.id, number_of(task))
        elif (again := number_of(task) - number_of(before)) > 0:
            if task.requeues > before.requeues:
                nodes, repeats = self._nodes(before.pool), self._repeats(task)
                attempt_end = replace(attempt, ended=repeats.requeued_at, **lost_node(attempt, nodes))
                node = next((node for node in nodes if node.id == attempt_end.lost), None)
                yield _over(attempt_end, before, task, repeats, node)
            else:
                self._failed[task.id] = _Failed(attempt, before)
            self._current[task.id] = attempt = Attempt(task.id, attempt.number + again)
        if task.state in ("running", "completed") and attempt.started != task.started:
            primary, instances = (task.node,) if task.node else (), task.request.instances
            attempt = replace(attempt, nodes=primary, started=task.started, instances=instances)
            self._current[task.id] = attempt
            yield AttemptSeen(task.id, attempt=attempt)
        if failed := self._failed.pop(task.id, None):
            yield from self._retried(failed, task)

    def _retried(self, failed: _Failed, task: Task) -> Iterator[AttemptEnded]:
        """The exit code is in the records of the runtime, which cannot be read before the next run has begun."""
        attempt, before, looks = failed
        self.requests += 1
        record = attempts_of(task, (), events_of(self._client, self._job_id, task.id), {})[attempt.number - 1]
        if record.exit_code is None and task.state != "completed" and looks < LOOKS:
            self._failed[task.id] = failed._replace(looks=looks + 1)
            return
        repeats = self._repeats(task)
        attempt_end = replace(attempt, ended=repeats.retried_at, reason="exit code", exit_code=record.exit_code)
        yield _over(attempt_end, before, task, repeats)

    def _repeats(self, task: Task) -> Repeats:
        self.requests += 1
        return read.repeats(self._client, self._job_id, task.id)

    def _nodes(self, pool_id: str) -> tuple[Node, ...]:
        self.requests += 1
        try:
            return read.nodes(self._client, pool_id, read.LOST_NODE) if pool_id else ()
        except ServiceError:
            return ()


def _over(past: Attempt, before: Task, task: Task, repeats: Repeats, node: Node | None = None) -> AttemptEnded:
    """The event of an attempt that has ended: which node, why, what follows. A requeue is not counted as a retry."""
    why = WORDS[past.reason].format(node=shortened(past.lost or before.node or "(unknown)"))
    if past.reason == "node lost" and node is not None:
        why += f" (a {'dedicated' if node.dedicated else 'spot'} node, now {node.state})"
    if past.exit_code is not None:
        why += f" with exit code {past.exit_code}"
    most = f" of {1 + repeats.retries + task.requeues}" if repeats.retries > 0 else ""
    text = f"task {task.id}: attempt {past.number} is over: {why}; the service starts it again: attempt"
    return AttemptEnded(task.id, f"{text} {number_of(task) - number_of(before) + past.number}{most}", attempt=past)
