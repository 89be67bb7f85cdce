"""What ends a run before its tasks do: a price and a duration."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from batchtrain.catalog.prices import Hour, Price, money
from batchtrain.config.override import seconds
from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError
from batchtrain.plan.cost import hour_of, unpriced
from batchtrain.records import Node, node_cost
from batchtrain.records.events import Event, NodesSeen

LOOK_SECONDS = 60.0
"""Between two looks at the nodes, while the tasks run."""


class Limits(NamedTuple):
    """The most that a run may cost, in the currency of the catalogue, and its longest duration in seconds."""

    price: float | None = None
    seconds: float | None = None


UNLIMITED = Limits()


def limits_of(max_price: float | None, max_duration: float | str | None) -> Limits:
    """The limits of a call of the Python API. Raises UsageError for an invalid price or time."""
    if max_price is not None and not (isinstance(max_price, (int, float)) and 0 <= max_price < math.inf):
        raise UsageError(f"`max_price` is {max_price!r}; give a number, 0 or more")
    return Limits(max_price, seconds("max_duration", max_duration))


def hour_for(limits: Limits, recipe: Recipe, region: str | None) -> Hour | None:
    """An hour of all nodes that a run may have at once, for a limit of the price; None without such a limit. The
    emulator counts what the nodes would cost on Azure.

    Raises UsageError if the number of nodes or a price is unknown.
    """
    if limits.price is None:
        return None
    hour = hour_of(recipe, region or "")
    if recipe.pool is None or hour is None:
        raise UsageError(f"a limit of the price needs the nodes of the run: {recipe.directory} has no pool.yaml")
    if not hour.cost and (hour.price is None or hour.nodes != 0):
        why = f"a limit of the price needs what an hour of all nodes of pool {hour.pool} costs"
        raise UsageError(f"{why}: {unpriced(recipe, hour, region or '')}")
    return hour.times(recipe.pools_at_once)


class Guard:
    """What a run has cost and how long it has lasted: the `Limit` of its waits."""

    def __init__(self, limits: Limits, hour: Hour | None, clock: Callable[[], datetime]) -> None:
        """hour: of all nodes that the run may have, as `hour_for` returns it."""
        self._limits, self._hour, self._clock = limits, hour, clock
        self._began = self._looked = clock()
        self._nodes: dict[str, tuple[Node, datetime]] = {}
        """Every node that was seen, and the last look at its pool until it was gone."""
        self._present: dict[str, set[str]] = {}
        """The nodes of each pool at the last look."""
        self._spent = 0.0
        """What the nodes of earlier candidates have cost."""

    def move(self, hour: Hour | None) -> None:
        """The nodes come from another candidate."""
        self._spent, self._nodes, self._present = self.cost or 0.0, {}, {}
        self._hour = hour

    @property
    def _price(self) -> Price | None:
        return self._hour.price if self._hour is not None else None

    def note(self, event: Event) -> None:
        """Count the nodes of a look."""
        if isinstance(event, NodesSeen):
            self._looked = self._clock()
            nodes = {node.id: node for node in event.nodes}
            gone = {node_id: self._nodes[node_id][0] for node_id in self._present.get(event.subject, ())}
            self._nodes |= {node_id: (node, self._looked) for node_id, node in (gone | nodes).items()}
            self._present[event.subject] = set(nodes)

    def due(self) -> bool:
        """Whether the nodes are to be looked at again."""
        is_priced = self._price is not None and self._limits.price is not None
        return is_priced and self._clock() - self._looked >= timedelta(seconds=LOOK_SECONDS)

    @property
    def reason(self) -> str:
        """The limit that the run has reached, in words; empty if it has not reached one."""
        seconds, most = (self._clock() - self._began).total_seconds(), self._limits.seconds
        if most is not None and seconds >= most:
            return f"the run has lasted {seconds:,.0f} s, and at most {most:,.0f} s are allowed"
        cost, price, limit = self.cost, self._price, self._limits.price
        if cost is not None and price is not None and limit is not None and cost >= limit:
            spent, allowed = money(cost, price.currency), money(limit, price.currency)
            if math.isinf(cost):
                text = f"the catalogue has no price of some of the nodes ({price.size} in {price.region})"
                return f"{text}, so that the limit of {allowed} cannot be kept"
            return f"the nodes have cost {spent} since the run began, and at most {allowed} is allowed"
        return ""

    @property
    def remaining(self) -> float:
        """The seconds until the first limit is reached if the nodes stay as they are."""
        return self._left()

    @property
    def counts_price(self) -> bool:
        """Whether the price is limited."""
        return self._hour is not None

    def seconds_left(self, idle: float = 0.0) -> float | None:
        """The seconds until the first limit is reached if the pool has all of its nodes; None if that never happens.
        idle: the seconds for which the nodes stay, and cost, after the last task."""
        least = self._hour.cost if self._hour is not None else None
        seconds = self._left(least or 0.0, idle)
        return None if math.isinf(seconds) else seconds

    def _left(self, least: float = 0.0, idle: float = 0.0) -> float:
        """`remaining`. least: what an hour costs at least. idle: as for `seconds_left`."""
        now, lefts = self._clock(), [float("inf")]
        if self._limits.seconds is not None:
            lefts.append(self._limits.seconds - (now - self._began).total_seconds())
        if self._price is not None and self._limits.price is not None:
            cost = self._cost(now, self._price)
            hour = max(self._cost(now + timedelta(hours=1), self._price) - cost, least)
            lefts += [(self._limits.price - cost) / hour * 3600 - idle] if hour else []
        return max(min(lefts), 0.0)

    @property
    def cost(self) -> float | None:
        """What the nodes have cost since the run began; None without prices."""
        return None if self._price is None else self._cost(self._clock(), self._price)

    def _cost(self, now: datetime, price: Price) -> float:
        """Infinite with a node of a kind whose price is unknown."""
        total, present = self._spent, set[str]().union(*self._present.values())
        for node, last_look in self._nodes.values():
            until = now if node.id in present else last_look
            cost = node_cost((node,), price, until, since=self._began)
            total += math.inf if cost is None else cost
        return total
