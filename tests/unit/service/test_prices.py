"""What the Retail Prices API answers, as prices in the user's catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchtrain.catalog.prices import Price, money, region_of
from batchtrain.cli import catalog_refresh
from batchtrain.cli.app import root
from batchtrain.config import catalog_file, user_settings
from batchtrain.errors import NotFound, ServiceError, UsageError
from batchtrain.service import prices
from tests import retail_prices
from tests.retail_prices import RetailPrices

TODAY = date(2026, 11, 23)


@pytest.fixture
def api() -> Iterator[RetailPrices]:
    with retail_prices.serve() as served:
        yield served


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: RetailPrices) -> Path:
    """The user's catalogue, which is not there yet; the stand-in is the user's setting."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    user_settings.store("prices_url", api.url)
    return tmp_path / "batchtrain" / "catalog.yaml"


def refresh(*words: str) -> Result:
    return CliRunner().invoke(root, ["catalog", "refresh", *words], catch_exceptions=False)


def test_every_page_is_read_and_only_the_present_prices_of_linux_nodes_are_kept(api: RetailPrices) -> None:
    read = prices.read("westeurope", TODAY, url=api.url)
    assert read.dedicated == {"Standard_D2s_v5": 0.115, "Standard_D4s_v5": 0.23}
    assert read.spot == {"Standard_D2s_v5": 0.02, "Standard_D4s_v5": 0.046}
    assert len(api.asked) == 4
    assert api.asked[0]["$filter"] == [
        "serviceName eq 'Virtual Machines' and armRegionName eq 'westeurope' and priceType eq 'Consumption'"
    ]
    assert (api.asked[0]["currencyCode"], api.asked[0]["api-version"]) == (["'USD'"], ["2023-01-01-preview"])


@pytest.mark.parametrize(("day", "price"), [("2026-11-22", 0.3), ("2026-11-23", 0.3), ("2026-11-24", 0.2)])
def test_a_new_price_counts_from_its_first_day(day: str, price: float) -> None:
    items = [
        retail_prices.item("Standard_D4s_v5", 0.2),
        retail_prices.item("Standard_D4s_v5", 0.3, effectiveStartDate=f"{day}T00:00:00Z"),
    ]
    assert prices.of(map(prices.item_of, items), "westeurope", "USD", TODAY).dedicated == {"Standard_D4s_v5": price}


def test_a_region_without_prices_is_not_found(api: RetailPrices) -> None:
    with pytest.raises(NotFound, match="lists no VM sizes in westeurop; `az account list-locations` lists the regions"):
        prices.read("westeurop", TODAY, url=api.url)


@pytest.mark.parametrize(
    ("region", "currency", "said"), [("west europe", "USD", "is no name of a region"), ("eastus", "usd", "no currency")]
)
def test_a_malformed_region_or_currency_is_refused_before_a_request(
    api: RetailPrices, region: str, currency: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        prices.read(region, TODAY, currency=currency, url=api.url)
    assert api.asked == []


def test_a_refusal_names_the_url() -> None:
    with (
        retail_prices.serve(status=400) as served,
        pytest.raises(ServiceError, match=f"read the prices of westeurope from {served.url}"),
    ):
        prices.read("westeurope", TODAY, url=served.url)


def test_refresh_writes_the_prices_that_the_catalogue_then_has(file: Path) -> None:
    said = refresh("--prices", "--location", "westeurope")
    assert said.exit_code == 0
    assert "2 prices of dedicated nodes and 2 of spot nodes in USD" in said.output
    found = catalog_file.load().price("STANDARD_d4s_v5", "westeurope")
    assert found == Price("Standard_D4s_v5", "westeurope", "USD", 0.23, 0.046)
    assert catalog_file.read(file).prices[0].read == date.today()


def test_refresh_keeps_everything_else_of_the_file(file: Path) -> None:
    own = "# made by `batchtrain catalog refresh`\nsizes: [{name: X9, cores: 4, memory_gib: 8}]\nprices:\n"
    file.write_text(
        own + "- {region: eastus, dedicated: {Standard_D4s_v5: 0.192}}\n- {region: westeurope, currency: EUR}"
    )
    assert refresh("--prices", "--location", "WestEurope").exit_code == 0
    catalog = catalog_file.read(file)
    assert [size.name for size in catalog.own_sizes] == ["Standard_X9"]
    assert [(listed.region, listed.currency) for listed in catalog.prices] == [("eastus", "USD"), ("westeurope", "USD")]


def test_refresh_that_reads_no_prices_says_how_to_write_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(catalog_refresh, "say", lambda text, *tone: told.append(text))
    with pytest.raises(NotFound):
        refresh("--prices", "--location", "westeurop")
    assert told[-1].endswith("`prices: [{region: westeurop, currency: USD, dedicated: {SIZE: PRICE}}]`")


def test_refresh_takes_the_region_of_the_account(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_BATCH_ENDPOINT", "https://mine.westeurope.batch.azure.com")
    assert refresh("--prices").exit_code == 0
    assert catalog_file.read(file).prices[0].region == "westeurope"


def test_refresh_without_a_region_says_what_to_give(file: Path) -> None:
    with pytest.raises(UsageError, match="give --location REGION"):
        refresh("--prices")
    with pytest.raises(UsageError, match="give --subscription and --location"):
        refresh()
    assert not file.exists()


def test_a_price_without_a_region_is_that_of_the_only_region(file: Path) -> None:
    refresh("--prices", "--location", "westeurope")
    catalog = catalog_file.load()
    assert catalog.price("D4s_v5", "") == catalog.price("D4s_v5", "westeurope") is not None
    assert catalog.price("D4s_v5", "eastus") is None


def test_a_cost_is_unknown_if_one_of_its_prices_is() -> None:
    price = Price("Standard_D4s_v5", "westeurope", "USD", 0.2, None)
    assert (price.of(3, 0), price.of(3, 1)) == (pytest.approx(0.6), None)


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("https://mine.westeurope.batch.azure.com", "westeurope"),
        ("mine.chinanorth3.batch.chinacloudapi.cn", "chinanorth3"),
        ("https://127.0.0.1:8080", ""),
    ],
)
def test_the_region_is_read_from_the_endpoint(endpoint: str, region: str) -> None:
    assert region_of(endpoint) == region


def test_amounts_are_short() -> None:
    assert [money(amount, "USD") for amount in (1234.5, 0.96, 0.01234, 0.0)] == [
        "1,234.50 USD", "0.96 USD", "0.012 USD", "0.00 USD",
    ]  # fmt: skip


def test_a_setting_that_is_no_url_is_refused() -> None:
    with pytest.raises(UsageError, match="`prices` is not a URL; write one that begins with https://"):
        user_settings.checked("prices_url", "prices")
