"""Looks at the nodes of a pool while a job is followed, and does what `NODE_RULES` of `life/placing.py` say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from batchtrain.config.types import Recipe
from batchtrain.errors import NodesLost, ReplacementFailed, ServiceError, TimedOut, Unreachable, shortened
from batchtrain.life import placing
from batchtrain.life.placing import SeenLoss
from batchtrain.records import Node, events
from batchtrain.service import read, retry, submit, watch
from batchtrain.service.deadlines import POOL_SECONDS

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.service.watch import Tell

LOOKS = 12
"""The pool is looked at again after so many of the longest pauses: a minute on Azure."""


class NodeWatch:
    """The nodes of a pool that are missing or have faults."""

    def __init__(
        self,
        client: Operations,
        pool_id: str,
        tell: Tell,
        now: Callable[[], float],
        *,
        patience: float | None = None,
        recipe: Recipe | None = None,
        job_id: str = "",
    ) -> None:
        """patience: the seconds that the pool has to get its nodes back; None if the job is not moved. recipe: of the
        pool, whose nodes are replaced if it says so. job_id: the job that has a pool without a known id."""
        self.moves = patience is not None
        """Whether the job moves to another pool, so that the patience with this one never ends."""
        self._job_id = job_id
        self._client, self._pool_id, self._tell, self._now = client, pool_id, tell, now
        self._patience, self._recipe = patience, recipe
        pool = recipe.pool if recipe is not None else None
        self._most = pool.vm_count.total if pool is not None and pool.on_bad_node == "replace" else 0
        self._every = LOOKS * client.pace.most
        self._last = now()
        self._missing: float | None = None
        """The seconds without some nodes; None if the pool had all of them at the last look."""
        self._addresses, self._replaced = set[str](), 0

    def note(self, event: events.Event) -> None:
        """Pass an event on, and keep the addresses of nodes with faults."""
        self._tell(event)
        if isinstance(event, events.MetricsSeen) and self._most:
            self._addresses.update(event.unfit)

    def look(self) -> int:
        """Read the nodes if that is due; returns the number of requests. A time without answers counts as the time
        between two looks. Raises NodesLost and ReplacementFailed."""
        if not self._pool_id and self._job_id:  # the service makes it after the job
            self._pool_id, self._last = read.job(self._client.batch, self._job_id).pool, self._now()
            return 1
        elapsed, faulty_addresses = self._now() - self._last, self._addresses
        is_due = self._patience is not None and elapsed >= min(self._every, self._patience)
        if not is_due and not faulty_addresses:
            return 0
        self._addresses = set()
        pool, nodes = read.pool(self._client.batch, self._pool_id), read.nodes(self._client.batch, self._pool_id)
        faulty = [node for node in nodes if node.address in faulty_addresses]
        seen = SeenLoss(pool, nodes, None, None, len(faulty), self._replaced, self._most)
        if is_due:
            self._last, before = self._now(), self._missing
            later = 0.0 if before is None else before + min(elapsed, self._every)
            self._missing = later if seen.usable < pool.target else None
            seen = seen._replace(missing=self._missing, patience=self._patience)
        if rule := placing.decide_nodes(seen):
            ACTS[rule.act](self, seen, faulty)
        return 2

    def _fail(self, seen: SeenLoss, faulty: Sequence[Node]) -> None:
        limit = f"this job has replaced {seen.replaced} nodes, and may replace {seen.most}"
        text = f"{_names(faulty)} of pool {self._pool_id} will not be replaced: {limit}; report the fault to Azure"
        self._tell(events.NodesReplaced(self._pool_id, text))

    def _replace(self, seen: SeenLoss, faulty: Sequence[Node]) -> None:
        """Remove nodes, whose gang is then requeued, and wait for others."""
        batch, pace, pool_id, names = self._client.batch, self._client.pace, self._pool_id, _names(faulty)
        self._replaced += len(faulty)
        self._tell(events.NodesReplaced(pool_id, f"replacing {names} of pool {pool_id}: its check found faults"))
        target = watch.pool_steady(batch, pool_id, POOL_SECONDS, pace, self._tell)
        submit.remove_nodes(batch, pool_id, [node.id for node in faulty], seen.pool.created)
        dedicated, spot = target.target_dedicated, target.target_spot
        try:
            watch.pool_steady(batch, pool_id, POOL_SECONDS, pace, self._tell)
            self._client.pools.resize(
                pool_id, dedicated=dedicated, spot=spot, tell=self._tell, recipe=self._recipe, created=seen.pool.created
            )  # waits until all nodes are ready
        except Unreachable:
            raise
        except (ServiceError, TimedOut) as error:
            raise ReplacementFailed(f"pool {pool_id} got no node in place of {names}: {error}") from error

    def _move(self, seen: SeenLoss, faulty: Sequence[Node]) -> None:
        raise NodesLost(f"pool {self._pool_id} has {seen.usable} of {seen.pool.target} nodes", code="NodesLost")

    def _wait(self, seen: SeenLoss, faulty: Sequence[Node]) -> None:
        if not seen.missing:
            count = f"pool {self._pool_id} has {seen.usable} of {seen.pool.target} nodes"
            text = f"{count}; without them the job moves after {retry.span(seen.patience or 0.0)}"
            self._tell(events.Waiting(self._pool_id, text))


ACTS: Mapping[str, Callable[[NodeWatch, SeenLoss, Sequence[Node]], None]] = {
    "fail": NodeWatch._fail,
    "replace": NodeWatch._replace,
    "move": NodeWatch._move,
    "wait": NodeWatch._wait,
}


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(shortened(node.id) for node in nodes)
