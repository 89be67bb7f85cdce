"""A stand-in for Azure's Retail Prices API: pages of the documented shape, over http."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.http_server import Handler, send, serving


def item(size: str, price: float, sku: str = "D4s v5", **more: Any) -> dict[str, Any]:
    """Like the sample response of the API's overview."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "location": "EU West",
        "effectiveStartDate": "2020-08-01T00:00:00Z",
        "meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName": sku,
        "productId": "DZH318Z0BQPS",
        "skuId": "DZH318Z0BQPS/00TG",
        "productName": "Virtual Machines Dsv5 Series",
        "skuName": sku,
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": size,
        **more,
    }


ITEMS = (
    item("Standard_D4s_v5", 0.21, effectiveStartDate="2019-01-01T00:00:00Z"),
    item("Standard_D4s_v5", 0.23),
    item("Standard_D4s_v5", 0.046, "D4s v5 Spot"),
    item("Standard_D4s_v5", 0.05, "D4s v5 Low Priority"),
    item("Standard_D4s_v5", 0.414, productName="Virtual Machines Dsv5 Series Windows"),
    item("Standard_D4s_v5", 99.0, effectiveStartDate="2999-01-01T00:00:00Z"),
    item("Standard_D2s_v5", 0.115, "D2s v5"),
    item("Standard_D2s_v5", 0.02, "D2s v5 Low Priority"),
    item("Standard_D4s_v5", 1250.0, type="Reservation", reservationTerm="1 Year", unitOfMeasure="1 Hour"),
    item("", 1.0, productName="Virtual Machines Dsv5 Series"),
)


class RetailPrices(NamedTuple):
    """A running stand-in: its URL, and the queries that it was sent."""

    url: str
    asked: list[dict[str, list[str]]]


@contextmanager
def serve(items: Sequence[dict[str, Any]] = ITEMS, *, page: int = 3, status: int = 200) -> Iterator[RetailPrices]:
    """Answer with pages of items; an unknown region has none."""
    asked: list[dict[str, list[str]]] = []

    def answer(handler: Handler) -> None:
        where = urlsplit(handler.path)
        query = parse_qs(where.query)
        asked.append(query)
        known = items if "armRegionName eq 'westeurope'" in query["$filter"][0] else ()
        skip = int(query.get("$skip", ["0"])[0])
        link = f"http://{handler.headers['Host']}{where.path}?{where.query.partition('&$skip')[0]}&$skip={skip + page}"
        document = {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": known[skip : skip + page],
            "NextPageLink": link if skip + page < len(known) else None,
            "Count": len(known[skip : skip + page]),
        }
        send(handler, status, json.dumps(document).encode(), Content_Type="application/json; charset=utf-8")

    with serving(answer) as url:
        yield RetailPrices(f"{url}/api/retail/prices", asked)
