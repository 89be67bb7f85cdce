"""Prices of VM sizes by region, and what nodes cost. Pure; the prices come from the user's catalog.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

from batchtrain.catalog.sizes import key

_ENDPOINT = re.compile(r"(?:https?://)?[^./]+\.(?P<region>[a-z0-9]+)\.batch\.", re.IGNORECASE)


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

    def of(self, dedicated: float, spot: float) -> float | None:
        """The cost of so many node hours of each kind. Returns None if a price that it needs is unknown."""
        parts = [(hours, price) for hours, price in ((dedicated, self.dedicated), (spot, self.spot)) if hours]
        if any(price is None for _, price in parts):
            return None
        return sum(hours * (price or 0.0) for hours, price in parts)


class Hour(NamedTuple):
    """An hour of a pool with so many nodes."""

    pool: str
    size: str
    dedicated: int
    spot: int
    price: Price | None = None
    most: bool = False
    """Whether the pool may have fewer nodes, because it scales."""

    @property
    def cost(self) -> float | None:
        """What it costs; None if the price is unknown."""
        return self.price.of(self.dedicated, self.spot) if self.price else None

    def __str__(self) -> str:
        hours = f"{self.dedicated + self.spot} node hours of {self.size} ({self.dedicated} dedicated, {self.spot} spot)"
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
            "node_hours": self.dedicated + self.spot,
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
            price = Price(name, table.region, table.currency, table.dedicated.get(name), table.spot.get(name))
            matching.append(price)
    return matching[0] if len(matching) == 1 else None


def region_of(endpoint: str) -> str:
    """The region in the endpoint of a Batch account, as in NAME.REGION.batch.azure.com; empty if it has none."""
    match = _ENDPOINT.match(endpoint)
    return match["region"].lower() if match else ""


def money(amount: float, currency: str) -> str:
    """An amount for people: with two decimals, and small ones with two digits."""
    return f"{amount:,.2f} {currency}" if amount >= 0.1 or not amount else f"{amount:.2g} {currency}"
