"""A file that is being downloaded: it has another name until it is complete, and a record of the ranges that are
there."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from batchtrain import foreign
from batchtrain.service.local_files import Folder

MOST_NAME = 240
"""Most bytes of a file name that may get a suffix; the file system permits 255."""
Range = tuple[int, int]
"""The first byte, and the one behind the last."""

MOST_RANGES = 100_000
"""Most ranges of a file: a service may claim any size."""


class _Ranges(msgspec.Struct):
    version: str
    ranges: list[tuple[int, int, bytes]]


def spans(size: int, least: int) -> tuple[Range, ...]:
    """The ranges of a file, of at least so many bytes."""
    step = max(least, -(-size // MOST_RANGES))
    return tuple((start, min(start + step, size)) for start in range(0, size, step))


def partial(target: Path) -> tuple[Path, Path]:
    """The temporary path of a file until it is complete, and the path of the record of its ranges."""
    name = target.name
    if len(os.fsencode(name)) > MOST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}.part"), target.with_name(f".{name}.ranges")


class PartialFile:
    """A file until it is complete. It and its record are below `root`, and no link there is followed."""

    def __init__(self, root: Path, target: Path, mode: int = 0o777) -> None:
        """mode: of new directories, and of the file without execution."""
        self._root, self._target, self._mode = root, target, mode
        self._part, self._notes = (path.name for path in partial(target))
        self._folder: Folder | None = None
        self._descriptor: int | None = None
        self.is_finished = False
        """Whether the file has its name."""

    def open(self) -> int:
        """The descriptor of the file, which is made with its directories. Raises OSError."""
        if self._descriptor is None:
            self._folder = self._folder or Folder(self._root, self._target.parent, self._mode)
            self._descriptor = self._folder.open(self._part, os.O_RDWR | os.O_CREAT, self._mode & 0o666)
        return self._descriptor

    def resumed(self, version: str) -> dict[Range, bytes]:
        """The recorded ranges with their digests; empty if they are those of another version."""
        with (
            contextlib.suppress(OSError),
            Folder(self._root, self._target.parent) as folder,
            os.fdopen(folder.open(self._notes, os.O_RDONLY), "rb") as file,
        ):
            notes = foreign.read(file.read(), _Ranges)
            if notes is not None and notes.version == version:
                return {(start, end): digest for start, end, digest in notes.ranges}
        return {}

    def keep(self, version: str, digests: Mapping[Range, bytes]) -> None:
        """Record the ranges of a version of the file, if it is there, with their digests. The record is replaced at
        once."""
        if self._folder is not None and self._folder.status(self._part) is not None:
            content = _Ranges(version, sorted((*span, digest) for span, digest in digests.items()))
            self._folder.write(self._notes, (msgspec.json.encode(content),))

    def forget(self) -> None:
        """Delete the record."""
        if self._folder is not None:
            self._folder.unlink(self._notes)

    def finish(self, modified: float | None) -> None:
        """Give the file its name, and close it. modified: its time. Raises OSError."""
        assert self._folder is not None
        self._close_file()  # Windows renames no open file
        if modified is not None:
            self._folder.set_time(self._part, modified)
        self._folder.replace(self._part, self._target.name)
        self.is_finished = True
        self.forget()

    def drop(self) -> None:
        """Delete the file and its record."""
        self._close_file()
        if self._folder is not None:
            self._folder.unlink(self._part)
            self.forget()

    def close(self) -> None:
        """Close the file, complete or not."""
        self._close_file()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    __del__ = close
    """A download that is stopped drops its files without a result."""

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
