"""Applications and their packages in the data directory, as Resource Manager creates, uploads and deletes them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from batchtrain.emulator import wire
from batchtrain.emulator.blob_store import store
from batchtrain.emulator.faults import Fault
from batchtrain.state_files import write_atomically

FOLDER = "applications"
"""In the data directory: `applications/ID/VERSION.zip`."""
PENDING = ".pending"
"""The end of the name of a package that has no content yet, or whose content is not active yet."""
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Pattern of an application or a version; other names are ignored."""


NANOSECONDS = 1_000_000_000 // wire.SECOND
"""Of a tick."""


class PackageFolder:
    """The applications of one data directory: an `interface.PackageFiles`. A setting is a file beside the packages."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER

    def add(self, application: str) -> None:
        self._of(application).mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self, application: str) -> None:
        shutil.rmtree(self._of(application))

    def setting(self, application: str, name: str) -> str:
        path = self._of(application) / name
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""

    def set(self, application: str, name: str, value: str) -> None:
        path = self._of(application) / name
        if value:
            write_atomically(path, f"{value}\n")
        else:
            path.unlink(missing_ok=True)

    def versions(self, application: str) -> dict[str, int]:
        folder = self._of(application)
        active = {
            path.name.removesuffix(".zip"): wire.UNIX_EPOCH + path.stat().st_mtime_ns // NANOSECONDS
            for path in folder.glob("*.zip")
        }
        pending = {path.name.removesuffix(PENDING): 0 for path in folder.glob(f"*{PENDING}")}
        return dict(sorted((pending | active).items()))

    def announce(self, application: str, version: str) -> None:
        self._pending(application, version).touch(mode=0o600)

    async def keep(self, application: str, version: str, parts: AsyncIterator[bytes]) -> None:
        target = self._pending(application, version)
        if not target.exists():
            raise Fault("ResourceNotFound")
        await store(target, parts)

    def activate(self, application: str, version: str, now: int) -> bool:
        pending = self._pending(application, version)
        if not pending.exists() or not pending.stat().st_size:
            return False
        nanoseconds = (now - wire.UNIX_EPOCH) * NANOSECONDS
        os.utime(pending, ns=(nanoseconds, nanoseconds))
        pending.rename(self._of(application) / f"{version}.zip")
        return True

    def remove_version(self, application: str, version: str) -> None:
        self._pending(application, version).unlink(missing_ok=True)
        (self._of(application) / f"{version}.zip").unlink(missing_ok=True)

    def _pending(self, application: str, version: str) -> Path:
        return self._of(application) / f"{_name(version)}{PENDING}"

    def _of(self, application: str) -> Path:
        return self._folder / _name(application)


def _name(text: str) -> str:
    if not NAME.fullmatch(text) or not text.strip("."):
        raise Fault("InvalidUri")
    return text
