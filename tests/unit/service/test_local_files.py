"""Files below a directory: no link leads out of it, on systems with and without handles of directories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchtrain.service import local_files
from batchtrain.service.local_files import Folder, status_below
from batchtrain.service.partial_files import MOST_NAME, PartialFile, partial


@pytest.fixture(params=[True, False], ids=["handles", "paths"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory beside which there is another one."""
    monkeypatch.setattr(local_files, "_HANDLES", request.param)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_bytes(b"safe")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_a_file_is_written_with_its_directories_mode_and_time(root: Path) -> None:
    with Folder(root, root / "a/b", 0o700) as folder:
        folder.write("file", [b"x", b"y"], 0o640, 1000.0)
    path, status = root / "a/b/file", (root / "a/b/file").stat()
    assert (path.read_bytes(), status.st_mode & 0o777, status.st_mtime) == (b"xy", 0o640, 1000.0)
    assert [path.stat().st_mode & 0o777 for path in (root / "a", root / "a/b")] == [0o700, 0o700]
    assert os.listdir(path.parent) == ["file"]  # noqa: PTH208


def test_a_link_in_place_of_a_directory_is_refused(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    for path in (root / "link", root / "link/deep"):
        with pytest.raises(
            OSError, match="`link` is a link, which is not followed; replace it by a directory"
        ) as raised:
            Folder(root, path, 0o700)
        assert raised.value.filename == str(root / "link")
    assert status_below(root, root / "link/file") is None
    assert os.listdir(root.parent / "outside") == ["file"]  # noqa: PTH208


def lowest_free() -> int:
    """The descriptor that the next open file gets."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_nothing_of_a_folder_stays_open(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    before = lowest_free()
    with pytest.raises(OSError, match="is a link") as raised:
        Folder(root, root / "link")
    with Folder(root, root / "a/b", 0o700) as folder:
        folder.write("file", [b"x"])
        os.mkfifo(root / "a/b/pipe")
        with pytest.raises(OSError, match="it is not a regular file"):
            folder.open("pipe", os.O_RDONLY)
    assert lowest_free() == before, raised


def test_a_link_in_place_of_a_file_is_replaced_and_never_written_to(root: Path) -> None:
    (root / "link").symlink_to("../outside/file")
    with Folder(root, root) as folder:
        for flags in (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND):
            with pytest.raises(OSError, match="symbolic links"):
                folder.open("link", flags)
        assert status_below(root, root / "link") is None
        folder.write("link", [b"x"])
    assert (root / "link").read_bytes() == b"x" and not (root / "link").is_symlink()
    assert (root.parent / "outside/file").read_bytes() == b"safe"


def test_a_directory_that_becomes_a_link_after_it_was_opened_leads_nowhere_else(root: Path) -> None:
    if not local_files._HANDLES:
        pytest.skip("without handles each name is only checked")
    with Folder(root, root / "a", 0o700) as folder:
        (root / "a").rename(root / "moved")
        (root / "a").symlink_to("../outside")
        folder.write("file", [b"x"])
    assert (root / "moved/file").read_bytes() == b"x"
    assert (root.parent / "outside/file").read_bytes() == b"safe"


@pytest.mark.parametrize("name", ["..", "../outside", "a/../../outside", "a\0b"])
def test_a_path_that_leads_out_is_refused(root: Path, name: str) -> None:
    with pytest.raises(OSError, match="it is not below"):
        Folder(root, root / name, 0o700)
    with pytest.raises(OSError, match="it is not below"):
        Folder(root, root.parent / "outside", 0o700)


def test_a_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with Folder(root, root) as folder:
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            with pytest.raises(OSError):  # no reader, or no regular file
                folder.open("pipe", flags)


def test_a_file_is_closed_before_it_gets_its_name_or_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows renames and deletes no open file."""
    file, descriptors = PartialFile(tmp_path, tmp_path / "model"), list[int | None]()
    for method in ("replace", "unlink"):
        monkeypatch.setattr(Folder, method, lambda *_: descriptors.append(file._descriptor))
    for end in (lambda: file.finish(None), file.drop):
        file.open()
        end()
    assert descriptors == [None] * 4


def test_a_partial_file_that_is_closed_leaves_nothing_open(tmp_path: Path) -> None:
    before = lowest_free()
    file = PartialFile(tmp_path, tmp_path / "below/model")
    file.open()
    file.close()
    assert lowest_free() == before


@pytest.mark.parametrize(("length", "kept"), [(MOST_NAME, True), (MOST_NAME + 1, False)])
def test_a_partial_file_has_the_name_of_its_file_unless_that_is_too_long(length: int, kept: bool) -> None:
    part, notes = partial(Path("below", "n" * length))
    assert (part.name == f".{'n' * length}.part", notes.name == f".{'n' * length}.ranges") == (kept, kept)
    assert part.parent == notes.parent == Path("below")
