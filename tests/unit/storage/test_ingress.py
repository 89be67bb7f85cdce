"""Which files of this machine are brought to a container, and under which names."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from batchtrain.config.travel import FileOnDisk, LargeSource
from batchtrain.config.types import Recipe, convert
from batchtrain.errors import PlanError, UsageError
from batchtrain.plan import ingress as planning
from batchtrain.storage import large_source, source
from batchtrain.storage.ingress import bring, carry_out, fits, local_files, walk
from batchtrain.storage.moving import Progress, Watcher

from .blob_server import BlobServer


def tree(root: Path, *names: str) -> Path:
    """Files whose content is their name."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


# --- local files ----------------------------------------------------------------------------------------------------


def test_a_walk_goes_through_files_and_then_directories_by_name(tmp_path: Path) -> None:
    names = ("b", "z/a", "c", "a/y/1", "a/x", "a.txt")
    tree(tmp_path, *names)
    assert [file.name for file in walk(tmp_path)] == ["a.txt", "b", "c", "a/x", "a/y/1", "z/a"]
    assert [file.size for file in walk(tmp_path)] == [5, 1, 1, 3, 5, 3]
    assert [file.path for file in walk(tmp_path / "b")] == [tmp_path / "b"]


def test_a_walk_does_not_follow_links_to_directories_but_to_files(tmp_path: Path) -> None:
    tree(tmp_path, "real/a")
    (tmp_path / "again").symlink_to("real")
    (tmp_path / "file").symlink_to("real/a")
    (tmp_path / "nothing").symlink_to("none")
    assert [(file.name, file.size) for file in walk(tmp_path)] == [("file", 6), ("nothing", 0), ("real/a", 6)]


def test_a_directory_that_cannot_be_read_is_left_to_the_upload_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, "a/x", "b/y")
    scan = os.scandir

    def refuse(path: Path) -> Any:
        if path.name == "a":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [(file.name, file.size) for file in walk(tmp_path)] == [("a/", 0), ("b/y", 3)]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["a.txt", "b.log", "sub/c.txt"]),
        ({"include": ["*.txt"]}, ["a.txt", "sub/c.txt"]),
        ({"exclude": ["sub/*"]}, ["a.txt", "b.log"]),
        ({"include": ["*.txt", "*.log"], "exclude": ["a*", "b*"]}, ["sub/c.txt"]),
        ({"strip": 0}, ["data/a.txt", "data/b.log", "data/sub/c.txt"]),
        ({"strip": 2, "include": ["sub/*"]}, ["c.txt"]),
        ({"strip": 9, "include": ["sub/*"]}, ["c.txt"]),
    ],
)
def test_files_are_chosen_by_patterns_and_lose_the_first_parts_of_their_names(
    tmp_path: Path, wanted: dict[str, Any], names: list[str]
) -> None:
    root = tree(tmp_path / "data", "a.txt", "b.log", "sub/c.txt")
    assert [file.name for file in local_files(root, wanted)] == names


def test_two_files_that_would_have_one_name_are_both_named(tmp_path: Path) -> None:
    root = tree(tmp_path / "data", "a/same", "b/same")
    with pytest.raises(UsageError) as raised:
        local_files(root, {"strip": 2})
    both = f"{root}/a/same and {root}/b/same would both become same"
    assert str(raised.value) == f"with `--strip-components 2`, {both}; use a smaller number"


def test_a_source_without_fitting_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none is not there; `global_resources.files` names it"):
        local_files(tmp_path / "none", {})
    with pytest.raises(UsageError, match=r"no file of .* fits its `include` and `exclude`"):
        local_files(tree(tmp_path, "a"), {"include": ["b"]})


def test_a_single_file_keeps_its_name_and_a_pattern_minds_the_case_of_letters(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt")
    for strip in (0, 1, 2):
        assert [file.name for file in local_files(tmp_path / "a.txt", {"strip": strip})] == ["a.txt"]
    assert [fits("a/B.txt", patterns) for patterns in (("x", "a/*.txt"), ("a/b.txt",))] == [True, False]


# --- to a container -------------------------------------------------------------------------------------------------


def recipe(directory: Path, *sources: str) -> Recipe:
    destination = {"storage_account_settings": "link", "data_transfer": {"remote_path": "box/in"}}
    files = [{"source": {"path": path}, "destination": destination} for path in sources]
    whole: Recipe = convert({"directory": str(directory), "resources": {"files": files}}, Recipe)
    return whole


def test_the_files_of_a_recipe_come_below_their_destinations(blobs: BlobServer, tmp_path: Path) -> None:
    tree(tmp_path, "data/a", "data/sub/b", "other")
    whole = recipe(tmp_path, "data", "other")
    tallies = carry_out(planning.plan(whole), whole, {"link": blobs.storage}.__getitem__)
    assert blobs.blobs == {"in/a": b"data/a", "in/sub/b": b"data/sub/b", "in/other": b"other"}
    assert [(tally.total.place, tally.total.files, tally.total.copied, tally.total.bytes) for tally in tallies] == [
        ("link/box/in", 2, 2, 16), ("link/box/in", 1, 1, 5),
    ]  # fmt: skip


def test_nothing_is_uploaded_if_a_later_source_does_not_exist(blobs: BlobServer, tmp_path: Path) -> None:
    whole = recipe(tree(tmp_path, "data/a"), "data", "none")
    with pytest.raises(UsageError, match="none is not there"):
        carry_out(planning.plan(whole), whole, lambda link: blobs.storage)
    assert blobs.asked == []


def test_the_progress_of_files_is_reported(blobs: BlobServer, tmp_path: Path) -> None:
    begun: list[tuple[int, int]] = []
    moved: list[int] = []
    reports: list[Progress] = []
    files = list(walk(tree(tmp_path, "a", "bcd")))
    watcher = Watcher(lambda count, size: begun.append((count, size)), moved.append, reports.append)
    bring(blobs.storage, "link/box", "in/", files, watcher).check()
    assert (begun, sorted(moved)) == ([(2, 4)], [1, 3])
    assert {report.name for report in reports} == {"a", "bcd"}
    assert reports[-1]._replace(name="") == Progress("link/box/in", "", copied=True, done=2, of=2, bytes=4)
    bring(blobs.storage, "link/box", "in", files, watcher).check()
    assert reports[-1]._replace(name="") == Progress("link/box/in", "", copied=False, done=2, of=2, bytes=0)


def test_what_cannot_be_read_is_no_copy_of_an_empty_blob(blobs: BlobServer, tmp_path: Path) -> None:
    blobs.blobs["gone"] = b""
    (tmp_path / "gone").symlink_to("nowhere")
    assert bring(blobs.storage, "link/box", "", list(walk(tmp_path))).total.failed == 1


# --- the archive of a large source ----------------------------------------------------------------------------------


def large(root: Path, **contents: bytes) -> LargeSource:
    files = []
    for number, (name, content) in enumerate(contents.items()):
        (root / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files.append(FileOnDisk(f"src/{name}", str(root / name), 0o755 if number else 0o644, digest))
    return LargeSource(tuple(files), sum(map(len, contents.values())), "digest")


def test_a_large_source_is_an_archive_with_names_modes_times_and_bytes(blobs: BlobServer, tmp_path: Path) -> None:
    source_ = large(tmp_path, a=b"x" * 300_000, b=b"y")
    os.utime(source_.files[1].path, (5, 1_700_000_000))
    large_source.send(blobs.storage, "box", "source.tar.gz", source_)
    with tarfile.open(fileobj=io.BytesIO(blobs.blobs["source.tar.gz"])) as archive:
        entries = [(entry.name, entry.mode, entry.mtime) for entry in archive]
        contents = [file.read() for entry in archive if (file := archive.extractfile(entry))]
    assert [entry[:2] for entry in entries] == [("src/a", 0o644), ("src/b", 0o755)]
    assert entries[1][2] == 1_700_000_000
    assert blobs.blobs["source.tar.gz"][4:8] == bytes(4), "gzip's own time"
    assert contents == [b"x" * 300_000, b"y"]


def test_the_archive_of_the_same_source_is_uploaded_once(blobs: BlobServer, tmp_path: Path) -> None:
    source_ = large(tmp_path, a=b"x")
    large_source.send(blobs.storage, "box", "source.tar.gz", source_)
    os.utime(tmp_path / "a", (1, 1))
    large_source.send(blobs.storage, "box", "source.tar.gz", source_)
    assert blobs.asked[:2] == ["PUT", "GET  list"], "its container is made before it is listed"
    assert [asked for asked in blobs.asked if asked.startswith("PUT source")] == ["PUT source.tar.gz"]


def test_an_archive_that_is_refused_or_has_a_file_that_changed_since_the_plan_is_an_error(
    blobs: BlobServer, tmp_path: Path
) -> None:
    source_ = large(tmp_path, a=b"x")
    blobs.refuse = lambda asked: 400 if asked.startswith("PUT s") else 0
    with pytest.raises(Exception, match=r"1 of 1 files were not copied to storage/box"):
        large_source.send(blobs.storage, "box", "s", source_)
    (tmp_path / "a").write_bytes(b"y")
    with pytest.raises(PlanError, match="a has changed since the plan was made; run the command again"):
        large_source.send(blobs.storage, "box", "source.tar.gz", source_)
    assert blobs.blobs == {}


# --- the blobs of file factories ------------------------------------------------------------------------------------


def factories(*storages: dict[str, Any]) -> Recipe:
    tasks: list[dict[str, Any]] = [{"command": "x"}, {"command": "x", "task_factory": {"repeat": 2}}]
    tasks += [{"command": "x", "task_factory": {"file": {"azure_storage": storage}}} for storage in storages]
    whole: Recipe = convert({"directory": "x", "jobs": [{"id": "j", "tasks": tasks}]}, Recipe)
    return whole


def place(path: str, **more: Any) -> dict[str, Any]:
    return {"storage_account_settings": "link", "remote_path": path, **more}


def test_each_listing_of_file_factories_is_read_once_and_file_shares_are_not(blobs: BlobServer) -> None:
    for name in ("run1/a", "run2", "other"):
        blobs.store(name, b"x")
    whole = factories(place("box/run"), place("box/run"), place("share", is_file_share=True), place("box/o"))
    assert source.read_listings(whole, lambda link: blobs.storage) == {
        "link/box/o": ("other",),
        "link/box/run": ("run1/a", "run2"),
    }
    assert blobs.asked == ["GET  list"] * 2


@pytest.mark.parametrize(("count", "whole"), [(100, True), (101, False)])
def test_a_long_listing_is_read_anew_by_each_iteration(blobs: BlobServer, count: int, whole: bool) -> None:
    for number in range(count):
        blobs.store(f"{number:03}", b"x")
    (names,) = source.read_listings(factories(place("box")), lambda link: blobs.storage).values()
    assert isinstance(names, tuple) is whole
    blobs.store("zzz", b"x")
    assert [len(list(names)) for _ in range(2)] == [count + (not whole)] * 2


@pytest.mark.parametrize(
    ("path", "is_empty"), [("link/box", False), ("link/box/a", False), ("link/box/b", True), ("link/none", True)]
)
def test_a_place_is_empty_if_no_blob_is_below_it_or_its_container_does_not_exist(
    blobs: BlobServer, path: str, is_empty: bool
) -> None:
    blobs.store("a", b"x")
    assert source.is_empty(path, {"link": blobs.storage}.__getitem__) is is_empty
