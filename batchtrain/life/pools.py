"""What a wait for the nodes of a pool does next, and why. Pure: the table `POOL_RULES`, as `rules.RULES` for tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

from batchtrain.life.seen import NEVER_READY, READY
from batchtrain.records import Failure, Node, Pool


class SeenNodes(NamedTuple):
    """A pool whose nodes are awaited, and its nodes, at one time."""

    pool: Pool
    nodes: tuple[Node, ...]
    error: Failure = Failure()
    """With which the awaited resize ended; false if it did not."""
    may_come: bool = False
    """Whether the service may have the nodes later, so that they are requested again."""
    patience: float | None = None
    """The seconds left to allocate all nodes before another candidate is tried; None if no other one is."""
    rebooted: frozenset[str] = frozenset()
    """The ids of the broken nodes that are being rebooted."""

    @property
    def is_allocated(self) -> bool:
        """Whether the pool has all its nodes, in any state."""
        return self.pool.allocation == "steady" and len(self.nodes) >= self.pool.target and not self.pool.resize_errors

    @property
    def broken(self) -> Node | None:
        """The first node that never takes tasks. While another candidate may be tried, all nodes come first."""
        nodes = (node for node in self.nodes if node.state in NEVER_READY and node.id not in self.rebooted)
        return next(nodes, None) if self.patience is None else None


class PoolRule(NamedTuple):
    """A row of the table."""

    name: str
    when: str
    """When it applies, in words."""
    applies: Callable[[SeenNodes], bool]
    act: Literal["wait", "request", "end"]
    """`request`: the nodes again, each minute."""
    can_change: str
    """What can still give the nodes; empty if nothing can."""
    lasts: str
    exit_code: int
    source: str


def decide(seen: SeenNodes) -> PoolRule | None:
    """The first rule that applies; None if the pool is ready."""
    return next((rule for rule in POOL_RULES if rule.applies(seen)), None)


def resize_error(pool: Pool, before: datetime | None) -> Failure:
    """The error with which the awaited resize of a pool ended; false if there is none. What an earlier one left is
    history. before: the end of the last resize before the one that was requested; None if none was."""
    if before is None or not pool.resize_errors:
        return pool.refusal
    is_new = pool.allocation_since is None or pool.allocation_since > before
    return pool.resize_errors[0] if pool.allocation == "steady" and is_new else Failure()


REFUSED, OVER = 4, 6
DEADLINE = "until its deadline"
# fmt: off
POOL_RULES: tuple[PoolRule, ...] = (
    PoolRule("nodes-refused", "the resize ended with an error; no waiting mends it, or the pool has no `candidates`",
        lambda seen: bool(seen.error) and (seen.patience is None or not seen.may_come),
        "end", "", "ends at once", REFUSED, "ResizeError"),
    PoolRule("candidate-has-no-nodes", "a candidate of the pool did not get its nodes within its patience",
        lambda seen: seen.patience == 0.0, "end", "", "ends; the next one is tried", REFUSED, "ResizeError"),
    PoolRule("broken-node", "a start task failed or a node is unusable, and no reboot mends it",
        lambda seen: seen.broken is not None, "end", "", "ends at once", REFUSED, "BatchNodeState"),
    PoolRule("nodes-may-come", "a candidate of the pool lacks nodes, which are requested again each minute",
        lambda seen: seen.patience is not None and seen.pool.allocation == "steady" and not seen.pool.autoscale,
        "request", "Azure", "the `patience` of the candidates", REFUSED, "ResizeError"),
    PoolRule("nodes-missing", "the pool does not have all of its nodes yet",
        lambda seen: seen.pool.allocation != "steady" or len(seen.nodes) < seen.pool.target,
        "wait", "Azure", DEADLINE, OVER, "BatchPool.allocationState"),
    PoolRule("nodes-start", "nodes of the pool do not take tasks yet",
        lambda seen: any(node.state not in READY for node in seen.nodes),
        "wait", "Azure", DEADLINE, OVER, "BatchNodeState"),
)
# fmt: on
"""In the order in which they apply."""
