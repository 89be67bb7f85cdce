"""What ends a run before its tasks do: a price and a duration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from batchtrain.catalog.prices import Price, money
from batchtrain.config.scaling import most_nodes
from batchtrain.config.types import Pool, Recipe
from batchtrain.errors import LimitReached, UsageError
from batchtrain.plan.cost import price_of
from batchtrain.records import Node, node_cost
from batchtrain.records.events import Event, NodesSeen, Waiting
from batchtrain.service.retry import CLOCK

LOOK_SECONDS = 60.0
"""Between two looks at the nodes, while the tasks run."""
WAITS = (NodesSeen, Waiting)
"""Events of a wait, which may be ended; others are told between two requests that belong together."""


class Limits(NamedTuple):
    """The most that a run may cost, in the currency of the catalogue, and its longest duration in seconds."""

    price: float | None = None
    seconds: float | None = None


UNLIMITED = Limits()


def hour_of_all(pool: Pool | None, price: Price | None) -> float:
    """What an hour of all nodes of a pool costs; 0 without a price."""
    if pool is None or price is None:
        return 0.0
    count = most_nodes(pool)
    return price.of(count.dedicated, count.low_priority) or 0.0


def price_for(limits: Limits, recipe: Recipe, region: str | None) -> Price | None:
    """The price that a limit needs; None without a limit. The emulator counts what the nodes would cost on Azure.

    Raises UsageError if the price is unknown.
    """
    if limits.price is None or recipe.pool is None:
        return None
    price = price_of(recipe, region or "")
    count = recipe.pool.vm_count
    if price is None or price.of(count.dedicated, count.low_priority) is None:
        region = region or "REGION"
        raise UsageError(
            f"a limit of the price needs what an hour of {recipe.pool.vm_size} costs, which the catalogue does not have"
            f" for this region; `batchtrain catalog refresh --prices --location {region}` reads it"
        )
    return price


class Guard:
    """Ends the waits of a run with LimitReached when it has cost or lasted as much as it may."""

    def __init__(
        self,
        limits: Limits,
        price: Price | None,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = CLOCK.sleep,
        planned: float = 0.0,
    ) -> None:
        """planned: what an hour of all nodes of the pool costs."""
        self._planned = planned
        self._limits, self._price, self._clock, self._sleep = limits, price, clock, sleep
        self._began = self._looked = clock()
        self._nodes: dict[str, tuple[Node, datetime]] = {}
        """Every node that was seen, and when it was seen last: one that is gone costs nothing more."""
        self._present: set[str] = set()
        self._spent = 0.0
        """What the nodes of earlier candidates have cost."""
        self.armed = limits != UNLIMITED

    def move(self, price: Price | None, planned: float) -> None:
        """The nodes come from another candidate, whose hour costs `planned`."""
        self._spent, self._nodes, self._present = self.cost or 0.0, {}, set()
        self._price, self._planned = price, planned

    def note(self, event: Event) -> None:
        """Take an event of a wait. Raises LimitReached."""
        if isinstance(event, NodesSeen):
            self._looked = self._clock()
            self._present = {node.id for node in event.nodes}
            self._nodes |= {node.id: (node, self._looked) for node in event.nodes}
        if isinstance(event, WAITS):
            self.check()

    def due(self) -> bool:
        """Whether the nodes are to be looked at again."""
        return (
            self.armed and self._price is not None and self._clock() - self._looked >= timedelta(seconds=LOOK_SECONDS)
        )

    def check(self) -> None:
        """Raise LimitReached if a limit is reached. Nothing is raised after that."""
        if not self.armed:
            return
        seconds, most = (self._clock() - self._began).total_seconds(), self._limits.seconds
        if most is not None and seconds >= most:
            self._end(f"the run has lasted {seconds:,.0f} s, and at most {most:,.0f} s are allowed")
        cost, price, limit = self.cost, self._price, self._limits.price
        if cost is not None and price is not None and limit is not None and cost >= limit:
            spent, allowed = money(cost, price.currency), money(limit, price.currency)
            self._end(f"the nodes have cost {spent} since the run began, and at most {allowed} is allowed")

    def sleep(self, seconds: float) -> None:
        """Pause a wait, but not longer than until a limit is reached. Raises LimitReached."""
        self._sleep(min(seconds, self._left()) if self.armed else seconds)
        self.check()

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the first limit is reached if the pool has all of its nodes; None without a limit."""
        return None if self._limits == UNLIMITED else self._left(self._planned)

    def _left(self, least: float = 0.0) -> float:
        """The seconds until the first limit is reached, if the nodes stay as they are. least: what an hour costs."""
        now, lefts = self._clock(), [float("inf")]
        if self._limits.seconds is not None:
            lefts.append(self._limits.seconds - (now - self._began).total_seconds())
        if self._price is not None and self._limits.price is not None:
            cost = self._cost(now, self._price)
            hour = max(self._cost(now + timedelta(hours=1), self._price) - cost, least)
            lefts += [(self._limits.price - cost) / hour * 3600] if hour else []
        return max(min(lefts), 0.0)

    @property
    def cost(self) -> float | None:
        """What the nodes have cost since the run began; None without prices."""
        return None if self._price is None else self._cost(self._clock(), self._price)

    def _cost(self, now: datetime, price: Price) -> float:
        total = self._spent
        for node, last_seen in self._nodes.values():
            total += node_cost((node,), price, now if node.id in self._present else last_seen, since=self._began) or 0.0
        return total

    def _end(self, text: str) -> None:
        self.armed = False
        raise LimitReached(text)
