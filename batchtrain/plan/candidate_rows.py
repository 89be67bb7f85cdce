"""The candidates of a pool in their order, as rows for people: what an hour costs there, and what the checks say."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.catalog.prices import money
from batchtrain.config import candidates
from batchtrain.config.candidates import Candidate
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
    return tuple(
        CandidateRow(option.number, str(option), _hour(option, region), _checks(recipe, option))
        for option in options
        if len(options) > 1
    )


def _hour(candidate: Candidate, region: str) -> str:
    cost = candidates.hour(candidate, region)
    price = candidate.recipe.catalog.price(candidate.pool.vm_size, candidates.region_at(candidate, region))
    return money(cost, price.currency) if cost is not None and price is not None else ""


def _checks(recipe: Recipe, candidate: Candidate) -> str:
    """The names of the warnings about a candidate."""
    path = dotted(candidate.path)
    rules = [warning.rule for warning in recipe.warnings if warning.path == path and warning.level == "warning"]
    return f"warnings: {', '.join(rules)}" if rules else "checks: ok"
