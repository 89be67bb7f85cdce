"""Uploads and downloads with everything that can go wrong on the way."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, SupportsIndex

import pytest

from batchtrain.errors import NotAllowed, ServiceError
from batchtrain.runs.local_names import names_of_data
from batchtrain.service import retry
from batchtrain.service.partial_files import PartialFile, partial
from batchtrain.storage import blob, blob_requests, download, sync, upload
from batchtrain.storage.ingress import bring, walk
from batchtrain.storage.moving import Moving, Tally, Watcher
from tests.unit.service.test_downloads import fill_disk
from tests.unit.service.test_retry import Time

from .blob_server import BlobServer

CONTENT = bytes(range(200))
LISTED = 1795305600
"""The time of every blob of the server."""


@pytest.fixture
def blobs(blobs: BlobServer, monkeypatch: pytest.MonkeyPatch) -> BlobServer:
    monkeypatch.setattr(upload, "BLOCK", 64)
    monkeypatch.setattr(download, "RANGE", 64)
    return blobs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    place.mkdir()
    return place


def up(blobs: BlobServer, data: Path) -> Tally:
    return bring(blobs.storage, "link/box", "", list(walk(data)))


def down(blobs: BlobServer, to: Path) -> Tally:
    return sync.get(blobs.storage, "box", list(blob.stored(blobs.storage, "box")), "", to, names_of_data())


def test_an_upload_of_a_new_blob_begins_although_the_service_knows_no_blocks_of_it(
    blobs: BlobServer, data: Path
) -> None:
    (data / "model").write_bytes(CONTENT)
    blobs.refuse = lambda asked: 404 if asked == "GET model blocklist" else 0
    up(blobs, data).check()
    assert blobs.blobs["model"] == CONTENT


def test_an_interrupted_upload_continues_with_the_missing_blocks(blobs: BlobServer, data: Path) -> None:
    (data / "model").write_bytes(CONTENT)
    sent: list[str] = []

    def refuse(asked: str) -> int:
        sent.extend([asked] if asked == "PUT model block" else [])
        return 400 if len(sent) == 3 and asked == sent[0] else 0

    blobs.refuse = refuse
    assert up(blobs, data).total.failed == 1
    assert "model" not in blobs.blobs
    staged = len(blobs.blocks["model"])
    blobs.refuse, blobs.asked = (lambda asked: 0), []
    up(blobs, data).check()
    assert blobs.blobs["model"] == CONTENT
    assert staged > 0
    assert blobs.asked.count("PUT model block") == 4 - staged


SPANS = ("0-63", "64-127", "128-191", "192-199")


def store_anew(blobs: BlobServer, part: Path) -> None:
    blobs.store("below/model", CONTENT[::-1])
    blobs.versions["below/model"] = "2"


@pytest.mark.parametrize(
    ("meanwhile", "requests"),
    [
        (lambda blobs, part: None, None),
        (store_anew, 5),
        (lambda blobs, part: part.write_bytes(bytes(192)), 6),  # it is damaged
        (lambda blobs, part: os.truncate(part, 191), 5),  # it is shorter than its ranges
    ],
    ids=["nothing", "another version", "damaged", "shorter"],
)
def test_an_interrupted_download_continues_with_the_missing_ranges_of_the_same_blob(
    meanwhile: Callable[[BlobServer, Path], None], requests: int | None, blobs: BlobServer, tmp_path: Path
) -> None:
    blobs.store("below/model", CONTENT)
    blobs.refuse = lambda asked: 400 if asked.endswith("bytes=192-199") else 0
    assert down(blobs, tmp_path).total.failed == 1
    assert not (tmp_path / "below/model").exists()
    assert "GET below/model  bytes=0-63" in blobs.asked
    part, notes = partial(tmp_path / "below/model")
    assert notes.exists()
    meanwhile(blobs, part)
    blobs.refuse, blobs.asked = (lambda asked: 0), []
    down(blobs, tmp_path).check()
    assert (tmp_path / "below/model").read_bytes() == blobs.blobs["below/model"]
    assert os.listdir(tmp_path / "below") == ["model"]  # noqa: PTH208
    if requests is None:
        assert "GET below/model  bytes=0-63" not in blobs.asked
    else:
        ranges = {f"GET below/model  bytes={span}" for span in SPANS}
        assert ({*blobs.asked}, len(blobs.asked)) == ({"GET  list", *ranges}, requests)


def test_the_ranges_that_are_there_are_noted_while_others_come(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.store("model", CONTENT)
    monkeypatch.setattr(download, "NOTED_SECONDS", 0.0)
    monkeypatch.setattr(download, "time", SimpleNamespace(monotonic=lambda: 5.0))
    noted: list[int] = []
    monkeypatch.setattr(PartialFile, "keep", lambda file, version, ranges: noted.append(len(ranges)))
    down(blobs, tmp_path).check()
    assert noted == [1, 2, 3, 4]


@pytest.mark.parametrize("with_md5", [False, True])
def test_a_small_download_that_is_stopped_is_not_given_the_name(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_md5: bool
) -> None:
    monkeypatch.setattr(download, "PIECE", 8)
    blobs.store("small", CONTENT[:64])
    if not with_md5:
        blobs.md5.clear()
    moving: Moving = Moving("download", lambda size: stop(moving))
    found = next(blob.stored(blobs.storage, "box"))
    begin = download._Download(
        download._Container(moving, blobs.storage, "box", tmp_path), found, tmp_path / "small"
    ).begin
    assert list(moving.results([begin])) == []
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_upload_that_is_stopped_makes_no_more_attempts(blobs: BlobServer, data: Path, attempts: int) -> None:
    (data / "small").write_text("x")

    def refuse(asked: str) -> int:
        if len(blobs.asked) == attempts:
            stop(moving)
        return 503

    blobs.refuse = refuse
    moving: Moving = Moving("upload", lambda size: None)
    begin = upload._Upload(moving, blobs.storage, "box", next(walk(data)), "small", None).begin
    list(moving.results([begin]))
    assert len(blobs.asked) == attempts


def test_an_upload_that_is_stopped_reads_no_more_of_its_file(
    blobs: BlobServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_requests, "PIECE", 8)
    (data / "model").write_bytes(CONTENT)
    blobs.store("model", CONTENT[::-1])
    read: list[int] = []

    def read_at(fd: int, start: int, size: int) -> bytes:
        read.append(start)
        stop(moving)
        return bytes(size)

    monkeypatch.setattr(blob_requests, "read_at", read_at)
    moving: Moving = Moving("upload", lambda size: None)
    known = next(blob.stored(blobs.storage, "box"))
    list(moving.results([upload._Upload(moving, blobs.storage, "box", next(walk(data)), "model", known).begin]))
    assert read == [0]


def stop(moving: Moving) -> None:
    """What Ctrl-C does."""
    assert moving._crew is not None
    moving._crew.stopped.set()


def test_bytes_with_another_md5_are_fetched_once_again_and_not_given_the_name(
    blobs: BlobServer, tmp_path: Path
) -> None:
    for name, content in (("model", CONTENT), ("small", CONTENT[:64])):
        blobs.store(name, content)
        blobs.blobs[name] = bytes(len(content))
    with pytest.raises(ServiceError, match=r"2 of 2 .*download box/model: its bytes have another MD5"):
        down(blobs, tmp_path).check()
    assert list(tmp_path.iterdir()) == []
    assert blobs.asked.count("GET small  bytes=0-63") == 2


def test_ranges_of_bytes_with_another_md5_are_no_longer_noted(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "NOTED_SECONDS", 0.0)
    blobs.store("model", CONTENT)
    blobs.blobs["model"] = CONTENT[::-1]
    first, noted_again = set[str](), list[bool]()

    def look(asked: str) -> int:
        if asked in first:
            noted_again.append(partial(tmp_path / "model")[1].exists())
        first.add(asked)
        return 0

    blobs.refuse = look
    assert down(blobs, tmp_path).total.failed == 1
    assert noted_again[0] is False


@pytest.mark.parametrize("cut", [0, 1, 63, 64])
def test_a_connection_that_breaks_costs_no_byte(blobs: BlobServer, data: Path, tmp_path: Path, cut: int) -> None:
    (data / "model").write_bytes(CONTENT)
    broken: set[str] = set()

    def once(asked: str) -> int | None:
        first = asked not in broken
        broken.add(asked)
        return cut if first else None

    blobs.cut = once
    up(blobs, data).check()
    assert blobs.blobs["model"] == CONTENT
    blobs.md5["model"] = upload.hashlib.md5(CONTENT).digest()
    down(blobs, tmp_path / "back").check()
    assert (tmp_path / "back" / "model").read_bytes() == CONTENT


def test_a_blob_whose_answers_have_no_byte_is_given_up_after_pauses(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    monkeypatch.setattr(retry, "interruptible", lambda stopped: retry.Clock(time.now, time.sleep))
    blobs.store("small", CONTENT[:64])
    blobs.cut = lambda asked: None if asked == "GET  list" or len(blobs.asked) == 200 else 0
    assert down(blobs, tmp_path).total.failed == 1
    assert time.pauses


def test_a_file_that_fails_is_named_and_does_not_stop_the_others(blobs: BlobServer, data: Path) -> None:
    for name in (b"a", b"refused", b"b\xff", b"c"):
        Path(os.fsdecode(bytes(data) + b"/" + name)).write_text("x")
    (data / "gone").symlink_to("nowhere")
    os.mkfifo(data / "pipe")
    blobs.refuse = lambda asked: 400 if asked.startswith("PUT refused") else 0
    tally = up(blobs, data)
    assert (tally.total.copied, tally.total.failed, set(blobs.blobs)) == (2, 4, {"a", "c"})
    with pytest.raises(ServiceError, match="4 of 6 files were not copied to link/box: ") as raised:
        tally.check()
    assert raised.value.exit_code == 4
    reasons = ("its name is not UTF-8", "gone: No such file", "/pipe: it is not a regular file", "refused: ")
    assert [reason for reason in reasons if reason not in str(raised.value)] == []


@pytest.mark.parametrize("status", [400, 404, 409, 412])
@pytest.mark.parametrize("refused", ["PUT small", "PUT model block", "PUT model blocklist"])
def test_a_file_that_the_service_refuses_does_not_count_as_copied(
    blobs: BlobServer, data: Path, refused: str, status: int
) -> None:
    (data / "small").write_bytes(b"x")
    (data / "model").write_bytes(CONTENT)
    blobs.refuse = lambda asked: status if asked == refused else 0
    tally = up(blobs, data)
    assert (tally.total.copied, tally.total.failed) == (1, 1)


def test_a_refused_signature_ends_the_upload_at_once(blobs: BlobServer, data: Path) -> None:
    for number in range(100):
        (data / f"{number}").write_text("x")
    blobs.refuse = lambda asked: 403 if asked.startswith(("PUT 1", "PUT 2")) else 0
    with pytest.raises(
        NotAllowed, match=r"check the account's key .*; \d+ of 100 files were copied to link/box before"
    ):
        up(blobs, data).check()
    assert len(blobs.asked) < 50


def test_a_full_disk_is_one_sentence_and_the_rest_still_comes(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.store("large", CONTENT)
    blobs.store("small", b"ok")
    fill_disk(monkeypatch, lambda data, at: len(data) > 10)
    with pytest.raises(ServiceError, match=f"the disk of {tmp_path} is full: free some space and copy large again"):
        down(blobs, tmp_path).check()
    assert (tmp_path / "small").read_bytes() == b"ok"
    assert not (tmp_path / "large").exists()


def test_a_file_that_changes_while_it_is_sent_does_not_arrive(blobs: BlobServer, data: Path) -> None:
    (data / "log").write_bytes(CONTENT)

    def grow(asked: str) -> int:
        if asked == "PUT log block":
            (data / "log").write_bytes(CONTENT * 2)
        return 0

    blobs.refuse = grow
    with pytest.raises(ServiceError, match="log changes while it is copied; copy it again later"):
        up(blobs, data).check()
    assert blobs.blobs == {}


def test_blobs_whose_names_leave_the_destination_stay_away(blobs: BlobServer, tmp_path: Path) -> None:
    for name in ("../out", "/etc/x", "a//b", "fine"):
        blobs.store(name, b"x")
    to = tmp_path / "to"
    with pytest.raises(ServiceError, match=r"3 of 4 files .*the blob \.\./out would be written outside of"):
        down(blobs, to).check()
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "fine"]


def test_no_blob_is_written_through_a_link(blobs: BlobServer, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    to = tmp_path / "to"
    to.mkdir()
    (to / "dir").symlink_to(tmp_path / "outside")
    (to / "last").symlink_to(tmp_path / "outside/last")
    for name in ("dir/file", "last", "fine"):
        blobs.store(name, b"x")
    with pytest.raises(ServiceError, match=r"1 of 3 files .*`dir` is a link, which is not followed"):
        down(blobs, to).check()
    assert list((tmp_path / "outside").iterdir()) == []
    assert (to / "last").read_bytes() == (to / "fine").read_bytes() == b"x"


def test_a_connection_that_another_thread_takes_does_not_stop_the_close(blobs: BlobServer) -> None:
    class Taken(list[HTTPConnection]):
        def pop(self, index: SupportsIndex = -1) -> HTTPConnection:
            self.clear()
            return super().pop(index)

    blobs.storage._idle = Taken([HTTPConnection("localhost")])
    blobs.storage.close()
    assert blobs.storage._idle == []


@pytest.mark.parametrize("same", [True, False])
def test_a_file_is_sent_again_only_if_its_content_is_another(same: bool, blobs: BlobServer, data: Path) -> None:
    contents = {"small": b"x", "model": CONTENT}
    for name, content in contents.items():
        (data / name).write_bytes(content)
        blobs.store(name, content if same else bytes(len(content)))
    assert up(blobs, data).total == ("link/box", 2, 0 if same else 2, 2 if same else 0, 0, 0 if same else 201)
    assert (blobs.asked == ["PUT", "GET  list"]) is same
    assert blobs.blobs == contents


@pytest.mark.parametrize(("seconds", "sent"), [(-1, False), (0, False), (1, True)])
@pytest.mark.parametrize("size", [1, 200])
def test_without_an_md5_a_file_is_sent_again_if_it_is_newer_than_its_blob(
    blobs: BlobServer, data: Path, seconds: int, sent: bool, size: int
) -> None:
    (data / "file").write_bytes(bytes(size))
    os.utime(data / "file", (LISTED + seconds, LISTED + seconds))
    blobs.blobs["file"] = b"y" * size
    assert up(blobs, data).total.copied == sent
    assert (blobs.blobs["file"] == bytes(size)) is sent


def test_a_file_of_exactly_one_block_and_an_empty_one_go_in_one_request(blobs: BlobServer, data: Path) -> None:
    (data / "block").write_bytes(CONTENT[:64])
    (data / "empty").write_bytes(b"")
    up(blobs, data).check()
    assert sorted(blobs.asked) == ["GET  list", "PUT", "PUT block", "PUT empty"]
    assert blobs.blobs == {"block": CONTENT[:64], "empty": b""}
    assert blobs.headers[-1]["x-ms-blob-content-md5"] == blobs.headers[-1]["Content-MD5"]


def test_the_blocks_of_a_very_large_file_are_larger(
    blobs: BlobServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "MOST_BLOCKS", 2)
    (data / "model").write_bytes(CONTENT + b"x")
    up(blobs, data).check()
    assert blobs.asked.count("PUT model block") == 2
    assert blobs.blobs["model"] == CONTENT + b"x"


def test_a_block_that_was_staged_with_another_size_is_sent_again(blobs: BlobServer, data: Path) -> None:
    (data / "model").write_bytes(CONTENT)
    blobs.refuse = lambda asked: 400 if asked == "PUT model blocklist" else 0
    assert up(blobs, data).total.failed == 1
    staged = blobs.blocks["model"]
    assert len(staged) == 4
    staged[next(iter(staged))] = b"cut"
    blobs.refuse, blobs.asked = (lambda asked: 0), []
    up(blobs, data).check()
    assert blobs.asked.count("PUT model block") == 1
    assert blobs.blobs["model"] == CONTENT


def test_a_block_is_named_by_its_number_and_its_digest(blobs: BlobServer, data: Path) -> None:
    """So that any release continues an upload of any other."""
    (data / "model").write_bytes(CONTENT)
    blobs.refuse = lambda asked: 400 if asked == "PUT model blocklist" else 0
    up(blobs, data)
    digests = [hashlib.sha256(CONTENT[start : start + 64]).digest() for start in range(0, 200, 64)]
    names = [bytes([0, 0, 0, number]) + digest[:20] for number, digest in enumerate(digests)]
    assert sorted(base64.b64decode(name) for name in blobs.blocks["model"]) == names


def test_a_file_that_grew_since_it_was_listed_is_not_sent(blobs: BlobServer, data: Path) -> None:
    (data / "log").write_bytes(b"x")
    files = list(walk(data))
    (data / "log").write_bytes(b"xy")
    with pytest.raises(ServiceError, match="log changes while it is copied; copy it again later"):
        bring(blobs.storage, "link/box", "", files).check()
    assert blobs.blobs == {}


def test_a_small_file_that_changes_while_it_is_read_is_not_sent(
    blobs: BlobServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "log").write_bytes(b"x")
    (file,) = walk(data)
    send = upload._Upload._check

    def change(self: upload._Upload) -> None:
        os.utime(data / "log", (1, 1))
        send(self)

    monkeypatch.setattr(upload._Upload, "_check", change)
    with pytest.raises(ServiceError, match="log changes while it is copied"):
        bring(blobs.storage, "link/box", "", [file]).check()
    assert blobs.blobs == {}


def test_the_bytes_of_a_file_are_counted_as_they_move(blobs: BlobServer, data: Path) -> None:
    (data / "model").write_bytes(CONTENT)
    (data / "small").write_bytes(b"xy")
    sent: list[int] = []
    bring(blobs.storage, "link/box", "", list(walk(data)), Watcher(moved=sent.append)).check()
    assert sorted(sent) == [2, 8, 64, 64, 64]


def test_files_are_closed_after_their_upload(blobs: BlobServer, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "model").write_bytes(CONTENT)
    (data / "small").write_bytes(b"x")
    opened: list[Any] = []
    monkeypatch.setattr(upload._Upload, "_open", noting(upload._Upload._open, lambda self: opened.append(self._opened)))
    up(blobs, data).check()
    assert [file.closed for file in opened] == [True, True]


def noting(method: Any, note: Callable[[Any], None]) -> Any:
    """A method that passes its object to `note` before it returns."""

    def noted(self: Any, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        finally:
            note(self)

    return noted


# --- downloads ------------------------------------------------------------------------------------------------------


def test_a_downloaded_file_has_the_time_of_its_blob_and_the_permissions_of_a_new_file(
    blobs: BlobServer, tmp_path: Path
) -> None:
    blobs.store("small", b"x")
    down(blobs, tmp_path).check()
    (tmp_path / "own").write_bytes(b"x")
    status = (tmp_path / "small").stat()
    assert (status.st_mtime, status.st_mode) == (LISTED, (tmp_path / "own").stat().st_mode)


@pytest.mark.parametrize("size", [1, 200])
def test_a_file_of_the_same_content_is_not_fetched_again(blobs: BlobServer, tmp_path: Path, size: int) -> None:
    blobs.store("below/file", CONTENT[:size])
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").write_bytes(CONTENT[:size])
    os.utime(tmp_path / "below/file", (1, 1))
    assert down(blobs, tmp_path).total.unchanged == 1
    assert blobs.asked == ["GET  list"]


def test_a_file_of_another_content_or_size_is_fetched_again(blobs: BlobServer, tmp_path: Path) -> None:
    for name, there in (("content", b"ab"), ("size", b"abc")):
        blobs.store(name, b"xy")
        (tmp_path / name).write_bytes(there)
    assert down(blobs, tmp_path).total.copied == 2
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"xy"}


@pytest.mark.parametrize(("seconds", "fetched"), [(-1, True), (0, False), (1, False)])
def test_without_an_md5_a_file_is_fetched_again_if_it_is_older_than_its_blob(
    blobs: BlobServer, tmp_path: Path, seconds: int, fetched: bool
) -> None:
    blobs.blobs["file"] = b"new"
    (tmp_path / "file").write_bytes(b"old")
    os.utime(tmp_path / "file", (LISTED + seconds, LISTED + seconds))
    assert down(blobs, tmp_path).total.copied == fetched
    assert (tmp_path / "file").read_bytes() == (b"new" if fetched else b"old")


def test_an_empty_blob_is_an_empty_file_and_costs_no_request(blobs: BlobServer, tmp_path: Path) -> None:
    blobs.store("a/empty", b"")
    down(blobs, tmp_path).check()
    assert (tmp_path / "a/empty").read_bytes() == b""
    assert blobs.asked == ["GET  list"]


def test_a_blob_of_exactly_one_range_comes_in_one_request_and_notes_nothing(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[PartialFile] = []
    monkeypatch.setattr(PartialFile, "keep", lambda file, *_: noted.append(file))
    blobs.store("block", CONTENT[:64])
    down(blobs, tmp_path).check()
    assert blobs.asked == ["GET  list", "GET block  bytes=0-63"]
    assert noted == []
    assert len(blobs.storage._idle) == 1, "the connection is kept for the next blob"


@pytest.mark.parametrize("status", [300, 400])
def test_a_small_download_that_fails_leaves_nothing_behind(blobs: BlobServer, tmp_path: Path, status: int) -> None:
    blobs.store("small", CONTENT[:64])
    blobs.refuse = lambda asked: status if asked.startswith("GET small") else 0
    assert down(blobs, tmp_path).total.failed == 1
    assert list(tmp_path.iterdir()) == []
    assert len(blobs.asked) == 2


def test_a_blob_that_changed_after_it_was_listed_is_not_mixed_with_its_earlier_version(
    blobs: BlobServer, tmp_path: Path
) -> None:
    blobs.store("model", CONTENT)
    listed = list(blob.stored(blobs.storage, "box"))
    blobs.versions["model"] = "2"
    with pytest.raises(ServiceError, match="download box/model: it was changed or deleted after it was listed; run"):
        sync.get(blobs.storage, "box", listed, "", tmp_path, names_of_data()).check()
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("is_link", [True, False])
def test_what_was_behind_the_end_of_a_partial_file_is_cut_off_but_no_link_is_followed(
    is_link: bool, blobs: BlobServer, tmp_path: Path
) -> None:
    blobs.store("small", b"xy")
    part, mine = partial(tmp_path / "small")[0], tmp_path / "mine"
    mine.write_bytes(b"precious")
    part.symlink_to("mine") if is_link else part.write_bytes(b"abcdef")
    assert down(blobs, tmp_path).total.failed == is_link
    assert mine.read_bytes() == b"precious"
    assert is_link or (tmp_path / "small").read_bytes() == b"xy"


def test_files_are_closed_after_their_download(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(
        download._Download, "_cut", noting(download._Download._cut, lambda self: opened.append(self._file))
    )
    for name in ("model", "small", "refused"):
        blobs.store(name, CONTENT if name == "model" else b"x")
    blobs.refuse = lambda asked: 400 if asked.startswith("GET refused") else 0
    assert down(blobs, tmp_path).total.failed == 1
    assert [(file._folder, file._descriptor) for file in opened] == [(None, None)] * 3
