"""The only access to files below a node's directory: no link leads out of it, whichever process made it.

Each path is walked from a handle of the directory, one name at a time, without following links (`openat`, O_NOFOLLOW).
A link is read and walked in the same way; one that leads out of the directory raises `LeadsOut`. A name is never
checked first and used afterwards: the code uses the handle that it opened, even if a task moves or replaces the file
meanwhile.

`agent.py` uses this module too: standard library only, and little of it.
"""

# ruff: noqa: PTH101
# (pathlib knows no directory handles)

from __future__ import annotations

import contextlib
import errno
import os
import stat
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

MOST_LINKS = 40
"""In one path, as in the kernel."""
MOST_NAMES = 20_000
"""In one path, including those of its links; a longer path would only keep the service busy."""
BATCH = 10_000
"""Names of a directory that a removal holds in memory."""
_PASS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class LeadsOut(OSError):
    """A path that leads out of the directory."""


class NoFile(OSError):
    """The path is not a regular file: it is a directory, a pipe, or a link where links are not followed."""


class RootedPath:
    """A directory in which tasks may change everything at any time. Tasks cannot replace `root` itself.

    Paths are relative to `root`. The target of a link may be an absolute path that begins with `root` or with one of
    `names`, which map names to directories (such as the node's own name for `root`). Every method raises OSError.
    """

    def __init__(self, root: str | os.PathLike[str], names: Mapping[str, str | os.PathLike[str]] | None = None) -> None:
        self.root = os.fspath(root)
        more = {name.rstrip("/"): os.fspath(directory) for name, directory in (names or {}).items() if name.strip("/")}
        self._places = {self.root.rstrip("/"): self.root, **more}

    # Reading -------------------------------------------------------------------------------------------------------

    def status(self, path: str, *, follow: bool = True) -> os.stat_result:
        """The status of the path; with `follow`, of the target of a link."""
        with self._last(path, follow=follow) as (trail, name):
            return os.stat(name, dir_fd=trail.handle, follow_symlinks=False)

    def open(self, path: str) -> int:
        """A descriptor of a regular file, to read. Raises NoFile."""
        with self._last(path) as (trail, name):
            return _open_regular(trail.handle, name, os.O_RDONLY | os.O_CLOEXEC, path)

    def directory(self, path: str = "", *, make: bool = False) -> int:
        """A descriptor of a directory; with `make`, missing directories of the path are created."""
        with self._last(path, make=make) as (trail, name):
            if make and name != ".":
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=trail.handle)
            return os.open(name, _READ | os.O_DIRECTORY, dir_fd=trail.handle)

    def real(self, path: str) -> str:
        """The path without links, for other programs, as long as no task replaces it. The last name may be missing."""
        with self._last(path) as (trail, name):
            return "/".join([trail.directory, *trail.names, *([] if name == "." else [name])])

    # Writing: a link with the last name is replaced, removed or refused, never followed ------------------------------

    def make(self, path: str, mode: int | None = None) -> None:
        """Make a directory and its parents."""
        handle = self.directory(path, make=True)
        try:
            if mode is not None:
                os.fchmod(handle, mode)
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def new(self, path: str, mode: int = 0o644) -> Iterator[BinaryIO]:
        """A file to write. It appears as a whole and replaces the old one; after an error it does not appear."""
        with self._last(path, make=True, follow=False) as (trail, name):
            aside = f".new-{os.urandom(8).hex()}"
            descriptor = os.open(aside, _NEW, 0o600, dir_fd=trail.handle)
            try:
                with open(descriptor, "wb") as file:
                    yield file
                    os.fchmod(descriptor, mode)
                os.rename(aside, name, src_dir_fd=trail.handle, dst_dir_fd=trail.handle)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside, dir_fd=trail.handle)
                raise

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a whole file."""
        with self.new(path, mode) as file:
            file.write(data)

    def append(self, path: str) -> int:
        """A descriptor to append to a regular file, which is created if it is missing. Raises NoFile."""
        with self._last(path, follow=False) as (trail, name):
            with contextlib.suppress(FileExistsError):
                return os.open(name, _NEW | os.O_APPEND, 0o644, dir_fd=trail.handle)
            return _open_regular(trail.handle, name, _APPEND, path)

    def link(self, path: str, target: str) -> None:
        """A symbolic link, which replaces another link; any other file stays."""
        with self._last(path, make=True, follow=False) as (trail, name):
            if _target(trail.handle, name) is not None:
                os.unlink(name, dir_fd=trail.handle)
            with contextlib.suppress(FileExistsError):
                os.symlink(target, name, dir_fd=trail.handle)

    def rename(self, path: str, to: str) -> None:
        with self._last(path, follow=False) as (old, name), self._last(to, make=True, follow=False) as (new, new_name):
            os.rename(name, new_name, src_dir_fd=old.handle, dst_dir_fd=new.handle)

    def remove(self, path: str) -> None:
        """Delete a file, a link, or a directory with everything in it, of any depth and mode."""
        with self._last(path, follow=False) as (trail, name):
            _remove(trail.handle, name)

    def remove_empty(self, path: str) -> None:
        """Remove an empty directory."""
        with self._last(path, follow=False) as (trail, name):
            os.rmdir(name, dir_fd=trail.handle)

    # A path ----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _last(self, path: str, *, make: bool = False, follow: bool = True) -> Iterator[tuple[_Trail, str]]:
        """The directory of the last name of a path, and this name. The name is no link unless `follow` is off; it is
        "." for the directory itself."""
        trail = _Trail(self.root)
        try:
            yield trail, self._walk(trail, path, make=make, follow=follow)
        finally:
            os.close(trail.handle)

    def _walk(self, trail: _Trail, path: str, *, make: bool, follow: bool) -> str:
        if path.startswith("/") or "\0" in path:
            raise _leads_out(path)
        names, links = _names(path), 0
        while names:
            name = names.pop()
            if name == "..":
                trail.up(path)
                continue
            target = _target(trail.handle, name) if names or follow else None
            if target is not None:
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                names += self._lead(trail, target, path)
            elif not names:
                return name
            else:
                trail.enter(name, make=make)
        return "."

    def _lead(self, trail: _Trail, target: str, path: str) -> list[str]:
        """The names in the target of a link, last first."""
        if not target.startswith("/"):
            return _names(target)
        for name, directory in self._places.items():
            if is_below(target, name):
                trail.begin(directory)
                return _names(target[len(name) :])
        raise _leads_out(path)


class _Trail:
    """A directory below the root: its handle, and the names that lead to it. None of them is a link."""

    def __init__(self, directory: str) -> None:
        self.directory, self.handle = directory, os.open(directory, _PASS)
        self.names: list[str] = []
        self._entered = 0

    def begin(self, directory: str) -> None:
        self._take(os.open(directory, _PASS))
        self.directory, self.names = directory, []

    def enter(self, name: str, *, make: bool = False) -> None:
        self._entered += 1
        if self._entered > MOST_NAMES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.handle)
        self._take(os.open(name, _PASS, dir_fd=self.handle))
        self.names.append(name)

    def up(self, path: str) -> None:
        """From the beginning: ".." of a directory that was moved leads elsewhere."""
        if not self.names:
            raise _leads_out(path)
        names = self.names[:-1]
        self.begin(self.directory)
        for name in names:
            self.enter(name)

    def _take(self, handle: int) -> None:
        os.close(self.handle)
        self.handle = handle


def is_below(path: str, directory: str) -> bool:
    """Whether a path is that of the directory or begins with it."""
    return f"{path}/".startswith(f"{directory}/")


def _names(path: str) -> list[str]:
    """The names of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _target(handle: int, name: str) -> str | None:
    """The target of a link; None for anything else, and if nothing exists."""
    try:
        return os.readlink(name, dir_fd=handle)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _open_regular(directory: int, name: str, flags: int, path: str) -> int:
    """Checked before it is opened, and opened by its handle: opening a pipe or a device may have an effect."""
    handle = os.open(name, _LOOK, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NoFile(f"{path}: is a link or another thing that is not a regular file")
        return os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)


def _leads_out(path: str) -> LeadsOut:
    return LeadsOut(f"{path}: leads out of the node's directory")


# Removing ------------------------------------------------------------------------------------------------------------


def _remove(parent: int, name: str) -> None:
    """Delete with few open files and without recursion: nested directories are moved up first."""
    if _unlinked(parent, name):
        return
    top = _own(parent, name)
    try:
        _each(top, lambda inner: _dissolve(top, inner))
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _dissolve(top: int, name: str) -> None:
    """Delete a file, or a directory whose own directories move to `top`."""
    if _unlinked(top, name):
        return
    directory = _own(top, name)
    try:
        _each(directory, lambda inner: _lift(directory, inner, top))
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)


def _each(directory: int, rid: Callable[[str], object]) -> None:
    """Delete each name of a directory. A failed one is tried again while others succeed; then its error is raised."""
    last_try = False
    while True:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, BATCH)]
        if not names:
            return
        errors = [error for name in names if (error := _error(rid, name)) is not None]
        if len(errors) < len(names):
            last_try = False
        elif last_try:
            raise errors[0]
        else:
            last_try = True


def _error(act: Callable[[str], object], name: str) -> OSError | None:
    try:
        act(name)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


def _unlinked(directory: int, name: str) -> bool:
    """Delete a file; returns whether it was not a directory."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        return False
    return True


def _lift(directory: int, name: str, top: int) -> None:
    """Delete a file, or move a directory to `top`."""
    if _unlinked(directory, name):
        return
    new_name = f".removed-{os.urandom(8).hex()}"
    try:
        os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=top)
    except PermissionError:  # moving a directory needs write permission in it
        os.close(_own(directory, name))
        os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=top)


def _own(parent: int, name: str) -> int:
    """A descriptor of a directory with all permissions that this user can give itself."""
    handle = os.open(name, _PASS, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with contextlib.suppress(OSError):
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    finally:
        os.close(handle)
