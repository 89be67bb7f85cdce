"""What the pool of a command costs."""

from __future__ import annotations

import os

from batchtrain.catalog.prices import Hour
from batchtrain.cli.options import settings
from batchtrain.config.types import Recipe
from batchtrain.plan import cost


def hour_of(recipe: Recipe) -> Hour | None:
    """An hour of the recipe's pool, with its price where this command would run. Sends no request."""
    region = None if settings().local else cost.region_for(recipe.credentials, os.environ)
    return cost.hour_of(recipe, region)
