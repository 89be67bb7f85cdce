"""What an hour of a recipe's pool costs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Price, Prices
from batchtrain.config.types import Autoscale, BatchCredentials, Credentials, NodeCaps, Recipe, Scenario, VmSizes
from batchtrain.plan.cost import hour_of, price_of, region_for
from tests.unit.plan import pools

CATALOG = Catalog(prices=(Prices("westeurope", "EUR", {"Standard_D4s_v5": 0.2}, {"Standard_D4s_v5": 0.05}),))


def recipe(autoscale: Autoscale | None = None, image: Mapping[str, str] = pools.IMAGE) -> Recipe:
    count = {"dedicated": 1, "low_priority": 2}
    vm = {"vm_size": "standard_d4s_v5", "vm_configuration": {"platform_image": image}}
    made = pools.recipe({**vm, "vm_count": count})
    assert made.pool is not None
    return replace(made, pool=replace(made.pool, autoscale=autoscale), catalog=CATALOG)


def test_dedicated_and_spot_nodes_have_their_own_prices() -> None:
    hour = hour_of(recipe(), "westeurope")
    assert hour is not None
    assert hour.cost == pytest.approx(0.3)
    assert (hour.document["hour"], hour.document["currency"]) == (pytest.approx(0.3), "EUR")


def test_a_pool_that_scales_costs_at_most_its_most_nodes() -> None:
    most = NodeCaps(dedicated=10, low_priority=0)
    scaled = recipe(autoscale=Autoscale(scenario=Scenario(name="pending_tasks", maximum_vm_count=most)))
    assert str(hour_of(scaled, "")) == (
        "an hour of pool p costs at most 2.10 EUR in westeurope:"
        " 12 node hours of standard_d4s_v5 (10 dedicated, 2 spot)"
    )


def test_a_pool_without_a_maximum_has_no_cost() -> None:
    hour = hour_of(recipe(autoscale=Autoscale(formula="$TargetDedicatedNodes = $PendingTasks.GetSample(1);")), "")
    assert hour is not None
    assert (hour.cost, hour.document["node_hours"]) == (None, None)
    assert str(hour) == "an hour of pool p has no maximum cost: nothing limits the number of its nodes"


def test_a_pool_of_several_sizes_costs_at_most_its_dearest() -> None:
    made = recipe()
    assert made.pool is not None
    mixed = replace(made, pool=replace(made.pool, vm_sizes=VmSizes(alternatives=("Standard_D8s_v5",))))
    prices = Prices("westeurope", "EUR", {"Standard_D4s_v5": 0.2, "Standard_D8s_v5": 0.4}, {"Standard_D4s_v5": 0.05})
    hour = hour_of(replace(mixed, catalog=Catalog(prices=(prices,))), "westeurope")
    assert hour is not None and hour.price is not None
    assert (hour.price.dedicated, hour.price.spot, hour.most) == (0.4, None, True)


@pytest.mark.parametrize("region", [None, "eastus"])
def test_the_emulator_and_a_region_without_prices_have_no_price(region: str | None) -> None:
    assert price_of(recipe(), region) is None


def test_a_windows_pool_has_no_price() -> None:
    assert price_of(recipe(image=pools.WINDOWS), "westeurope") is None
    assert price_of(recipe(), "westeurope") == Price("Standard_D4s_v5", "westeurope", "EUR", 0.2, 0.05)


def test_the_region_is_that_of_the_credentials_before_that_of_the_environment() -> None:
    own = Credentials(batch=BatchCredentials(account="a", account_service_url="https://a.eastus.batch.azure.com"))
    known = {"AZURE_BATCH_ENDPOINT": "https://b.westeurope.batch.azure.com"}
    assert (region_for(own, known), region_for(None, known), region_for(None, {})) == ("eastus", "westeurope", "")
