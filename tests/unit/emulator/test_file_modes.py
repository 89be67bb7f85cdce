"""What only the owner may read, and what tasks of other users may read, too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from batchtrain.catalog.sizes import VmSize
from batchtrain.emulator import logfile, mapped_images, own_catalog
from batchtrain.emulator.blob_store import BlobStore
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.package_files import PackageFolder

SIZE = VmSize("Standard_Q12z_v9", "Q", 12, 4)


async def parts() -> AsyncIterator[bytes]:
    yield b"x"


def keep_file(folder: Path) -> None:
    asyncio.run(BlobStore(folder, "a2V5").keep("j/a", parts(), ()))


def announced(folder: Path) -> None:
    PackageFolder(folder).add("solver")
    PackageFolder(folder).announce("solver", "1.0")


def cut_log(folder: Path) -> None:
    log = folder / "emulator.log"
    log.write_text("x" * 10)
    descriptor = os.open(log, os.O_RDWR)
    logfile.Bounded(log, descriptor).cut()
    os.close(descriptor)


MODES: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "files of a job": (keep_file, "blob_store/j", 0o700),
    "an application": (announced, "applications/solver", 0o700),
    "a package that comes": (announced, "applications/solver/1.0*", 0o600),
    "the former log": (cut_log, "emulator.log.1", 0o600),
    "a new data directory": (lambda folder: mapped_images.map_image(folder / "new", "image", folder), "new", 0o700),
    "a new data directory with a catalogue": (lambda folder: own_catalog.add(folder / "new", [SIZE]), "new", 0o700),
    "a file of a node": (lambda folder: RootedPath(folder).write("a", b"x"), "a", 0o644),
    "a log of a node": (lambda folder: os.close(RootedPath(folder).append("a")), "a", 0o644),
}


@pytest.mark.parametrize("name", MODES)
def test_a_file_or_directory_has_this_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(logfile, "LIMIT", 5)
    make, path, mode = MODES[name]
    make(tmp_path)
    (file,) = tmp_path.glob(path)
    assert oct(file.stat().st_mode & 0o777) == oct(mode)
