"""Reads and writes at a position of an open file, by several threads. Windows has no os.pread and os.pwrite."""

from __future__ import annotations

import os
import threading

_SEEKING = threading.Lock()
"""Held between a seek and the access after it."""


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
        written = _written(fd, view, start)
        view, start = view[written:], start + written


def _written(fd: int, view: memoryview, start: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, view, start)
    with _SEEKING:
        os.lseek(fd, start, os.SEEK_SET)
        return os.write(fd, view)
