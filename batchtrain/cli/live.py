"""The live block at the bottom of a terminal, with the log above it; plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from batchtrain.cli import options
from batchtrain.display.terminal import terminal_text
from batchtrain.service.submit import Event

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from batchtrain.display.live_view import View

HELD_SECONDS = 0.1
MOST_HELD = 500
"""How long, and how many, lines of tasks wait to be printed together."""
REDRAWS = 4
"""Redraws of a second at most."""
SMALLEST = 6
"""Lines that a log needs above the block."""


def wanted() -> bool:
    """Whether the block is shown: on a terminal that can redraw, unless --progress says otherwise."""
    chosen = options.settings()
    if chosen.progress in ("plain", "none") or chosen.output != "table" or chosen.verbose:
        return False
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    return chosen.progress == "live" or not os.environ.get("CI")


@contextlib.contextmanager
def block(make: Callable[[], View]) -> Iterator[Callable[[Event], None]]:
    """Show a block until the end of the body, and print the events above it. make: is called only if it is shown."""
    if not wanted():
        yield options.tell
        return
    from rich.console import Console  # 60 ms, and only for a terminal
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=False)
    view = make()
    to_terminal = sys.stdout is not None and sys.stdout.isatty()
    with Live(
        _Shown(view), console=console, refresh_per_second=REDRAWS, transient=True, redirect_stdout=to_terminal
    ) as screen, _Log(screen.console).flushed() as log:  # fmt: skip

        def tell(event: Event) -> None:
            view.note(event, time.time())
            if event.kind == "stderr" or (event.kind == "stdout" and to_terminal):
                log.add(terminal_text(options.own_shortened(event.text)))
            else:
                log.flush()
                options.tell(event)

        options.settings().drawing = True
        try:
            yield tell
        finally:
            options.settings().drawing = False


class _Log:
    """Lines on their way to the terminal above the block. They are printed together, because the block is drawn again
    after each print."""

    def __init__(self, console: Console) -> None:
        self._console, self._lines, self._lock = console, list[str](), threading.Lock()
        self._over = threading.Event()

    def add(self, line: str) -> None:
        """A line of a task."""
        with self._lock:
            self._lines.append(line)
            if len(self._lines) >= MOST_HELD:
                self._print()

    def flush(self) -> None:
        """Print what is held."""
        with self._lock:
            self._print()

    def _print(self) -> None:
        from rich.text import Text

        if self._lines:
            text = Text.from_ansi("\n".join(self._lines))
            self._lines.clear()
            self._console.print(text, overflow="ignore", no_wrap=True, crop=False)

    @contextlib.contextmanager
    def flushed(self) -> Iterator[_Log]:
        """Print at least every HELD_SECONDS, and what is left at the end."""
        ticking = threading.Thread(target=self._tick, daemon=True)
        ticking.start()
        try:
            yield self
        finally:
            self._over.set()
            ticking.join()
            self.flush()

    def _tick(self) -> None:
        while not self._over.wait(HELD_SECONDS):
            self.flush()


class _Shown:
    """The block as rich draws it, in the size that the terminal has at this moment."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __rich__(self) -> RenderableType:
        from rich.text import Text

        width, height = os.get_terminal_size(sys.stderr.fileno())
        lines = self._view.lines(width - 1, time.time())[: max(height - SMALLEST, 1)]
        text = Text("\n", no_wrap=True, overflow="crop")
        for number, line in enumerate(lines):
            for part, style in line:
                text.append(part, style=None if os.environ.get("NO_COLOR") else style)
            if number < len(lines) - 1:
                text.append("\n")
        return text
