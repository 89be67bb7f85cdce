"""Replaces the nodes of a pool whose preflight found faults, while the gang of a followed job waits for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchtrain.config.types import Recipe
from batchtrain.errors import ReplacementFailed, ServiceError, TimedOut, Unreachable, shortened
from batchtrain.records import events
from batchtrain.service import read, submit, watch
from batchtrain.service.deadlines import POOL_SECONDS

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.client.shown_progress import Tell


class Replacer:
    """Takes the events of a followed job, and replaces the nodes that they name."""

    def __init__(self, client: Operations, recipe: Recipe, tell: Tell) -> None:
        self._client, self._recipe, self._tell = client, recipe, tell
        self._addresses: set[str] = set()
        self._count = 0

    def note(self, event: events.Event) -> None:
        """Pass an event on, and keep the addresses of nodes with faults."""
        self._tell(event)
        if isinstance(event, events.MetricsSeen):
            self._addresses.update(event.unfit)

    def replace(self) -> None:
        """Remove the nodes that were named, whose gang is then requeued, and wait for others. For one job, at most as
        many nodes are replaced as the pool has; then the gang fails with what its preflight found.

        Raises ReplacementFailed.
        """
        pool = self._recipe.pool
        addresses, self._addresses = self._addresses, set()
        if not addresses or pool is None or pool.on_bad_node != "replace":
            return
        batch, pace = self._client.batch, self._client.pace
        ids = [node.id for node in read.nodes(batch, pool.id) if node.address in addresses]
        names = ", ".join(map(shortened, ids))
        most = pool.vm_count.total
        if self._count + len(ids) > most:
            limit = f"this job has replaced {self._count} nodes, and may replace {most}"
            text = f"{names} of pool {pool.id} will not be replaced: {limit}; report the fault to Azure"
            self._tell(events.NodesReplaced(pool.id, text))
        elif ids:
            self._count += len(ids)
            self._tell(events.NodesReplaced(pool.id, f"replacing {names} of pool {pool.id}: its check found faults"))
            target = watch.pool_steady(batch, pool.id, POOL_SECONDS, pace, self._tell)
            submit.remove_nodes(batch, pool.id, ids)
            dedicated, spot = target.target_dedicated, target.target_spot
            try:
                watch.pool_steady(batch, pool.id, POOL_SECONDS, pace, self._tell)
                self._client.pools.resize(
                    pool.id, dedicated=dedicated, spot=spot, tell=self._tell, recipe=self._recipe
                )  # waits until all nodes are ready
            except Unreachable:
                raise
            except (ServiceError, TimedOut) as error:
                raise ReplacementFailed(f"pool {pool.id} got no node in place of {names}: {error}") from error
