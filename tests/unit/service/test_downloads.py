"""Files come whole or not at all: cut connections, changing files, full disks, lost nodes."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from azure.batch import BatchClient
from azure.core.exceptions import ServiceRequestError

from batchtrain.errors import NotFound, ServiceError, Unreachable
from batchtrain.records import File
from batchtrain.service import downloads
from batchtrain.service.downloads import Fetched, Wanted, fetch, fetch_found, listed, node_tree, task_tree
from batchtrain.service.local_files import PRIVATE
from batchtrain.service.retry import FAR, NEAR
from tests.unit.runs.batch_server import BatchServer, serve
from tests.unit.service.test_retry import Service

TREE = task_tree("j", "t")
TASK = TREE.url
NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)


@pytest.fixture
def service() -> Iterator[BatchServer]:
    server = BatchServer()
    server.files[TASK] = {}
    with serve(server):
        yield server


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "RANGE", 64)


def fetched(service: BatchServer, target: Path, *files: File) -> dict[str, Fetched]:
    wanted = (Wanted(TREE, file, target / file.path) for file in files)
    return {one.wanted.file.path: one for one in fetch(service.client, wanted, target, patience=NEAR)}


def fill_disk(monkeypatch: pytest.MonkeyPatch, is_full: Callable[[bytes, int], bool]) -> None:
    """Refuses bytes at a position of a file."""
    write = os.pwrite

    def full(fd: int, data: Any, at: int) -> int:
        if is_full(data, at):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)


def content(size: int) -> bytes:
    return bytes(number % 251 for number in range(size))


def test_a_directory_of_100_000_files_is_listed_whole_and_any_of_them_fetched(
    service: BatchServer, tmp_path: Path
) -> None:
    service.files[TASK] = {f"wd/output/{number:06}": b"content" for number in range(100_000)}
    seen = {file.path: file for file in listed(service.client, TREE)}
    assert seen.keys() == service.files[TASK].keys()
    got = fetched(service, tmp_path, seen["wd/output/000000"], seen["wd/output/099999"])
    assert [one.size for one in got.values()] == [7, 7]


def test_a_long_list_is_read_page_by_page_as_it_is_needed_and_leaves_directories_out(service: BatchServer) -> None:
    """A directory of 100,000 files is never in memory as one answer."""
    service.files[TASK], service.page = {f"f{number:04}": b"x" * number for number in range(1000)}, 100
    files = listed(service.client, TREE)
    first = [next(files) for _ in range(150)]
    assert len(service.asked) == 2
    sizes = [(file.path, file.size) for file in (*first, *files)]
    assert sizes == [(f"f{number:04}", number) for number in range(1000)]


def test_files_of_all_sizes_come_byte_for_byte(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {f"d/{size}": content(size) for size in (0, 1, 63, 64, 65, 127, 128, 1000)}
    found = fetched(service, tmp_path, *(File(name, len(data), NOW) for name, data in service.files[TASK].items()))
    for name, data in service.files[TASK].items():
        assert (tmp_path / name).read_bytes() == data
        assert (found[name].sha256, found[name].reason) == (hashlib.sha256(data).hexdigest(), "")
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == sorted(name[2:] for name in service.files[TASK])
    assert (tmp_path / "d/64").stat().st_mtime == NOW.timestamp()


def test_files_are_found_and_fetched_at_once(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {f"t{number}/model": content(number * 70) for number in range(20)}

    def look(number: int, stopped: threading.Event) -> tuple[int, list[Wanted]]:
        path = f"t{number}/model"
        return number, [Wanted(TREE, File(path, number * 70), tmp_path / path)]

    done = list(fetch_found(service.client, (partial(look, number) for number in range(20)), tmp_path, patience=NEAR))
    assert sorted(found for found in done if isinstance(found, int)) == list(range(20))
    assert {name: (tmp_path / name).read_bytes() for name in service.files[TASK]} == service.files[TASK]


def test_a_look_that_fails_ends_the_others(service: BatchServer) -> None:
    def look(stopped: threading.Event) -> tuple[None, list[Wanted]]:
        raise NotFound("the job is gone")

    with pytest.raises(NotFound, match="the job is gone"):
        list(fetch_found(service.client, [look] * 100, Path(), patience=NEAR))


def test_a_link_whose_target_is_served_is_fetched_and_another_one_is_named(
    service: BatchServer, tmp_path: Path
) -> None:
    service.files[TASK] = {"served": content(200)}
    found = fetched(service, tmp_path, File("served", 9, link=True), File("out", 9, link=True))
    assert (found["served"].size, found["served"].reason) == (200, "")
    assert (tmp_path / "served").read_bytes() == content(200)
    assert (found["out"].reason, found["out"].again, found["out"].sha256) == (downloads.LINK, True, "")


def test_a_name_that_is_not_utf_8_is_requested_by_its_url(
    service: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [
        downloads._Item(name="wd/\ufffd", url=f"https://x{TREE.url}/files/wd/%FF", properties=None),
        downloads._Item(name="wd/a", url=f"https://x{TREE.url}/files/wd%2Fa", properties=None),
        downloads._Item(name="wd/l", properties=downloads._Properties(fileMode="0o120777")),
    ]
    monkeypatch.setattr(downloads.requests, "listed", lambda *_: iter(items))
    bad, plain, link = listed(service.client, TREE)
    assert (bad.path, TREE.file_url(bad.path, bad.raw)) == ("wd/%FF", f"{TREE.url}/files/wd%2F%FF")
    assert (plain.path, plain.raw, plain.link) == ("wd/a", b"", False)
    assert link.link


def test_a_copy_is_private_where_it_is_asked_for(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {"a": b"x"}
    target, umask = tmp_path / "new" / "deep" / "a", os.umask(0)
    try:
        list(fetch(service.client, [Wanted(TREE, File("a", 1, NOW), target)], tmp_path, patience=NEAR, mode=PRIVATE))
    finally:
        os.umask(umask)
    assert [path.stat().st_mode & 0o777 for path in (target.parents[1], target.parent, target)] == [0o700, 0o700, 0o600]


def test_no_file_is_written_through_a_link(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = dict.fromkeys(("dir/file", "last", "fine"), b"x")
    outside, to = tmp_path / "outside", tmp_path / "to"
    outside.mkdir()
    to.mkdir()
    (to / "dir").symlink_to(outside)
    (to / "last").symlink_to(outside / "last")
    results = fetched(service, to, *(File(name, 1) for name in service.files[TASK]))
    assert results["dir/file"].reason.endswith("`dir` is a link, which is not followed; replace it by a directory")
    assert list(outside.iterdir()) == []
    assert (to / "last").read_bytes() == (to / "fine").read_bytes() == b"x"


@pytest.mark.parametrize("cut", [0, 1, 31, 63])
def test_a_connection_that_is_cut_at_any_byte_is_resumed_there(cut: int, service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {"model": content(200)}
    cuts = iter([cut, cut])
    service.before = lambda *_: next(cuts, None)
    found = fetched(service, tmp_path, File("model", 200))
    assert (tmp_path / "model").read_bytes() == content(200)
    assert found["model"].sha256


def test_an_answer_without_a_byte_is_not_requested_for_ever(
    service: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files[TASK]["a"] = b"0123456789"
    monkeypatch.setattr(downloads._Download, "_stream", lambda *_: iter(()))
    (fetched,) = fetch(service.client, [Wanted(TREE, File("a", 10), tmp_path / "a")], tmp_path)
    assert (fetched.reason, list(tmp_path.glob("a"))) == ("the answer had none of its bytes", [])


def test_a_file_that_grows_is_its_first_bytes(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {"log": content(200)}

    def grow(name: str, _: str) -> None:
        service.files[TASK][name] += b"more"
        service.versions[name] = service.versions.get(name, 0) + 1

    service.before = grow
    found = fetched(service, tmp_path, File("log", 200))["log"]
    assert found.reason == f"it was being written while it was fetched: these are its first {found.size:,} bytes"
    assert (tmp_path / "log").read_bytes() == service.files[TASK]["log"][: found.size]


@pytest.mark.parametrize(("size", "note"), [(150, "these are its first 150 bytes"), (200, "")])
def test_a_file_that_was_replaced_between_two_ranges_is_never_a_mixture(
    service: BatchServer, tmp_path: Path, size: int, note: str
) -> None:
    service.files[TASK] = {"model": b"a" * 200}

    def replace(name: str, _: str) -> None:
        if len(service.asked) == 2:
            service.files[TASK][name], service.versions[name] = b"b" * size, 1

    service.before = replace
    found = fetched(service, tmp_path, File("model", 200))["model"]
    assert (tmp_path / "model").read_bytes() == b"b" * size
    assert found.reason.endswith(note) and bool(found.reason) is bool(note)


def test_a_file_that_shrinks_during_every_try_is_not_there(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {"log": content(200)}

    def shrink(name: str, span: str) -> None:
        if span:
            service.files[TASK][name] = service.files[TASK][name][:-1]

    service.before = shrink
    found = fetched(service, tmp_path, File("log", 200))["log"]
    assert (found.reason, found.again) == ("it changes while it is fetched; fetch it again later", True)
    assert list(tmp_path.glob("log")) == []


def test_a_file_that_is_gone_does_not_stop_the_others(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {"b": b"there"}
    found = fetched(service, tmp_path, File("a", 10), File("b", 5))
    assert (tmp_path / "b").read_bytes() == b"there"
    assert "FileNotFound" in found["a"].reason and not found["a"].again
    assert os.listdir(tmp_path) == ["b"]  # noqa: PTH208


def test_after_a_lost_node_its_other_files_are_not_asked_for(
    service: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WORKERS", 1)
    monkeypatch.setattr(downloads, "_GONE", frozenset({"FileNotFound"}))
    found = fetched(service, tmp_path, *(File(f"f{number}", 10) for number in range(5)))
    assert len(service.asked) == 1
    assert len({one.reason for one in found.values()}) == 1


def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(
    service: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files[TASK] = {"large": content(60), "small": b"ok"}
    fill_disk(monkeypatch, lambda data, at: len(data) > 10)
    found = fetched(service, tmp_path, File("large", 60), File("small", 2))
    assert found["large"].reason == f"the disk of {tmp_path} is full: free some space and fetch it again"
    assert found["large"].again
    assert os.listdir(tmp_path) == ["small"]  # noqa: PTH208


def test_what_came_of_a_large_file_is_kept_for_the_next_call(
    service: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WORKERS", 1)
    service.files[TASK] = {"model": content(200)}
    fill_disk(monkeypatch, lambda data, at: at >= 128)
    fetched(service, tmp_path, File("model", 200, NOW))
    assert not (tmp_path / "model").exists()
    monkeypatch.undo()
    monkeypatch.setattr(downloads, "RANGE", 64)
    spans: list[str] = []
    service.before = lambda _, span: spans.append(span)
    fetched(service, tmp_path, File("model", 200, NOW))
    assert sorted(spans) == ["bytes=128-191", "bytes=192-199"]
    assert (tmp_path / "model").read_bytes() == content(200)
    assert os.listdir(tmp_path) == ["model"]  # noqa: PTH208


def test_a_damaged_part_of_an_earlier_call_is_fetched_again(
    service: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files[TASK] = {"model": content(200)}
    with monkeypatch.context() as patched:
        patched.setattr(downloads, "WORKERS", 1)
        fill_disk(patched, lambda data, at: at >= 128)
        fetched(service, tmp_path, File("model", 200, NOW))
    part, _ = downloads.partial(tmp_path / "model")
    part.write_bytes(bytes(128))
    assert fetched(service, tmp_path, File("model", 200, NOW))["model"].reason == ""
    assert (tmp_path / "model").read_bytes() == content(200)


def test_a_copy_that_the_disk_corrupts_is_not_given_its_name(
    service: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files[TASK] = {"model": content(60)}
    write = os.pwrite
    monkeypatch.setattr(downloads.os, "pwrite", lambda fd, data, at: write(fd, bytes(len(data)), at))
    found = fetched(service, tmp_path, File("model", 60))["model"]
    assert "is not what came from the node" in found.reason
    assert not (tmp_path / "model").exists()


def test_a_copy_that_cannot_get_its_name_is_a_failure_that_a_later_call_may_mend(
    service: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    service.files[TASK] = {"a": b"x"}
    monkeypatch.setattr(os, "replace", refuse)
    result = fetched(service, tmp_path, File("a", 1))["a"]
    assert (result.sha256, result.again) == ("", True) and "Permission denied" in result.reason


def test_an_interrupted_call_ends_its_threads(service: BatchServer, tmp_path: Path) -> None:
    service.files[TASK] = {f"f{number}": content(64) for number in range(50)}
    wanted = (Wanted(TREE, File(name, 64), tmp_path / name) for name in service.files[TASK])
    some = fetch(service.client, wanted, tmp_path, patience=NEAR)
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


def test_a_node_tree_lists_one_directory(service: BatchServer) -> None:
    service.files["/pools/p/nodes/n"] = {"workitems/j/job-1/t/wd/a": b"1", "workitems/j/job-1/tt/b": b"2"}
    tree = node_tree("p", "n", "workitems/j/job-1/t")
    assert [file.path for file in listed(service.client, tree)] == ["wd/a"]
    assert tree.file_url("wd/a") == "/pools/p/nodes/n/files/workitems%2Fj%2Fjob-1%2Ft%2Fwd%2Fa"


def test_a_file_whose_answer_has_no_length_is_empty_and_a_directory_is_none(service: BatchServer) -> None:
    assert downloads.size_of(Service((200, None)).client, TREE, "wd/a") == File("wd/a", 0)
    with pytest.raises(NotFound):
        downloads.size_of(service.client, TREE, "nothing")


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
