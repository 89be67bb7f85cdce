"""The managed identity of programs on this machine: the endpoint that Azure App Service offers to its programs."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from batchtrain.emulator import tokens
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply

PATH = "/_emulator/identity"


def variables(endpoint: str, key: str) -> dict[str, str]:
    """The variables that azure-identity and similar libraries read."""
    return {"IDENTITY_ENDPOINT": f"{endpoint}{PATH}", "IDENTITY_HEADER": _secret(key)}


def answer(account: str, key: str, headers: Mapping[str, str], query: Mapping[str, str], now: int) -> Reply:
    """A token for the requested resource. Raises Fault if the header is missing or wrong."""
    if not hmac.compare_digest(headers.get("x-identity-header", "").encode(), _secret(key).encode()):
        raise Fault("AuthenticationFailed", AuthenticationErrorDetail="X-IDENTITY-HEADER is not that of the identity.")
    resource = query.get("resource", "")
    if not resource:
        raise Fault("MissingRequiredQueryParameter", QueryParameterName="resource")
    document = {
        "access_token": tokens.issue(key, account, resource, now),
        "client_id": account,
        "expires_on": str(tokens.seconds(now) + tokens.LIFE_SECONDS),
        "resource": resource,
        "token_type": "Bearer",
    }
    return Reply(200, document, {"Cache-Control": "no-store"})


def _secret(key: str) -> str:
    return tokens.derived(key, b"header of the managed identity").hex()
