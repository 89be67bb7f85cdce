"""Directories that root made in a container, given to the user who runs the emulator, who must delete them."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

MOST_ROUNDS = 64


def foreign(root: Path) -> list[Path]:
    """The directories below `root` that belong to others, outermost first, as far as they can be read."""
    return list(_foreign(root))


def _foreign(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            path = Path(entry.path)
            if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                yield path
            yield from _foreign(path)


def archive(root: Path, folders: list[Path]) -> bytes:
    """A tar archive of these directories without what is in them; unpacking it over them makes them ours."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder in folders:
            entry = tarfile.TarInfo(str(folder.relative_to(root)))
            found = folder.lstat()
            entry.type, entry.mode = tarfile.DIRTYPE, stat.S_IMODE(found.st_mode) | stat.S_IRWXU
            entry.uid, entry.gid, entry.mtime = os.getuid(), os.getgid(), int(found.st_mtime)
            tar.addfile(entry)
    return packed.getvalue()
