"""A bar for files on their way: bytes, rate and time left; on a terminal only."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchtrain.cli.options import settings
from batchtrain.runs.recording import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

SMALL = 4 << 20
"""Smaller transfers end before a bar can be read."""


@contextlib.contextmanager
def bar() -> Iterator[Progress]:
    """Shows a bar while files are transferred, if they are large and there is a terminal."""
    view = _Shown(draws=not settings().drawing and sys.stderr is not None and sys.stderr.isatty())
    try:
        yield Progress(view.begin, view.moved)
    finally:
        view.end()


class _Shown:
    """One bar for all files; several threads report to it, which have no settings of a command."""

    def __init__(self, *, draws: bool) -> None:
        self._draws, self._lock = draws, threading.Lock()
        self._bar: Bar | None = None
        self._files = self._size = self._moved = 0

    def begin(self, files: int, size: int) -> None:
        with self._lock:
            self._files += files
            self._size += size
            if self._bar is not None:
                self._bar.update(self._task, description=f"{self._files} files", total=self._size)
            elif self._draws and self._size - self._moved >= SMALL:
                self._show()

    def _show(self) -> None:
        from rich import console, progress  # 60 ms, and only for a terminal

        columns = (
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
        self._bar = progress.Progress(*columns, console=console.Console(stderr=True), transient=True)
        self._task = self._bar.add_task(f"{self._files} files", total=self._size, completed=self._moved)
        self._bar.start()

    def moved(self, size: int) -> None:
        with self._lock:
            self._moved += size
            if self._bar is not None:
                self._bar.advance(self._task, size)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
