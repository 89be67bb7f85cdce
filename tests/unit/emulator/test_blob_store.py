"""Files that the emulator keeps for jobs: whole, signed for, and gone with their job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from batchtrain.emulator import blob_store
from batchtrain.emulator.blob_store import BlobStore
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.task_environment import here
from batchtrain.emulator.wire import BLOB_STORE

ENDPOINT = "http://127.0.0.1:1"
DAY = 86_400


@pytest.fixture
def kept(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path, "a2V5")


def keep(kept: BlobStore, path: str, *parts: bytes, cut: bool = False, known: Collection[str] = ()) -> None:
    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        if cut:
            raise ConnectionError

    asyncio.run(kept.keep(path, body(), known))


def given(kept: BlobStore, link: str, now: float = 0) -> bytes:
    where = urlsplit(link)
    found = kept.give(where.path.removeprefix(BLOB_STORE), dict(parse_qsl(where.query)), now)
    with found.file as file:
        return file.read()


def test_a_file_is_read_by_its_link_until_the_link_expires(kept: BlobStore) -> None:
    keep(kept, "j/a.tar.gz", b"one", b"two")
    link = kept.link(ENDPOINT, "j/a.tar.gz", now=0)
    assert given(kept, link, now=29 * DAY) == b"onetwo"
    for wrong, now in ((link, 31 * DAY), (link.replace("/a.", "/b."), 0), (link[:-1], 0), (link.partition("?")[0], 0)):
        with pytest.raises(Fault) as refused:
            given(kept, wrong, now)
        assert refused.value.code == "AuthorizationFailure"


@pytest.mark.parametrize("path", ["../key", "j/../key", "j/.x", "j", "j/", "/j/a", "j/a/b", "é/a", "", "j/a\n"])
def test_a_name_leads_nowhere_else(path: str, kept: BlobStore) -> None:
    with pytest.raises(Fault, match="InvalidUri"):
        keep(kept, path, b"x")


def test_a_file_that_did_not_come_whole_or_is_too_large_is_not_there(
    kept: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConnectionError):
        keep(kept, "j/a", b"half", cut=True)
    monkeypatch.setattr(blob_store, "MOST_BYTES", 3)
    with pytest.raises(Fault, match="RequestBodyTooLarge"):
        keep(kept, "j/a", b"four")
    assert list((tmp_path / "blob_store" / "j").iterdir()) == []
    with pytest.raises(Fault, match="ResourceNotFound"):
        given(kept, kept.link(ENDPOINT, "j/a", now=0))
    keep(kept, "j/a", b"all")
    assert given(kept, kept.link(ENDPOINT, "j/a", now=0)) == b"all"


def test_files_go_with_their_job_and_wait_for_one_that_comes_after_them(kept: BlobStore, tmp_path: Path) -> None:
    def left() -> list[str]:
        return sorted(folder.name for folder in (tmp_path / "blob_store").iterdir())

    for job in ("stays", "GOES", "comes"):
        keep(kept, f"{job}/a", b"x", known={"stays", "goes"})
    kept.sweep({"stays"})
    assert left() == ["comes", "stays"]
    kept.sweep({"stays", "comes"})
    kept.sweep(())
    assert left() == []
    keep(kept, "orphan/a", b"x")
    BlobStore(tmp_path, "a2V5").sweep(())  # after a restart nobody comes any more
    assert left() == []


def test_a_link_leads_to_where_the_emulator_listens_now(kept: BlobStore) -> None:
    link = kept.link("http://127.0.0.1:1", "j/a", now=0)
    assert here(link, "http://127.0.0.1:2") == link.replace(":1/", ":2/")
    assert here("https://x.example.org/a?b", "http://127.0.0.1:2") == "https://x.example.org/a?b"
