"""A signed-in client of the official SDK for one account; knows how to sign in, not where to."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from azure.batch import BatchClient
from azure.core.credentials import AzureNamedKeyCredential

from batchtrain.errors import UsageError


class Account(NamedTuple):
    """A Batch account: where it answers, and its shared key (None: sign in with Microsoft Entra ID)."""

    endpoint: str
    name: str
    key: str | None = None
    emulated: bool = False

    def __repr__(self) -> str:
        return f"Account({self.endpoint!r}, {self.name!r})"  # never the key


def account(endpoint: str, name: str | None = None, key: str | None = None) -> Account:
    """An account from what a person gave. Raises UsageError for what cannot be one."""
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{endpoint} is not a Batch endpoint; it looks like https://NAME.REGION.batch.azure.com")
    if parts.scheme == "http" and not loopback(endpoint):
        raise UsageError(f"{endpoint} would send the signature unencrypted; only loopback may be http")
    return Account(endpoint.rstrip("/"), name or parts.hostname.split(".")[0], key)


def loopback(endpoint: str) -> bool:
    """Whether an endpoint is on this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def connect(where: Account) -> BatchClient:
    """A client for the account. Near endpoints fail fast; the service's own are retried for about a minute."""
    retries = {"retry_total": 3, "retry_backoff_factor": 0.1} if loopback(where.endpoint) else {"retry_total": 6}
    return BatchClient(endpoint=where.endpoint, credential=_credential(where), **retries)


def _credential(where: Account) -> AzureNamedKeyCredential:
    if where.key is not None:
        try:
            return AzureNamedKeyCredential(where.name, where.key)
        except ValueError as error:
            raise UsageError(f"the account key of {where.name} cannot be used: {error}") from None
    from azure.identity import DefaultAzureCredential  # 0.17 s, and only needed without a key

    return DefaultAzureCredential()  # type: ignore[return-value]  # the SDK takes either and annotates one
