"""Accounts, containers, blobs and links."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest

from batchtrain.config.types import Credentials, Secret, StorageCredentials, convert
from batchtrain.errors import ConfigError, NotFound, ServiceError, UsageError
from batchtrain.storage import blob
from batchtrain.storage.blob import Stored
from batchtrain.storage.blob_requests import Answer, Request, Storage, blob_path
from batchtrain.storage.run_container import control_of, put_run

from .blob_server import BlobServer

KEYED = StorageCredentials(account="acct", account_key=Secret("a2V5"))
KEYLESS = StorageCredentials(account="acct")
TOKEN: Any = object()


# --- accounts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("core.windows.net", "https://acct.blob.core.windows.net"),
        ("http://127.0.0.1:10000/acct/", "http://127.0.0.1:10000/acct"),
    ],
)
def test_the_url_of_an_account_is_made_of_its_name_unless_the_endpoint_is_a_url(endpoint: str, url: str) -> None:
    storage = blob.connect("data", StorageCredentials(account="acct", account_key=Secret("a2V5"), endpoint=endpoint))
    assert (storage.url, storage.account) == (url, "acct")


def test_an_account_needs_a_key_in_base64_or_a_token() -> None:
    with pytest.raises(UsageError, match="the storage account `data` has no account_key"):
        blob.connect("data", KEYLESS)
    with pytest.raises(UsageError, match="the account_key of the storage account `acct` is not base64"):
        blob.connect("data", StorageCredentials(account="acct", account_key=Secret("no key")))
    assert blob.connect("data", KEYLESS, TOKEN).token is TOKEN


def credentials(**links: Any) -> Credentials:
    known: Credentials = convert({"storage": links}, Credentials)
    return known


def test_an_account_is_found_by_its_link_or_the_links_that_exist_are_named() -> None:
    known = credentials(a={"account": "acct"}, b={"account": "<account>"})
    assert blob.account_of(known, "a").account == "acct"
    with pytest.raises(ConfigError):
        blob.account_of(known, "b")
    with pytest.raises(UsageError, match=r"no storage account called `c` \(it has: a, b\); write `storage.c` there"):
        blob.account_of(known, "c")
    with pytest.raises(UsageError, match=r"\(it has: none\)"):
        blob.account_of(credentials(), "c")
    with_the_emulators = [blob.account_of(known, link, lambda: KEYED) for link in ("a", "b", "c")]
    assert [account is KEYED for account in with_the_emulators] == [False, True, True]


def test_an_account_is_connected_once_and_signs_in_only_without_a_key() -> None:
    known = credentials(keyed={"account": "acct", "account_key": "a2V5"}, keyless={"account": "acct"})
    tokens: list[Any] = []

    def sign_in() -> Any:
        tokens.append(TOKEN)
        return TOKEN

    connect = blob.accounts(partial(blob.account_of, known), sign_in)
    assert connect("keyed") is connect("keyed")
    assert (tokens, connect("keyed").token) == ([], None)
    assert connect("keyless").token is TOKEN
    assert connect("keyless") is connect("keyless") and len(tokens) == 1


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("link/box", ("link", "box", "")),
        ("link/box/a/b", ("link", "box", "a/b")),
        ("/link/box/a/", ("link", "box", "a")),
    ],
)
def test_a_path_has_a_link_a_container_and_a_name(path: str, parts: tuple[str, str, str]) -> None:
    assert blob.place_of(path) == parts


@pytest.mark.parametrize("path", ["", "link", "link/", "/link//a"])
def test_a_path_without_a_container_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="names no container; write LINK/CONTAINER/PATH"):
        blob.place_of(path)


# --- containers and blobs -------------------------------------------------------------------------------------------


def test_a_blob_exists_after_its_upload_and_not_after_it_was_deleted(blobs: BlobServer) -> None:
    assert not blob.exists(blobs.storage, "box", "a b")
    blobs.asked.clear()
    blob.upload(blobs.storage, "box", "a b", b"content")
    assert blobs.asked == ["PUT", "PUT a b"], "its container is made first"
    assert (blobs.blobs, blobs.headers[-1]["x-ms-blob-type"]) == ({"a b": b"content"}, "BlockBlob")
    assert blob.exists(blobs.storage, "box", "a b")
    for _ in range(2):  # one that is gone is deleted without an error
        blob.delete(blobs.storage, "box", "a b")
        assert blobs.headers[-1]["x-ms-delete-snapshots"] == "include"
    assert not blob.exists(blobs.storage, "box", "a b")


def test_a_container_that_exists_is_no_error_and_another_refusal_is(blobs: BlobServer) -> None:
    blobs.refuse = lambda asked: 409
    blob.make_container(blobs.storage, "box")
    blobs.refuse = lambda asked: 400
    for act, operation in (
        (lambda: blob.make_container(blobs.storage, "box"), "make the container box"),
        (lambda: blob.exists(blobs.storage, "box", "a"), "look for box/a"),
        (lambda: blob.delete(blobs.storage, "box", "a"), "delete box/a"),
    ):
        with pytest.raises(ServiceError, match=operation):
            act()
    blobs.refuse = lambda asked: 404
    with pytest.raises(NotFound, match="list box/"):
        list(blob.stored(blobs.storage, "box"))


def test_a_long_list_is_read_page_by_page_as_it_is_needed(blobs: BlobServer) -> None:
    blobs.page = 2
    for number in range(5):
        blobs.store(f"{number}", b"x")
    names = (item.name for item in blob.stored(blobs.storage, "box"))
    assert [next(names), next(names)] == ["0", "1"]
    assert len(blobs.asked) == 1
    assert list(names) == ["2", "3", "4"]


def test_a_listed_blob_has_its_size_time_md5_and_version(blobs: BlobServer) -> None:
    blobs.store("a/<b>", b"abc")
    blobs.store("none", b"")
    del blobs.md5["none"]
    blobs.versions["a/<b>"] = "0x8D"
    day = datetime(2026, 11, 22, tzinfo=timezone.utc)
    assert list(blob.stored(blobs.storage, "box")) == [
        Stored("a/<b>", 3, day, blobs.md5["a/<b>"], '"0x8D"'),
        Stored("none", 0, day, None, '"1"'),
    ]


def test_a_name_with_characters_that_xml_cannot_have_is_decoded() -> None:
    properties = "<Last-Modified>Sun, 22 Nov 2026 00:00:00 GMT</Last-Modified><Content-Length>1</Content-Length>"
    for attribute, name in ((' Encoded="true"', "a\x01%"), (' Encoded="false"', "a%01%25"), ("", "a%01%25")):
        item = f"<Blob><Name{attribute}>a%01%25</Name><Properties>{properties}</Properties></Blob>"
        assert blob._stored(ElementTree.fromstring(item)).name == name


def test_a_directory_of_a_hierarchical_namespace_is_no_blob() -> None:
    properties = "<Last-Modified>Sun, 22 Nov 2026 00:00:00 GMT</Last-Modified><Content-Length>0</Content-Length>"
    items = "".join(
        f"<Blob><Name>{name}</Name><Properties>{properties}<ResourceType>{kind}</ResourceType></Properties></Blob>"
        for name, kind in (("d", "directory"), ("d/a", "file"))
    )
    page = f"<EnumerationResults><Blobs>{items}</Blobs></EnumerationResults>".encode()
    account = SimpleNamespace(send=lambda operation, request: Answer(200, {}, page))
    assert [item.name for item in blob.stored(account, "box")] == ["d/a"]  # type: ignore[arg-type]


@pytest.mark.parametrize("container", ["a b", "\u20ac"])
def test_a_container_that_cannot_exist_makes_a_well_formed_request(container: str) -> None:
    assert re.fullmatch(r"/[!-~]+/x", blob_path(container, "x"))


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", ["run", "run/a", "run/b/c", "run2", "x"]),
        ("run", ["run", "run/a", "run/b/c"]),
        ("run/", ["run/a", "run/b/c"]),
        ("run/b", ["run/b/c"]),
        ("ru", []),
    ],
)
def test_below_a_path_are_the_blob_and_its_directory_and_no_neighbour(
    blobs: BlobServer, path: str, names: list[str]
) -> None:
    for name in ("run", "run/a", "run/b/c", "run2", "x"):
        blobs.store(name, b"x")
    assert [item.name for item in blob.below(blobs.storage, "box", path)] == names


@pytest.mark.parametrize(("name", "size", "marks"), [("a/", 0, True), ("a/", 1, False), ("a", 0, False)])
def test_an_empty_blob_with_a_slash_at_its_end_marks_a_directory(name: str, size: int, marks: bool) -> None:
    assert blob.is_directory(Stored(name, size, datetime.now(timezone.utc))) is marks


# --- links ----------------------------------------------------------------------------------------------------------


def parts(link: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}


def lasts(link: str) -> int:
    """The days until a link ends, rounded up. It begins at once, also if this machine's clock is ahead."""
    assert "st" not in parts(link)
    left = datetime.fromisoformat(parts(link)["se"].replace("Z", "+00:00")) - datetime.now(timezone.utc)
    return -(-left // timedelta(days=1))


def test_a_link_reads_one_blob_for_a_number_of_days() -> None:
    storage = blob.connect("data", KEYED)
    link = blob.link(storage, KEYED, "box", "a b#/c", days=3)
    assert link.startswith("https://acct.blob.core.windows.net/box/a%20b%23/c?")
    assert (parts(link)["sp"], parts(link)["sr"]) == ("r", "b")
    assert lasts(link) == 3
    assert lasts(blob.link(storage, KEYED, "box", "a")) == 30


@pytest.mark.parametrize(("write", "permission", "asked"), [(True, "racwl", ["PUT"]), (False, "rl", [])])
def test_a_link_to_a_container_writes_if_requested_and_then_makes_it(
    blobs: BlobServer, write: bool, permission: str, asked: list[str]
) -> None:
    link = blob.container_link(blobs.storage, KEYED, "box", write=write, days=1)
    assert link.startswith(f"{blobs.storage.url}/box?")
    assert (parts(link)["sp"], parts(link)["sr"], blobs.asked) == (permission, "c", asked)
    assert lasts(link) == 1


def test_a_link_that_entra_id_signs_lasts_at_most_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def send(self: Storage, operation: str, request: Request) -> Answer:
        assert (request.method, request.path) == ("POST", "/") and isinstance(request.body, bytes)
        asked.append(request.body.decode())
        parts = "".join(f"<{tag}>x</{tag}>" for tag in ("SignedOid", "SignedTid", "SignedService", "SignedVersion"))
        times = "".join(f"<{tag}>2026-11-22T00:00:00Z</{tag}>" for tag in ("SignedStart", "SignedExpiry"))
        return Answer(200, {}, f"<UserDelegationKey>{parts}{times}<Value>a2V5</Value></UserDelegationKey>".encode())

    monkeypatch.setattr(Storage, "send", send)
    storage = blob.connect("data", KEYLESS, TOKEN)
    links = [blob.link(storage, KEYLESS, "box", "a", days=days) for days in (2, 30)]
    times = [[datetime.fromisoformat(text) for text in re.findall(r">([^<>]+)Z<", body)] for body in asked]
    assert [end - start for start, end in times] == [timedelta(days=2, minutes=15), timedelta(days=7)]
    assert [lasts(link) for link in links] == [2, 7]


# --- the beginning of a detached run --------------------------------------------------------------------------------


def test_the_control_container_has_all_files_of_a_run_directory_but_the_lease(
    blobs: BlobServer, tmp_path: Path
) -> None:
    run = tmp_path / "20261122T120000Z-j-7f3a"
    for name in ("run.json", "lease.json", "config/plan.json"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    put_run(blobs.storage, run)
    container = control_of(run.name)
    assert blobs.blobs == {f"{container}/run/{name}": name.encode() for name in ("config/plan.json", "run.json")}
