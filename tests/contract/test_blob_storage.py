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
from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable, UsageError
from batchtrain.plan import Facts, factory, ingress
from batchtrain.runs.local_names import names_of_data
from batchtrain.storage import blob, source, sync
from batchtrain.storage.blob_requests import Request, Storage, blob_path
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


def test_only_what_changed_travels_again(client: Storage, container: str, data: Path) -> None:
    whole = recipe(data.parent, container)
    brought(client, whole)
    os.utime(data / "a.txt", (2**31, 2**31))  # touched, and the same
    (data / "b c#.txt").write_text("cc")  # other words of the same length
    again: list[Progress] = []
    assert brought(client, whole, again).copied == 1
    assert [one.name for one in again if one.copied] == ["b c#.txt"]


def test_a_blob_without_md5_is_replaced_by_a_newer_file_alone(client: Storage, container: str, data: Path) -> None:
    whole = recipe(data.parent, container, include=["a.txt"])
    blob.make_container(client, container)
    path = blob_path(container, "in/a.txt")  # a blob of blocks has no MD5 of its own
    client.send("", Request("PUT", path, {"comp": "block", "blockid": "YQ=="}, body=b"x"))
    client.send("", Request("PUT", path, {"comp": "blocklist"}, body=b"<BlockList><Latest>YQ==</Latest></BlockList>"))
    assert next(blob.stored(client, container)).md5 is None
    os.utime(data / "a.txt", (0, 0))
    assert brought(client, whole).copied == 0
    os.utime(data / "a.txt", (2**31, 2**31))
    assert brought(client, whole).copied == 1


def test_a_file_that_travels_in_parts_is_known_again(client: Storage, container: str, data: Path) -> None:
    (data / "large").write_bytes(os.urandom(BLOCK + 1))
    whole = recipe(data.parent, container, include=["large"])
    assert (brought(client, whole).copied, brought(client, whole).copied) == (1, 0)


def test_exclude_wins_over_include(client: Storage, container: str, data: Path) -> None:
    brought(client, recipe(data.parent, container, include=["*.txt", "deep/*"], exclude=["b*"]))
    assert [one.name for one in blob.stored(client, container)] == ["in/a.txt", "in/deep/d.bin"]


def test_a_source_that_is_not_there_is_said_before_anything_travels(client: Storage, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"data is not there; `global_resources\.files` names it"):
        brought(client, recipe(tmp_path, "never"))
    with pytest.raises(NotFound):
        list(blob.stored(client, "never"))


def test_patterns_that_fit_no_file_are_said(client: Storage, container: str, data: Path) -> None:
    with pytest.raises(UsageError, match="no file of"):
        brought(client, recipe(data.parent, container, include=["*.jpg"]))


def test_a_file_comes_back_as_it_went(client: Storage, container: str, data: Path, tmp_path: Path) -> None:
    brought(client, recipe(data.parent, container))
    target = tmp_path / "new" / "d.bin"
    blobs = list(blob.below(client, container, "in/deep/d.bin"))
    assert sync.get(client, container, blobs, "in/deep/d.bin", target, names_of_data()).total.copied == 1
    assert target.read_bytes() == (data / "deep" / "d.bin").read_bytes()


def test_a_blob_that_is_gone_leaves_no_file(client: Storage, container: str, tmp_path: Path) -> None:
    blob.upload(client, container, "x", b"x")
    blobs = list(blob.stored(client, container))
    blob.delete(client, container, "x")
    with pytest.raises(ServiceError, match=f"1 of 1 files .*: download {container}/x: it was changed or deleted"):
        sync.get(client, container, blobs, "", tmp_path, names_of_data()).check()
    assert list(tmp_path.iterdir()) == []


def test_below_a_path_is_the_blob_and_its_directory_and_no_neighbour(
    client: Storage, container: str, data: Path
) -> None:
    for name in ("in", "in/a", "inner/b"):
        blob.upload(client, container, name, b"x")
    assert [one.name for one in blob.below(client, container, "in")] == ["in", "in/a"]


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


def test_a_link_lasts_as_long_as_asked(client: Storage, account: StorageCredentials) -> None:
    from datetime import datetime, timedelta, timezone
    from urllib.parse import parse_qs, urlsplit

    url = blob.link(client, account, "c", "b", days=3)
    end = datetime.fromisoformat(parse_qs(urlsplit(url).query)["se"][0].replace("Z", "+00:00"))
    assert abs(end - datetime.now(timezone.utc) - timedelta(days=3)) < timedelta(minutes=1)


# --- faults, and what tasks are made of ------------------------------------------------------------------------------


def test_a_wrong_key_is_refused_with_the_next_step(account: StorageCredentials) -> None:
    wrong = msgspec.structs.replace(account, account_key=Secret("d3Jvbmc="))
    with pytest.raises(NotAllowed, match=r"account's key in credentials\.yaml"):
        list(blob.stored(blob.connect("link", wrong), "boxes"))


def test_an_account_that_does_not_answer_is_said_so_soon_and_with_the_next_step() -> None:
    gone = StorageCredentials(account="a", account_key=Secret("a2V5"), endpoint="http://127.0.0.1:9/a")
    with pytest.raises(Unreachable, match=r"and `endpoint` in credentials\.yaml"):
        list(blob.stored(blob.connect("link", gone), "boxes"))


def test_tasks_are_made_of_the_files_that_are_there(client: Storage, container: str, data: Path) -> None:
    brought(client, recipe(data.parent, container))
    made = {"file": {"azure_storage": {"storage_account_settings": "link", "remote_path": f"{container}/in"}}}
    document = {
        "directory": "x",
        "jobs": [{"id": "j", "tasks": [{"command": "wc {file_name}", "task_factory": made}]}],
    }
    whole = convert(document, Recipe)
    facts = Facts(listings=source.read_listings(whole, lambda _: client))
    commands = [task.command for task in factory.expand(whole, whole.jobs[0], facts)]
    assert commands == ["wc a.txt", "wc b c#.txt", "wc d.bin"]


def test_the_path_of_a_file_factory_is_what_names_begin_with(client: Storage, container: str) -> None:
    for name in ("run1/a", "run2", "other"):
        blob.upload(client, container, name, b"x")
    made = {"file": {"azure_storage": {"storage_account_settings": "link", "remote_path": f"{container}/run"}}}
    document = {"directory": "x", "jobs": [{"id": "j", "tasks": [{"command": "x", "task_factory": made}]}]}
    listed = source.read_listings(convert(document, Recipe), lambda _: client)
    assert listed == {f"link/{container}/run": ("run1/a", "run2")}
