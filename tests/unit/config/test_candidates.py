"""The candidates of a pool: each is a recipe, in the order in which it is tried."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.config.candidates import candidates_of, ordered, require_account
from batchtrain.config.types import Credentials, Pool, Recipe, convert
from batchtrain.errors import PlanError, UsageError
from batchtrain.plan.candidate_rows import rows

PRICES = Prices(
    "westus", "USD", {"Standard_NC4as_T4_v3": 1.0, "Standard_NC64as_T4_v3": 3.0}, {"Standard_NC4as_T4_v3": 0.5}
)


def recipe(*alternatives: dict[str, Any], order: str = "given", prices: tuple[Prices, ...] = (PRICES,)) -> Recipe:
    pool = {
        "id": "p", "vm_size": "STANDARD_NC4AS_T4_V3", "vm_count": {"dedicated": 2}, "vm_configuration": {},
        "candidates": {"alternatives": alternatives, "order": order},
    }  # fmt: skip
    accounts = {"batch_accounts": {"west": {"account_service_url": "https://w.westus.batch.azure.com"}}}
    credentials = convert(accounts, Credentials)
    return Recipe(directory=".", pool=convert(pool, Pool), credentials=credentials, catalog=Catalog(prices=prices))


def test_the_pool_file_is_the_first_candidate() -> None:
    first, second = candidates_of(recipe({"vm_size": "STANDARD_NC64AS_T4_V3"}))
    assert [one.pool.vm_size for one in (first, second)] == ["STANDARD_NC4AS_T4_V3", "STANDARD_NC64AS_T4_V3"]
    assert first.pool.candidates is None


def test_all_nodes_of_a_candidate_are_of_one_kind() -> None:
    _, spot = candidates_of(recipe({"spot": True}))
    assert (spot.pool.vm_count.dedicated, spot.pool.vm_count.low_priority) == (0, 2)


def test_a_named_account_becomes_the_account_of_the_candidate() -> None:
    _, there = candidates_of(recipe({"account": "west"}))
    assert there.recipe.credentials.batch is not None
    assert there.recipe.credentials.batch.account_service_url == "https://w.westus.batch.azure.com"


NC4, NC64, SPOT = "2 dedicated STANDARD_NC4AS_T4_V3", "2 dedicated STANDARD_NC64AS_T4_V3", "2 spot STANDARD_NC4AS_T4_V3"


@pytest.mark.parametrize(
    ("order", "expected"),
    [("given", [NC4, NC64, SPOT]), ("price", [SPOT, NC4, NC64]), ("price-per-gpu", [SPOT, NC64, NC4])],
)
def test_candidates_are_tried_in_the_order_that_the_pool_file_names(order: str, expected: list[str]) -> None:
    found = recipe({"vm_size": "STANDARD_NC64AS_T4_V3"}, {"spot": True}, order=order)
    assert [str(candidate) for candidate in ordered(found)] == expected


def test_an_order_by_prices_without_a_price_is_refused() -> None:
    with pytest.raises(PlanError, match="no price of STANDARD_NC4AS_T4_V3"):
        ordered(recipe({"spot": True}, order="price", prices=()))


def test_an_account_that_the_credentials_lack_is_refused_with_those_that_they_have() -> None:
    with pytest.raises(UsageError, match=r"no Batch account `wset`.*there: west"):
        require_account(recipe({"spot": True}).credentials, "wset")


def test_the_plan_shows_each_candidate_with_its_price() -> None:
    found = recipe({"vm_size": "STANDARD_NC64AS_T4_V3"}, order="price")
    assert [str(row) for row in rows(found)] == [
        "candidate 1: 2 dedicated STANDARD_NC4AS_T4_V3; 2.00 USD an hour; checks: ok",
        "candidate 2: 2 dedicated STANDARD_NC64AS_T4_V3; 6.00 USD an hour; checks: ok",
    ]
