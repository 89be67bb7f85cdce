"""Files come whole or not at all: cut connections, changing files, full disks, lost nodes."""

from __future__ import annotations

import errno
import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from azure.batch import BatchClient
from azure.core.exceptions import ServiceRequestError

from batchtrain.config.types import Secret
from batchtrain.errors import NotFound, ServiceError, Unreachable
from batchtrain.records import File
from batchtrain.service import connect, downloads
from batchtrain.service.connect import Account
from batchtrain.service.downloads import Fetched, Wanted, fetch, fetch_found, listed, node_tree, task_tree
from batchtrain.service.local_files import PRIVATE
from batchtrain.service.retry import FAR, NEAR

TREE = task_tree("j", "t")
NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)


class Service:
    """Serves the files of one task; `before` may change them, or say after how many bytes an answer is cut off."""

    def __init__(self, **files: bytes) -> None:
        self.files = dict(files)
        self.versions: dict[str, int] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.page = 1000
        self.lock = threading.Lock()
        self.url = ""

    def before(self, name: str, span: str) -> int | None:
        return None

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        name = unquote(parts.path.partition("/files")[2]).lstrip("/")
        if not name:
            self._list(handler, parts.query)
            return
        span = handler.headers.get("ocp-range", "")
        with self.lock:
            self.asked.append((handler.command, name, span))
            cut = self.before(name, span)
            content, version = self.files.get(name), self.versions.get(name, 0)
        if content is None:
            _refuse(handler, 404, "FileNotFound")
            return
        if handler.command != "HEAD" and span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            if int(first) >= len(content):
                _refuse(handler, 416, "InvalidRange")
                return
            content = content[int(first) : int(last) + 1]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("Last-Modified", f"Sun, 22 Nov 2026 00:00:{version:02} GMT")
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content if cut is None else content[:cut])
            if cut is not None and cut < len(content):
                handler.close_connection = True

    def _list(self, handler: http.server.BaseHTTPRequestHandler, query: str) -> None:
        names = sorted(self.files)
        start = int(query.partition("skip=")[2] or 0)
        page = names[start : start + self.page]
        body: dict[str, Any] = {
            "value": [
                {
                    "name": name,
                    "isDirectory": False,
                    "properties": {"contentLength": str(len(self.files[name])), "lastModified": "2026-11-22T00:00:00Z"},
                }
                for name in page
            ]
            + [{"name": "directory", "isDirectory": True}]
        }
        if start + self.page < len(names):
            body["odata.nextLink"] = f"{self.url}/jobs/j/tasks/t/files?api-version=1&skip={start + self.page}"
        content = msgspec.json.encode(body)
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json; odata=minimalmetadata")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


def _refuse(handler: http.server.BaseHTTPRequestHandler, status: int, code: str) -> None:
    body = b"" if handler.command == "HEAD" else msgspec.json.encode({"code": code, "message": {"value": code}})
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json; odata=minimalmetadata")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def service() -> Iterator[Service]:
    known = Service()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            known.answer(self)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        known.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield known
        server.shutdown()
        thread.join()


@pytest.fixture
def client(service: Service) -> BatchClient:
    return connect.connect(Account(service.url, "a", Secret("a2V5")))


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "RANGE", 64)


def fetched(client: BatchClient, target: Path, *files: File) -> dict[str, Fetched]:
    wanted = (Wanted(TREE, file, target / file.path) for file in files)
    return {one.wanted.file.path: one for one in fetch(client, wanted, target, patience=NEAR)}


def content(size: int) -> bytes:
    return bytes(number % 251 for number in range(size))


def test_a_directory_of_100_000_files_is_listed_whole_and_any_of_them_fetched(
    service: Service, client: BatchClient, tmp_path: Path
) -> None:
    service.files = {f"wd/output/{number:06}": b"content" for number in range(100_000)}
    seen = {file.path: file for file in listed(client, TREE)}
    assert seen.keys() == service.files.keys()
    got = fetched(client, tmp_path, seen["wd/output/000000"], seen["wd/output/099999"])
    assert [one.size for one in got.values()] == [7, 7]


def test_a_list_goes_over_pages_and_leaves_directories_out(service: Service, client: BatchClient) -> None:
    service.files, service.page = {f"f{number:02}": b"x" * number for number in range(25)}, 10
    assert [(file.path, file.size) for file in listed(client, TREE)] == [(f"f{n:02}", n) for n in range(25)]


def test_files_of_all_sizes_come_byte_for_byte(service: Service, client: BatchClient, tmp_path: Path) -> None:
    service.files = {f"d/{size}": content(size) for size in (0, 1, 63, 64, 65, 127, 128, 1000)}
    found = fetched(client, tmp_path, *(File(name, len(data), NOW) for name, data in service.files.items()))
    for name, data in service.files.items():
        assert (tmp_path / name).read_bytes() == data
        assert (found[name].sha256, found[name].reason) == (hashlib.sha256(data).hexdigest(), "")
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == sorted(name[2:] for name in service.files)
    assert (tmp_path / "d/64").stat().st_mtime == NOW.timestamp()


def test_files_are_found_and_fetched_at_once(service: Service, client: BatchClient, tmp_path: Path) -> None:
    service.files = {f"t{number}/model": content(number * 70) for number in range(20)}

    def look(number: int, stopped: threading.Event) -> tuple[int, list[Wanted]]:
        path = f"t{number}/model"
        return number, [Wanted(TREE, File(path, number * 70), tmp_path / path)]

    done = list(fetch_found(client, (partial(look, number) for number in range(20)), tmp_path, patience=NEAR))
    assert sorted(found for found in done if isinstance(found, int)) == list(range(20))
    assert {name: (tmp_path / name).read_bytes() for name in service.files} == service.files


def test_a_look_that_fails_ends_the_others(client: BatchClient) -> None:
    def look(stopped: threading.Event) -> tuple[None, list[Wanted]]:
        raise NotFound("the job is gone")

    with pytest.raises(NotFound, match="the job is gone"):
        list(fetch_found(client, [look] * 100, Path(), patience=NEAR))


def test_a_link_whose_target_is_served_is_fetched_and_another_one_is_named(
    service: Service, client: BatchClient, tmp_path: Path
) -> None:
    service.files = {"served": content(200)}
    found = fetched(client, tmp_path, File("served", 9, link=True), File("out", 9, link=True))
    assert (found["served"].size, found["served"].reason) == (200, "")
    assert (tmp_path / "served").read_bytes() == content(200)
    assert (found["out"].reason, found["out"].again, found["out"].sha256) == (downloads.LINK, True, "")


def test_a_name_that_is_not_utf_8_is_requested_by_its_url(
    service: Service, client: BatchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [
        downloads._Item(name="wd/\ufffd", url=f"https://x{TREE.url}/files/wd/%FF", properties=None),
        downloads._Item(name="wd/a", url=f"https://x{TREE.url}/files/wd%2Fa", properties=None),
        downloads._Item(name="wd/l", properties=downloads._Properties(fileMode="0o120777")),
    ]
    monkeypatch.setattr(downloads.requests, "listed", lambda *_: iter(items))
    bad, plain, link = listed(client, TREE)
    assert (bad.path, TREE.file_url(bad.path, bad.raw)) == ("wd/%FF", f"{TREE.url}/files/wd%2F%FF")
    assert (plain.path, plain.raw, plain.link) == ("wd/a", b"", False)
    assert link.link


def test_a_copy_is_private_where_it_is_asked_for(service: Service, client: BatchClient, tmp_path: Path) -> None:
    service.files = {"a": b"x"}
    target, umask = tmp_path / "new" / "deep" / "a", os.umask(0)
    try:
        list(fetch(client, [Wanted(TREE, File("a", 1, NOW), target)], tmp_path, patience=NEAR, mode=PRIVATE))
    finally:
        os.umask(umask)
    assert [path.stat().st_mode & 0o777 for path in (target.parents[1], target.parent, target)] == [0o700, 0o700, 0o600]


def test_no_file_is_written_through_a_link(service: Service, client: BatchClient, tmp_path: Path) -> None:
    service.files = dict.fromkeys(("dir/file", "last", "fine"), b"x")
    outside, to = tmp_path / "outside", tmp_path / "to"
    outside.mkdir()
    to.mkdir()
    (to / "dir").symlink_to(outside)
    (to / "last").symlink_to(outside / "last")
    results = fetched(client, to, *(File(name, 1) for name in service.files))
    assert results["dir/file"].reason.endswith("`dir` is a link, which is not followed; replace it by a directory")
    assert list(outside.iterdir()) == []
    assert (to / "last").read_bytes() == (to / "fine").read_bytes() == b"x"


@pytest.mark.parametrize("cut", [0, 1, 31, 63])
def test_a_connection_that_is_cut_at_any_byte_is_resumed_there(
    cut: int, service: Service, client: BatchClient, tmp_path: Path
) -> None:
    service.files = {"model": content(200)}
    cuts = iter([cut, cut])
    service.before = lambda *_: next(cuts, None)  # type: ignore[method-assign]
    found = fetched(client, tmp_path, File("model", 200))
    assert (tmp_path / "model").read_bytes() == content(200)
    assert found["model"].sha256


def test_an_answer_without_a_byte_is_not_requested_for_ever(
    service: Service, client: BatchClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files["a"] = b"0123456789"
    monkeypatch.setattr(downloads._Download, "_stream", lambda *_: iter(()))
    (fetched,) = fetch(client, [Wanted(TREE, File("a", 10), tmp_path / "a")], tmp_path)
    assert (fetched.reason, list(tmp_path.glob("a"))) == ("the answer had none of its bytes", [])


def test_a_file_that_grows_is_its_first_bytes(service: Service, client: BatchClient, tmp_path: Path) -> None:
    service.files = {"log": content(200)}

    def grow(name: str, _: str) -> None:
        service.files[name] += b"more"
        service.versions[name] = service.versions.get(name, 0) + 1

    service.before = grow  # type: ignore[method-assign]
    found = fetched(client, tmp_path, File("log", 200))["log"]
    assert found.reason == f"it was being written while it was fetched: these are its first {found.size:,} bytes"
    assert (tmp_path / "log").read_bytes() == service.files["log"][: found.size]


@pytest.mark.parametrize(("size", "note"), [(150, "these are its first 150 bytes"), (200, "")])
def test_a_file_that_was_replaced_between_two_ranges_is_never_a_mixture(
    service: Service, client: BatchClient, tmp_path: Path, size: int, note: str
) -> None:
    service.files = {"model": b"a" * 200}

    def replace(name: str, _: str) -> None:
        if len(service.asked) == 2:
            service.files[name], service.versions[name] = b"b" * size, 1

    service.before = replace  # type: ignore[method-assign]
    found = fetched(client, tmp_path, File("model", 200))["model"]
    assert (tmp_path / "model").read_bytes() == b"b" * size
    assert found.reason.endswith(note) and bool(found.reason) is bool(note)


def test_a_file_that_is_gone_does_not_stop_the_others(service: Service, client: BatchClient, tmp_path: Path) -> None:
    service.files = {"b": b"there"}
    found = fetched(client, tmp_path, File("a", 10), File("b", 5))
    assert (tmp_path / "b").read_bytes() == b"there"
    assert "FileNotFound" in found["a"].reason and not found["a"].again
    assert os.listdir(tmp_path) == ["b"]  # noqa: PTH208


def test_after_a_lost_node_its_other_files_are_not_asked_for(
    service: Service, client: BatchClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WORKERS", 1)
    monkeypatch.setattr(downloads, "_GONE", frozenset({"FileNotFound"}))
    found = fetched(client, tmp_path, *(File(f"f{number}", 10) for number in range(5)))
    assert len(service.asked) == 1
    assert len({one.reason for one in found.values()}) == 1


def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(
    service: Service, client: BatchClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files = {"large": content(60), "small": b"ok"}
    write = os.pwrite

    def full(fd: int, data: Any, at: int) -> int:
        if len(data) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, at)

    monkeypatch.setattr(downloads.os, "pwrite", full)
    found = fetched(client, tmp_path, File("large", 60), File("small", 2))
    assert found["large"].reason == f"the disk of {tmp_path} is full: free some space and fetch it again"
    assert found["large"].again
    assert os.listdir(tmp_path) == ["small"]  # noqa: PTH208


def test_what_came_of_a_large_file_is_kept_for_the_next_call(
    service: Service, client: BatchClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WORKERS", 1)
    service.files = {"model": content(200)}
    write = os.pwrite

    def full(fd: int, data: Any, at: int) -> int:
        if at >= 128:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, at)

    monkeypatch.setattr(downloads.os, "pwrite", full)
    fetched(client, tmp_path, File("model", 200, NOW))
    assert not (tmp_path / "model").exists()
    monkeypatch.undo()
    monkeypatch.setattr(downloads, "RANGE", 64)
    service.asked.clear()
    fetched(client, tmp_path, File("model", 200, NOW))
    assert sorted(span for _, _, span in service.asked) == ["bytes=128-191", "bytes=192-199"]
    assert (tmp_path / "model").read_bytes() == content(200)
    assert os.listdir(tmp_path) == ["model"]  # noqa: PTH208


def test_a_damaged_part_of_an_earlier_call_is_fetched_again(
    service: Service, client: BatchClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files = {"model": content(200)}
    write = os.pwrite

    def full(fd: int, data: Any, at: int) -> int:
        if at >= 128:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(downloads, "WORKERS", 1)
        patched.setattr(downloads.os, "pwrite", full)
        fetched(client, tmp_path, File("model", 200, NOW))
    part, _ = downloads.partial(tmp_path / "model")
    part.write_bytes(bytes(128))
    assert fetched(client, tmp_path, File("model", 200, NOW))["model"].reason == ""
    assert (tmp_path / "model").read_bytes() == content(200)


def test_a_copy_that_the_disk_corrupts_is_not_given_its_name(
    service: Service, client: BatchClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files = {"model": content(60)}
    write = os.pwrite
    monkeypatch.setattr(downloads.os, "pwrite", lambda fd, data, at: write(fd, bytes(len(data)), at))
    found = fetched(client, tmp_path, File("model", 60))["model"]
    assert "is not what came from the node" in found.reason
    assert not (tmp_path / "model").exists()


def test_an_interrupted_call_ends_its_threads(service: Service, client: BatchClient, tmp_path: Path) -> None:
    service.files = {f"f{number}": content(64) for number in range(50)}
    wanted = (Wanted(TREE, File(name, 64), tmp_path / name) for name in service.files)
    some = fetch(client, wanted, tmp_path, patience=NEAR)
    next(some)
    some.close()
    assert not [thread for thread in threading.enumerate() if thread.name == downloads.THREAD]
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_a_pause_between_attempts_ends_with_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoServer:
        asked = 0

        def send_request(self, request: Any, **_: Any) -> Any:
            self.asked += 1
            raise ServiceRequestError("no connection")

    def interrupt(error: BaseException) -> bool:
        batch.stopped.set()  # after the attempt, before the pause
        return True

    batch = downloads._Batch(NoServer(), tmp_path, print, FAR._replace(first=1e-3, most=1e-3), 0o777)  # type: ignore[arg-type]
    monkeypatch.setattr(downloads.retry, "transient", interrupt)
    download = downloads._Download(batch, Wanted(TREE, File("f", 64), tmp_path / "f"))
    download.take((0, 64))
    assert (batch.client.asked, download._failed) == (1, None)  # type: ignore[attr-defined]
    result = download.done((0, 64))
    assert result is not None and (result.reason, result.again) == ("interrupted", True)


def test_a_node_tree_lists_one_directory(service: Service, client: BatchClient) -> None:
    service.files = {"workitems/j/job-1/t/wd/a": b"1", "workitems/j/job-1/tt/b": b"2"}
    tree = node_tree("p", "n", "workitems/j/job-1/t")
    assert [file.path for file in listed(client, tree)] == ["wd/a"]
    assert tree.file_url("wd/a") == "/pools/p/nodes/n/files/workitems%2Fj%2Fjob-1%2Ft%2Fwd%2Fa"


def test_a_directory_is_no_file(service: Service, client: BatchClient) -> None:
    with pytest.raises(NotFound):
        downloads.size_of(client, TREE, "nothing")


def test_a_long_list_is_read_page_by_page_as_it_is_needed(service: Service, client: BatchClient) -> None:
    """A directory of 100,000 files is never in memory as one answer."""
    service.files, service.page = {f"f{number:04}": b"" for number in range(1000)}, 100
    pages: list[str] = []
    original = service._list

    def counted(handler: Any, query: str) -> None:
        pages.append(query)
        original(handler, query)

    service._list = counted  # type: ignore[method-assign]
    files = listed(client, TREE)
    assert [next(files).path for _ in range(150)][-1] == "f0149"
    assert len(pages) == 2


@pytest.mark.parametrize(
    ("error", "same", "other"),
    [
        (Unreachable("no network"), "no network", "no network"),
        (ServiceError("no node", code="NodeNotFound"), "no node", ""),
        (NotFound("no file", code="FileNotFound"), "", ""),
    ],
)
def test_no_file_is_requested_any_more_from_what_was_lost(
    error: ServiceError, same: str, other: str, tmp_path: Path
) -> None:
    batch = downloads._Batch(cast(BatchClient, None), tmp_path, lambda _: None, FAR, PRIVATE)
    batch.note(TREE, error)
    batch.note(TREE, type(error)("later", code=error.code))
    assert (batch.why_not(TREE), batch.why_not(task_tree("j", "other"))) == (same, other)
