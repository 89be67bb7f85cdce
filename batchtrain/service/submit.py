"""Carries out a plan step by step; each finished step is an Event, and a refused task stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

from azure.batch import BatchClient

from batchtrain.config.travel import LargeSource
from batchtrain.config.types import Secret
from batchtrain.errors import ServiceError
from batchtrain.plan import wire
from batchtrain.plan.step import Action, Step
from batchtrain.plan.types import Plan
from batchtrain.records import Pool, events
from batchtrain.service import read, retry
from batchtrain.service.job_addition import ONCE, AddOptions, JobAddition
from batchtrain.service.meant_version import NOW, IsMeant, change_meant, look, of_runs, of_time
from batchtrain.service.register import Kind, Register, Thing
from batchtrain.service.requests import Body, Done, ask, has, in_state, quoted

Fill = Callable[[wire.Placeholder], str | Secret]
"""Gives the value of a placeholder."""

Others = Mapping[Action, Callable[[Step], events.Event]]
"""Carries out steps that are not requests to Batch, by their action."""


CREATIONS: Mapping[Action, tuple[Kind, type[events.Event], type[events.Event]]] = {
    "pool.add": ("pool", events.PoolAdding, events.PoolAdded),
    "schedule.add": ("job schedule", events.ScheduleAdding, events.ScheduleAdded),
}
"""What is created, and the events before and after the request."""
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
        if action in ("job.add", "task.add", "job.complete"):
            job = jobs.setdefault(subject, JobAddition(client, plan, subject, revealing(fill), options, register))
            yield from job.carry_out(steps)
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


def _requested(client: BatchClient, step: Step, body: dict[str, Any], register: Register) -> Iterator[events.Event]:
    if step.action == "node.user":
        yield _add_user(client, step, body)
    elif step.action in RESIZED:  # of the pool that the step before it has added
        yield scale_pool(client, step, of_runs(register.runs))
    else:
        kind, adding, added = CREATIONS[step.action]
        thing = Thing(kind, body["id"])
        yield adding(thing.id, f"adding {thing.id}")
        register.create(client, thing, body)
        yield added(thing.id, f"added {thing.name}")


def filled(body: Any, fill: Fill) -> dict[str, Any]:
    """The document of a request with its placeholders filled; here the secrets enter it."""
    return wire.filled(body, revealing(fill))


def revealing(fill: Fill) -> wire.Fill:
    """The same, with the text of secrets."""

    def text(placeholder: wire.Placeholder) -> str:
        value = fill(placeholder)
        return value.reveal() if isinstance(value, Secret) else value

    return text


def scale_pool(client: BatchClient, step: Step, is_meant: IsMeant) -> events.Event:
    """Give a pool its number of nodes or a formula for it. A pool that was just created, or is being resized, refuses
    that until it is steady. Raises as `change_meant` does."""
    pool_id, verb, body = step.subject, step.action.removeprefix("pool."), step.document
    path, done = step.path.rpartition("/")[2], partial(has, body=body)
    send = partial(_post_meant, client, Thing("pool", pool_id), verb, body, is_meant, done, path)
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


# --- ending things --------------------------------------------------------------------------------------------------
# Through the SDK's pipeline, not its begin_* methods: one of them cannot be called without options
# (azure-sdk-for-python #46815) and their pollers hide failures; our own waits are bounded and say what they wait for.


def reboot_node(client: BatchClient, pool_id: str, node_id: str, created: datetime | None) -> None:
    """Reboot a node of a pool; its start task runs again. Raises NotFound, and ServiceError if the state of the node
    does not allow it. created: as for `of_time`; the request has no condition, so the pool is checked before."""
    look(client, Thing("pool", pool_id), f"reboot node {node_id} of", of_time(created))
    path, body = f"/pools/{quoted(pool_id)}/nodes/{quoted(node_id)}/reboot", {"nodeRebootOption": "requeue"}
    boots = in_state("rebooting", "starting", "waitingforstarttask")
    ask(client, "POST", path, f"reboot node {node_id}", body, done=boots)


def request_again(client: BatchClient, pool: Pool) -> None:
    """Request the nodes that an earlier resize of a pool did not get. Raises as `resize_pool` does."""
    resize_pool(client, pool.id, pool.target_dedicated, pool.target_spot, "requeue", pool.created)


def resize_pool(
    client: BatchClient, pool_id: str, dedicated: int | None, spot: int | None, leaving: str, created: datetime | None
) -> None:
    """Resize a pool; None keeps the number of a kind. Raises as `change_meant` does, and NotAllowed for a pool with
    autoscale. leaving: what happens to the tasks of removed nodes (`requeue`, `terminate`, `taskcompletion`). created:
    as for `of_time`."""
    targets = {"targetDedicatedNodes": dedicated, "targetLowPriorityNodes": spot}
    counts = {name: count for name, count in targets.items() if count is not None}
    body, done = {**counts, "nodeDeallocationOption": leaving}, partial(has, body=counts)
    _post_meant(client, Thing("pool", pool_id), "resize", body, of_time(created), done)


def remove_nodes(client: BatchClient, pool_id: str, node_ids: Sequence[str], created: datetime | None) -> None:
    """Remove nodes from a pool that is steady, and lower its target by as many. Their tasks are requeued. Raises as
    `change_meant` does. created: as for `of_time`."""
    body = {"nodeList": list(node_ids), "nodeDeallocationOption": "requeue"}
    _post_meant(client, Thing("pool", pool_id), "remove nodes of", body, of_time(created), in_state(), "removenodes")


def delete_meant(client: BatchClient, thing: Thing, is_meant: IsMeant) -> None:
    """Delete a thing if it is the one that is meant. Raises as `change_meant` does."""
    change_meant(client, thing, "delete", is_meant, partial(delete_version, client, thing))


def delete_version(client: BatchClient, thing: Thing, etag: str) -> None:
    """Delete one version of a thing; one that is being deleted already counts, such as a pool that ends with its job.
    Raises NotFound."""
    try:
        ask(client, "DELETE", thing.path, f"delete {thing.name}", done=in_state("deleting"), etag=etag)
    except ServiceError as error:
        if not error.code.endswith("BeingDeleted"):
            raise


def terminate(client: BatchClient, thing: Thing, is_meant: IsMeant = NOW) -> None:
    """Terminate the tasks of a job; or a job schedule with its running job, which creates no more jobs. Raises as
    `change_meant` does."""
    body = {"terminateReason": "UserTerminate"} if thing.kind == "job" else None
    _post_meant(client, thing, "terminate", body, is_meant, in_state("terminating", "completed"))


def disable_job(client: BatchClient, job_id: str, running: str, is_meant: IsMeant = NOW) -> None:
    """Disable a job: it starts no more tasks. running: what happens to its running tasks (`requeue`, `terminate`,
    `wait`). Raises as `change_meant` does."""
    body = {"disableTasks": running}
    _post_meant(client, Thing("job", job_id), "disable", body, is_meant, in_state("disabling", "disabled"))


def enable_job(client: BatchClient, job_id: str, is_meant: IsMeant = NOW) -> None:
    """Enable a disabled job. Raises as `change_meant` does."""
    _post_meant(client, Thing("job", job_id), "enable", None, is_meant, in_state("enabling", "active"))


def _post_meant(
    client: BatchClient, thing: Thing, verb: str, body: Body | None, is_meant: IsMeant, done: Done, path: str = ""
) -> None:
    """done: as for `ask`. path: the last part of the URL, if it is not the verb."""
    send = partial(ask, client, "POST", f"{thing.path}/{path or verb}", f"{verb} {thing.name}", body, done=done)
    change_meant(client, thing, verb, is_meant, lambda etag: send(etag=etag))
