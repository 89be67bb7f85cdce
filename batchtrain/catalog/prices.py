"""Prices of VM sizes by region, and what nodes cost. Pure; the prices come from the user's catalog.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from batchtrain.catalog.sizes import key

_ENDPOINT = r"(?i)(?:https?://)?[^./]+\.(?P<region>[a-z0-9]+)\.batch\."


class Prices(NamedTuple):
    """The prices of an hour of a Linux node in one region, by the name of the size."""

    region: str
    currency: str
    dedicated: Mapping[str, float] = {}
    spot: Mapping[str, float] = {}
    read: date | None = None
    """The date of the prices."""


class Price(NamedTuple):
    """The price of an hour of a node of one size; None if it is unknown."""

    size: str
    region: str
    currency: str
    dedicated: float | None
    spot: float | None

    def of(self, dedicated: float | None, spot: float | None) -> float | None:
        """The cost of so many node hours of each kind. Returns None if they or a price that they need are unknown."""
        cost = 0.0
        for hours, price in ((dedicated, self.dedicated), (spot, self.spot)):
            if hours is None or (hours and price is None):
                return None
            cost += hours * (price or 0.0)
        return cost


class Hour(NamedTuple):
    """An hour of a pool with so many nodes; None for a number without a maximum."""

    pool: str
    size: str
    dedicated: int | None
    spot: int | None
    price: Price | None = None
    most: bool = False
    """Whether it may cost less, because the pool scales or has several sizes."""

    @property
    def nodes(self) -> int | None:
        """The nodes of both kinds; None without a maximum."""
        return None if self.dedicated is None or self.spot is None else self.dedicated + self.spot

    def times(self, pools: int) -> Hour:
        """An hour of so many such pools."""
        dedicated = self.dedicated * pools if self.dedicated is not None else None
        return self._replace(dedicated=dedicated, spot=self.spot * pools if self.spot is not None else None)

    @property
    def cost(self) -> float | None:
        """What it costs; None if the price is unknown."""
        return self.price.of(self.dedicated, self.spot) if self.price else None

    def __str__(self) -> str:
        if self.nodes is None:
            return f"an hour of pool {self.pool} has no maximum cost: nothing limits the number of its nodes"
        hours = f"{self.nodes} node hours of {self.size} ({self.dedicated} dedicated, {self.spot} spot)"
        most = "at most " if self.most else ""
        if self.cost is None or self.price is None:
            return f"an hour of pool {self.pool} is {most}{hours}"
        cost = money(self.cost, self.price.currency)
        return f"an hour of pool {self.pool} costs {most}{cost} in {self.price.region}: {hours}"

    @property
    def document(self) -> dict[str, Any]:
        """The cost as JSON for programs."""
        price = self.price._asdict() if self.price else {}
        return {
            "pool": self.pool,
            "vm_size": self.size,
            "node_hours": self.nodes,
            "at_most": self.most,
            "region": price.get("region", ""),
            "currency": price.get("currency", ""),
            "hour": self.cost,
        }


def find(tables: tuple[Prices, ...], size: str, region: str) -> Price | None:
    """The price of a size in a region. Without a region: if only one region has a price, that one."""
    matching, size_key = [], key(size)
    for table in tables:
        names = (*table.dedicated, *table.spot) if region in ("", table.region) else ()
        if name := {key(name): name for name in names}.get(size_key):
            matching.append(Price(name, table.region, table.currency, table.dedicated.get(name), table.spot.get(name)))
    return matching[0] if len(matching) == 1 else None


def dearest(prices: Sequence[Price | None]) -> Price | None:
    """The most that a node costs whose size may be any of several; None if one of them has no price."""
    first, *others = prices
    for other in others:
        if first is None or other is None:
            return None
        first = first._replace(
            dedicated=_dearer(first.dedicated, other.dedicated), spot=_dearer(first.spot, other.spot)
        )
    return first


def _dearer(price: float | None, other_price: float | None) -> float | None:
    return None if price is None or other_price is None else max(price, other_price)


def missing(size: str, price: Price | None, dedicated: int | None, spot: int | None, region: str) -> str:
    """The prices that so many nodes of each kind need and the catalogue lacks, and the command that reads them."""
    kinds = {"dedicated": (dedicated, price and price.dedicated), "spot": (spot, price and price.spot)}
    lacking = [kind for kind, (count, amount) in kinds.items() if count and not amount]
    names = " and ".join(lacking)
    return (
        f"the catalogue has no price of {size}{names and f' ({names})'}{f' in {region}' if region else ''};"
        f" `batchtrain catalog refresh --prices --location {region or 'REGION'}` reads it; or"
        f" {by_hand(region, size.partition(' or ')[0], lacking or kinds)}"
    )


def by_hand(region: str, size: str = "SIZE", kinds: Iterable[str] = ("dedicated",)) -> str:
    """What a user can write into a catalog.yaml where no prices can be read."""
    hours = ", ".join(f"{kind}: {{{size}: PRICE}}" for kind in kinds)
    return (
        "write what an hour of a node costs into catalog.yaml beside the recipe:"
        f" `prices: [{{region: {region or 'REGION'}, currency: USD, {hours}}}]`"
    )


def region_of(endpoint: str) -> str:
    """The region in the endpoint of a Batch account, as in NAME.REGION.batch.azure.com; empty if it has none."""
    match = re.match(_ENDPOINT, endpoint)
    return match["region"].lower() if match else ""


def money(amount: float, currency: str) -> str:
    """An amount for people: with two decimals, and small ones with two digits."""
    return f"{amount:,.2f} {currency}" if amount >= 0.1 or not amount else f"{amount:.2g} {currency}"
