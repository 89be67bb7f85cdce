"""Application packages: lists the zip files of the data directory, and unpacks each once per node."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import zipfile
from pathlib import Path

from batchtrain.emulator.interface import DEFAULT, NodeUnfit, Package
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.package_files import FOLDER, NAME, PackageFolder
from batchtrain.emulator.world import Application


def installed(data_dir: Path) -> tuple[Application, ...]:
    """The applications that a data directory contains now."""
    paths = (path for path in sorted((data_dir / FOLDER).glob("*")) if NAME.fullmatch(path.name) and path.is_dir())
    return tuple(_application(PackageFolder(data_dir), path) for path in paths)


def _application(folder: PackageFolder, path: Path) -> Application:
    names = sorted(file.name.removesuffix(".zip") for file in path.glob("*.zip"))
    versions = tuple(name for name in names if NAME.fullmatch(name) and name.strip("."))
    default = folder.setting(path.name, DEFAULT) or (versions[0] if len(versions) == 1 else "")
    return Application(path.name, versions, default)


def install(data_dir: Path, node: RootedPath, package: Package) -> None:
    """Unpack a package below the directory of a node, if it does not exist yet. Blocks. Raises NodeUnfit."""
    if _is_there(node, package):
        return
    source = data_dir / FOLDER / package.application / f"{package.version}.zip"
    aside = f"{package.directory.rpartition('/')[0]}/.unpack-{os.urandom(8).hex()}"
    try:
        node.make(aside, 0o755)
        _unpack(source, node, aside)
        node.rename(aside, package.directory)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        with contextlib.suppress(OSError):
            node.remove(aside)
        if not _is_there(node, package):  # another task of the node was faster
            name = f"application package {package.application} {package.version}"
            raise NodeUnfit("ApplicationPackageError", f"{name} cannot be unpacked: {error}") from None


def _is_there(node: RootedPath, package: Package) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(node.status(package.directory).st_mode)
    return False


def _unpack(source: Path, node: RootedPath, target: str) -> None:
    """Names that lead out of `target` are shortened, as by `zipfile`; programs stay executable."""
    with zipfile.ZipFile(source) as archive:
        for entry in archive.infolist():
            path = "/".join([target, *(name for name in entry.filename.split("/") if name not in ("", ".", ".."))])
            if entry.is_dir():
                node.make(path)
                continue
            mode = entry.external_attr >> 16 & 0o777
            with node.new(path, mode | 0o600 if mode else 0o644) as file, archive.open(entry) as data:
                shutil.copyfileobj(data, file)
