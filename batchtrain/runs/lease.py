"""Who runs batchtrain here, and which process records a run: a file in its directory, locked while that process lives.

The operating system drops the lock when the process ends, however it ends. Where files cannot be locked, and for a
process of another host, the time of the file decides: `touch` sets it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import time
from pathlib import Path
from typing import Literal

import msgspec

from batchtrain import state_files
from batchtrain.config.types import Settings
from batchtrain.plan.lineage import Lineage
from batchtrain.plan.marks import Marks
from batchtrain.service.local_files import Folder

FILE = "lease.json"
EVERY_SECONDS = 30.0
"""Between two changes of the time of the file."""
STALE_SECONDS = 600.0
"""The age from which a process of another host counts as ended."""
ATTEMPTS = 10
"""How often a lease is tried again: a reader of the state of a run locks it for a moment."""
Holder = Literal["process", "other host", "lost", "none"]
"""A living process of this host; one of another host; a process of this host that ended without finishing the run;
no lease."""


def user() -> str:
    """The name of the user of this process; the number of one without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user here, or no `pwd`
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def marks_here(settings: Settings, run: str, lineage: Lineage | None = None) -> Marks:
    """The marks of a run of this process, as the configuration allows them."""
    marks = Marks(run, lineage=lineage)
    return marks._replace(user=user(), host=platform.node()) if settings.owner_metadata else marks


class LeaseRecord(msgspec.Struct, frozen=True):
    """lease.json."""

    host: str
    process: int
    kept_kinds: tuple[str, ...] = msgspec.field(default=(), name="keep")
    """The kinds of things that are not deleted at the end of the run."""


class Lease:
    """The lease of this process on a run."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self.touched = time.monotonic()
        """When the time of the file was set."""
        _LEASES.add(self)

    def release(self) -> None:
        """End the lease. The file stays: once run.json has the end of the run, it says nothing more."""
        _LEASES.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_LEASES: set[Lease] = set()
"""The leases of this process."""


def touch() -> None:
    """Say that this process is alive, at most once in EVERY_SECONDS, for all of its runs: one that waits for another
    one is alive, too."""
    now = time.monotonic()
    for lease in tuple(_LEASES):
        if now - lease.touched >= EVERY_SECONDS:
            lease.touched = now
            with contextlib.suppress(OSError):
                os.utime(lease.path)


def take(run: Path, kept_kinds: tuple[str, ...] | None = None) -> Lease | None:
    """Take the lease of a run directory; None if a living process of this host has it. kept_kinds: by default what the
    last lease says. Raises OSError, DamagedState."""
    path = run / FILE
    if kept_kinds is None:
        before = read(run)
        kept_kinds = before.kept_kinds if before else ()
    try:
        with Folder(run, run) as folder:
            descriptor = folder.open(FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if os.path.lexists(path):
            raise state_files.damaged(path, error, "the lease is made again") from None
        raise
    attempts = 0
    while _lock(descriptor) is False:
        if attempts == ATTEMPTS:
            os.close(descriptor)
            return None
        attempts += 1
        time.sleep(0.01)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, msgspec.json.encode(LeaseRecord(platform.node(), os.getpid(), kept_kinds)))
    return Lease(path, descriptor)


def read(run: Path) -> LeaseRecord | None:
    """The lease of a run directory; None without a readable one."""
    return state_files.cached(run / FILE, LeaseRecord)


def holder(run: Path) -> Holder:
    """Who has the lease of a run directory. Changes nothing."""
    record = read(run)
    if record is None:
        return "none"
    path = run / FILE
    try:
        living = time.time() - path.stat().st_mtime < STALE_SECONDS
        if record.host != platform.node():
            return "other host" if living else "lost"
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return "none"
    try:
        is_locked = _lock(descriptor, is_shared=True)
    finally:
        os.close(descriptor)
    return "lost" if is_locked or (is_locked is None and not living) else "process"


def _lock(descriptor: int, *, is_shared: bool = False) -> bool | None:
    """Lock a file until it is closed: False if another process has locked it, None if files cannot be locked here."""
    return state_files.lock(descriptor, shared=is_shared, wait=False)
