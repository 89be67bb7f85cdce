"""Azure's public Retail Prices API: what an hour of each VM size costs in a region. Needs no sign-in.

Source: Microsoft Learn, "Azure Retail Prices REST API overview" (api-version 2023-01-01-preview): pages of `Items` with
`NextPageLink`; values in a filter are case-sensitive. Untested on Azure (untested-on-azure.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import date
from typing import Any

import msgspec

from batchtrain.catalog.prices import Prices
from batchtrain.errors import NotFound, UsageError
from batchtrain.service.rest import Rest

URL = "https://prices.azure.com/api/retail/prices"
VERSION = "2023-01-01-preview"
OTHER_PRODUCTS = ("Windows", "CloudServices", "Cloud Services", "Dedicated Host", "Promo")
"""Words in the names of products that are not Linux virtual machines."""
SPOT, LOW_PRIORITY = " Spot", " Low Priority"


def read(region: str, today: date, *, currency: str = "USD", url: str = "", ca: str | None = None) -> Prices:
    """The prices of a region. Raises UsageError for a malformed region or URL, NotFound if the region has no prices,
    and another ServiceError if the API does not answer."""
    if not region.isalnum() or not region.isascii():
        raise UsageError(
            f"`{region}` is no name of a region such as westeurope; `az account list-locations` lists them"
        )
    if not (len(currency) == 3 and currency.isascii() and currency.isalpha() and currency.isupper()):
        raise UsageError(f"`{currency}` is no currency; write a code such as USD or EUR")
    where = url or URL
    operation = f"read the prices of {region} from {where}"
    query = {
        "api-version": VERSION,
        "currencyCode": f"'{currency}'",
        "$filter": f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and priceType eq 'Consumption'",
    }
    with closing(Rest(where, ca=ca)) as api:
        items = api.listed_as("", operation, query, item_of, items="Items", link="NextPageLink")
        prices = of(items, region, currency, today)
    if not prices.dedicated and not prices.spot:
        raise NotFound(f"{where} lists no VM sizes in {region}; `az account list-locations` lists the regions")
    return prices


class Item(msgspec.Struct):
    """A price of the API."""

    armSkuName: str | None = None
    effectiveStartDate: str = ""
    productName: str = ""
    retailPrice: float = 0.0
    skuName: str = ""
    tierMinimumUnits: float | None = None
    type: str = ""
    unitOfMeasure: str = ""


def item_of(document: Mapping[str, Any]) -> Item:
    """A price of the API. Raises ValidationError."""
    return msgspec.convert(document, Item)


def of(items: Iterable[Item], region: str, currency: str, today: date) -> Prices:
    """The prices in the items of the API. Spot nodes cost the price of spot VMs, else of low-priority VMs."""
    by_kind: dict[str, dict[str, tuple[str, float]]] = {"": {}, SPOT: {}, LOW_PRIORITY: {}}
    for item in items:
        name = item.armSkuName or ""
        if not _is_linux_node(item, name, today):
            continue
        kind = next((kind for kind in (SPOT, LOW_PRIORITY) if item.skuName.endswith(kind)), "")
        if item.effectiveStartDate >= by_kind[kind].get(name, ("", 0.0))[0]:
            by_kind[kind][name] = (item.effectiveStartDate, item.retailPrice)
    dedicated, spot, low = ({name: price for name, (_, price) in sorted(by_kind[kind].items())} for kind in by_kind)
    return Prices(region, currency, dedicated, {**low, **spot}, today)


def _is_linux_node(item: Item, name: str, today: date) -> bool:
    """Whether it is the price of an hour of a Linux VM that applies now."""
    return (
        item.unitOfMeasure == "1 Hour"
        and item.type == "Consumption"
        and name.startswith("Standard_")
        and not any(word in item.productName for word in OTHER_PRODUCTS)
        and item.retailPrice > 0
        and not item.tierMinimumUnits
        and item.effectiveStartDate[:10] <= today.isoformat()
    )
