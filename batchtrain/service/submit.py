"""Carries out a plan step by step; each finished step is an Event, and a refused task stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from azure.batch import BatchClient, models

from batchtrain.config.types import Secret
from batchtrain.errors import AlreadyExists, ServiceError
from batchtrain.plan import wire
from batchtrain.plan.step import Step
from batchtrain.plan.types import Plan
from batchtrain.service import retry
from batchtrain.service.faults import failure, faults
from batchtrain.service.requests import ask, has, in_state, made, quoted
from batchtrain.service.retry import Attempts

NOT_NOW = retry.Patience(first=0.2, most=10.0, budget=120.0, refused=0.0, connect=0.0, read=0.0)
"""How long a request is repeated after the service answered that it cannot do it now."""


Fill = Callable[[wire.Placeholder], str | Secret]
"""Gives the value of a placeholder."""


class Event(NamedTuple):
    """Something that was done or seen: its kind, its object, and a sentence for the user."""

    kind: str
    subject: str
    text: str
    data: object = None
    """What was seen, for a view that draws it; events of kind `….seen` have no text and are not printed."""


Others = Mapping[str, Callable[[Step], Event]]
"""Carries out steps that are not requests to Batch, by their action."""

ADDING = {"pool.add": "pool.adding", "job.add": "job.adding", "schedule.add": "schedule.adding"}
"""Events reported before the request: after an interrupt the user must know what may exist."""


def submit(
    client: BatchClient,
    plan: Plan,
    fill: Fill,
    upload: Callable[[str, bytes], None],
    others: Others | None = None,
) -> Iterator[Event]:
    """Carry out every step in order. Raises ServiceError at the first refusal."""
    files = {item.path: item.data for item in plan.uploads}
    for step in plan.steps:
        if step.action == "blob.upload":
            upload(step.subject, files[step.subject])
            yield Event(step.action, step.path, f"uploaded {len(files[step.subject])} bytes to {step.path}")
            continue
        if others and step.action in others:
            yield others[step.action](step)
            continue
        body = filled(step.body, fill)
        if step.action in ADDING:
            yield Event(ADDING[step.action], body["id"], f"adding {body['id']}")
        yield _ACTIONS[step.action](client, step, body)


def filled(body: Any, fill: Fill) -> dict[str, Any]:
    """The document of a request with its placeholders filled; here the secrets enter it."""

    def text(placeholder: wire.Placeholder) -> str:
        value = fill(placeholder)
        return value.reveal() if isinstance(value, Secret) else value

    return wire.filled(body, text)


def _add_pool(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    options = models.BatchPoolCreateOptions(body)
    _add(client, f"add pool {body['id']}", "/pools", body, lambda sent: client.create_pool(options, attempts=sent))
    return Event("pool.add", body["id"], f"added pool {body['id']}")


def _add_job(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    options = models.BatchJobCreateOptions(body)
    _add(client, f"add job {body['id']}", "/jobs", body, lambda sent: client.create_job(options, attempts=sent))
    return Event("job.add", body["id"], f"added job {body['id']}")


def _add_schedule(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    options, name = models.BatchJobScheduleCreateOptions(body), f"add job schedule {body['id']}"
    _add(client, name, "/jobschedules", body, lambda sent: client.create_job_schedule(options, attempts=sent))
    return Event("schedule.add", body["id"], f"added job schedule {body['id']}")


def _add(
    client: BatchClient, operation: str, path: str, body: dict[str, Any], create: Callable[[Attempts], object]
) -> None:
    """Add an object that names its own id. If it exists already because an earlier attempt of this call created it,
    that is a success."""
    sent = Attempts()
    try:
        with faults(operation):
            create(sent)
    except AlreadyExists:
        if not made(client, f"{path}/{quoted(body['id'])}", body, sent):
            raise


def _add_tasks(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    job_id = step.subject
    if not step.collects:
        options, operation = models.BatchTaskCreateOptions(body), f"add task {job_id}/{body['id']}"
        path = f"/jobs/{quoted(job_id)}/tasks"
        _add(client, operation, path, body, lambda sent: client.create_task(job_id, options, attempts=sent))
        return Event("task.add", f"{job_id}/{body['id']}", f"added task {body['id']}")
    waiting = {task["id"]: task for task in body["value"]}

    def send() -> int:
        for task_id in _add_collection(client, job_id, waiting):
            del waiting[task_id]
        return len(waiting)

    if retry.repeated(send, lambda left: left > 0 if isinstance(left, int) else False, NOT_NOW):
        names = ", ".join(list(waiting)[:5])
        raise ServiceError(f"add tasks to {job_id}: the service could not take {len(waiting)} of them ({names})")
    return Event("task.add", job_id, f"added {len(body['value'])} tasks")


def _add_collection(client: BatchClient, job_id: str, tasks: Mapping[str, Any]) -> list[str]:
    """Add one collection; returns the ids that exist now. Raises for the first task that the service refuses."""
    sent = Attempts()
    with faults(f"add tasks to {job_id}"):
        group = models.BatchTaskGroup({"value": list(tasks.values())})
        result = client.create_task_collection(job_id, group, attempts=sent)
    standing = []
    for item in result.result_values or ():
        status = str(getattr(item.status, "value", item.status)).lower()
        if status == "success" or _is_there(client, job_id, item, tasks[item.task_id], sent):
            standing.append(item.task_id)
        elif status != "servererror":
            code = item.error.code if item.error else status
            said = item.error.message.value if item.error and item.error.message else "refused"
            raise failure(f"add task {job_id}/{item.task_id}", str(code), str(said).split("\nRequestId")[0].rstrip("."))
    return standing


def _is_there(
    client: BatchClient, job_id: str, item: models.BatchTaskCreateResult, task: Mapping[str, Any], sent: Attempts
) -> bool:
    exists = item.error is not None and item.error.code == "TaskExists"
    return exists and made(client, f"/jobs/{quoted(job_id)}/tasks/{quoted(item.task_id)}", task, sent)


def _complete_job(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    job_id = step.subject
    with faults(f"complete job {job_id} by itself"):
        client.update_job(job_id, models.BatchJobUpdateOptions(body))
    return Event("job.complete", job_id, f"job {job_id} ends when its tasks have ended")


def _resize_pool(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    """Resize a pool that was created without nodes. It is steady a moment later, and refuses the resize until then."""
    pool_id = step.subject
    operation = f"{step.action.removeprefix('pool.')} pool {pool_id}"

    def send() -> None:
        ask(client, "POST", step.path, operation, body, done=lambda pool: has(pool, body))

    retry.repeated(send, lambda error: getattr(error, "code", "") == "PoolBeingResized", NOT_NOW)
    return Event(step.action, pool_id, f"pool {pool_id} gets its nodes")


def _add_user(client: BatchClient, step: Step, body: dict[str, Any]) -> Event:
    """Create a login on every current node; an existing login is updated."""
    pool_id = step.subject
    with faults(f"list nodes of pool {pool_id}"):
        names = [node.id for node in client.list_nodes(pool_id, select=["id"])]
    for node in names:
        path, operation = f"/pools/{quoted(pool_id)}/nodes/{quoted(node)}/users", f"add user {body['name']} to {node}"
        try:
            ask(client, "POST", path, operation, body)
        except ServiceError as error:
            if error.code != "NodeUserExists":
                raise
            known = {key: value for key, value in body.items() if key not in ("name", "isAdmin")}
            ask(client, "PUT", f"{path}/{quoted(body['name'])}", operation, known)
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
    """Delete a pool. Raises NotFound."""
    ask(client, "DELETE", f"/pools/{quoted(pool_id)}", f"delete pool {pool_id}", done=in_state("deleting"))


def reboot_node(client: BatchClient, pool_id: str, node_id: str) -> None:
    """Reboot a node; its start task runs again. Raises ServiceError if its state does not allow it."""
    path, body = f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}/reboot", {"nodeRebootOption": "requeue"}
    boots = in_state("rebooting", "starting", "waitingforstarttask")
    ask(client, "POST", path, f"reboot node {node_id}", body, done=boots)


def resize_pool(client: BatchClient, pool_id: str, dedicated: int | None, spot: int | None, leaving: str) -> None:
    """Resize a pool; None keeps the number of a kind. Raises NotFound, and NotAllowed for a pool with autoscale.
    leaving: what happens to the tasks of removed nodes (`requeue`, `terminate`, `taskcompletion`)."""
    wanted = {"targetDedicatedNodes": dedicated, "targetLowPriorityNodes": spot}
    counts = {name: count for name, count in wanted.items() if count is not None}
    path, body = f"/pools/{quoted(pool_id)}/resize", {**counts, "nodeDeallocationOption": leaving}
    ask(client, "POST", path, f"resize pool {pool_id}", body, done=lambda pool: has(pool, counts))


def delete_job(client: BatchClient, job_id: str) -> None:
    """Delete a job with all its tasks. Raises NotFound."""
    ask(client, "DELETE", f"/jobs/{quoted(job_id)}", f"delete job {job_id}", done=in_state("deleting"))


def delete_schedule(client: BatchClient, schedule_id: str) -> None:
    """Delete a job schedule with all its jobs. Raises NotFound."""
    path = f"/jobschedules/{quoted(schedule_id)}"
    ask(client, "DELETE", path, f"delete job schedule {schedule_id}", done=in_state("deleting"))


def terminate_schedule(client: BatchClient, schedule_id: str) -> None:
    """Terminate a job schedule: it creates no more jobs, and its running job is terminated. Raises NotFound."""
    path = f"/jobschedules/{quoted(schedule_id)}/terminate"
    ask(client, "POST", path, f"terminate job schedule {schedule_id}", done=in_state("terminating", "completed"))


def terminate_job(client: BatchClient, job_id: str, reason: str = "UserTerminate") -> None:
    """Terminate the tasks of a job. Raises NotFound."""
    path, body = f"/jobs/{quoted(job_id)}/terminate", {"terminateReason": reason}
    ask(client, "POST", path, f"terminate job {job_id}", body, done=in_state("terminating", "completed"))


def disable_job(client: BatchClient, job_id: str, running: str) -> None:
    """Disable a job: it starts no more tasks. running: what happens to its running tasks (`requeue`, `terminate`,
    `wait`)."""
    path, body = f"/jobs/{quoted(job_id)}/disable", {"disableTasks": running}
    ask(client, "POST", path, f"disable job {job_id}", body, done=in_state("disabling", "disabled"))


def enable_job(client: BatchClient, job_id: str) -> None:
    """Enable a disabled job."""
    path = f"/jobs/{quoted(job_id)}/enable"
    ask(client, "POST", path, f"enable job {job_id}", done=in_state("enabling", "active"))
