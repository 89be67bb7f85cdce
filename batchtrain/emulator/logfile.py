"""The emulator's log: its standard error in a file of limited size, whichever process writes to it."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

LIMIT = 8 * 1024 * 1024
"""Bytes. The previous content is kept once, in `emulator.log.1`."""
BEFORE = ".1"


class Bounded(logging.Handler):
    """Truncates a full log. It is emptied in place, because child processes write to the same open file."""

    def __init__(self, path: Path, descriptor: int = 2) -> None:
        super().__init__()
        self._path, self._descriptor = path, descriptor

    @property
    def is_written(self) -> bool:
        """Whether the descriptor is the log and not a terminal."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def emit(self, record: logging.LogRecord) -> None:
        """Called for every logged line; reading a file's size takes a microsecond."""
        self.cut()

    def cut(self) -> None:
        """Move the last LIMIT bytes to the previous log, and start again, if the log is full."""
        size = os.fstat(self._descriptor).st_size
        if size <= LIMIT:
            return
        with contextlib.suppress(OSError):  # a full disk is one more reason to empty the log
            aside = self._path.with_name(f".{self._path.name}{BEFORE}")
            aside.touch(0o600)
            with self._path.open("rb") as log, aside.open("wb") as copy:
                log.seek(size - LIMIT)
                copy.write(log.read(LIMIT))
            aside.replace(self._path.with_name(f"{self._path.name}{BEFORE}"))
        os.ftruncate(self._descriptor, 0)
