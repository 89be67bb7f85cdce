"""A bar for files on their way: bytes, rate and time left; on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchtrain.cli.options import settings

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from batchtrain.runs.recording import Progress

SMALL = 4 << 20
"""Smaller transfers end before a bar can be read."""


@contextlib.contextmanager
def bar() -> Iterator[Progress]:
    """Shows a bar while files are transferred, if they are large and there is a terminal."""
    from batchtrain.runs.recording import Progress

    shown = _Shown()
    try:
        yield Progress(shown.begin, shown.moved)
    finally:
        shown.end()


class _Shown:
    def __init__(self) -> None:
        self._bar: Bar | None = None

    def begin(self, files: int, size: int) -> None:
        self.end()
        if size < SMALL or settings().drawing or sys.stderr is None or not sys.stderr.isatty():
            return
        from rich.console import Console  # 40 ms, and only for a terminal
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(f"{files} files", total=size)
        self._bar.start()

    def moved(self, size: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, size)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
