"""Files of this machine: directories with a mode, and reads and writes at a position by several threads.

Windows has no os.pread and os.pwrite.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

PRIVATE = 0o700
"""The mode of a directory that only the user reads."""
_SEEKING = threading.Lock()
"""Held between a seek and the access after it."""


def make_directory(path: Path, mode: int) -> None:
    """Make a directory and its missing parents, all with this mode; `Path.mkdir` gives it only to the last one."""
    if not path.is_dir():
        make_directory(path.parent, mode)
        path.mkdir(mode, exist_ok=True)


def read_at(fd: int, size: int, start: int) -> bytes:
    """Some of the bytes from `start` on; empty at the end of the file."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, start)
    with _SEEKING:
        os.lseek(fd, start, os.SEEK_SET)
        return os.read(fd, size)


def write_at(fd: int, content: bytes | memoryview, start: int) -> None:
    """Write all the bytes from `start` on."""
    view = memoryview(content)
    while view:
        if hasattr(os, "pwrite"):
            count = os.pwrite(fd, view, start)
        else:
            with _SEEKING:
                os.lseek(fd, start, os.SEEK_SET)
                count = os.write(fd, view)
        view, start = view[count:], start + count
