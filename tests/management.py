"""Stand-ins for Azure Resource Manager and Entra ID: documents of the shapes their specifications have, over https.

Nothing here checks who asks; a test looks at what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.certificates import Certificates
from tests.http_server import Handler, send, serving

SUBSCRIPTION = "12345678-1234-1234-1234-123456789012"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/default-azurebatch-japaneast"
PROVIDER = f"/subscriptions/{SUBSCRIPTION}/providers"


def capabilities(**values: object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def account(name: str = "sampleacct", endpoint: str = "sampleacct.japaneast.batch.azure.com", **more: Any) -> Any:
    """Like BatchAccountGet.json of 2025-06-01."""
    return {
        "name": name,
        "type": "Microsoft.Batch/batchAccounts",
        "id": f"{GROUP}/providers/Microsoft.Batch/batchAccounts/{name}",
        "location": "japaneast",
        "identity": {"type": "None"},
        "properties": {
            "accountEndpoint": endpoint,
            "provisioningState": "Succeeded",
            "poolAllocationMode": "BatchService",
            "publicNetworkAccess": "Enabled",
            "dedicatedCoreQuota": 820,
            "dedicatedCoreQuotaPerVMFamily": [
                {"name": "standardDSv5Family", "coreQuota": 100},
                {"name": "standardNDSH100v5Family", "coreQuota": 192},
            ],
            "dedicatedCoreQuotaPerVMFamilyEnforced": True,
            "lowPriorityCoreQuota": 500,
            "poolQuota": 100,
            "activeJobAndJobScheduleQuota": 300,
            "allowedAuthenticationModes": ["SharedKey", "AAD", "TaskAuthenticationToken"],
            **more,
        },
    }


H100 = {
    "name": "Standard_ND96isr_H100_v5",
    "familyName": "standardNDSH100v5Family",
    "capabilities": capabilities(
        vCPUs=96, vCPUsAvailable=96, MemoryGB=1900, GPUs=8, HyperVGenerations="V2", CpuArchitectureType="x64",
        LowPriorityCapable=True, RdmaEnabled=True,
    ),
}  # fmt: skip
D4S = {
    "name": "Standard_D4s_v5",
    "familyName": "standardDSv5Family",
    "capabilities": capabilities(vCPUs=4, vCPUsAvailable=4, MemoryGB=16, HyperVGenerations="V1,V2"),
}
NEW = {
    "name": "Standard_ND256isr_R300_v7",
    "familyName": "standardNDSR300v7Family",
    "capabilities": capabilities(vCPUs=256, MemoryGB=3000, GPUs=8, HyperVGenerations="V2", RdmaEnabled=True),
}
ENDING = {
    "name": "Standard_D2_v2",
    "familyName": "standardDv2Family",
    "batchSupportEndOfLife": "2027-01-31T00:00:00Z",
    "capabilities": capabilities(vCPUs=2, MemoryGB=7, HyperVGenerations="V1"),
}


def sku(sold: dict[str, Any], *restrictions: dict[str, Any]) -> dict[str, Any]:
    """The same size as the compute service lists it."""
    return {
        "resourceType": "virtualMachines",
        "name": sold["name"],
        "tier": "Standard",
        "size": sold["name"].removeprefix("Standard_"),
        "family": sold["familyName"],
        "locations": ["japaneast"],
        "locationInfo": [{"location": "japaneast", "zones": ["1", "2"]}],
        "capabilities": sold["capabilities"],
        "restrictions": list(restrictions),
    }


WHOLE_REGION = {
    "type": "Location",
    "values": ["japaneast"],
    "restrictionInfo": {"locations": ["japaneast"]},
    "reasonCode": "NotAvailableForSubscription",
}
ONE_ZONE = {
    "type": "Zone",
    "values": ["japaneast"],
    "restrictionInfo": {"locations": ["japaneast"], "zones": ["2"]},
    "reasonCode": "NotAvailableForSubscription",
}

Answers = dict[str, Any]


def answers(endpoint: str = "sampleacct.japaneast.batch.azure.com") -> Answers:
    """What it answers by path: one account, three sizes of Batch's on two pages, and the compute service's list."""
    return {
        "/subscriptions": {"value": [{"subscriptionId": SUBSCRIPTION, "displayName": "Sample"}]},
        f"{PROVIDER}/Microsoft.Batch/batchAccounts": {"value": [account(endpoint=endpoint)]},
        f"{PROVIDER}/Microsoft.Batch/locations/japaneast/virtualMachineSkus": {
            "value": [H100, D4S],
            "nextLink": f"{PROVIDER}/Microsoft.Batch/locations/japaneast/virtualMachineSkus/more",
        },
        f"{PROVIDER}/Microsoft.Batch/locations/japaneast/virtualMachineSkus/more": {"value": [NEW, ENDING]},
        f"{PROVIDER}/Microsoft.Compute/skus": {
            "value": [
                sku(H100, WHOLE_REGION),
                sku(D4S, ONE_ZONE),
                {"resourceType": "disks", "name": "Premium_LRS", "locations": ["japaneast"]},
            ]
        },
    }


def entra(tenant: str, endpoint: str, token: Callable[[str], str]) -> Answers:
    """What a sign-in service answers to an application's secret; `token` makes one for a scope."""
    base = f"{endpoint}/{tenant}/oauth2/v2.0"

    def answer(form: dict[str, list[str]]) -> dict[str, Any]:
        return {"token_type": "Bearer", "expires_in": 3600, "access_token": token(form["scope"][0])}

    return {
        f"/{tenant}/v2.0/.well-known/openid-configuration": {
            "token_endpoint": f"{base}/token",
            "authorization_endpoint": f"{base}/authorize",
            "issuer": f"{endpoint}/{tenant}/v2.0",
        },
        f"POST /{tenant}/oauth2/v2.0/token": answer,
    }


class Request(NamedTuple):
    """One request."""

    verb: str
    path: str
    query: dict[str, list[str]]
    authorization: str
    body: Any


class Management(NamedTuple):
    """A running stand-in: where, and what it was asked."""

    endpoint: str
    asked: list[Request]


@contextmanager
def serve(known: Answers, certificates: Certificates) -> Iterator[Management]:
    """Answer GET by path (404 for others). An int is a refusal with that status."""
    asked: list[Request] = []

    def document_of(handler: Handler) -> tuple[int, Any]:
        where = urlsplit(handler.path)
        query = parse_qs(where.query)
        if handler.command == "POST":
            form = parse_qs(handler.rfile.read(int(handler.headers["Content-Length"])).decode())
            asked.append(Request("POST", where.path, query, "", form))
            return 200, known[f"POST {where.path}"](form)
        asked.append(Request(handler.command, where.path, query, handler.headers.get("Authorization", ""), None))
        found = known.get(where.path, 404)
        if isinstance(found, int):
            code, said = {403: ("AuthorizationFailed", "The client 'x' does not have authorization to perform it."),
                          401: ("InvalidAuthenticationToken", "The access token is invalid.")}.get(
                found, ("ResourceNotFound", "The resource was not found."))  # fmt: skip
            return found, {"error": {"code": code, "message": said}}
        if isinstance(found, dict) and str(found.get("nextLink", "")).startswith("/"):
            found = {**found, "nextLink": f"https://{handler.headers['Host']}{found['nextLink']}"}
        return 200, found

    def answer(handler: Handler) -> None:
        status, document = document_of(handler)
        send(
            handler, status, json.dumps(document).encode(), Content_Type="application/json", x_ms_request_id="request-1"
        )

    with serving(answer, certificates) as url:
        yield Management(url, asked)
