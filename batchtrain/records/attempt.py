"""The attempts of a task. The service keeps no history of them: the runtime records their beginnings and ends, and a
client keeps what it sees. What neither knows is `unknown`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from batchtrain.records.pools import Node
from batchtrain.records.record import Record, Time
from batchtrain.records.tasks import Task

ATTEMPTS = "wd/ranks/attempts.jsonl"
"""The records of the runtime in the directory of a task: an AttemptEvent on each line, in the order of the attempts."""

_CLOCKS = timedelta(seconds=1)
"""An old shell notes whole seconds."""
MOST_MORE = 100
"""Most attempts beyond those that the service counts: it counts from 0 again for a task that was reactivated. A program
may write anything to `ATTEMPTS`."""

Reason = Literal["", "completed", "exit code", "preempted", "node lost", "requeued", "unknown"]
"""Why an attempt ended; empty while it runs. `requeued`: the service started the task again, and no client saw why."""
LOSSES: Mapping[Reason, str] = {
    "preempted": "Azure preempted node {node}",
    "node lost": "node {node} was lost",
    "requeued": "the service took it from node {node}, and gives no reason",
}
"""Why the service started a task again whose command had not failed, in words."""
GONE_STATES = frozenset({"preempted", "unknown", "unusable", "rebooting", "reimaging", "leavingpool"})
"""The states of a node that has lost its tasks."""
BOOT_STATES = frozenset({"creating", "starting", "waitingforstarttask"})
"""The same of a node that had tasks; other nodes may be new."""


class AttemptEvent(msgspec.Struct, frozen=True):
    """A line of attempts.jsonl."""

    event: Literal["began", "preempted", "ended"]
    """`preempted`: Azure announced the preemption of `node`."""
    attempt: int
    time: Time
    node: str = ""
    address: str = ""
    """That of `node` in a gang."""
    hosts: tuple[str, ...] = ()
    """The addresses of the nodes of a gang, in any order."""
    dedicated: bool | None = None
    checkpoint: str = ""
    """The newest complete checkpoint when the attempt began, such as `step-30`."""
    stdout: int = 0
    stderr: int = 0
    """The sizes in bytes of the files when the attempt began: what is before is of an earlier attempt."""
    exit_code: int | None = None
    """None for 0, which a shell that a signal ends may also have."""

    @property
    def starts(self) -> dict[str, int]:
        """The sizes by the names of the streams."""
        return {"stdout": self.stdout, "stderr": self.stderr}


class Attempt(Record, frozen=True):
    """One run of a task. None and empty values are unknown."""

    title = "attempt"
    columns: ClassVar[tuple[str, ...]] = (
        "task", "number", "nodes", "started", "seconds", "reason", "lost", "exit_code", "checkpoint", "step",
    )  # fmt: skip

    task: str
    number: int
    """From 1."""
    nodes: tuple[str, ...] = ()
    """The ids of its nodes, the primary first; the address of a node whose id is unknown."""
    started: Time | None = None
    ended: Time | None = None
    reason: Reason = ""
    lost: str = ""
    """The id of the node whose loss ended it."""
    exit_code: int | None = None
    checkpoint: str = ""
    """The newest complete checkpoint when it began, such as `step-30`; empty if there was none."""
    step: int | None = None
    """The last step of its metrics."""
    dedicated: bool | None = None
    """Whether the primary is no spot node."""
    instances: int | None = None
    """The number of its nodes, also while only the primary is known."""

    @property
    def seconds(self) -> float | None:
        """How long it ran."""
        if self.started is None or self.ended is None:
            return None
        return max((self.ended - self.started).total_seconds(), 0.0)

    @property
    def node_hours(self) -> float | None:
        """The hours of its nodes while it ran."""
        return None if self.seconds is None else self.seconds * max(len(self.nodes), self.instances or 1) / 3600


def number_of(task: Task) -> int:
    """The number of the current attempt, by the counts of the service."""
    return 1 + task.retries + task.requeues


def possible(task: Task, events: Iterable[AttemptEvent]) -> tuple[AttemptEvent, ...]:
    """The events of attempts that the task can have had."""
    return tuple(event for event in events if 1 <= event.attempt <= number_of(task) + MOST_MORE)


def attempts_of(
    task: Task, seen: Iterable[Attempt], events: Iterable[AttemptEvent], addresses: Mapping[str, str]
) -> tuple[Attempt, ...]:
    """All attempts of a task. seen: as a client saw them. events: as the runtime recorded them. addresses: the ids of
    nodes by address.

    A runtime without a volume counts from 1 again on each node, so its last attempt is the current one, or the one
    before if the current run has not begun.
    """
    by_client = {attempt.number: attempt for attempt in seen}
    events = possible(task, events)
    by_runtime: dict[int, Attempt] = {}
    for event in events:
        attempt = by_runtime.get(event.attempt, Attempt(task.id, event.attempt))
        by_runtime[event.attempt] = replace(attempt, **_of_event(event, addresses))
    last = max([number_of(task), *by_client, *by_runtime])
    shift = last - max(by_runtime, default=last) - (not has_begun(task, events))
    attempts = [
        _merged(Attempt(task.id, number), by_client.get(number), by_runtime.get(number - shift))
        for number in range(1, last + 1)
    ]
    return (*(_concluded(attempt, task) for attempt in attempts[:-1]), _current(attempts[-1], task))


def has_begun(task: Task, events: Sequence[AttemptEvent]) -> bool:
    """Whether the newest attempt of these records is the current one, which has no records if it ended before its
    launch text: then the newest was on another node, or had ended before."""
    number = max((event.attempt for event in events), default=0)
    newest = [event for event in events if event.attempt == number]
    ends = [event.time for event in newest if event.event == "ended"]
    if task.state != "completed" or not newest or number >= number_of(task):
        return task.state == "completed" or not ends
    nodes = {event.node for event in newest if event.event == "began" and event.node}
    is_before = bool(ends) and task.started is not None and ends[-1] < task.started - _CLOCKS
    return not is_before and (not task.node or not nodes or task.node in nodes)


def _of_event(event: AttemptEvent, addresses: Mapping[str, str]) -> dict[str, Any]:
    if event.event == "preempted":
        return {"reason": "preempted", "lost": event.node}
    if event.event == "ended":
        return {"ended": event.time} | ({"exit_code": event.exit_code} if event.exit_code else {})
    others = [addresses.get(host, host) for host in event.hosts if host != event.address]
    return {
        "nodes": tuple(node for node in (event.node, *others) if node),
        "started": event.time,
        "dedicated": event.dedicated,
        "checkpoint": event.checkpoint,
    }


_PROOF: Mapping[Reason, int] = {"unknown": 1, "requeued": 2, "node lost": 3, "exit code": 4, "preempted": 5}
"""An announced preemption proves more than a node that is gone."""


def _merged(attempt: Attempt, *sources: Attempt | None) -> Attempt:
    """The attempt with what its sources know: the first that knows a field wins, but the longest list of nodes does,
    and the reason with the best proof."""
    for source in filter(None, sources):
        if _PROOF.get(source.reason, 0) > _PROOF.get(attempt.reason, 0):
            attempt = replace(attempt, reason=source.reason, lost=source.lost)
        for name in ("nodes", "started", "ended", "exit_code", "checkpoint", "step", "dedicated", "instances"):
            mine, other = getattr(attempt, name), getattr(source, name)
            longer = name == "nodes" and len(other) > len(mine)
            if mine in (None, "", ()) or longer:
                attempt = replace(attempt, **{name: other})
    return attempt


def _concluded(attempt: Attempt, task: Task) -> Attempt:
    """An attempt before the last one. If all were retries, or all requeues, the service's counts tell its reason."""
    if attempt.reason:
        return attempt
    reason: Reason = "unknown"
    if number_of(task) > attempt.number:
        reason = (
            "requeued" if not task.retries else "exit code" if not task.requeues or attempt.exit_code else "unknown"
        )
    return replace(attempt, reason=reason)


def _current(attempt: Attempt, task: Task) -> Attempt:
    """The last attempt, of which the service knows the rest."""
    if task.state != "completed":
        return replace(attempt, reason="", ended=None)
    reason: Reason = (
        "exit code" if task.exit_code else "unknown" if task.failed or task.exit_code is None else "completed"
    )
    return replace(
        attempt,
        nodes=attempt.nodes or ((task.node,) if task.node else ()),
        started=task.started or attempt.started,
        ended=task.ended or attempt.ended,
        exit_code=task.exit_code,
        reason=reason,
        lost="",
    )


def with_reasons(attempts: Sequence[Attempt], nodes: Collection[Node]) -> tuple[Attempt, ...]:
    """The attempts with the reasons that the nodes of their pool prove now."""
    return tuple(
        _merged(attempt, replace(attempt, **lost_node(attempt, nodes)))
        if attempt.reason == "requeued" and (attempt.nodes or attempt.started)  # else no node proves anything
        else attempt
        for attempt in attempts
    )


def lost_node(attempt: Attempt, nodes: Collection[Node]) -> dict[str, Any]:
    """The reason of an attempt that the service ended, and the node that it lost, as the nodes of its pool tell it.

    The other nodes of a gang may be unknown. Then any node of the pool counts that was lost while the attempt ran.
    """
    by_id = {node.id: node for node in nodes}
    listed = [by_id[node] for node in attempt.nodes if node in by_id]
    others = [
        node
        for node in nodes
        if node.id not in attempt.nodes and attempt.started and node.allocated and node.allocated <= attempt.started
    ]
    gone = [(node, GONE_STATES | BOOT_STATES) for node in listed] + [(node, GONE_STATES) for node in others]
    for node, states in gone:
        if node.state in states and (attempt.started is None or node.since is None or node.since >= attempt.started):
            return {"reason": "preempted" if node.state == "preempted" else "node lost", "lost": node.id}
        if attempt.started and node.booted and node.booted > attempt.started:
            return {"reason": "node lost", "lost": node.id}
    missing = next((node for node in attempt.nodes if node not in by_id), "") if nodes else ""
    return {"reason": "node lost" if missing else "requeued", "lost": missing}
