"""The candidates of a pool in their order, as rows for people: what an hour costs there, and what the checks say."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.catalog.prices import money
from batchtrain.config import candidates
from batchtrain.config.schema import dotted
from batchtrain.config.types import Recipe


class CandidateRow(NamedTuple):
    """A candidate in a table."""

    number: int
    candidate: str
    hour: str
    """What an hour of its nodes costs; empty if the price is unknown."""
    checks: str

    @property
    def price(self) -> str:
        """What an hour costs, in words."""
        return f"{self.hour} an hour" if self.hour else "price unknown"

    def __str__(self) -> str:
        return f"candidate {self.number}: {self.candidate}; {self.price}; {self.checks}"


def rows(recipe: Recipe, region: str = "") -> tuple[CandidateRow, ...]:
    """The candidates of a recipe that has several, in the order in which they are tried."""
    options = candidates.ordered(recipe, region)
    result = []
    for option in options if len(options) > 1 else ():
        cost = candidates.hour(option, region)
        price = option.recipe.catalog.price(option.pool.vm_size, candidates.region_at(option, region))
        hour = money(cost, price.currency) if cost is not None and price is not None else ""
        path = dotted(option.path)
        rules = [warning.rule for warning in recipe.warnings if warning.path == path and warning.level == "warning"]
        checks = f"warnings: {', '.join(rules)}" if rules else "checks: ok"
        result.append(CandidateRow(option.number, str(option), hour, checks))
    return tuple(result)
