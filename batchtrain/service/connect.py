"""A signed-in client of the official SDK for one account. The caller chooses the account."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from azure.batch import BatchClient
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, TokenCredential
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, SansIOHTTPPolicy

from batchtrain.catalog.prices import region_of
from batchtrain.config.types import Aad, Credentials, Secret
from batchtrain.errors import UsageError
from batchtrain.service import entra, recording, retry
from batchtrain.service.entra import PUBLIC, SignIn
from batchtrain.service.retry import FAR, NEAR, Once, Patience, RetryPolicy

CA_VARIABLE = "BATCHTRAIN_CA"
BLOCK = 1 << 16
"""The chunk size of a streamed answer in bytes; the SDK's 4 KiB would cost three times the processor time for a large
file."""

CONNECTIONS = 64
"""The most connections of a client to the service; the SDK's 10 would be opened anew all the time by more threads."""

# What the SDK and azure-identity log they also raise, and we say it in a sentence; without any handler Python would
# print their warnings (a dozen lines, where no user is signed in). A program that sets up logging still gets them.
logging.getLogger("azure").addHandler(logging.NullHandler())


class Account(NamedTuple):
    """A Batch account: its endpoint and its shared key (None: sign in with Microsoft Entra ID)."""

    endpoint: str
    name: str
    key: Secret | None = None
    emulated: bool = False
    started: bool = False
    sign_in: SignIn = SignIn(entra.DEFAULT)
    """How to get tokens, without a key."""
    resource: str = PUBLIC.batch
    """The audience of its tokens."""
    ca: str | None = None
    """A file of certificates to trust instead of the usual ones."""
    home: str = ""
    """The data directory of the embedded service."""
    token: TokenCredential | None = None
    """Issues the embedded service's own tokens, which are also sent over http."""
    plain_nodes: str = ""
    """Why the embedded service's nodes are plain processes of this machine; empty if they are not."""
    plain_nodes_remedy: str = ""
    """How to change that."""
    data_loss: str = ""
    """What of its database the embedded service missed at its start; empty if nothing."""
    lost: Callable[[], str] = str
    """Why the embedded service will not answer again; empty while it may."""
    label: str = ""
    """Its name in `batch_accounts` of credentials.yaml; empty for the account of `batch`."""

    @property
    def option(self) -> str:
        """The options with which another command reaches it."""
        return (" --local" if self.emulated else "") + (f" --batch-account {self.label}" if self.label else "")

    @property
    def node_key(self) -> str:
        """The key for a program on a node of the emulator. Nodes of Azure have a managed identity in place of a key."""
        return self.key.reveal() if self.emulated and self.key is not None else ""

    @property
    def lost_isolation(self) -> str:
        """What the nodes of an emulator lack without namespaces; empty if they lack nothing."""
        lacks = (
            f"the nodes are plain processes of this machine, because {self.plain_nodes}: they share its files and its"
            " host name, so a program counts one host where Azure has several, Open MPI does not run across nodes, and"
            " paths of an image (`container_path`) are not there"
        )
        return lacks if self.plain_nodes else ""

    @property
    def region(self) -> str | None:
        """Its region, by its endpoint, whose prices apply; empty if it is unknown. None for the emulator, which costs
        nothing."""
        return None if self.emulated else region_of(self.endpoint)


def account_of(credentials: Credentials | None, environment: Mapping[str, str]) -> Account | None:
    """The account of credentials.yaml, otherwise of AZURE_BATCH_*; None if neither names one. BATCHTRAIN_CA names
    certificates to trust. Raises UsageError for an invalid account."""
    batch = credentials.batch if credentials is not None else None
    general = credentials.aad if credentials is not None else None
    endpoint, name = environment.get("AZURE_BATCH_ENDPOINT"), environment.get("AZURE_BATCH_ACCOUNT")
    key: Secret | None = Secret(environment.get("AZURE_BATCH_ACCESS_KEY", ""))
    if batch is not None and batch.account_service_url:
        endpoint, name, key = batch.account_service_url, batch.account, batch.account_key
    if not endpoint:
        if name:
            raise UsageError(
                f"AZURE_BATCH_ACCOUNT is {name}, and AZURE_BATCH_ENDPOINT is not set; set it to the account's URL, such"
                f" as https://{name}.REGION.batch.azure.com, or choose the emulator (`--local`, `local=True`)"
            )
        return None
    specific, ca = batch.aad if batch is not None else None, environment.get(CA_VARIABLE) or None
    return account(endpoint, name, key, own=specific, general=general, ca=ca)


def account(
    endpoint: str,
    name: str | None = None,
    key: Secret | None = None,
    *,
    own: Aad | None = None,
    general: Aad | None = None,
    ca: str | None = None,
) -> Account:
    """An account from the user's settings: its key, or the `aad` blocks of its section and of all services. Raises
    UsageError for an invalid account."""
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    try:
        parts = urlsplit(endpoint.strip())
        host = parts.hostname if parts.port is None or parts.port > 0 else None
    except ValueError:  # a port that is not a number, or unbalanced brackets
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise UsageError(f"{endpoint} is not a Batch endpoint; it looks like https://NAME.REGION.batch.azure.com")
    if parts.scheme == "http" and not loopback(endpoint):
        raise UsageError(f"{endpoint} would send the signature unencrypted; only loopback may be http")
    if parts.scheme == "http" and not key:
        raise UsageError(f"{endpoint} needs a shared key (AZURE_BATCH_ACCESS_KEY): signing in by token needs https")
    if ca and not Path(ca).is_file():
        raise UsageError(f"{CA_VARIABLE} is {ca}, which is no file of certificates")
    try:
        base64.b64decode(key.reveal() if key else "", validate=True)
    except ValueError:
        raise UsageError("the account key is not base64; copy it whole from the account's Keys page") from None
    result = Account(endpoint.strip().rstrip("/"), name or host.split(".")[0], key or None, ca=ca)
    if key:
        return result
    sign_in = entra.sign_in_of(own, general, endpoint=endpoint)
    resource = (own.endpoint if own else None) or entra.cloud_of(sign_in.authority, endpoint).batch
    return result._replace(sign_in=sign_in, resource=resource.rstrip("/") + "/")


def loopback(endpoint: str) -> bool:
    """Whether an endpoint is on this machine."""
    with contextlib.suppress(ValueError):  # of a record that was not written by batchtrain
        return retry.loopback(urlsplit(endpoint).hostname or "")
    return False


def connect(where: Account) -> BatchClient:
    """A client for the account; `retry` limits the time of each call."""
    if where.token is not None:
        return client(where, where.token)
    return client(where, _shared_key(where) if where.key is not None else entra.credential(where.sign_in, ca=where.ca))


def once(where: Account, *, signed: bool) -> BatchClient:
    """A client that sends each request once and with its own date: signed by the shared key, or not at all. Raises
    UsageError without a key."""
    if where.key is None:
        raise UsageError("the account is used without a shared key")
    unchanged: dict[str, Any] = {"retry_policy": Once()}
    if not signed:
        unchanged["authentication_policy"] = SansIOHTTPPolicy()
    return client(where._replace(token=None), _shared_key(where), **unchanged)


def client(
    where: Account, credential: AzureNamedKeyCredential | TokenCredential, **policies: SansIOHTTPPolicy[Any, Any]
) -> BatchClient:
    """The same with the caller's own credential, and policies in place of the usual ones."""
    any_credential: Any = credential  # the SDK accepts either and annotates one
    options: dict[str, Any] = {
        "retry_policy": RetryPolicy(patience(where.endpoint), lost=where.lost),
        "credential_scopes": [entra.scope_of(where.resource)],
        "transport": _transport(where),
    }
    if directory := os.environ.get(recording.VARIABLE):
        options["per_call_policies"] = [recording.Recorder(Path(directory))]
    if where.token is not None:
        options["authentication_policy"] = _LocalBearer(where.token, *options["credential_scopes"])
    return BatchClient(endpoint=where.endpoint, credential=any_credential, **{**options, **policies})


def _transport(where: Account) -> Any:
    """The SDK's transport, which keeps a connection for each of many threads. A service on this machine is reached
    without the proxy of the environment."""
    transport: Any = retry.transport(
        connection_data_block_size=BLOCK,
        connection_verify=where.ca or True,
        use_env_settings=not loopback(where.endpoint),
    )
    transport.open()
    for adapter in transport.session.adapters.values():
        adapter.init_poolmanager(connections=1, maxsize=CONNECTIONS)
    return transport


class OwnTokens(NamedTuple):
    """Tokens signed with the account's own key."""

    account: str
    key: Secret
    issue: Callable[[str, str], AccessToken]
    """Issues a token from the key and the account's name."""

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        """A token for Batch."""
        return self.issue(self.key.reveal(), self.account)


class _LocalBearer(BearerTokenCredentialPolicy[Any, Any]):
    """Sends tokens to the embedded service also over http: they do not leave this machine."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        request.context["enforce_https"] = False
        super().on_request(request)


def patience(endpoint: str) -> Patience:
    """How long calls to an endpoint may take."""
    return NEAR if loopback(endpoint) else FAR


def _shared_key(where: Account) -> AzureNamedKeyCredential:
    try:
        return AzureNamedKeyCredential(where.name, where.key.reveal() if where.key else "")
    except ValueError as error:
        raise UsageError(f"the account key of {where.name} cannot be used: {error}") from None
