"""Blobs through the real SDK against a real Azurite: files there and back, what changed, links, listings."""

from __future__ import annotations

import contextlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from batchtrain.config.types import Recipe, Secret, StorageCredentials, convert
from batchtrain.emulator.interface import StorageAccount
from batchtrain.errors import NotAllowed
from batchtrain.plan import ingress
from batchtrain.runs.local_names import names_of_data
from batchtrain.storage import blob, sync
from batchtrain.storage.blob_requests import Storage
from batchtrain.storage.ingress import carry_out
from batchtrain.storage.moving import Progress, Total, Watcher
from batchtrain.storage.upload import BLOCK

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


def recipe(directory: Path, container: str, **source_: list[str]) -> Recipe:
    destination = {"storage_account_settings": "link", "data_transfer": {"remote_path": f"{container}/in"}}
    files = [{"source": {"path": "data", **source_}, "destination": destination}]
    return convert({"directory": str(directory), "resources": {"files": files}}, Recipe)


def brought(client: Storage, whole: Recipe, told: list[Progress] | None = None) -> Total:
    heard: list[Progress] = [] if told is None else told
    (tally,) = carry_out(ingress.plan(whole), whole, lambda _: client, Watcher(tell=heard.append))
    tally.check()
    return tally.total


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    (place / "deep").mkdir(parents=True)
    (place / "a.txt").write_text("a")
    (place / "b c#.txt").write_text("bb")
    (place / "deep" / "d.bin").write_bytes(os.urandom(70_000))
    return place


def test_a_directory_s_files_are_brought_below_the_destination(client: Storage, container: str, data: Path) -> None:
    told: list[Progress] = []
    total = brought(client, recipe(data.parent, container), told)
    assert (total.files, total.copied, total.bytes) == (3, 3, 70_003)
    assert [one.name for one in blob.stored(client, container)] == ["in/a.txt", "in/b c#.txt", "in/deep/d.bin"]
    assert [(one.done, one.of) for one in told] == [(1, 3), (2, 3), (3, 3)]
    assert told[-1].bytes == 70_003


def test_a_file_that_travels_in_parts_is_known_again(client: Storage, container: str, data: Path) -> None:
    (data / "large").write_bytes(os.urandom(BLOCK + 1))
    whole = recipe(data.parent, container, include=["large"])
    assert (brought(client, whole).copied, brought(client, whole).copied) == (1, 0)


def test_a_file_comes_back_as_it_went(client: Storage, container: str, data: Path, tmp_path: Path) -> None:
    brought(client, recipe(data.parent, container))
    target = tmp_path / "new" / "d.bin"
    blobs = list(blob.below(client, container, "in/deep/d.bin"))
    assert sync.get(client, container, blobs, "in/deep/d.bin", target, names_of_data()).total.copied == 1
    assert target.read_bytes() == (data / "deep" / "d.bin").read_bytes()


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
