"""Terminates, deletes and reactivates tasks: one request for each task, several at once."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from azure.batch import BatchClient

from batchtrain.errors import NotFound, ServiceError
from batchtrain.service.requests import Done, ask, in_state, quoted

THREADS = 8
REPORTED = 1000
"""Tasks between two reports of the progress."""
NAMED = 5
"""The number of refused tasks that an error names."""


class Action(NamedTuple):
    """What can be done with a task."""

    verb: str
    past: str
    is_done: Done
    needless: str
    """The code of a refusal which says that the task already is as wanted."""


ACTIONS: Mapping[str, Action] = {
    "term": Action("terminate", "terminated", in_state("completed"), "TaskCompleted"),
    "del": Action("delete", "deleted", lambda _: False, ""),
    "reactivate": Action("reactivate", "reactivated", in_state("active", "preparing", "running"), "TaskNotCompleted"),
}


class Refusal(NamedTuple):
    """A task that the service refused to change, and why."""

    task: str
    error: ServiceError


class Changed(NamedTuple):
    """The ids of tasks by outcome."""

    done: tuple[str, ...]
    needless: tuple[str, ...]
    refused: tuple[Refusal, ...]


def change(
    client: BatchClient,
    job_id: str,
    action: Action,
    ids: Sequence[str],
    progress: Callable[[int], None] = lambda count: None,
) -> Changed:
    """Carry out an action on tasks of a job. A refused task does not stop the others; a fault of the job or the account
    does. progress: called with the number of tasks so far, every REPORTED tasks."""
    outcomes: list[tuple[str, str | ServiceError]] = []

    def send(task_id: str, context: contextvars.Context) -> str | ServiceError:
        return context.run(_send, client, job_id, action, task_id)

    with ThreadPoolExecutor(THREADS) as workers:
        contexts = (contextvars.copy_context() for _ in ids)
        for number, outcome in enumerate(zip(ids, workers.map(send, ids, contexts), strict=True), 1):
            outcomes.append(outcome)
            if number % REPORTED == 0:
                progress(number)
    return Changed(
        tuple(task for task, outcome in outcomes if outcome == "done"),
        tuple(task for task, outcome in outcomes if outcome == "needless"),
        tuple(Refusal(task, outcome) for task, outcome in outcomes if isinstance(outcome, ServiceError)),
    )


def _send(client: BatchClient, job_id: str, action: Action, task_id: str) -> str | ServiceError:
    path = f"/jobs/{quoted(job_id)}/tasks/{quoted(task_id)}"
    method, path = ("DELETE", path) if action.verb == "delete" else ("POST", f"{path}/{action.verb}")
    try:
        ask(client, method, path, f"{action.verb} task {job_id}/{task_id}", done=action.is_done)
    except ServiceError as error:
        if not error.code.startswith("Task"):
            raise
        return "needless" if error.code == action.needless else error
    return "done"


def refusal(job_id: str, action: Action, changed: Changed) -> ServiceError:
    """The error for refused tasks; it names the first ones."""
    errors = [item.error for item in changed.refused]
    total = sum(map(len, changed))
    if total == 1:
        return errors[0]
    kind = NotFound if all(isinstance(error, NotFound) for error in errors) else ServiceError
    names = "".join(f"\n  {error}" for error in errors[:NAMED])
    more = f"\n  and {len(errors) - NAMED:,} more" if len(errors) > NAMED else ""
    text = f"{len(errors):,} of {total:,} tasks of job {job_id} were not {action.past}:{names}{more}"
    return kind(text, operation=f"{action.verb} tasks of job {job_id}", code=errors[0].code)
