"""The common parts of uploads and downloads of several files: the result of each file, and when to stop."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from batchtrain.errors import NotAllowed, ServiceError, Unreachable
from batchtrain.service.at_once import AtOnce, Piece
from batchtrain.storage.blob_requests import LocalFault

Count = Callable[[int], None]
"""Receives the number of bytes that moved."""
_OF_ALL = frozenset({"ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled", "AccountIsDisabled"})
_NAMED = 5
"""Failed files that a message names."""


class Moved(NamedTuple):
    """The result for a file."""

    name: str
    bytes: int = 0
    moved: bool = False
    """False if the same was there already, or if it failed."""
    error: ServiceError | None = None
    is_local: bool = False
    """Whether the error is of this machine."""


class Changed(Exception):
    """A file has changed while it was read."""


class Moving:
    """Several files on their way. A file that fails does not stop the others, unless all would fail."""

    def __init__(self, thread: str, count: Count) -> None:
        self.count = count
        self._thread = thread
        self._crew: AtOnce[Moved] | None = None
        self._lost = False

    def results(self, files: Iterable[Piece[Moved]]) -> Iterator[Moved]:
        """The result for each file; after a fault of the whole container, no further file is started."""
        self._crew = AtOnce(self._thread, itertools.takewhile(lambda _: not self._lost, files))
        yield from self._crew.results()

    @property
    def stopped(self) -> bool:
        """Whether no further result is wanted."""
        return self.end.is_set()

    @property
    def end(self) -> threading.Event:
        """Is set when no further result is wanted."""
        assert self._crew is not None
        return self._crew.stopped

    def add(self, pieces: Iterable[Piece[Moved]]) -> None:
        """Add pieces of a large file."""
        assert self._crew is not None
        self._crew.add(pieces)

    def failed(self, name: str, path: Path, error: Exception) -> Moved:
        """The result for a file that failed."""
        if isinstance(error, ServiceError):
            self._lost |= of_all(error)
            return Moved(name, error=error)
        fault = error.error if isinstance(error, LocalFault) else None
        if fault is None:
            reason = f"{path} changes while it is copied; copy it again later"
        elif fault.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = f"the disk of {path.parent} is full: free some space and copy {path.name} again"
        else:
            reason = f"{path}: {fault.strerror or fault}"
        return Moved(name, error=ServiceError(reason), is_local=True)


def of_all(error: ServiceError) -> bool:
    """Whether no other file could be copied, either."""
    return isinstance(error, (NotAllowed, Unreachable)) or error.code in _OF_ALL


class Progress(NamedTuple):
    """The progress of the files of one destination; `name` is the file that was just completed."""

    destination: str
    name: str
    copied: bool
    done: int
    of: int
    bytes: int
    """Bytes that were copied so far."""


class Total(NamedTuple):
    """What was brought to one destination."""

    place: str
    files: int
    copied: int
    unchanged: int
    failed: int
    bytes: int


class Watcher(NamedTuple):
    """Who follows the files: `begin` receives their number and bytes."""

    begin: Callable[[int, int], None] = lambda files, size: None
    moved: Count = lambda size: None
    tell: Callable[[Progress], None] = lambda progress: None


UNWATCHED = Watcher()


class Tally:
    """Counts the results of the files of one destination."""

    def __init__(self, destination: str, files: int, size: int = 0, watcher: Watcher = UNWATCHED) -> None:
        self._destination, self._files, self._tell = destination, files, watcher.tell
        watcher.begin(files, size)
        self._done = self._copied = self._bytes = 0
        self._errors: list[ServiceError] = []

    def add(self, result: Moved) -> None:
        """Count a file."""
        self._done += 1
        self._copied += result.moved
        self._bytes += result.bytes
        if result.error is not None:
            self._errors.append(result.error)
        self._tell(Progress(self._destination, result.name, result.moved, self._done, self._files, self._bytes))

    @property
    def total(self) -> Total:
        """What was brought. The files that were never begun have failed, too."""
        same = self._done - self._copied - len(self._errors)
        return Total(self._destination, self._files, self._copied, same, self._files - self._copied - same, self._bytes)

    def check(self, what: str = "copied to") -> None:
        """Raise the faults of the files as one error, if there are any. what: as in "were not copied to"."""
        if not self._errors:
            return
        fatal = next((error for error in self._errors if of_all(error)), None)
        if fatal is not None:
            text = f"{fatal}; {self._copied:,} of {self._files:,} files were {what} {self._destination} before"
            raise type(fatal)(text, operation=fatal.operation, code=fatal.code)
        failed = self.total.failed
        reasons = "; ".join(str(error) for error in self._errors[:_NAMED])
        more = f"; and {failed - _NAMED:,} more" if failed > _NAMED else ""
        raise ServiceError(f"{failed:,} of {self._files:,} files were not {what} {self._destination}: {reasons}{more}")
