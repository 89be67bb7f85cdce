"""The only code that talks to Blob storage: uploads, downloads, lists, and links with a signature (SAS)."""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

from batchtrain.config.link_life import DELEGATED_DAYS, LINK_DAYS
from batchtrain.config.types import Credentials, StorageCredentials
from batchtrain.config.unfilled import is_unfilled, require_credentials
from batchtrain.errors import UsageError
from batchtrain.service import retry
from batchtrain.service.faults import faults
from batchtrain.storage.blob_requests import NEVER, Request, Storage, blob_path

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

Connect = Callable[[str], Storage]
"""Gives the account behind a storage link."""


class Stored(NamedTuple):
    """A blob as a container lists it; `md5` is of its bytes, if the sender stored it."""

    name: str
    size: int
    changed: datetime
    md5: bytes | None = None
    version: str = ""
    """Its ETag."""


def connect(link: str, credentials: StorageCredentials, token: TokenCredential | None = None) -> Storage:
    """The account behind a storage link, by its key, else by an Entra token. Raises UsageError if there is neither."""
    if not credentials.account_key and token is None:
        raise UsageError(f"the storage account `{link}` has no account_key in credentials.yaml")
    endpoint = credentials.endpoint
    url = endpoint if "://" in endpoint else f"https://{credentials.account}.blob.{endpoint}"
    return Storage(url, credentials.account, credentials.account_key, token)


Own = Callable[[], StorageCredentials]
"""Gives the emulator's storage account, which replaces every link without an account."""


def account_of(credentials: Credentials, link: str, own_account: Own | None = None) -> StorageCredentials:
    """The account behind a link. A link that is not there is a UsageError, one that is not filled in a ConfigError,
    unless there is an account of the emulator's."""
    credentials_entry = credentials.storage.get(link)
    if own_account is not None and (credentials_entry is None or is_unfilled(credentials_entry.account)):
        return own_account()
    if credentials_entry is None:
        names = ", ".join(credentials.storage) or "none"
        raise UsageError(
            f"credentials.yaml has no storage account called `{link}` (it has: {names}); write `storage.{link}` there"
        )
    require_credentials(credentials, part=("storage", link))
    return credentials_entry


def accounts(
    credentials: Credentials, sign_in: Callable[[], TokenCredential], own_account: Own | None = None
) -> Connect:
    """The accounts of credentials.yaml, each made once; `sign_in` gives a token for those without a key."""
    clients: dict[str, Storage] = {}

    def account(link: str) -> Storage:
        if link not in clients:
            entry = account_of(credentials, link, own_account)
            clients[link] = connect(link, entry, None if entry.account_key else sign_in())
        return clients[link]

    return account


def place_of(path: str) -> tuple[str, str, str]:
    """The link, container and path of `LINK/CONTAINER[/PATH]`. Raises UsageError if the container is missing."""
    link, _, remote_path = path.strip("/").partition("/")
    container, _, name = remote_path.partition("/")
    if not link or not container:
        raise UsageError(f"`{path}` names no container; write LINK/CONTAINER/PATH, with a link of credentials.yaml")
    return link, container, name


def make_container(storage: Storage, container: str) -> None:
    """Create a container if it does not exist."""
    request = Request("PUT", blob_path(container), {"restype": "container"})
    storage.send(f"make the container {container}", request, allow=(409,))


def exists(storage: Storage, container: str, name: str) -> bool:
    """Whether there is a blob of this name."""
    request = Request("HEAD", blob_path(container, name))
    return storage.send(f"look for {container}/{name}", request, allow=(404,)).status != 404


def upload(storage: Storage, container: str, name: str, data: bytes) -> None:
    """Upload bytes as a blob."""
    operation, path = f"upload {container}/{name}", blob_path(container, name)
    make_container(storage, container)
    storage.send(operation, Request("PUT", path, headers={"x-ms-blob-type": "BlockBlob"}, body=data))


def delete(storage: Storage, container: str, name: str, stopped: threading.Event = NEVER) -> None:
    """Delete a blob, unless it is gone, with its snapshots."""
    request = Request("DELETE", blob_path(container, name), headers={"x-ms-delete-snapshots": "include"})
    storage.send(f"delete {container}/{name}", request, allow=(404,), stopped=stopped)


def stored(storage: Storage, container: str, prefix: str = "") -> Iterator[Stored]:
    """The blobs whose names begin so, by name. Raises NotFound for a container that does not exist."""
    query = {"restype": "container", "comp": "list", **({"prefix": prefix} if prefix else {})}
    marker: str | None = ""
    while marker is not None:
        page_query = {**query, "marker": marker} if marker else query
        answer = storage.send(f"list {container}/{prefix}", Request("GET", blob_path(container), page_query))
        page = ElementTree.fromstring(answer.body)
        for item in page.iterfind("Blobs/Blob"):
            if item.findtext("Properties/ResourceType") != "directory":  # of an account with a hierarchical namespace
                yield _stored(item)
        marker = page.findtext("NextMarker") or None


def _stored(item: ElementTree.Element) -> Stored:
    name = item.find("Name")
    text = "" if name is None else name.text or ""
    if name is not None and name.get("Encoded") == "true":
        text = unquote(text)
    properties = {entry.tag: entry.text or "" for entry in item.iterfind("Properties/*")}
    md5, etag = properties.get("Content-MD5"), properties.get("Etag", "").strip('"')
    changed = parsedate_to_datetime(properties["Last-Modified"])
    return Stored(text, int(properties["Content-Length"]), changed, b64decode(md5) if md5 else None, f'"{etag}"')


def is_directory(item: Stored) -> bool:
    """Whether a blob only marks a directory, as some tools make them."""
    return item.name.endswith("/") and not item.size


def below(storage: Storage, container: str, path: str) -> Iterator[Stored]:
    """The blob with this path and all blobs below it; every blob of the container for an empty path."""
    for blob in stored(storage, container, path):
        if not path or path.endswith("/") or blob.name == path or blob.name.startswith(f"{path}/"):
            yield blob


def link(
    storage: Storage, credentials: StorageCredentials, container: str, name: str, *, days: int | None = None
) -> str:
    """A URL that can read one blob for a number of days."""
    from azure.storage.blob import BlobSasPermissions, generate_blob_sas  # see below

    signature = _signature(storage, credentials, days)
    token = generate_blob_sas(
        account_name=credentials.account,
        container_name=container,
        blob_name=name,
        permission=BlobSasPermissions(read=True),
        **signature,
    )
    return f"{storage.url}/{container}/{quote(name)}?{token}"


def container_link(
    storage: Storage,
    credentials: StorageCredentials,
    container: str,
    *,
    read: bool = True,
    write: bool = False,
    days: int | None = None,
) -> str:
    """A URL that is valid for `days`: it lists and reads a container, and writes to it, as requested. Creates a
    container for writing."""
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas  # see below

    if write:
        make_container(storage, container)
    permission = ContainerSasPermissions(read=read, list=read, write=write, create=write, add=write)
    signature = _signature(storage, credentials, days)
    token = generate_container_sas(
        account_name=credentials.account, container_name=container, permission=permission, **signature
    )
    return f"{storage.url}/{container}?{token}"


def _signature(storage: Storage, credentials: StorageCredentials, days: int | None) -> dict[str, Any]:
    """The key that signs a link, and the validity of the link."""
    from azure.storage.blob import BlobServiceClient  # 0.28 s, and only for links

    now = datetime.now(timezone.utc)
    expiry = now + timedelta(days=days or LINK_DAYS)
    if credentials.account_key:
        return {"account_key": credentials.account_key.reveal(), "expiry": expiry}
    start = now - timedelta(minutes=15)  # clocks differ
    expiry = min(expiry, now + timedelta(days=DELEGATED_DAYS) - timedelta(minutes=15))
    with faults(f"ask for a key that signs links of {credentials.account}", urlsplit(storage.url).netloc):
        service = BlobServiceClient(storage.url, credential=storage.token, retry_total=0)
        key = retry.answered(lambda: service.get_user_delegation_key(start, expiry), met=False)
    return {"user_delegation_key": key, "expiry": expiry}
