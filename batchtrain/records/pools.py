"""Pools, their nodes, and the images of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import ClassVar

import msgspec

from batchtrain.catalog.prices import Price
from batchtrain.records.failure import Failure
from batchtrain.records.record import Int32, Record, Time
from batchtrain.records.tasks import Task


class Pool(Record, frozen=True):
    """A pool."""

    title = "pool"
    columns: ClassVar[tuple[str, ...]] = (
        "id", "state", "allocation", "vm_size", "dedicated", "target_dedicated", "spot", "target_spot", "inter_node",
        "slots", "resize_errors", "node_hours",
    )  # fmt: skip

    id: str
    state: str = ""
    allocation: str = ""
    vm_size: str = ""
    dedicated: Int32 = 0
    target_dedicated: Int32 = 0
    spot: Int32 = 0
    target_spot: Int32 = 0
    inter_node: bool = False
    slots: Int32 = 1
    resize_errors: tuple[Failure, ...] = ()
    node_hours: float | None = None
    """The total hours of its current nodes; None if they were not queried."""
    autoscale: bool = False
    autoscale_error: Failure = Failure()
    evaluated: Time | None = None
    """The time of the last evaluation of its formula."""
    evaluation_interval: timedelta | None = None
    allocation_since: Time | None = None
    """The time of the last change of `allocation`: once it is steady, the end of its last resize."""
    created: Time | None = None
    metadata: tuple[dict[str, str], ...] = ()

    @property
    def nodes(self) -> int:
        """The nodes that it has now."""
        return self.dedicated + self.spot

    @property
    def target(self) -> int:
        """The nodes that it is to have."""
        return self.target_dedicated + self.target_spot

    @property
    def refusal(self) -> Failure:
        """Why its last resize ended without all nodes; false while a resize runs, and once the pool has them: what the
        service still shows then is the error of an earlier resize."""
        is_current = self.allocation != "resizing" and self.nodes != self.target
        return self.resize_errors[0] if self.resize_errors and is_current else Failure()


class PoolAttempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt to get the nodes of a pool from one of its candidates."""

    candidate: str
    """The candidate in words, such as `2 spot STANDARD_ND96ISR_H100_V5 in account west`."""
    account: str
    vm_size: str
    began: Time
    ended: Time
    code: str = ""
    """The error code of the service; empty if the candidate had the nodes."""
    reason: str = ""


class RecentTask(Record, frozen=True, rename="camel"):
    """A task that a node ran, or runs."""

    job_id: str = ""
    task_id: str = ""
    task_state: str = ""
    subtask_id: Int32 | None = None


class Node(Record, frozen=True):
    """A node."""

    title = "node"
    columns: ClassVar[tuple[str, ...]] = (
        "id", "state", "address", "start_task", "errors", "allocated", "prepared", "dedicated",
    )  # fmt: skip

    id: str
    state: str = ""
    address: str = ""
    start_task: str = ""
    """How its start task ended: `running`, `ok` or the exit code; empty without one."""
    errors: tuple[Failure, ...] = ()
    allocated: Time | None = None
    prepared: float | None = None
    """Seconds that its start task took; None if it has none or has not ended."""
    dedicated: bool = True
    """Whether it is no spot node."""
    start_exit_code: Int32 | None = None
    start_failure: Failure = Failure()
    size: str = ""
    booted: Time | None = None
    since: Time | None = None
    """The time of the last change of its state."""
    running_tasks: Int32 = 0
    running_slots: Int32 = 0
    total_run: Int32 = 0
    recent: tuple[RecentTask, ...] = ()


class Endpoint(Record, frozen=True):
    """The outside address of a port of a node."""

    node: str
    address: str
    port: int


class Image(Record, frozen=True):
    """An image from which the account can start nodes."""

    publisher: str = ""
    offer: str = ""
    sku: str = ""
    node_agent: str = ""
    capabilities: tuple[str, ...] = ()
    """In the service's words (`service_words` of the catalogue)."""
    ends: Time | None = None
    """The end of Batch's support."""


def node_hours(nodes: Iterable[Node], now: datetime, *, since: datetime | None = None) -> float:
    """The hours for which the nodes have existed (since a time), which are billed whether tasks run or not."""
    lived = (now - (max(node.allocated, since) if since else node.allocated) for node in nodes if node.allocated)
    return sum((max(span.total_seconds(), 0.0) for span in lived), 0.0) / 3600


def least_node_hours(tasks: Iterable[Task]) -> float:
    """The hours for which nodes existed at least, by the last runs of tasks: all nodes of each gang while it ran, or
    the node of each primary from its first start to its last end."""
    of_gangs, spans = 0.0, dict[str, tuple[datetime, datetime]]()
    for task in tasks:
        if task.started and task.ended:
            of_gangs += (task.ended - task.started).total_seconds() * (task.request.instances or 0)
            first_start, last_end = spans.get(task.node, (task.started, task.ended))
            spans[task.node] = min(first_start, task.started), max(last_end, task.ended)
    return max(of_gangs, sum((last - first).total_seconds() for first, last in spans.values())) / 3600


def node_cost(nodes: Sequence[Node], price: Price, now: datetime, *, since: datetime | None = None) -> float | None:
    """What the nodes have cost (since a time). Returns None if a price that it needs is unknown."""
    hours = [node_hours((node for node in nodes if node.dedicated is kind), now, since=since) for kind in (True, False)]
    return price.of(*hours)
