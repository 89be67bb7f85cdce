"""Below a node's directory: paths and links lead only to what is there, also when a task replaces it at any moment."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.machine import rooted_path
from batchtrain.emulator.machine.rooted_path import LeadsOut, NoFile, RootedPath
from batchtrain.emulator.machine.walk import Walk


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's directory; beside it lies what no task may have."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/file").write_text("safe")
    (tmp_path / "node/data").mkdir(parents=True)
    (tmp_path / "node/data/file").write_text("inside")
    return tmp_path / "node"


def read(files: RootedPath, path: str) -> str:
    with open(files.open(path), encoding="utf-8") as file:
        return file.read()


def test_a_path_leads_over_as_many_links_as_on_linux_and_no_more(node: Path) -> None:
    target = "data/file"
    for number in range(rooted_path.MOST_LINKS + 1):
        (node / f"link-{number}").symlink_to(target)
        target = f"link-{number}"
    files = RootedPath(node)
    assert read(files, f"link-{rooted_path.MOST_LINKS - 1}") == "inside"
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        files.open(f"link-{rooted_path.MOST_LINKS}")


def test_a_deletion_that_keeps_failing_raises_its_first_error(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "data/other").touch()
    attempts: list[str] = []

    def refuse(top: int, name: str) -> None:
        attempts.append(name)
        raise PermissionError(1, f"not {name}", name)

    monkeypatch.setattr(rooted_path, "_dissolve", refuse)
    with pytest.raises(PermissionError, match="not "):
        RootedPath(node).remove("data")
    assert sorted(attempts) == ["file", "file", "other", "other"]


# Links ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    ["data/file", "./data//file", "data/../data/file", "chain", "/mnt/tasks/data/file", "{node}/data/file"],
)
def test_a_link_that_stays_inside_is_followed(node: Path, target: str) -> None:
    (node / "chain").symlink_to("data/file")
    (node / "link").symlink_to(target.format(node=node))
    assert read(RootedPath(node, {"/mnt/tasks": node}), "link") == "inside"


@pytest.mark.parametrize(
    "target",
    [
        "../victim/file",
        "/etc/passwd",
        "data/../../victim/file",
        "{node}/../victim/file",
        "up/file",
        "{node}x/file",
        ".",
    ],
)
def test_a_link_that_leads_out_is_not(node: Path, target: str) -> None:
    (node / "up").symlink_to("../victim")
    (node.parent / "nodex").symlink_to(node.parent / "victim")
    (node / "link").symlink_to(target.format(node=node))
    with pytest.raises((LeadsOut, NoFile)):
        read(RootedPath(node), "link")


@pytest.mark.parametrize("path", ["../victim/file", "/etc/passwd", "data/../../victim/file", "a\0b"])
def test_a_path_that_leads_out_is_refused(node: Path, path: str) -> None:
    files = RootedPath(node)
    for use in (files.open, files.status, files.append, files.make, files.remove, files.directory):
        with pytest.raises(LeadsOut):
            use(path)


def test_links_in_a_circle_and_links_without_end_are_refused(node: Path) -> None:
    (node / "a").symlink_to("b")
    (node / "b").symlink_to("a")
    (node / "long").symlink_to("/".join(["data/.."] * 500) + "/long")
    for name in ("a", "long"):
        with pytest.raises(OSError, match=r"Too many levels of symbolic links|File name too long"):
            RootedPath(node).status(name)


def test_another_directory_is_entered_only_by_its_own_name(node: Path) -> None:
    mounts = node.parent / "mounts"
    mounts.mkdir()
    (mounts / "file").write_text("mounted")
    (node / "link").symlink_to(mounts / "file")
    (mounts / "up").symlink_to("../victim")
    assert read(RootedPath(node, {str(mounts): mounts}), "link") == "mounted"
    with pytest.raises(LeadsOut):
        RootedPath(node).open("link")
    (node / "further").symlink_to(mounts / "up/file")
    with pytest.raises(LeadsOut):
        RootedPath(node, {str(mounts): mounts}).open("further")


# Races ---------------------------------------------------------------------------------------------------------------

CALLS = ("open", "readlink", "mkdir", "rename", "unlink", "rmdir", "stat", "scandir", "symlink")


def write(files: RootedPath) -> None:
    files.write("data/file", b"written")


def walk(files: RootedPath) -> None:
    assert "safe" not in [entry.path for entry in Walk(files)]


USES: dict[str, Callable[[RootedPath], Any]] = {
    "open": lambda files: os.read(files.open("data/file"), 100) == b"inside" or pytest.fail("it read something else"),
    "status": lambda files: files.status("data/file").st_size == 6 or pytest.fail("it looked at something else"),
    "append": lambda files: os.write(files.append("data/file"), b"written"),
    "write": write,
    "make": lambda files: files.make("data/new/deep", 0o700),
    "link": lambda files: files.link("data/link", "x"),
    "rename": lambda files: files.rename("data/file", "data/other"),
    "remove a file": lambda files: files.remove("data/file"),
    "remove all": lambda files: files.remove("data"),
    "remove empty": lambda files: files.remove_empty("data/empty"),
    "walk": walk,
}


@pytest.mark.parametrize("use", USES)
def test_a_directory_that_is_swapped_for_a_link_before_any_call_changes_nothing_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """Before the first call to the kernel, then before the second, and so on until a whole use goes by."""
    for moment in range(1, 200):
        node = tmp_path / str(moment)
        victim = node / "victim"
        for name in ("node/data/empty", "victim/empty"):
            (node / name).mkdir(parents=True)
        (node / "node/data/file").write_text("inside")
        (victim / "file").write_text("untouched")
        before = {path: path.lstat()[:8] for path in [victim, *victim.rglob("*")]}
        with monkeypatch.context() as patch:
            swapped = swap_at(patch, moment, node)
            with contextlib.suppress(OSError):
                USES[use](RootedPath(node / "node"))
        assert {path: path.lstat()[:8] for path in [victim, *victim.rglob("*")]} == before
        if not swapped:
            return
    pytest.fail("the use never ended")


def swap_at(patch: pytest.MonkeyPatch, moment: int, place: Path) -> list[int]:
    """Swap `node/data` for a link to `victim` before the call of this number; what is given is empty until then."""
    count, swapped = [0], list[int]()

    def hooked(call: Callable[..., Any]) -> Callable[..., Any]:
        def either(*arguments: Any, **more: Any) -> Any:
            count[0] += 1
            if count[0] == moment:
                rename(place / "node/data", place / "node/moved")
                symlink(place / "victim", place / "node/data")
                swapped.append(moment)
            return call(*arguments, **more)

        return either

    rename, symlink = os.rename, os.symlink
    for name in CALLS:
        patch.setattr(os, name, hooked(getattr(os, name)))
    return swapped


# Writing -------------------------------------------------------------------------------------------------------------


def test_a_link_or_a_pipe_is_neither_appended_to_nor_waited_for(node: Path) -> None:
    (node / "link").symlink_to("data/file")
    os.mkfifo(node / "pipe")
    for name in ("link", "pipe", "data"):
        with pytest.raises(NoFile):
            RootedPath(node).append(name)
    assert (node / "data/file").read_text() == "inside"


def test_a_file_appears_whole_in_place_of_a_link_or_not_at_all(node: Path) -> None:
    (node / "link").symlink_to("../victim/file")
    RootedPath(node).write("link", b"new", 0o640)
    status = (node / "link").lstat()
    assert (stat.S_ISREG(status.st_mode), status.st_mode & 0o777, (node / "link").read_text()) == (True, 0o640, "new")
    with pytest.raises(ConnectionError), RootedPath(node).new("data/file") as file:
        file.write(b"half")
        raise ConnectionError
    assert [path.name for path in (node / "data").iterdir()] == ["file"]
    assert (node / "data/file").read_text() == "inside"


# Removing ------------------------------------------------------------------------------------------------------------


def test_a_tree_of_any_depth_and_mode_goes_with_few_open_files(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooted_path, "BATCH", 2)
    handle = os.open(node / "data", os.O_RDONLY)
    most = open_files() + 8
    for _ in range(1100):
        for name in ("a", "b", "c"):
            os.mkdir(name, dir_fd=handle)
        os.symlink("/", "root", dir_fd=handle)
        deeper = os.open("c", os.O_RDONLY, dir_fd=handle)
        os.fchmod(handle, 0)
        os.close(handle)
        handle = deeper
    os.close(handle)
    scandir, seen = os.scandir, [0]

    def counting(path: int) -> Any:
        seen[0] = max(seen[0], open_files())
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    try:
        RootedPath(node).remove("data")
        assert not (node / "data").exists()
    finally:
        subprocess.run(["rm", "-rf", node], check=True)  # pytest's own clean-up recurses
    assert seen[0] <= most


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - Path.iterdir calls os.scandir
