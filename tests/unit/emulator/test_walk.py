"""A walk gives every entry once and in order, whenever it stops and goes on, with bounded memory and open files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.machine import walk as walks
from batchtrain.emulator.machine.rooted_path import LeadsOut, RootedPath
from batchtrain.emulator.machine.walk import Walk, Walks

pytestmark = pytest.mark.usefixtures("_closes_all_files")

NAMES = ["a", "a/1", "a/1/x", "a/1/y", "a/2", "a-b", "b", "b/c", "b/c/d", "b/c/d/e", "b/z", "empty", "link", "z"]
"""Directories are those that something is below, and `empty`."""


@pytest.fixture
def tree(tmp_path: Path) -> RootedPath:
    root = tmp_path / "root"
    for name in NAMES:
        if name == "empty" or any(other.startswith(f"{name}/") for other in NAMES):
            (root / name).mkdir(parents=True)
    for name in NAMES:
        if name == "link":
            (root / name).symlink_to("a")
        elif not (root / name).exists():
            (root / name).touch()
    return RootedPath(root)


def paths(walk: Walk) -> list[str]:
    return [entry.path for entry in walk]


@pytest.mark.parametrize("chunk", [1, 2, 1000])
@pytest.mark.parametrize("depth", [None, 1, 2])
def test_a_walk_goes_on_after_any_entry(
    tree: RootedPath, monkeypatch: pytest.MonkeyPatch, chunk: int, depth: int | None
) -> None:
    monkeypatch.setattr(walks, "CHUNK", chunk)
    monkeypatch.setattr(walks, "HELD", 2 * chunk)
    whole = [name for name in NAMES if depth is None or name.count("/") < depth]
    walk = Walk(tree, depth=depth)
    assert (paths(walk), walk._held) == (whole, 0)
    for number, name in enumerate(whole, 1):
        assert paths(Walk(tree, after=name, depth=depth)) == whole[number:]


def test_a_walk_holds_only_so_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "CHUNK", 4)
    monkeypatch.setattr(walks, "HELD", 6)
    folder = tmp_path
    for _ in range(5):
        for name in "abcd":
            (folder / name).mkdir()
        folder = folder / "a"
    walk, most = Walk(RootedPath(tmp_path)), 0
    for _ in walk:
        most = max(most, walk._held)
    assert most <= walks.HELD
    assert walk._held == 0


def test_a_walk_that_pauses_after_each_entry_gives_the_same(tree: RootedPath) -> None:
    walk, found = Walk(tree), []
    for entry in walk:
        if not found or found[-1] != entry.path:
            walk.back(entry)
            found.append(entry.path)
        walk.pause()
    assert found == NAMES


@pytest.mark.parametrize("gone", NAMES)
def test_what_vanishes_meanwhile_is_left_out(tree: RootedPath, gone: str) -> None:
    walk = Walk(tree)
    first = next(walk).path
    tree.remove(gone)
    assert [first, *paths(walk)] == [name for name in NAMES if name == "a" or not f"{name}/".startswith(f"{gone}/")]


def test_a_walk_does_not_leave_by_the_parent_of_a_directory_that_was_moved(tree: RootedPath, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secret").touch()
    walk = Walk(tree)
    found = [next(walk).path for _ in range(3)]
    (tmp_path / "root/a").rename(tmp_path / "elsewhere/a")
    assert [*found, *paths(walk)][3:] in (NAMES[3:], NAMES[5:])


def test_a_top_that_leads_out_is_refused(tree: RootedPath, tmp_path: Path) -> None:
    (tmp_path / "root/out").symlink_to(tmp_path)
    with pytest.raises(LeadsOut):
        Walk(tree, "out")


def test_a_deep_tree_needs_a_few_open_files_and_no_recursion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=handle)
        os.close(os.open("z", os.O_CREAT, dir_fd=handle))
        deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)
    before = open_files()
    walk = Walk(RootedPath(tmp_path))
    try:
        assert max(open_files() for _ in walk) <= before + 2
        assert len(paths(Walk(RootedPath(tmp_path)))) == 2200
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # pytest's own clean-up recurses


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# Links to directories -------------------------------------------------------------------------------------------------

LINKED = ["wd", "wd/best", "wd/best/a", "wd/best/deep", "wd/best/deep/b", "wd/ckpt", "wd/ckpt/a", "wd/ckpt/deep",
          "wd/ckpt/deep/b", "wd/z"]  # fmt: skip


@pytest.fixture
def task(tmp_path: Path) -> RootedPath:
    """The directory of a node with one task, whose `best` is a link."""
    (tmp_path / "root/t/wd/ckpt/deep").mkdir(parents=True)
    for name in ("ckpt/a", "ckpt/deep/b", "z"):
        (tmp_path / "root/t/wd" / name).touch()
    (tmp_path / "root/t/wd/best").symlink_to("ckpt")
    return RootedPath(tmp_path / "root")


def linked(tree: RootedPath, **options: Any) -> list[str]:
    return paths(Walk(tree, "t", follow=True, **options))


@pytest.mark.parametrize("chunk", [1, 1000])
def test_a_walk_goes_on_after_any_entry_of_a_linked_directory(
    task: RootedPath, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(walks, "CHUNK", chunk)
    assert linked(task) == LINKED
    for number, name in enumerate(LINKED, 1):
        assert linked(task, after=name) == LINKED[number:]
    assert [path.partition("/")[2] for path in paths(Walk(task, follow=True))][1:] == LINKED


@pytest.mark.parametrize("target", ["..", ".", "../..", "../../other", "missing", "z"])
def test_a_link_to_a_directory_around_the_walk_or_of_another_task_is_not_entered(
    task: RootedPath, tmp_path: Path, target: str
) -> None:
    (tmp_path / "root/other/wd").mkdir(parents=True)
    (tmp_path / "root/other/secret").touch()
    (tmp_path / "root/t/wd/up").symlink_to(target)
    assert linked(task) == [*LINKED[:-1], "wd/up", "wd/z"]


def test_a_link_in_a_linked_directory_is_not_entered(task: RootedPath, tmp_path: Path) -> None:
    (tmp_path / "root/t/wd/more").mkdir()
    (tmp_path / "root/t/wd/more/y").touch()
    (tmp_path / "root/t/wd/ckpt/more").symlink_to("../more")
    found = linked(task)
    assert "wd/ckpt/more/y" in found
    assert "wd/best/more" in found and "wd/best/more/y" not in found


# Between two pages ---------------------------------------------------------------------------------------------------


def test_a_walk_that_waits_holds_no_open_file(tree: RootedPath) -> None:
    before, walk, waiting = open_files(), Walk(tree), Walks()
    next(walk)
    assert open_files() > before
    waiting.keep("walk", walk)
    assert open_files() == before
    assert waiting.take("walk") is walk


def test_a_walk_waits_once_for_a_while_and_only_the_last_few_do(tree: RootedPath) -> None:
    now = [0.0]
    waiting = Walks(2, 10.0, lambda: now[0])
    kept = {key: Walk(tree) for key in "abc"}
    for key, walk in kept.items():
        waiting.keep(key, walk)
    assert waiting.take("a") is None
    assert waiting.take("b") is kept["b"]
    assert waiting.take("b") is None
    now[0] = 10.0
    assert waiting.take("c") is None
