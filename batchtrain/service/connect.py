"""A signed-in client of the official SDK for one account; knows how to sign in, not where to."""

from __future__ import annotations

import base64
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
    started: bool = False

    @property
    def option(self) -> str:
        """What a command needs to reach it again."""
        return " --local" if self.emulated else ""

    def __repr__(self) -> str:
        return f"Account({self.endpoint!r}, {self.name!r})"  # never the key


def account(endpoint: str, name: str | None = None, key: str | None = None) -> Account:
    """An account from what a person gave. Raises UsageError for what cannot be one."""
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    try:
        parts = urlsplit(endpoint.strip())
        host = parts.hostname if parts.port is None or parts.port > 0 else None
    except ValueError:  # a port that is no number, brackets that do not match
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise UsageError(f"{endpoint} is not a Batch endpoint; it looks like https://NAME.REGION.batch.azure.com")
    if parts.scheme == "http" and not loopback(endpoint):
        raise UsageError(f"{endpoint} would send the signature unencrypted; only loopback may be http")
    if parts.scheme == "http" and not key:
        raise UsageError(f"{endpoint} needs a shared key (AZURE_BATCH_ACCESS_KEY): signing in by token needs https")
    return Account(endpoint.strip().rstrip("/"), name or host.split(".")[0], _checked_key(key))


def _checked_key(key: str | None) -> str | None:
    try:
        if key:
            base64.b64decode(key, validate=True)
    except ValueError:
        raise UsageError("the account key is not base64; copy it whole from the account's Keys page") from None
    return key or None


def loopback(endpoint: str) -> bool:
    """Whether an endpoint is on this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def connect(where: Account) -> BatchClient:
    """A client for the account. Near endpoints fail fast; the service's own are retried for about a minute."""
    return BatchClient(endpoint=where.endpoint, credential=_credential(where), **_patience(where.endpoint))


def _patience(endpoint: str) -> dict[str, float]:
    """How long one request may take: the SDK's own 300 s times ten would outlast every deadline of ours."""
    if loopback(endpoint):
        return {
            "connection_timeout": 2,
            "read_timeout": 10,
            "retry_total": 3,
            "retry_read": 1,
            "retry_backoff_factor": 0.1,
        }
    return {"connection_timeout": 10, "read_timeout": 60, "retry_total": 6, "retry_read": 2}


def _credential(where: Account) -> AzureNamedKeyCredential:
    if where.key is not None:
        try:
            return AzureNamedKeyCredential(where.name, where.key)
        except ValueError as error:
            raise UsageError(f"the account key of {where.name} cannot be used: {error}") from None
    from azure.identity import DefaultAzureCredential  # 0.17 s, and only needed without a key

    return DefaultAzureCredential()  # type: ignore[return-value]  # the SDK takes either and annotates one
