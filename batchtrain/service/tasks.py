"""The tasks of a job: those of a state, a glance at all, and the ones that changed last."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

from azure.batch import BatchClient

from batchtrain import foreign
from batchtrain.config.factories import PARAMETERS
from batchtrain.errors import UsageError
from batchtrain.records import Counts, Task
from batchtrain.service import read
from batchtrain.service.requests import Creation, creation, quoted

FEW = 20
"""A job with more tasks is never listed while it is watched."""
OPEN, FAILED = "state ne 'completed'", "executionInfo/result eq 'failure'"
STATES: Mapping[str, str] = {
    "active": "state eq 'active'",
    "running": "state eq 'running' or state eq 'preparing'",
    "completed": "state eq 'completed'",
    "succeeded": "executionInfo/result eq 'success'",
    "failed": FAILED,
}
"""The filter of each state that a user can name."""
FIRST_SECONDS, FURTHER = 1.0, 8
"""How far back the changes of a large job are asked for first, and the factor of each next time."""


class Glance(NamedTuple):
    """The first tasks of a job, the counts of all, and the number of requests that this took."""

    first: tuple[Task, ...]
    counts: Counts
    requests: int

    @property
    def whole(self) -> bool:
        """Whether `first` is every task of the job."""
        return self.requests == 1


def filter_of(state: str) -> str:
    """The filter of a state's tasks; empty for all tasks. Raises UsageError."""
    if state and state not in STATES:
        raise UsageError(f"`{state}` is not a state of a task; the states are {', '.join(STATES)}")
    return STATES[state] if state else ""


def any_open(client: BatchClient, job_id: str) -> bool:
    """Whether a task of a job waits or runs. Raises NotFound."""
    return any(read.tasks(client, job_id, where=OPEN, select="id", limit=1))


def starting(prefix: str) -> str:
    """The filter of the tasks whose ids begin with a text; empty for all tasks."""
    return f"startswith(id,'{prefix.replace(chr(39), chr(39) * 2)}')" if prefix else ""


def both(where: str, term: str) -> str:
    """The filter of the tasks that fit a filter and a term; either may be empty."""
    return f"({where}) and {term}" if where and term else where or term


def glance(client: BatchClient, job_id: str, most: int = FEW) -> Glance:
    """The state of a job's tasks: one request for a job of up to `most` tasks, two for a larger one."""
    first = tuple(read.tasks(client, job_id, select=read.TIMED_TASK, limit=most + 1))
    if len(first) <= most:
        return Glance(first, Counts.of(first), 1)
    return Glance(first[:most], read.counts(client, job_id), 2)


def last(client: BatchClient, job_id: str, count: int, where: str = "") -> list[Task]:
    """The tasks whose state changed last, in the order of the changes. Raises NotFound.

    A job with more than one page of tasks is asked for the changes since a moment, which goes further back until they
    are enough.
    """
    changes, more = read.first_changes(client, job_id, where)
    if more:
        for since in (*_moments(creation(client, f"/jobs/{quoted(job_id)}")), ""):
            changed = f"stateTransitionTime gt DateTime'{since}'" if since else ""
            recent = read.changes(client, job_id, both(where, changed))
            changes = heapq.nlargest(count, recent, key=attrgetter("time"))
            if len(changes) == count:
                break
    return [change.task for change in sorted(changes, key=attrgetter("time"))[-count:]]


def _moments(created: Creation) -> Iterator[str]:
    """Moments further and further back, by the clock of the service, until a job was created."""
    seconds, age = FIRST_SECONDS, created.age or 0.0
    while created.time and seconds < age:
        yield (created.time + timedelta(seconds=age - seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        seconds *= FURTHER


def parameters(client: BatchClient, job_id: str) -> dict[str, dict[str, Any]]:
    """The named parameters of each task that a factory made with some. A variable that is not ours is ignored."""
    by_task = {}
    for task_id, text in read.variables(client, job_id, PARAMETERS):
        if (values := foreign.read(text, dict[str, Any])) is not None:
            by_task[task_id] = values
    return by_task
