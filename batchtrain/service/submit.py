"""A plan carried out, step by step; each step done is an Event, and a task that is refused stops it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from azure.batch import BatchClient, models
from azure.core.rest import HttpRequest

from batchtrain.errors import ServiceError, UsageError
from batchtrain.plan.render import body_of
from batchtrain.plan.types import Plan, Step
from batchtrain.service.faults import failure, faults

Fill = Callable[[str], str]
"""Gives the value of a placeholder such as `registry:hub` or `sas:link/container/blob`."""

API_VERSION = "2025-06-01"
SERVER_ERROR_TRIES = 5
_SECRET_FIELDS = frozenset({"password", "httpUrl"})
_PLACEHOLDER = re.compile(r"\{\{((?:registry|sas):[^{}]+)\}\}")


class Event(NamedTuple):
    """Something that was done, or is seen: what kind, of what, and a sentence for people."""

    kind: str
    subject: str
    text: str


ADDING = {"pool.add": "pool.adding", "job.add": "job.adding"}
"""Events said before the request: whoever is interrupted while it travels must know what may stand."""


def submit(client: BatchClient, plan: Plan, fill: Fill, upload: Callable[[str, bytes], None]) -> Iterator[Event]:
    """Carry out every step in order. Raises ServiceError at the first one that is refused."""
    files = {f"/{item.path}": item.data for item in plan.uploads}
    for step in plan.steps:
        if step.action == "blob.upload":
            upload(step.path.lstrip("/"), files[step.path])
            yield Event(step.action, step.path, f"uploaded {len(files[step.path])} bytes to {step.path}")
            continue
        body = body_of(step)
        if step.action in ADDING:
            yield Event(ADDING[step.action], body["id"], f"adding {body['id']}")
        yield _ACTIONS[step.action](client, step, filled(body, fill))


def filled(body: Any, fill: Fill) -> Any:
    """The body with every placeholder of a secret replaced; this is where secrets enter a request.

    Only the fields that the plan puts one into are looked at: a user's own text is never filled.
    """
    if isinstance(body, dict):
        return {
            key: _PLACEHOLDER.sub(lambda match: fill(match[1]), value)
            if key in _SECRET_FIELDS and isinstance(value, str)
            else filled(value, fill)
            for key, value in body.items()
        }
    if isinstance(body, (list, tuple)):
        return [filled(value, fill) for value in body]
    return body


def _add_pool(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    with faults(f"add pool {body['id']}"):
        client.create_pool(models.BatchPoolCreateOptions(body))
    return Event("pool.add", body["id"], f"added pool {body['id']}")


def _add_job(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    with faults(f"add job {body['id']}"):
        client.create_job(models.BatchJobCreateOptions(body))
    return Event("job.add", body["id"], f"added job {body['id']}")


def _add_tasks(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    job_id = step.path.split("/")[2]
    if step.path.endswith("/tasks"):
        with faults(f"add task {job_id}/{body['id']}"):
            client.create_task(job_id, models.BatchTaskCreateOptions(body))
        return Event("task.add", f"{job_id}/{body['id']}", f"added task {body['id']}")
    tasks = body["value"]
    waiting = {task["id"]: task for task in tasks}
    for attempt in range(SERVER_ERROR_TRIES):
        waiting = _add_collection(client, job_id, waiting)
        if not waiting:
            break
        time.sleep(0.2 * 2**attempt)
    if waiting:
        names = ", ".join(list(waiting)[:5])
        raise ServiceError(f"add tasks to {job_id}: the service could not take {len(waiting)} of them ({names})")
    return Event("task.add", job_id, f"added {len(tasks)} tasks")


def _add_collection(client: BatchClient, job_id: str, tasks: dict[str, Any]) -> dict[str, Any]:
    """One collection; gives back those the server could not take now. Raises for the first one it refused."""
    with faults(f"add tasks to {job_id}"):
        result = client.create_task_collection(job_id, models.BatchTaskGroup({"value": list(tasks.values())}))
    again = {}
    for item in result.result_values or ():
        status = str(getattr(item.status, "value", item.status)).lower()
        if status == "servererror":
            again[item.task_id] = tasks[item.task_id]
        elif status != "success":
            code = item.error.code if item.error else status
            said = item.error.message.value if item.error and item.error.message else "refused"
            raise failure(f"add task {job_id}/{item.task_id}", str(code), str(said).split("\nRequestId")[0].rstrip("."))
    return again


def _complete_job(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    job_id = step.path.split("/")[2]
    with faults(f"complete job {job_id} by itself"):
        client.update_job(job_id, models.BatchJobUpdateOptions(body))
    return Event("job.complete", job_id, f"job {job_id} ends when its tasks have ended")


_ACTIONS: dict[str, Callable[[BatchClient, Step, dict[str, Any]], Event]] = {
    "pool.add": _add_pool,
    "job.add": _add_job,
    "task.add": _add_tasks,
    "job.complete": _complete_job,
}


# --- ending things --------------------------------------------------------------------------------------------------
# Through the SDK's pipeline, not its begin_* methods: one of them cannot be called without options
# (azure-sdk-for-python #46815) and their pollers hide failures; our own waits are bounded and say what they wait for.


def delete_pool(client: BatchClient, pool_id: str) -> None:
    """Ask for the end of a pool. Raises NotFound."""
    _ask(client, "DELETE", f"/pools/{quoted(pool_id)}", f"delete pool {pool_id}")


def delete_job(client: BatchClient, job_id: str) -> None:
    """Ask for the end of a job with all its tasks. Raises NotFound."""
    _ask(client, "DELETE", f"/jobs/{quoted(job_id)}", f"delete job {job_id}")


def terminate_job(client: BatchClient, job_id: str, reason: str = "UserTerminate") -> None:
    """Ask for a job's tasks to be ended. Raises NotFound."""
    _ask(client, "POST", f"/jobs/{quoted(job_id)}/terminate", f"terminate job {job_id}", {"terminateReason": reason})


def terminate_task(client: BatchClient, job_id: str, task_id: str) -> None:
    """Ask for one task to be ended. Raises NotFound."""
    with faults(f"terminate task {job_id}/{task_id}"):
        client.terminate_task(job_id, task_id)


def quoted(name: str) -> str:
    """An id or a path as one segment of a URL. Raises UsageError for what would be none."""
    if not name:
        raise UsageError("an empty id names nothing")
    return quote(name, safe="")


def _ask(client: BatchClient, method: str, path: str, operation: str, body: dict[str, Any] | None = None) -> None:
    request = HttpRequest(method, path, params={"api-version": API_VERSION}, json=body)
    if body is not None:
        request.headers["Content-Type"] = "application/json; odata=minimalmetadata"
    with faults(operation):
        client.send_request(request).raise_for_status()
