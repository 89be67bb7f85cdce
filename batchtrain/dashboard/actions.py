"""What the dashboard may change with --allow-changes: one row for each action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from batchtrain.dashboard import recorded
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.job_numbers import retry_alike
from batchtrain.errors import UsageError


class Action(NamedTuple):
    """A change of a pool, a node, a job or a run."""

    path: str
    send: Callable[[Connection, Mapping[str, str], Mapping[str, Any]], None]


class NodeTargets(msgspec.Struct, frozen=True):
    """The wanted number of nodes; None keeps the number of a kind."""

    dedicated: Annotated[int, msgspec.Meta(ge=0)] | None = None
    spot: Annotated[int, msgspec.Meta(ge=0)] | None = None


def _resize(reach: Connection, names: Mapping[str, str], body: Mapping[str, Any]) -> None:
    try:
        counts = msgspec.convert(body, NodeTargets)
    except msgspec.ValidationError as error:
        raise UsageError(f"the number of nodes is wrong: {error}") from None
    reach.client.pools.resize(names["pool"], dedicated=counts.dedicated, spot=counts.spot, wait=False)


ACTIONS = (
    Action("/jobs/{job}/terminate", lambda reach, names, _: reach.client.jobs.handle(names["job"]).terminate()),
    Action("/jobs/{job}/disable", lambda reach, names, _: reach.client.jobs.handle(names["job"]).disable()),
    Action("/jobs/{job}/enable", lambda reach, names, _: reach.client.jobs.handle(names["job"]).enable()),
    Action("/jobs/{job}/delete", lambda reach, names, _: reach.client.jobs.handle(names["job"]).delete(wait=False)),
    Action(
        "/jobs/{job}/tasks/{task}/retry-alike",
        lambda reach, names, _: retry_alike(reach.client.jobs.handle(names["job"]), names["task"]),
    ),
    Action("/pools/{pool}/resize", _resize),
    Action("/runs/{run}/labels", lambda reach, names, body: recorded.label(reach.runs, names["run"], body)),
    Action("/pools/{pool}/delete", lambda reach, names, _: reach.client.pools.delete(names["pool"], wait=False)),
    Action(
        "/pools/{pool}/nodes/{node}/reboot",
        lambda reach, names, _: reach.client.pools.reboot(names["pool"], (names["node"],)),
    ),
)
