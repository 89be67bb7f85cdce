"""Small recipes of a job, and what is planned for them."""

from __future__ import annotations

import base64
import io
import tarfile
from typing import Any

import msgspec

from batchtrain.config.types import Recipe
from batchtrain.plan import Plan, payload, plan_jobs
from batchtrain.plan.types import OFFLINE, Facts, Sources
from tests.unit.plan import pools

IMAGE = pools.IMAGE
H100 = {"vm_size": "STANDARD_ND96ISR_H100_V5"}
STORAGE: dict[str, Any] = {"credentials": {"storage": {"data": {"account": "acct", "account_key": "a2V5"}}}}


Fields = dict[str, Any]


def recipe(job: Fields | None = None, task: Fields | None = None, pool: Fields | None = None, **more: Any) -> Recipe:
    """A recipe of two nodes and a job of one task; `job`, `task` and `pool` add to each, `more` are other fields."""
    gangs = {"inter_node_communication_enabled": True, **(pool or {})}
    tasks = [{"command": "echo hello", **(task or {})}]
    return pools.recipe(gangs, **{"jobs": [{"id": "j", "tasks": tasks, **(job or {})}], **more})


def plan(
    job: Fields | None = None, task: Fields | None = None, pool: Fields | None = None,
    *, facts: Facts = OFFLINE, sources: Sources | None = None, **more: Any,
) -> Plan:  # fmt: skip
    return plan_jobs(recipe(job, task, pool, **more), facts, sources)


def bodies(made: Plan, action: str) -> list[dict[str, Any]]:
    """The bodies of a plan's requests of one kind, as JSON has them; a collection's tasks one by one. Of a stream, the
    first task and the last."""
    found = [msgspec.json.decode(msgspec.json.encode(step.document)) for step in made.steps if step.action == action]
    return [one for body in found for one in body.get("value") or body.get("tasks") or [body]]


def sent_job(made: Plan) -> dict[str, Any]:
    [body] = bodies(made, "job.add")
    return body


def sent_task(made: Plan) -> dict[str, Any]:
    """The request of a plan's first task."""
    return bodies(made, "task.add")[0]


def archive_of(sent: dict[str, Any]) -> tarfile.TarFile:
    """The files that travel inside a request."""
    values = [item["value"] for item in sent["environmentSettings"] if item["name"].startswith(payload.VARIABLE)]
    return tarfile.open(fileobj=io.BytesIO(base64.b64decode("".join(values))))


def said(made: Plan, rule: str) -> list[tuple[str, str, str]]:
    """What a rule decided: what, its value, and where."""
    return [(item.what, item.value, item.where) for item in made.implicit if item.rule == rule]
