"""What an hour of a recipe's pool costs, from the prices of its catalogue. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from batchtrain.catalog.prices import Hour, Price, dearest, region_of
from batchtrain.config.scaling import most_nodes
from batchtrain.config.types import Credentials, Recipe
from batchtrain.plan.image import seems_windows


def price_of(recipe: Recipe, region: str | None) -> Price | None:
    """The price of a node of the recipe's pool in a region, of its dearest size; None if it is unknown. Prices are
    those of Linux nodes.

    region: empty if it is unknown; None for the emulator, which costs nothing.
    """
    pool = recipe.pool
    if region is None or pool is None or not recipe.catalog.prices or seems_windows(recipe):
        return None
    return dearest([recipe.catalog.price(size, region) for size in pool.sizes])


def hour_of(recipe: Recipe, region: str | None) -> Hour | None:
    """An hour of the recipe's pool, at most; None without a pool."""
    pool = recipe.pool
    if pool is None:
        return None
    count = most_nodes(pool)
    is_most = pool.scales or pool.vm_sizes is not None
    return Hour(pool.id, pool.vm_size, count.dedicated, count.low_priority, price_of(recipe, region), is_most)


def region_for(credentials: Credentials | None, environment: Mapping[str, str]) -> str:
    """The region of the account that would be used, by its endpoint; empty if that does not tell it."""
    batch = credentials.batch if credentials is not None else None
    service_url = batch.account_service_url if batch is not None else None
    return region_of(service_url or environment.get("AZURE_BATCH_ENDPOINT", ""))
