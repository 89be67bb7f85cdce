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
    quota: str
    """How many of its nodes the account still takes."""
    checks: str

    def __str__(self) -> str:
        parts = (f"{self.hour} an hour" if self.hour else "price unknown", self.quota, self.checks)
        return f"candidate {self.number}: {self.candidate}; {'; '.join(filter(None, parts))}"


def rows(recipe: Recipe, region: str = "", quotas: tuple[str, ...] = ()) -> tuple[CandidateRow, ...]:
    """The candidates of a recipe that has several, in the order in which they are tried. quotas: of each of them."""
    ordered = candidates.ordered(recipe, region)
    padded = (*quotas, *[""] * len(ordered))
    return tuple(
        CandidateRow(number, str(candidate), _hour(candidate, region), quota, _checks(recipe, candidate))
        for number, (candidate, quota) in enumerate(zip(ordered, padded, strict=False), 1)
        if len(ordered) > 1
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
