"""A walk over the files below a directory of a node, which stops after each page and continues there.

It does not recurse, and holds one open directory and a bounded number of names, however deep and wide the tree is.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from batchtrain.emulator.machine.rooted_path import RootedPath

CHUNK = 10_000
"""Names of one directory that are read at a time: the next ones in order."""
HELD = 4 * CHUNK
"""Names that a walk keeps. Further names are dropped, and read again when the walk returns to their directory."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """A file or directory below the top of the walk."""

    path: str
    """Relative to the top."""
    status: os.stat_result
    """The status; of a link that is not entered, its own."""


class _Level:
    """A directory on the current path of the walk."""

    def __init__(self, name: str, last: str = "") -> None:
        self.name, self.last = name, last
        self.names: list[str] = []
        """The next names, in reverse."""
        self.is_link = False
        self.whole = False
        """Whether no other names follow."""
        self.identity: tuple[int, int] | None = None

    @property
    def over(self) -> bool:
        return self.whole and not self.names


class Walk:
    """Each directory before its content, names in order.

    `after` is the path of the last entry of an earlier walk. `depth` is how far below the top it goes: 1 is the entries
    of the top itself, None is all. Files that vanish meanwhile are skipped. Raises OSError if the top does not exist.

    Links to directories are not entered. With `follow`, one is entered if it leads to a directory of the same task that
    the walk is not in. Another link in there is not entered, so a walk ends whatever the links are.
    """

    def __init__(
        self, tree: RootedPath, top: str = "", *, after: str = "", depth: int | None = None, follow: bool = False
    ) -> None:
        self._tree, self._top, self._depth, self._follow = tree, top, depth, follow
        names = after.split("/") if after else []
        lasts = [*names, ""] if depth is None or len(names) < depth else names
        self._levels = [_Level(name, last) for name, last in zip(["", *names], lasts, strict=False)]
        self._held = 0
        self._back: list[Entry] = []
        self._handle = -1
        os.close(tree.directory(top))

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Entry:
        if self._back:
            return self._back.pop()
        while self._levels:
            level = self._levels[-1]
            if level.over or not self._stands() or not (level.names or self._read(level)):
                self._leave()
                continue
            level.last = level.names.pop()
            self._held -= 1
            with contextlib.suppress(OSError):
                return self._entry(level.last)
        raise StopIteration

    def back(self, entry: Entry) -> None:
        """Return this entry again at the next call."""
        self._back.append(entry)

    def pause(self) -> None:
        """Close all open files until the next call."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __del__(self) -> None:
        self.pause()

    def _entry(self, name: str) -> Entry:
        status = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        path = "/".join([*(level.name for level in self._levels[1:]), name])
        if self._depth is None or len(self._levels) < self._depth:
            if stat.S_ISDIR(status.st_mode):
                self._levels.append(_Level(name))
                self._move(name)
            elif stat.S_ISLNK(status.st_mode) and (handle := self._linked(path, self._levels)) >= 0:
                self._levels.append(_Level(name))
                self._levels[-1].is_link = True
                os.close(self._handle)
                self._handle, status = handle, os.fstat(handle)
        return Entry(path, status)

    def _linked(self, path: str, above: list[_Level]) -> int:
        """A descriptor of the directory to which a link leads; -1 if it is not entered. above: the link's levels."""
        link = f"{self._top}/{path}".lstrip("/")
        task, inside, _ = link.partition("/wd/")
        if not self._follow or not inside or any(level.is_link for level in above):
            return -1
        with contextlib.suppress(OSError):
            if self._tree.real(link).startswith(f"{self._tree.real(task)}/"):
                handle = self._tree.directory(link)
                if _identity(handle) not in [level.identity for level in above]:
                    return handle
                os.close(handle)
        return -1

    # Where it stands -------------------------------------------------------------------------------------------------

    def _stands(self) -> bool:
        """Whether the directory of the last level could be opened."""
        with contextlib.suppress(OSError):
            if self._handle < 0:
                self._reopen()
            level = self._levels[-1]
            level.identity = level.identity or _identity(self._handle)
            return True
        return False

    def _reopen(self) -> None:
        self._handle = self._tree.directory(self._top)
        for number, level in enumerate(self._levels):
            if level.name:
                self._move(level.name)
            if self._handle < 0:
                path = "/".join(above.name for above in self._levels[1 : number + 1])
                self._handle = self._linked(path, self._levels[:number])
                level.is_link = self._handle >= 0
            if self._handle < 0:
                raise FileNotFoundError(level.name)
            level.identity = _identity(self._handle)

    def _move(self, name: str) -> None:
        """Enter a directory of the open one; if that fails, none is open."""
        handle, self._handle = self._handle, -1
        try:
            with contextlib.suppress(OSError):
                self._handle = os.open(name, _DIRECTORY, dir_fd=handle)
        finally:
            os.close(handle)

    def _leave(self) -> None:
        """One level up. If a directory was moved, ".." leads elsewhere: then the path is walked from the top."""
        self._held -= len(self._levels.pop().names)
        if self._handle < 0 or not self._levels:
            self.pause()
            return
        self._move("..")
        if self._handle >= 0 and _identity(self._handle) != self._levels[-1].identity:
            self.pause()

    def _read(self, level: _Level) -> bool:
        """The next names of a directory; False if there are none."""
        with contextlib.suppress(OSError), os.scandir(self._handle) as entries:
            names = (entry.name for entry in entries)
            level.names = heapq.nsmallest(CHUNK, (name for name in names if name > level.last))
        level.whole = len(level.names) < CHUNK
        level.names.reverse()
        self._held += len(level.names)
        self._forget()
        return bool(level.names)

    def _forget(self) -> None:
        """Drop the names of the outermost levels if the walk holds too many."""
        for level in self._levels[:-1] if self._held > HELD else ():
            if level.names:
                self._held -= len(level.names)
                level.names, level.whole = [], False
            if self._held <= HELD:
                return


def _identity(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


class Walks:
    """Walks that wait for their next page: the latest few, each for a while. A walk that is dropped starts again."""

    def __init__(self, most: int = 8, seconds: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._waiting: OrderedDict[Hashable, tuple[float, Walk]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: Hashable, walk: Walk) -> None:
        walk.pause()
        with self._lock:
            self._waiting[key] = (self._clock() + self._seconds, walk)
            self._waiting.move_to_end(key)
            self._expire()

    def take(self, key: Hashable) -> Walk | None:
        """At most once: a walk continues on one page only."""
        with self._lock:
            self._expire()
            _, walk = self._waiting.pop(key, (0.0, None))
            return walk

    def _expire(self) -> None:
        """Drop the walks that have expired, and the oldest ones if there are too many."""
        while self._waiting:
            until, _ = next(iter(self._waiting.values()))
            if len(self._waiting) <= self._most and until > self._clock():
                return
            self._waiting.popitem(last=False)
