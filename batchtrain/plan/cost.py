"""What an hour of a recipe's pool costs, from the prices of its catalogue. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from batchtrain.catalog.prices import Hour, Price, dearest, missing, region_of
from batchtrain.config.scaling import most_nodes, unlimited
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
    if (pool := recipe.pool) is None:
        return None
    has_most = pool.scales or len(pool.sizes) > 1
    return Hour(pool.id, pool.vm_size, *most_nodes(pool), price_of(recipe, region), has_most)


def unpriced(recipe: Recipe, hour: Hour, region: str) -> str:
    """Why the cost of an hour of the recipe's pool is unknown, and what to do."""
    assert recipe.pool is not None
    linux = "the catalogue has prices of Linux nodes alone; limit the duration of a run (`--max-duration`)"
    reason = unlimited(recipe.pool) or (linux if seems_windows(recipe) else "")
    return reason or missing(" or ".join(recipe.pool.sizes), hour.price, hour.dedicated, hour.spot, region)


def region_for(credentials: Credentials | None, environment: Mapping[str, str]) -> str:
    """The region of the account that would be used, by its endpoint; empty if that does not tell it."""
    batch = credentials.batch if credentials is not None else None
    service_url = batch.account_service_url if batch is not None else None
    return region_of(service_url or environment.get("AZURE_BATCH_ENDPOINT", ""))
