"""Files of this machine: directories that no link leads to, and reads and writes at a position by several threads.

Windows has no os.pread and os.pwrite, and no handles of directories.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

PRIVATE = 0o700
"""The mode of a directory that only the user reads."""
_SEEKING = threading.Lock()
"""Held between a seek and the access after it."""
_HANDLES = os.open in os.supports_dir_fd
_FILE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Links are not followed, no pipe is waited for, and Windows does not change ends of lines."""
_DIRECTORY = sum(getattr(os, name, 0) for name in ("O_DIRECTORY", "O_CLOEXEC"))
_JUNCTION = 0xA0000003
"""The tag of a directory of Windows that leads to another one."""


def make_directory(path: Path, mode: int) -> None:
    """Make a directory and its missing parents, all with this mode; `Path.mkdir` gives it only to the last one."""
    if not path.is_dir():
        make_directory(path.parent, mode)
        path.mkdir(mode, exist_ok=True)


class Folder:
    """An open directory below a directory that the user chose, and its files. No link below `root` is followed: on
    POSIX also none that is placed meanwhile. Every method raises OSError."""

    def __init__(self, root: Path, path: Path, mode: int | None = None) -> None:
        """mode: that of new directories; without it, none is made."""
        try:
            names = path.relative_to(root).parts
        except ValueError:
            names = ("..",)
        if any(name == ".." or "\0" in name for name in names):
            raise OSError(errno.EINVAL, f"it is not below {root}", str(path))
        if mode is not None:
            make_directory(root, mode)
        self._path = root
        self._handle = os.open(root, _DIRECTORY) if _HANDLES else None
        try:
            for name in names:
                self._enter(name, mode)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _enter(self, name: str, mode: int | None) -> None:
        with self._full_names(name):
            if mode is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._at(name), mode, dir_fd=self._handle)
            status = self.status(name)
            if status and (stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _JUNCTION):
                raise OSError(errno.ELOOP, f"`{name}` is a link, which is not followed; replace it by a directory")
            if self._handle is not None:
                handle = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._handle)
                os.close(self._handle)
                self._handle = handle
        self._path /= name

    @contextlib.contextmanager
    def _full_names(self, name: str) -> Iterator[None]:
        """An error names the path of a file, which a call with a handle does not know."""
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = str(self._path / name), None
            raise

    def _at(self, name: str) -> str:
        """A name of this directory, for calls with `dir_fd`."""
        return name if self._handle is not None else str(self._path / name)

    def status(self, name: str) -> os.stat_result | None:
        """The status of a file or link; None if there is none."""
        try:
            return os.stat(self._at(name), dir_fd=self._handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a regular file."""
        with self._full_names(name):
            descriptor = os.open(self._at(name), flags | _FILE, mode, dir_fd=self._handle)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "it is not a regular file")
        return descriptor

    def write(self, name: str, content: Iterable[bytes], mode: int = 0o600, modified: float | None = None) -> None:
        """Write a file by rename: a reader sees the old one or the new one, and a link of this name is replaced."""
        fresh = f".{os.urandom(8).hex()}.new"
        try:
            with os.fdopen(self.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.writelines(content)
            if modified is not None:
                self.set_time(fresh, modified)
            self.replace(fresh, name)
        finally:
            self.unlink(fresh)

    def set_time(self, name: str, modified: float) -> None:
        os.utime(self._at(name), (modified, modified), dir_fd=self._handle)

    def replace(self, name: str, new_name: str, folder: Folder | None = None) -> None:
        """Rename a file, also into another folder; one that has the new name is replaced."""
        folder = folder or self
        with folder._full_names(new_name):
            os.replace(self._at(name), folder._at(new_name), src_dir_fd=self._handle, dst_dir_fd=folder._handle)

    def unlink(self, name: str) -> None:
        """Delete a file, unless it is gone."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._handle)


def status_below(root: Path, path: Path) -> os.stat_result | None:
    """The status of a regular file; None if there is none, and if a link leads there."""
    try:
        with Folder(root, path.parent) as folder:
            status = folder.status(path.name)
    except OSError:
        return None
    return status if status is not None and stat.S_ISREG(status.st_mode) else None


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
