"""The only talk to Blob storage: bytes and files there and back, what a container holds, and links (SAS) to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.storage.blob import (
    BlobSasPermissions,
    BlobServiceClient,
    ContainerSasPermissions,
    ContentSettings,
    generate_blob_sas,
    generate_container_sas,
)

from batchtrain.config.types import Credentials, StorageCredentials
from batchtrain.config.unfilled import is_unfilled, require_credentials
from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable, UsageError
from batchtrain.service.connect import patience
from batchtrain.service.retry import RetryPolicy, reason, transient_status

LINK_DAYS = 30
"""How long a link reads: a task may wait long for its nodes, and be retried."""
DELEGATED_DAYS = 7
"""The longest life of a link that is signed by Entra ID and not by the account's key."""
PART = 8 * 1024 * 1024
"""Larger files travel in parts of so many bytes, which bounds the memory; 50,000 of them are a blob at most."""
LARGE = 8 * PART
"""Of files above, several parts travel at once."""

Connect = Callable[[str], BlobServiceClient]
"""Gives a client of the account behind a storage link."""


class Stored(NamedTuple):
    """A blob as a container lists it; `md5` is of what was sent, where the sender said so."""

    name: str
    size: int
    changed: datetime
    md5: bytes | None = None


def connect(link: str, credentials: StorageCredentials, token: TokenCredential | None = None) -> BlobServiceClient:
    """A client of the account behind a storage link, by its key, else by an Entra token.

    Raises UsageError when there is neither.
    """
    if not credentials.account_key and token is None:
        raise UsageError(f"the storage account `{link}` has no account_key in credentials.yaml")
    endpoint = credentials.endpoint
    url = endpoint if "://" in endpoint else f"https://{credentials.account}.blob.{endpoint}"
    key = credentials.account_key
    known: Any = {"account_name": credentials.account, "account_key": key.reveal()} if key else token
    retries: Any = _Retries(patience(url))
    return BlobServiceClient(url, credential=known, retry_policy=retries, max_single_put_size=PART, max_block_size=PART)


class _Retries(RetryPolicy):
    """Ours in the place of the storage SDK's own, whose options it takes out: the transport does not know them."""

    def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        options = request.context.options
        mode = options.pop("location_mode", None)
        for name in ("hosts", "retry_to_secondary", "retry_hook"):
            options.pop(name, None)
        response = super().send(request)
        response.http_response.location_mode = mode
        return response


Own = Callable[[], StorageCredentials]
"""Gives the emulator's storage account, which stands for every link without an account."""


def account_of(credentials: Credentials, link: str, own: Own | None = None) -> StorageCredentials:
    """The account behind a link. A link that is not there is a UsageError, one that is not filled in a ConfigError,
    unless there is an account of the emulator's."""
    known = credentials.storage.get(link)
    if own is not None and (known is None or is_unfilled(known.account)):
        return own()
    if known is None:
        names = ", ".join(credentials.storage) or "none"
        raise UsageError(
            f"credentials.yaml has no storage account called `{link}` (it has: {names}); write `storage.{link}` there"
        )
    require_credentials(credentials, part=("storage", link))
    return known


def accounts(credentials: Credentials, sign_in: Callable[[], TokenCredential], own: Own | None = None) -> Connect:
    """Clients of the accounts of credentials.yaml, each made once; `sign_in` gives a token for those without a key."""
    made: dict[str, BlobServiceClient] = {}

    def client_of(link: str) -> BlobServiceClient:
        if link not in made:
            account = account_of(credentials, link, own)
            made[link] = connect(link, account, None if account.account_key else sign_in())
        return made[link]

    return client_of


def place_of(path: str) -> tuple[str, str, str]:
    """Link, container and what follows of `LINK/CONTAINER[/PATH]`. Raises UsageError for less."""
    link, _, rest = path.strip("/").partition("/")
    container, _, name = rest.partition("/")
    if not link or not container:
        raise UsageError(f"`{path}` names no container; write LINK/CONTAINER/PATH, with a link of credentials.yaml")
    return link, container, name


# --- there ----------------------------------------------------------------------------------------------------------


def upload(client: BlobServiceClient, container: str, name: str, data: bytes) -> None:
    """Put bytes under a name; what stands there under the same name stays (names are by content)."""
    with _faults(f"upload {container}/{name}"):
        make_container(client, container)
        blob = client.get_blob_client(container, name)
        if not blob.exists():
            blob.upload_blob(data, overwrite=True)


def make_container(client: BlobServiceClient, container: str) -> None:
    """Make a container, unless it is there."""
    with _faults(f"make the container {container}"), contextlib.suppress(ResourceExistsError):
        client.create_container(container)


def send(client: BlobServiceClient, container: str, name: str, path: Path, md5: bytes) -> None:
    """Put a file under a name, in place of what was there; its MD5 is kept with it."""
    with _faults(f"upload {container}/{name}"), path.open("rb") as content:
        size = path.stat().st_size
        client.get_blob_client(container, name).upload_blob(
            content,
            length=size,
            overwrite=True,
            content_settings=ContentSettings(content_md5=bytearray(md5)),
            max_concurrency=4 if size > LARGE else 1,
        )


# --- back -----------------------------------------------------------------------------------------------------------


def stored(client: BlobServiceClient, container: str, prefix: str = "") -> Iterator[Stored]:
    """The blobs whose names begin so, by name. Raises NotFound for a container that is not there."""
    with _faults(f"list {container}/{prefix}"):
        for blob in client.get_container_client(container).list_blobs(name_starts_with=prefix or None):
            md5 = blob.content_settings.content_md5
            yield Stored(blob.name, blob.size, blob.last_modified, bytes(md5) if md5 else None)


def below(client: BlobServiceClient, container: str, path: str) -> Iterator[Stored]:
    """The blob of that name and those in the directory of that name; all of the container for an empty path."""
    for blob in stored(client, container, path):
        if not path or path.endswith("/") or blob.name == path or blob.name.startswith(f"{path}/"):
            yield blob


def fetch(client: BlobServiceClient, container: str, name: str, path: Path) -> int:
    """Bring a blob to a file, in whole or not at all; gives its size. Raises NotFound."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with _faults(f"download {container}/{name}"), part.open("wb") as content:
            size = client.get_blob_client(container, name).download_blob(max_concurrency=4).readinto(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return int(size)


# --- links ----------------------------------------------------------------------------------------------------------


def link(
    client: BlobServiceClient, credentials: StorageCredentials, container: str, name: str, *, days: int | None = None
) -> str:
    """A URL that reads one blob, for so many days."""
    signed = _signature(client, credentials, days)
    token = generate_blob_sas(
        account_name=credentials.account,
        container_name=container,
        blob_name=name,
        permission=BlobSasPermissions(read=True),
        **signed,
    )
    return f"{client.url.rstrip('/')}/{container}/{quote(name)}?{token}"


def container_link(
    client: BlobServiceClient,
    credentials: StorageCredentials,
    container: str,
    *,
    write: bool = False,
    days: int | None = None,
) -> str:
    """A URL that lists and reads a container, and writes to it where asked, for so many days; makes the container
    when it is to be written to."""
    if write:
        make_container(client, container)
    permission = ContainerSasPermissions(read=True, list=True, write=write, create=write, add=write)
    signed = _signature(client, credentials, days)
    token = generate_container_sas(
        account_name=credentials.account, container_name=container, permission=permission, **signed
    )
    return f"{client.url.rstrip('/')}/{container}?{token}"


def _signature(client: BlobServiceClient, credentials: StorageCredentials, days: int | None) -> dict[str, Any]:
    """What signs a link and how long it lasts."""
    now = datetime.now(timezone.utc)
    start, expiry = now - timedelta(minutes=15), now + timedelta(days=days or LINK_DAYS)  # clocks differ
    if credentials.account_key:
        return {"account_key": credentials.account_key.reveal(), "start": start, "expiry": expiry}
    expiry = min(expiry, now + timedelta(days=DELEGATED_DAYS) - timedelta(minutes=15))
    with _faults(f"ask for a key that signs links of {credentials.account}"):
        key = client.get_user_delegation_key(start, expiry)
    return {"user_delegation_key": key, "start": start, "expiry": expiry}


# --- faults ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _faults(operation: str) -> Iterator[None]:
    try:
        yield
    except AzureError as error:
        raise _fault(operation, error) from error


def _fault(operation: str, error: AzureError) -> ServiceError:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    code = str(getattr(error, "error_code", None) or "")
    if status in (401, 403):
        step = "check the account's key in credentials.yaml and this machine's clock"
        return NotAllowed(f"{operation}: the storage account refused: {first}; {step}", operation=operation, code=code)
    if status == 404:
        return NotFound(f"{operation}: it is not there ({code or first})", operation=operation, code=code)
    if status is not None and not transient_status(status):
        return ServiceError(f"{operation}: {first}", operation=operation, code=code)
    step = "" if status else "; check `account` and `endpoint` in credentials.yaml, and this machine's network"
    why = first if status else f"the storage account does not answer: {reason(error)}"
    return Unreachable(f"{operation}: {why}{step}", operation=operation, code=code)
