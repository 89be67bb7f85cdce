"""Blobs through the real SDK against a real Azurite: files there and back, what changed, links, listings."""

from __future__ import annotations

import contextlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterator

import msgspec
import pytest

from batchtrain.config.types import Secret, StorageCredentials
from batchtrain.emulator.interface import StorageAccount
from batchtrain.errors import NotAllowed
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import Storage

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def account(azurite: StorageAccount) -> StorageCredentials:
    return StorageCredentials(account=azurite.account, account_key=Secret(azurite.key), endpoint=azurite.endpoint)


@pytest.fixture
def client(account: StorageCredentials) -> Iterator[Storage]:
    with contextlib.closing(blob.connect("link", account)) as found:
        yield found


@pytest.fixture
def container() -> str:
    """The name of a container of the test's own; nobody has made it."""
    return f"box{os.urandom(6).hex()}"


# --- links ----------------------------------------------------------------------------------------------------------


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        content: bytes = answer.read()
        return content


def put(url: str) -> int:
    request = urllib.request.Request(url, b"new", {"x-ms-blob-type": "BlockBlob"}, method="PUT")
    with urllib.request.urlopen(request) as answer:
        return int(answer.status)


def test_a_link_reads_one_blob_whatever_its_name(client: Storage, account: StorageCredentials, container: str) -> None:
    blob.upload(client, container, "a b/ü#1.txt", b"read me")
    assert fetched(blob.link(client, account, container, "a b/ü#1.txt")) == b"read me"


def test_a_link_to_a_blob_does_not_write(client: Storage, account: StorageCredentials, container: str) -> None:
    blob.upload(client, container, "a", b"x")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        put(blob.link(client, account, container, "a"))


@pytest.mark.parametrize("write", [False, True])
def test_a_link_to_a_container_writes_where_asked(
    client: Storage, account: StorageCredentials, container: str, write: bool
) -> None:
    blob.make_container(client, container)
    base, _, token = blob.container_link(client, account, container, write=write).partition("?")
    if write:
        assert put(f"{base}/new?{token}") == 201
        assert fetched(f"{base}/new?{token}") == b"new"
    else:
        with pytest.raises(urllib.error.HTTPError, match="403"):
            put(f"{base}/new?{token}")


# --- faults, and what tasks are made of ------------------------------------------------------------------------------


def test_a_wrong_key_is_refused_with_the_next_step(account: StorageCredentials) -> None:
    wrong = msgspec.structs.replace(account, account_key=Secret("d3Jvbmc="))
    with pytest.raises(NotAllowed, match=r"account's key in credentials\.yaml"):
        list(blob.stored(blob.connect("link", wrong), "boxes"))
