"""Carries out a plan step by step; each finished step is an Event, and a refused task stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from azure.batch import BatchClient, models

from batchtrain.catalog import api_versions
from batchtrain.config.travel import LargeSource
from batchtrain.config.types import Secret
from batchtrain.errors import NotFound, ServiceError
from batchtrain.plan import wire
from batchtrain.plan.step import Action, Step
from batchtrain.plan.types import Plan
from batchtrain.records import events
from batchtrain.service import read, retry
from batchtrain.service.faults import faults
from batchtrain.service.job_addition import ONCE, AddOptions, JobAddition
from batchtrain.service.read import Version
from batchtrain.service.register import COLLECTIONS, Kind, Register, Thing
from batchtrain.service.requests import CHANGED, add, ask, has, in_state, posted, quoted

REPLACED = "Replaced"
VERSIONS = 20
"""How often a thing is read again because another command has changed it."""
Fill = Callable[[wire.Placeholder], str | Secret]
"""Gives the value of a placeholder."""

Others = Mapping[Action, Callable[[Step], events.Event]]
"""Carries out steps that are not requests to Batch, by their action."""


class _Creation(NamedTuple):
    """How something is created: the events before and after the request, and the call of the SDK."""

    kind: Kind
    adding: type[events.Event]
    added_event: type[events.Event]
    send: Callable[[BatchClient, Any, retry.Attempts], object]


def _create_pool(client: BatchClient, body: Mapping[str, Any], attempts: retry.Attempts) -> None:
    """Create a pool. The SDK does not have the properties of the newer API version."""
    if (version := api_versions.needed("pool", body)) == wire.API_VERSION:
        client.create_pool(models.BatchPoolCreateOptions(body), attempts=attempts)
    else:
        posted(client, "/pools", msgspec.json.encode(body), attempts, version).raise_for_status()


CREATIONS: Mapping[Action, _Creation] = {
    "pool.add": _Creation("pool", events.PoolAdding, events.PoolAdded, _create_pool),
    "schedule.add": _Creation(
        "job schedule",
        events.ScheduleAdding,
        events.ScheduleAdded,
        lambda client, body, attempts: client.create_job_schedule(
            models.BatchJobScheduleCreateOptions(body), attempts=attempts
        ),
    ),
}
RESIZED: Mapping[Action, type[events.Event]] = {
    "pool.resize": events.PoolResized,
    "pool.autoscale": events.PoolAutoscaled,
}


def submit(
    client: BatchClient,
    plan: Plan,
    fill: Fill,
    upload: Callable[[str, bytes | LargeSource], bool],
    others: Others | None = None,
    options: AddOptions = ONCE,
    *,
    register: Register,
) -> Iterator[events.Event]:
    """Carry out every step in order; what is created is in the register before its request leaves. Raises ServiceError
    at the first refusal; of a task, after the job's others."""
    files = {item.path: item for item in plan.uploads}
    jobs: dict[str, JobAddition] = {}
    for (action, subject), same in groupby(plan.steps, lambda step: (step.action, step.subject)):
        steps = list(same)
        if action in ("job.add", "task.add"):
            job = jobs.setdefault(subject, JobAddition(client, plan, subject, revealing(fill), options, register))
            yield from _job_steps(client, job, steps, fill, register)
            continue
        for step in steps:
            if action == "blob.upload":
                is_new = upload(subject, files[subject].data)
                what = f"uploaded {files[subject].size} bytes to" if is_new else "the files are there already:"
                yield events.BlobUploaded(step.path, f"{what} {step.path}")
            elif others and action in others:
                yield others[action](step)
            else:
                yield from _requested(client, step, filled(step.body, fill), register)


def _job_steps(
    client: BatchClient, job: JobAddition, steps: Sequence[Step], fill: Fill, register: Register
) -> Iterator[events.Event]:
    step = steps[0]
    if step.action == "job.add":
        yield events.JobAdding(step.subject, f"adding {step.subject}")
        body = filled(step.body, fill)
        register.tasks_added |= "jobManagerTask" in body
        yield from job.job(body)
        return
    register.tasks_added = True  # or they may be, if the request is interrupted
    if step.collects or job.continued:
        yield from job.tasks(steps)
        return
    job_id, body = step.subject, filled(step.body, fill)
    path, name, options = f"/jobs/{quoted(job_id)}/tasks", f"{job_id}/{body['id']}", models.BatchTaskCreateOptions(body)
    add(client, f"add task {name}", path, body, lambda attempts: client.create_task(job_id, options, attempts=attempts))
    yield events.TasksAdded(name, f"added task {body['id']}")


def _requested(client: BatchClient, step: Step, body: dict[str, Any], register: Register) -> Iterator[events.Event]:
    creation = CREATIONS.get(step.action)
    if creation is None:
        yield _ACTIONS[step.action](client, step, body)
        return
    thing = Thing(creation.kind, body["id"])
    yield creation.adding(thing.id, f"adding {thing.id}")
    register.create(client, thing, body, partial(creation.send, client))
    yield creation.added_event(thing.id, f"added {thing.name}")


def filled(body: Any, fill: Fill) -> dict[str, Any]:
    """The document of a request with its placeholders filled; here the secrets enter it."""
    return wire.filled(body, revealing(fill))


def revealing(fill: Fill) -> wire.Fill:
    """The same, with the text of secrets."""

    def text(placeholder: wire.Placeholder) -> str:
        value = fill(placeholder)
        return value.reveal() if isinstance(value, Secret) else value

    return text


def _complete_job(client: BatchClient, step: Step, body: dict[str, Any]) -> events.Event:
    job_id = step.subject
    with faults(f"complete job {job_id} by itself"):
        client.update_job(job_id, models.BatchJobUpdateOptions(body))
    return events.JobCompletes(job_id, f"job {job_id} ends when its tasks have ended")


def _resize_pool(client: BatchClient, step: Step, body: dict[str, Any]) -> events.Event:
    """Resize a pool that was created without nodes. It is steady a moment later, and refuses the resize until then."""
    pool_id = step.subject
    operation = f"{step.action.removeprefix('pool.')} pool {pool_id}"

    def send() -> None:
        ask(client, "POST", step.path, operation, body, done=lambda pool: has(pool, body))

    retry.repeated(send, lambda error: getattr(error, "code", "") == "PoolBeingResized", retry.NOT_NOW)
    text = "gets its nodes" if step.action == "pool.resize" else "has a new formula for its number of nodes"
    return RESIZED[step.action](pool_id, f"pool {pool_id} {text}")


def _add_user(client: BatchClient, step: Step, body: dict[str, Any]) -> events.Event:
    """Create a login on every current node; an existing login is updated."""
    pool_id = step.subject
    names = [node.id for node in read.nodes(client, pool_id, "id")]
    for node in names:
        path, operation = f"/pools/{quoted(pool_id)}/nodes/{quoted(node)}/users", f"add user {body['name']} to {node}"
        try:
            ask(client, "POST", path, operation, body)
        except ServiceError as error:
            if error.code != "NodeUserExists":
                raise
            user = {key: value for key, value in body.items() if key not in ("name", "isAdmin")}
            ask(client, "PUT", f"{path}/{quoted(body['name'])}", operation, user)
    return events.NodeUserAdded(pool_id, f"user {body['name']} can log in on {len(names)} nodes of pool {pool_id}")


_ACTIONS: dict[Action, Callable[[BatchClient, Step, dict[str, Any]], events.Event]] = {
    "pool.resize": _resize_pool,
    "pool.autoscale": _resize_pool,
    "node.user": _add_user,
    "job.complete": _complete_job,
}


# --- ending things --------------------------------------------------------------------------------------------------
# Through the SDK's pipeline, not its begin_* methods: one of them cannot be called without options
# (azure-sdk-for-python #46815) and their pollers hide failures; our own waits are bounded and say what they wait for.


def reboot_node(client: BatchClient, pool_id: str, node_id: str) -> None:
    """Reboot a node; its start task runs again. Raises ServiceError if its state does not allow it."""
    path, body = f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}/reboot", {"nodeRebootOption": "requeue"}
    boots = in_state("rebooting", "starting", "waitingforstarttask")
    ask(client, "POST", path, f"reboot node {node_id}", body, done=boots)


def resize_pool(client: BatchClient, pool_id: str, dedicated: int | None, spot: int | None, leaving: str) -> None:
    """Resize a pool; None keeps the number of a kind. Raises NotFound, and NotAllowed for a pool with autoscale.
    leaving: what happens to the tasks of removed nodes (`requeue`, `terminate`, `taskcompletion`)."""
    targets = {"targetDedicatedNodes": dedicated, "targetLowPriorityNodes": spot}
    counts = {name: count for name, count in targets.items() if count is not None}
    path, body = f"/pools/{quoted(pool_id)}/resize", {**counts, "nodeDeallocationOption": leaving}
    ask(client, "POST", path, f"resize pool {pool_id}", body, done=lambda pool: has(pool, counts))


def remove_nodes(client: BatchClient, pool_id: str, node_ids: Sequence[str]) -> None:
    """Remove nodes from a pool that is steady, and lower its target by as many. Their tasks are requeued."""
    body = {"nodeList": list(node_ids), "nodeDeallocationOption": "requeue"}
    ask(client, "POST", f"/pools/{quoted(pool_id)}/removenodes", f"remove nodes of pool {pool_id}", body)


def delete_meant(client: BatchClient, thing: Thing, is_meant: Callable[[Version], bool]) -> None:
    """Delete a thing if it is the one that is meant. Raises as `change_meant` does."""
    change_meant(client, thing, "delete", is_meant, partial(delete_version, client, thing))


def change_meant(
    client: BatchClient, thing: Thing, verb: str, is_meant: Callable[[Version], bool], change: Callable[[str], None]
) -> None:
    """Change a thing if it is the one that is meant, and none that gets its id later: a request may arrive after it was
    given up. change: sends the request for the version with this ETag. Raises NotFound, with the code REPLACED for
    another thing."""
    created: datetime | None = None
    for version in versions(client, thing):
        created = created or version.created
        if version.created != created or not is_meant(version):
            raise NotFound(f"{thing.name} was replaced", operation=f"{verb} {thing.name}", code=REPLACED)
        try:
            change(version.etag)
        except ServiceError as error:
            if error.code != CHANGED:
                raise
        else:
            return


def versions(client: BatchClient, thing: Thing) -> Iterator[Version]:
    """A thing now, as often as another command has changed it. Raises NotFound."""
    for _ in range(VERSIONS):
        yield read.version(client, thing.kind, COLLECTIONS[thing.kind], thing.id)
    raise ServiceError(f"{thing.name} is changed by other commands all the time", code=CHANGED)


def delete_version(client: BatchClient, thing: Thing, etag: str) -> None:
    """Delete one version of a thing; one that is being deleted already counts, such as a pool that ends with its job.
    Raises NotFound."""
    try:
        ask(client, "DELETE", thing.path, f"delete {thing.name}", done=in_state("deleting"), etag=etag)
    except ServiceError as error:
        if not error.code.endswith("BeingDeleted"):
            raise


def is_there(version: Version) -> bool:
    """The thing that has the id now is meant."""
    return True


def terminate(client: BatchClient, thing: Thing, is_meant: Callable[[Version], bool] = is_there) -> None:
    """Terminate the tasks of a job; or a job schedule with its running job, which creates no more jobs. Raises as
    `change_meant` does."""
    path, body = f"{thing.path}/terminate", {"terminateReason": "UserTerminate"} if thing.kind == "job" else None
    operation, done = f"terminate {thing.name}", in_state("terminating", "completed")
    send = partial(ask, client, "POST", path, operation, body, done=done)
    change_meant(client, thing, "terminate", is_meant, lambda etag: send(etag=etag))


def disable_job(client: BatchClient, job_id: str, running: str, is_meant: Callable[[Version], bool] = is_there) -> None:
    """Disable a job: it starts no more tasks. running: what happens to its running tasks (`requeue`, `terminate`,
    `wait`). Raises as `change_meant` does."""
    job, body, done = Thing("job", job_id), {"disableTasks": running}, in_state("disabling", "disabled")
    send = partial(ask, client, "POST", f"{job.path}/disable", f"disable {job.name}", body, done=done)
    change_meant(client, job, "disable", is_meant, lambda etag: send(etag=etag))


def enable_job(client: BatchClient, job_id: str) -> None:
    """Enable a disabled job."""
    states = in_state("enabling", "active")
    ask(client, "POST", f"/jobs/{quoted(job_id)}/enable", f"enable job {job_id}", done=states)
