"""Notices that the pool of a followed job cannot get its nodes back, so that the job is moved to another candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from batchtrain.errors import NodesLost
from batchtrain.records.events import Waiting
from batchtrain.service import read, retry

if TYPE_CHECKING:
    from batchtrain.client.session import Session
    from batchtrain.client.shown_progress import Tell

GONE = frozenset({"preempted", "unusable", "starttaskfailed", "leavingpool", "deallocated", "deallocating"})
"""States of nodes that run no tasks."""
LOOKS = 12
"""The pool is looked at again after so many of the longest pauses: a minute on Azure."""


class NodeWatch:
    """Looks at the nodes of a pool while its job is followed."""

    def __init__(self, client: Session, pool_id: str, patience: float, tell: Tell, now: Callable[[], float]) -> None:
        self._client, self._pool_id, self._patience, self._tell, self._now = client, pool_id, patience, tell, now
        self._every = LOOKS * client.pace.most
        self._last = now()
        self._missing: float | None = None
        """The seconds without some nodes; None if the pool had all of them at the last look."""

    def look(self) -> int:
        """Read the nodes if that is due; returns the number of requests. Raises NodesLost if the pool has had fewer
        nodes than its target for as long as the patience. A time without answers counts as the time between two looks.
        """
        elapsed = self._now() - self._last
        if elapsed < min(self._every, self._patience):
            return 0
        self._last = self._now()
        pool, nodes = read.pool(self._client.batch, self._pool_id), read.nodes(self._client.batch, self._pool_id)
        count = sum(node.state not in GONE for node in nodes)
        if count >= pool.target:
            self._missing = None
            return 2
        if self._missing is None:
            self._missing = 0.0
            limit = retry.span(self._patience)
            text = f"pool {pool.id} has {count} of {pool.target} nodes; without them the job moves after {limit}"
            self._tell(Waiting(pool.id, text))
            return 2
        self._missing += min(elapsed, self._every)
        if self._missing >= self._patience:
            raise NodesLost(f"pool {pool.id} has {count} of {pool.target} nodes", code="NodesLost")
        return 2
