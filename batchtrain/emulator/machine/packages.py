"""Application packages: zip files of the data directory, listed, and unpacked on a node once."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from pathlib import Path

from batchtrain.emulator.machine.types import NodeUnfit, Package
from batchtrain.emulator.world import Application

FOLDER = "applications"
"""Of the data directory: `applications/ID/VERSION.zip`."""
DEFAULT = "default"
"""Beside the packages: a file that names the version of references that name none. One version alone needs none."""
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Of an application or a version; others are passed over."""


def found(data_dir: Path) -> tuple[Application, ...]:
    """The applications of a data directory as they lie there now."""
    folder = data_dir / FOLDER
    if not folder.is_dir():
        return ()
    return tuple(_application(path) for path in sorted(folder.iterdir()) if NAME.fullmatch(path.name) and path.is_dir())


def _application(path: Path) -> Application:
    names = sorted(file.name.removesuffix(".zip") for file in path.glob("*.zip"))
    versions = tuple(name for name in names if NAME.fullmatch(name) and name.strip("."))
    chosen = path / DEFAULT
    default = chosen.read_text(encoding="utf-8").strip() if chosen.is_file() else ""
    return Application(path.name, versions, default or (versions[0] if len(versions) == 1 else ""))


def install(data_dir: Path, root: Path, package: Package) -> None:
    """Unpack a package below a node's root, if it is not there yet. Blocks. Raises NodeUnfit."""
    target = root / package.directory
    source = data_dir / FOLDER / package.application / f"{package.version}.zip"
    if target.is_dir():
        return
    name = f"application package {package.application} {package.version}"
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".unpack-", dir=target.parent))
    try:
        _unpack(source, aside)
        aside.chmod(0o755)
        aside.rename(target)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        if not target.is_dir():  # another task of the node was faster
            raise NodeUnfit("ApplicationPackageError", f"{name} cannot be unpacked: {error}") from None


def _unpack(source: Path, target: Path) -> None:
    """A zip file's names never lead out (`zipfile` sees to it); programs stay executable."""
    with zipfile.ZipFile(source) as archive:
        for entry in archive.infolist():
            path = archive.extract(entry, target)
            mode = entry.external_attr >> 16 & 0o777
            if mode and not entry.is_dir():
                Path(path).chmod(mode | 0o600)
