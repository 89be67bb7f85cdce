"""Uploads and downloads with everything that can go wrong on the way."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, SupportsIndex

import pytest

from batchtrain.errors import NotAllowed, ServiceError
from batchtrain.service import at_once, retry
from batchtrain.service.downloads import partial
from batchtrain.storage import blob, download, sync, upload
from batchtrain.storage.blob_requests import Storage
from batchtrain.storage.ingress import bring, walk
from batchtrain.storage.moving import Moving, Tally

from .blob_server import BlobServer, serve

CONTENT = bytes(range(200))


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> BlobServer:
    monkeypatch.setattr(upload, "BLOCK", 64)
    monkeypatch.setattr(download, "RANGE", 64)
    return BlobServer()


@pytest.fixture
def storage(blobs: BlobServer) -> Iterator[Storage]:
    with serve(blobs) as found:
        yield found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    place.mkdir()
    return place


def up(storage: Storage, data: Path) -> Tally:
    return bring(storage, "link/box", "", list(walk(data)))


def down(storage: Storage, to: Path) -> Tally:
    return sync.get(storage, "box", list(blob.stored(storage, "box")), "", to)


def test_an_interrupted_upload_continues_with_the_missing_blocks(
    storage: Storage, blobs: BlobServer, data: Path
) -> None:
    (data / "model").write_bytes(CONTENT)
    sent: list[str] = []

    def refuse(asked: str) -> int:
        sent.extend([asked] if asked == "PUT model block" else [])
        return 400 if len(sent) == 3 and asked == sent[0] else 0

    blobs.refuse = refuse
    assert up(storage, data).total.failed == 1
    assert "model" not in blobs.blobs
    staged = len(blobs.blocks["model"])
    blobs.refuse, blobs.asked = (lambda asked: 0), []
    up(storage, data).check()
    assert blobs.blobs["model"] == CONTENT
    assert staged > 0
    assert blobs.asked.count("PUT model block") == 4 - staged


def test_an_interrupted_download_continues_with_the_missing_ranges(
    storage: Storage, blobs: BlobServer, tmp_path: Path
) -> None:
    blobs.store("model", CONTENT)
    blobs.refuse = lambda asked: 400 if asked.endswith("bytes=128-191") else 0
    assert down(storage, tmp_path).total.failed == 1
    assert not (tmp_path / "model").exists()
    blobs.refuse, before = (lambda asked: 0), set(blobs.asked)
    blobs.asked = []
    down(storage, tmp_path).check()
    assert (tmp_path / "model").read_bytes() == CONTENT
    assert "GET model  bytes=0-63" in before
    assert "GET model  bytes=0-63" not in blobs.asked
    assert os.listdir(tmp_path) == ["model"]  # noqa: PTH208


def test_a_damaged_partial_file_is_fetched_again(storage: Storage, blobs: BlobServer, tmp_path: Path) -> None:
    blobs.store("model", CONTENT)
    blobs.refuse = lambda asked: 400 if asked.endswith("bytes=192-199") else 0
    down(storage, tmp_path)
    partial(tmp_path / "model")[0].write_bytes(bytes(192))
    blobs.refuse = lambda asked: 0
    down(storage, tmp_path).check()
    assert (tmp_path / "model").read_bytes() == CONTENT


@pytest.mark.parametrize("with_md5", [False, True])
def test_a_small_download_that_is_stopped_is_not_given_the_name(
    storage: Storage, blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_md5: bool
) -> None:
    monkeypatch.setattr(download, "PIECE", 8)
    blobs.store("small", CONTENT[:64])
    if not with_md5:
        blobs.md5.clear()
    moving: Moving = Moving("download", lambda size: stop(moving))
    found = next(blob.stored(storage, "box"))
    begin = download._Download(moving, storage, "box", found, tmp_path / "small").begin
    assert list(moving.results([begin])) == []
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_upload_that_is_stopped_makes_no_more_attempts(
    storage: Storage, blobs: BlobServer, data: Path, attempts: int
) -> None:
    (data / "small").write_text("x")

    def refuse(asked: str) -> int:
        if len(blobs.asked) == attempts:
            stop(moving)
        return 503

    blobs.refuse = refuse
    moving: Moving = Moving("upload", lambda size: None)
    begin = upload._Upload(moving, storage, "box", next(walk(data)), "small", None).begin
    list(moving.results([begin]))
    assert len(blobs.asked) == attempts


def test_a_pause_between_attempts_ends_with_a_stop() -> None:
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(InterruptedError):
        retry.interruptible(stopped).sleep(600)


def stop(moving: Moving) -> None:
    """What Ctrl-C does."""
    assert moving._crew is not None
    moving._crew.stopped.set()


def test_bytes_with_another_md5_are_not_given_the_name(storage: Storage, blobs: BlobServer, tmp_path: Path) -> None:
    blobs.store("model", CONTENT)
    blobs.blobs["model"] = CONTENT[::-1]
    with pytest.raises(ServiceError, match="download box/model: its bytes have another MD5"):
        down(storage, tmp_path).check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [0, 1, 63, 64])
def test_a_connection_that_breaks_costs_no_byte(
    storage: Storage, blobs: BlobServer, data: Path, tmp_path: Path, cut: int
) -> None:
    (data / "model").write_bytes(CONTENT)
    broken: set[str] = set()

    def once(asked: str) -> int | None:
        first = asked not in broken
        broken.add(asked)
        return cut if first else None

    blobs.cut = once
    up(storage, data).check()
    assert blobs.blobs["model"] == CONTENT
    blobs.md5["model"] = upload.hashlib.md5(CONTENT).digest()
    down(storage, tmp_path / "back").check()
    assert (tmp_path / "back" / "model").read_bytes() == CONTENT


def test_a_file_that_fails_does_not_stop_the_others(storage: Storage, blobs: BlobServer, data: Path) -> None:
    for name in ("a", "b", "c"):
        (data / name).write_text(name)
    (data / "gone").symlink_to("nowhere")
    blobs.refuse = lambda asked: 400 if asked.startswith("PUT b") else 0
    tally = up(storage, data)
    assert (tally.total.copied, tally.total.failed) == (2, 2)
    with pytest.raises(ServiceError, match=r"2 of 4 files were not copied to link/box: .*gone: No such file") as raised:
        tally.check()
    assert raised.value.exit_code == 4
    assert set(blobs.blobs) == {"a", "c"}


def test_a_refused_signature_ends_the_upload_at_once(storage: Storage, blobs: BlobServer, data: Path) -> None:
    for number in range(100):
        (data / f"{number}").write_text("x")
    blobs.refuse = lambda asked: 403 if asked.startswith(("PUT 1", "PUT 2")) else 0
    with pytest.raises(
        NotAllowed, match=r"check the account's key .*; \d+ of 100 files were copied to link/box before"
    ):
        up(storage, data).check()
    assert len(blobs.asked) < 50


def test_a_full_disk_is_one_sentence_and_the_rest_still_comes(
    storage: Storage, blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.store("large", CONTENT)
    blobs.store("small", b"ok")
    write = os.pwrite

    def full(fd: int, piece: Any, at: int) -> int:
        if len(piece) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, piece, at)

    monkeypatch.setattr(download.os, "pwrite", full)
    with pytest.raises(ServiceError, match=f"the disk of {tmp_path} is full: free some space and copy large again"):
        down(storage, tmp_path).check()
    assert (tmp_path / "small").read_bytes() == b"ok"
    assert not (tmp_path / "large").exists()


def test_a_file_that_changes_while_it_is_sent_does_not_arrive(storage: Storage, blobs: BlobServer, data: Path) -> None:
    (data / "log").write_bytes(CONTENT)

    def grow(asked: str) -> int:
        if asked == "PUT log block":
            (data / "log").write_bytes(CONTENT * 2)
        return 0

    blobs.refuse = grow
    with pytest.raises(ServiceError, match="log changes while it is copied; copy it again later"):
        up(storage, data).check()
    assert blobs.blobs == {}


def test_blobs_whose_names_leave_the_destination_stay_away(storage: Storage, blobs: BlobServer, tmp_path: Path) -> None:
    for name in ("../out", "/etc/x", "a//b", "fine"):
        blobs.store(name, b"x")
    to = tmp_path / "to"
    with pytest.raises(ServiceError, match=r"3 of 4 files .*the blob \.\./out would be written outside of"):
        down(storage, to).check()
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "fine"]


def test_a_name_too_long_for_a_partial_file_still_comes(storage: Storage, blobs: BlobServer, tmp_path: Path) -> None:
    blobs.store("n" * 255, CONTENT)
    down(storage, tmp_path).check()
    assert (tmp_path / ("n" * 255)).read_bytes() == CONTENT


def test_a_file_that_is_not_regular_is_named_and_the_rest_arrives(
    storage: Storage, blobs: BlobServer, data: Path
) -> None:
    os.mkfifo(data / "pipe")
    (data / "small").write_bytes(b"ok")
    with pytest.raises(ServiceError, match=r"1 of 2 files .*/pipe: it is not a regular file") as raised:
        up(storage, data).check()
    assert raised.value.exit_code == 4
    assert blobs.blobs == {"small": b"ok"}


def test_an_unchanged_tree_costs_one_list(storage: Storage, blobs: BlobServer, data: Path) -> None:
    for number in range(20):
        (data / f"{number}").write_text(str(number))
    up(storage, data).check()
    blobs.asked.clear()
    assert up(storage, data).total.unchanged == 20
    assert blobs.asked == ["PUT", "GET  list"]


def test_pieces_that_a_piece_adds_are_done_before_the_end() -> None:
    work: at_once.AtOnce[int] = at_once.AtOnce("test", iter(()))

    def first() -> None:
        work.add([lambda: 1, lambda: 2])

    work._pieces = iter([first])
    assert sorted(work.results()) == [1, 2]


def test_a_connection_that_another_thread_takes_does_not_stop_the_close(storage: Storage) -> None:
    class Taken(list[HTTPConnection]):
        def pop(self, index: SupportsIndex = -1) -> HTTPConnection:
            self.clear()
            return super().pop(index)

    storage._idle = Taken([HTTPConnection("localhost")])
    storage.close()
    assert storage._idle == []
