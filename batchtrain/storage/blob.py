"""The only code that talks to Blob storage: uploads, downloads, lists, and links with a signature (SAS)."""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import quote, unquote
from xml.etree import ElementTree

import msgspec

from batchtrain.config.link_life import DELEGATED_DAYS, LINK_DAYS
from batchtrain.config.types import Credentials, StorageCredentials
from batchtrain.config.unfilled import is_unfilled, require_credentials
from batchtrain.errors import UsageError
from batchtrain.service.answer_body import InvalidAnswer, follow, http_date, unquoted
from batchtrain.service.faults import faults
from batchtrain.storage.blob_requests import NEVER, Answer, Request, Storage, blob_path, document

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.storage.blob import UserDelegationKey

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


KEY_PARTS = {
    "signed_oid": "SignedOid", "signed_tid": "SignedTid", "signed_start": "SignedStart",
    "signed_expiry": "SignedExpiry", "signed_service": "SignedService", "signed_version": "SignedVersion",
    "value": "Value",
}  # fmt: skip
"""The parts of a user delegation key: in the SDK, and in the answer of the service."""
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


def accounts(account_of: Callable[[str], StorageCredentials], sign_in: Callable[[], TokenCredential]) -> Connect:
    """Clients of the accounts of links, each made once; `sign_in` gives a token for those without a key."""
    clients: dict[str, Storage] = {}

    def account(link: str) -> Storage:
        if link not in clients:
            entry = account_of(link)
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
    operation, path = f"list {container}/{prefix}", blob_path(container)
    marker, markers = "", set[str]()
    while True:
        answer = storage.send(operation, Request("GET", path, {**query, "marker": marker} if marker else query))
        with faults(operation):
            blobs, marker = _page(answer)
            if marker:
                follow(marker, markers)
        yield from blobs
        if not marker:
            return


def _page(answer: Answer) -> tuple[list[Stored], str]:
    """The blobs of a page, and the marker of the next one. Raises InvalidAnswer."""
    page = document(answer.body, "EnumerationResults", answer.url)
    items = (
        item
        for item in page.iterfind("Blobs/Blob")
        if item.findtext("Properties/ResourceType") != "directory"  # of an account with a hierarchical namespace
    )
    try:
        return list(map(_stored, items)), page.findtext("NextMarker") or ""
    except msgspec.ValidationError as error:
        raise InvalidAnswer(str(error), answer.url, answer.body) from error


class _Properties(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] = msgspec.field(name="Content-Length")
    changed: str = msgspec.field(name="Last-Modified")
    md5: str | None = msgspec.field(default=None, name="Content-MD5")
    etag: str = msgspec.field(default="", name="Etag")


def _stored(item: ElementTree.Element) -> Stored:
    """A blob of a list. Raises ValidationError."""
    name = item.find("Name")
    text = "" if name is None else name.text or ""
    if name is not None and name.get("Encoded") == "true":
        text = unquote(text)
    texts = {entry.tag: entry.text for entry in item.iterfind("Properties/*") if entry.text}
    properties = msgspec.convert(texts, _Properties, strict=False)
    if (changed := http_date(properties.changed)) is None or not text:
        raise msgspec.ValidationError("a blob has no name or no date")
    etag = properties.etag.strip('"')
    return Stored(text, properties.size, changed, _md5(properties.md5), f'"{etag}"')


def _md5(text: str | None) -> bytes | None:
    """The MD5 that the sender stored; None without one, and for any other text."""
    try:
        digest = b64decode(text or "", validate=True)
    except ValueError:
        return None
    return digest if len(digest) == 16 else None


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
    signature = _signature(storage, credentials, days)
    token = _sdk().generate_blob_sas(
        account_name=credentials.account,
        container_name=container,
        blob_name=name,
        permission=_sdk().BlobSasPermissions(read=True),
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
    if write:
        make_container(storage, container)
    permission = _sdk().ContainerSasPermissions(read=read, list=read, write=write, create=write, add=write)
    signature = _signature(storage, credentials, days)
    token = _sdk().generate_container_sas(
        account_name=credentials.account, container_name=container, permission=permission, **signature
    )
    return f"{storage.url}/{container}?{token}"


def _signature(storage: Storage, credentials: StorageCredentials, days: int | None) -> dict[str, Any]:
    """The key that signs a link, and the validity of the link."""
    now = datetime.now(timezone.utc)
    expiry = now + timedelta(days=days or LINK_DAYS)
    if credentials.account_key:
        return {"account_key": credentials.account_key.reveal(), "expiry": expiry}
    start = now - timedelta(minutes=15)  # clocks differ
    expiry = min(expiry, now + timedelta(days=DELEGATED_DAYS) - timedelta(minutes=15))
    return {"user_delegation_key": _delegation_key(storage, start, expiry), "expiry": expiry}


def _delegation_key(storage: Storage, start: datetime, expiry: datetime) -> UserDelegationKey:
    """A key that signs links in the name of the signed-in identity."""
    operation = f"ask for a key that signs links of {storage.account}"
    times = (f"<{name}>{time:%Y-%m-%dT%H:%M:%SZ}</{name}>" for name, time in (("Start", start), ("Expiry", expiry)))
    query, body = {"restype": "service", "comp": "userdelegationkey"}, f"<KeyInfo>{''.join(times)}</KeyInfo>".encode()
    key: UserDelegationKey = _sdk().UserDelegationKey()
    with faults(operation), unquoted():
        answer = storage.send(operation, Request("POST", "/", query, {"Content-Type": "application/xml"}, body))
        element = document(answer.body, "UserDelegationKey", answer.url)
        for name, tag in KEY_PARTS.items():
            if not (text := element.findtext(tag)):
                raise InvalidAnswer(f"it has no {tag}", answer.url)
            setattr(key, name, text)
    return key


def _sdk() -> Any:
    """azure-storage-blob, which only signs links: a slow import."""
    from azure.storage import blob

    return blob
