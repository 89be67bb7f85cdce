"""A directory of this machine and one of a container: what is downloaded, what is left over, and what is deleted."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from batchtrain.cli import data
from batchtrain.cli.storage_accounts import Remote
from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable
from batchtrain.runs.local_names import names_of_data
from batchtrain.storage import blob, sync
from batchtrain.storage.blob import Stored
from batchtrain.storage.ingress import walk
from batchtrain.storage.moving import Moved, Tally, Watcher, of_all

from .blob_server import BlobServer

DAY = datetime(2026, 11, 22, tzinfo=timezone.utc)


def stored(*names: str) -> list[Stored]:
    return [Stored(name, 1, DAY) for name in names]


# --- downloads ------------------------------------------------------------------------------------------------------


def test_the_blobs_below_a_path_become_files_without_it(blobs: BlobServer, tmp_path: Path) -> None:
    for name in ("run/a", "run/sub/b"):
        blobs.store(name, name.encode())
    blobs.store("run/empty/", b"")
    begun: list[tuple[int, int]] = []
    moved: list[int] = []
    watcher = Watcher(lambda files, size: begun.append((files, size)), moved.append)
    below = list(blob.stored(blobs.storage, "box"))
    tally = sync.get(blobs.storage, "box", below, "run", tmp_path / "to", names_of_data(), watcher)
    assert {file.name: file.path.read_text() for file in walk(tmp_path / "to")} == {"a": "run/a", "sub/b": "run/sub/b"}
    assert (begun, sum(moved), tally.total.copied, tally.total.bytes) == ([(2, 14)], 14, 2, 14)


@pytest.mark.parametrize("is_directory", [True, False])
def test_a_single_blob_becomes_the_destination_or_a_file_in_it(
    blobs: BlobServer, tmp_path: Path, is_directory: bool
) -> None:
    blobs.store("run/a", b"x")
    to = tmp_path / "to"
    if is_directory:
        to.mkdir()
    sync.get(blobs.storage, "box", list(blob.stored(blobs.storage, "box")), "run/a", to, names_of_data()).check()
    assert (to / "a" if is_directory else to).read_bytes() == b"x"


@pytest.mark.parametrize(
    ("name", "path", "below"),
    [
        ("run/a", "run", "a"), ("run/a", "run/", "a"), ("run/a/b", "", "run/a/b"), ("run", "", "run"),
        ("run/", "run", None), ("run//a", "run", None), ("run/../a", "run", None), ("run/./a", "run", None),
        ("run/a\0b", "run", None), ("/a", "", None),
    ],
)  # fmt: skip
def test_the_file_of_a_blob_stays_in_the_destination(name: str, path: str, below: str | None, tmp_path: Path) -> None:
    assert sync.target_of(name, path, tmp_path, names_of_data()) == (None if below is None else tmp_path / below)


# --- what is left over ----------------------------------------------------------------------------------------------


def test_blobs_without_a_file_and_files_without_a_blob_are_left_over(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x")
    assert sync.surplus_blobs(stored("run/a", "run/c", "a"), "run/", walk(tmp_path)) == ["run/c", "a"]
    assert sync.surplus_files(stored("run/a", "run/c"), "run", tmp_path, names_of_data()) == [tmp_path / "b"]
    assert sync.surplus_files(stored("run/a"), "run", tmp_path / "none", names_of_data()) == []


# --- deletion -------------------------------------------------------------------------------------------------------


def test_blobs_are_deleted_and_a_refusal_does_not_stop_the_others(blobs: BlobServer) -> None:
    for name in ("a", "b", "c"):
        blobs.store(name, b"x")
    blobs.refuse = lambda asked: 400 if asked == "DELETE b" else 0
    tally = sync.remove(blobs.storage, "box", ["a", "b", "c", "gone"])
    assert list(blobs.blobs) == ["b"]
    assert (tally.total.files, tally.total.copied, tally.total.failed, tally.total.bytes) == (4, 3, 1, 0)
    with pytest.raises(ServiceError, match="1 of 4 files were not deleted from box: delete box/b: it answers 400"):
        tally.check("deleted from")


def test_files_are_deleted_and_of_a_link_the_link(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "a").write_text("x")
    (tmp_path / "directory").mkdir()
    tally = sync.remove_files(tmp_path, [tmp_path / name for name in ("a", "link", "gone", "directory")])
    assert sorted(os.listdir(tmp_path)) == ["directory", "kept"]  # noqa: PTH208
    assert (tally.total.place, tally.total.copied, tally.total.failed) == (str(tmp_path), 3, 1)
    with pytest.raises(ServiceError, match=r"1 of 4 files .*/directory cannot be deleted: "):
        tally.check("deleted from")


def test_a_source_that_is_not_there_deletes_nothing(
    blobs: BlobServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("x")
    monkeypatch.setattr(data, "settings", lambda: SimpleNamespace(confirm=lambda question: None, verbose=False))
    monkeypatch.setattr(data, "_show", lambda *tallies: None)
    with pytest.raises(NotFound, match="link/box/typo does not exist; `batchtrain data list link/box` lists its blobs"):
        data._down(Remote(blobs.storage, "link", "box", "typo"), tmp_path, delete=True)
    assert (tmp_path / "mine").exists()


# --- the sum of it --------------------------------------------------------------------------------------------------


def test_files_that_were_never_begun_have_failed() -> None:
    tally = Tally("to", 5, 10)
    for result in (Moved("a", 3, moved=True), Moved("b"), Moved("c", error=ServiceError("no"))):
        tally.add(result)
    assert tally.total == ("to", 5, 1, 1, 3, 3)


@pytest.mark.parametrize(
    ("failures", "end"), [(1, "e0"), (5, "e3; e4"), (6, "e4; and 1 more"), (1200, "; and 1,195 more")]
)
def test_an_error_names_the_first_failures_and_counts_the_others(failures: int, end: str) -> None:
    tally = Tally("to", 2000, 0)
    for number in range(2000):
        error = ServiceError(f"e{number}") if number < failures else None
        tally.add(Moved(str(number), moved=error is None, error=error))
    with pytest.raises(ServiceError) as raised:
        tally.check()
    assert str(raised.value).startswith(f"{failures:,} of 2,000 files were not copied to to: e0")
    assert str(raised.value).endswith(end)


def test_a_fault_of_the_whole_account_is_the_error_of_all_files() -> None:
    tally = Tally("to", 3, 0)
    refusal = NotAllowed("no key", operation="upload", code="AuthenticationFailed")
    for result in (Moved("a", moved=True), Moved("b", error=ServiceError("bad")), Moved("c", error=refusal)):
        tally.add(result)
    with pytest.raises(NotAllowed, match=r"^no key; 1 of 3 files were copied to to before$") as raised:
        tally.check()
    assert (raised.value.operation, raised.value.code) == ("upload", "AuthenticationFailed")


@pytest.mark.parametrize(
    ("error", "every"),
    [
        (NotAllowed("x"), True),
        (Unreachable("x"), True),
        (NotFound("x", code="ContainerNotFound"), True),
        (NotFound("x", code="BlobNotFound"), False),
        (ServiceError("x"), False),
    ],
)
def test_a_fault_of_the_container_is_one_of_all_files(error: ServiceError, every: bool) -> None:
    assert of_all(error) is every
