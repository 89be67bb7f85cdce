"""Gives directories that root created in a container to the user of the emulator, who must delete them."""

from __future__ import annotations

import io
import os
import stat
import tarfile

from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.machine.walk import Entry, Walk

MOST_ROUNDS = 64


def foreign(node: RootedPath, below: str = "") -> list[Entry]:
    """The directories below a directory of the node that belong to other users, outermost first, as far as readable."""
    try:
        entries = Walk(node, below)
    except OSError:
        return []
    folders = (entry for entry in entries if stat.S_ISDIR(entry.status.st_mode) and entry.status.st_uid != os.getuid())
    return [Entry(f"{below}/{entry.path}" if below else entry.path, entry.status) for entry in folders]


def archive(folders: list[Entry]) -> bytes:
    """A tar archive of these directories without their content; unpacking it over them changes their owner.

    The engine unpacks it in the node's own container: a link that replaced a directory cannot lead out of it.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in folders:
            entry = tarfile.TarInfo(folder.path)
            entry.type, entry.mode = tarfile.DIRTYPE, stat.S_IMODE(folder.status.st_mode) | stat.S_IRWXU
            entry.uid, entry.gid, entry.mtime = os.getuid(), os.getgid(), int(folder.status.st_mtime)
            tar.addfile(entry)
    return content.getvalue()
