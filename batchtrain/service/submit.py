"""A plan carried out, step by step; each step done is an Event, and a task that is refused stops it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from azure.batch import BatchClient, models
from azure.core.rest import HttpRequest

from batchtrain.errors import ServiceError, UsageError
from batchtrain.plan.preparation import GIVEN
from batchtrain.plan.render import body_of
from batchtrain.plan.types import Plan, Step
from batchtrain.service.faults import failure, faults

Fill = Callable[[str], str]
"""Gives the value of a placeholder such as `registry:hub` or `sas:link/container/blob`."""

API_VERSION = "2025-06-01"
SERVER_ERROR_TRIES = 5
RESIZE_TRIES = 12  # a pool without nodes is steady within a minute


def _of(*kinds: str) -> re.Pattern[str]:
    return re.compile(rf"\{{\{{((?:{'|'.join(kinds)}):[^{{}}]*)\}}\}}")


_SECRET_FIELDS: dict[str, re.Pattern[str]] = {
    "password": _of("registry", "user", "share"),
    "username": _of("share"),
    "httpUrl": _of("sas"),
    "storageContainerUrl": _of("sas"),
    "containerUrl": _of("sas"),
    "accountName": _of("storage"),
    "accountKey": _of("storage"),
    "azureFileUrl": _of("storage"),
    "sshPrivateKey": _of("user"),
    "sshPublicKey": _of("ssh"),
    "subnetId": _of("management"),
    "expiryTime": _of("expires"),
}
"""The fields that the plan puts placeholders into, and their kinds."""
_SETTINGS = frozenset({"environmentSettings", "commonEnvironmentSettings"})
_GIVEN = _of("singularity", "registry", "file")
_VAULT = _of("keyvault")


class Event(NamedTuple):
    """Something that was done, or is seen: what kind, of what, and a sentence for people."""

    kind: str
    subject: str
    text: str


Others = Mapping[str, Callable[[Step], Event]]
"""Carries out the steps that are no requests to Batch, by their action."""

ADDING = {"pool.add": "pool.adding", "job.add": "job.adding", "schedule.add": "schedule.adding"}
"""Events said before the request: whoever is interrupted while it travels must know what may stand."""


def submit(
    client: BatchClient,
    plan: Plan,
    fill: Fill,
    upload: Callable[[str, bytes], None],
    others: Others | None = None,
) -> Iterator[Event]:
    """Carry out every step in order. Raises ServiceError at the first one that is refused."""
    files = {f"/{item.path}": item.data for item in plan.uploads}
    for step in plan.steps:
        if step.action == "blob.upload":
            upload(step.path.lstrip("/"), files[step.path])
            yield Event(step.action, step.path, f"uploaded {len(files[step.path])} bytes to {step.path}")
            continue
        if others and step.action in others:
            yield others[step.action](step)
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
        return {key: _filled(key, value, fill) for key, value in body.items()}
    if isinstance(body, (list, tuple)):
        return [filled(value, fill) for value in body]
    return body


def _filled(key: str, value: Any, fill: Fill) -> Any:
    if isinstance(value, str):
        kinds = _SECRET_FIELDS.get(key)
        return _put(kinds, value, fill) if kinds else value
    if key in _SETTINGS:
        return _settings(value, fill)
    found = filled(value, fill)
    return _start_task(found, fill) if key == "startTask" else found


def _put(kinds: re.Pattern[str], value: str, fill: Fill) -> str:
    return kinds.sub(lambda match: fill(match[1]), value)


def _settings(settings: Any, fill: Fill) -> list[dict[str, str]]:
    """Environment settings: one that stands for a secret's mapping becomes its settings, under those that are said."""
    said = {setting["name"] for setting in settings}
    found = []
    for setting in settings:
        if vault := _VAULT.fullmatch(setting["name"]):
            more = json.loads(fill(vault[1]))
            found += [{"name": one, "value": text} for one, text in more.items() if one not in said]
        else:
            found.append(setting)
    return found


def _start_task(task: dict[str, Any], fill: Fill) -> dict[str, Any]:
    """With the settings that our own part of the preparation is given; a person's settings have no such names."""
    settings = [
        {**setting, "value": _put(_GIVEN, setting["value"], fill)} if setting["name"].startswith(GIVEN) else setting
        for setting in task.get("environmentSettings", ())
    ]
    return {**task, "environmentSettings": settings} if settings else task


def _add_pool(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    with faults(f"add pool {body['id']}"):
        client.create_pool(models.BatchPoolCreateOptions(body))
    return Event("pool.add", body["id"], f"added pool {body['id']}")


def _add_job(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    with faults(f"add job {body['id']}"):
        client.create_job(models.BatchJobCreateOptions(body))
    return Event("job.add", body["id"], f"added job {body['id']}")


def _add_schedule(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    with faults(f"add job schedule {body['id']}"):
        client.create_job_schedule(models.BatchJobScheduleCreateOptions(body))
    return Event("schedule.add", body["id"], f"added job schedule {body['id']}")


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


def _resize_pool(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    """Nodes for a pool that was made without; it is steady a moment after that, and says until then that it is not."""
    pool_id = step.path.split("/")[2]
    for attempt in range(RESIZE_TRIES):
        try:
            _ask(client, "POST", step.path, f"{step.action.removeprefix('pool.')} pool {pool_id}", body)
            break
        except ServiceError as error:
            if error.code != "PoolBeingResized" or attempt == RESIZE_TRIES - 1:
                raise
            time.sleep(min(0.1 * 2**attempt, 10))
    return Event(step.action, pool_id, f"pool {pool_id} gets its nodes")


def _add_user(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    """A login on every node there is; on a node that has it already it is brought up to date."""
    pool_id = step.path.split("/")[2]
    with faults(f"list nodes of pool {pool_id}"):
        names = [node.id for node in client.list_nodes(pool_id, select=["id"])]
    for node in names:
        path, operation = f"/pools/{quoted(pool_id)}/nodes/{quoted(node)}/users", f"add user {body['name']} to {node}"
        try:
            _ask(client, "POST", path, operation, body)
        except ServiceError as error:
            if error.code != "NodeUserExists":
                raise
            known = {key: value for key, value in body.items() if key not in ("name", "isAdmin")}
            _ask(client, "PUT", f"{path}/{quoted(body['name'])}", operation, known)
    return Event("node.user", pool_id, f"user {body['name']} can log in on {len(names)} nodes of pool {pool_id}")


_ACTIONS: dict[str, Callable[[BatchClient, Step, dict[str, Any]], Event]] = {
    "pool.add": _add_pool,
    "pool.resize": _resize_pool,
    "pool.autoscale": _resize_pool,
    "node.user": _add_user,
    "job.add": _add_job,
    "schedule.add": _add_schedule,
    "task.add": _add_tasks,
    "job.complete": _complete_job,
}


# --- ending things --------------------------------------------------------------------------------------------------
# Through the SDK's pipeline, not its begin_* methods: one of them cannot be called without options
# (azure-sdk-for-python #46815) and their pollers hide failures; our own waits are bounded and say what they wait for.


def delete_pool(client: BatchClient, pool_id: str) -> None:
    """Ask for the end of a pool. Raises NotFound."""
    _ask(client, "DELETE", f"/pools/{quoted(pool_id)}", f"delete pool {pool_id}")


def reboot_node(client: BatchClient, pool_id: str, node_id: str) -> None:
    """Ask for a node to be rebooted; its start task runs again. Raises ServiceError for one that cannot be."""
    path = f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}/reboot"
    _ask(client, "POST", path, f"reboot node {node_id}", {"nodeRebootOption": "requeue"})


def resize_pool(client: BatchClient, pool_id: str, dedicated: int | None, spot: int | None, leaving: str) -> None:
    """Ask for other numbers of nodes; None keeps a kind's. Raises NotFound, NotAllowed for a pool that scales itself.

    leaving: what becomes of the tasks of nodes that go (`requeue`, `terminate`, `taskcompletion`).
    """
    wanted = {"targetDedicatedNodes": dedicated, "targetLowPriorityNodes": spot}
    body = {name: count for name, count in wanted.items() if count is not None}
    path = f"/pools/{quoted(pool_id)}/resize"
    _ask(client, "POST", path, f"resize pool {pool_id}", {**body, "nodeDeallocationOption": leaving})


def delete_job(client: BatchClient, job_id: str) -> None:
    """Ask for the end of a job with all its tasks. Raises NotFound."""
    _ask(client, "DELETE", f"/jobs/{quoted(job_id)}", f"delete job {job_id}")


def delete_schedule(client: BatchClient, schedule_id: str) -> None:
    """Ask for the end of a job schedule with all its jobs. Raises NotFound."""
    _ask(client, "DELETE", f"/jobschedules/{quoted(schedule_id)}", f"delete job schedule {schedule_id}")


def terminate_schedule(client: BatchClient, schedule_id: str) -> None:
    """Ask for a job schedule to make no more jobs, and to end the one that runs. Raises NotFound."""
    _ask(client, "POST", f"/jobschedules/{quoted(schedule_id)}/terminate", f"terminate job schedule {schedule_id}")


def terminate_job(client: BatchClient, job_id: str, reason: str = "UserTerminate") -> None:
    """Ask for a job's tasks to be ended. Raises NotFound."""
    _ask(client, "POST", f"/jobs/{quoted(job_id)}/terminate", f"terminate job {job_id}", {"terminateReason": reason})


def disable_job(client: BatchClient, job_id: str, running: str) -> None:
    """Ask for a job to start nothing more. running: what becomes of its tasks (`requeue`, `terminate`, `wait`)."""
    _ask(client, "POST", f"/jobs/{quoted(job_id)}/disable", f"disable job {job_id}", {"disableTasks": running})


def enable_job(client: BatchClient, job_id: str) -> None:
    """Let a job that was disabled go on."""
    _ask(client, "POST", f"/jobs/{quoted(job_id)}/enable", f"enable job {job_id}")


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
