"""The live block at the bottom of a terminal, with the log above it; plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from batchtrain.cli import options
from batchtrain.cli.log_lines import LogLine, folded, of_event
from batchtrain.records.events import Event, Output, Stdout, StillWaiting
from batchtrain.service import retry

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from batchtrain.config.types import Recipe
    from batchtrain.display.live_view import View
    from batchtrain.service.connect import Account

DRAW_SECONDS = 0.25
"""The least time between two redraws, and the longest that a line of a task waits for the next one."""
MOST_HELD = 20_000
"""Lines that wait to be printed together."""
SMALLEST = 6
"""Lines that a log needs above the block."""


def wanted() -> bool:
    """Whether the block is shown: on a terminal that can redraw, unless --progress says otherwise."""
    current = options.settings()
    if current.progress in ("plain", "none") or current.output != "table" or current.verbose:
        return False
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    return current.progress == "live" or not os.environ.get("CI")


@contextlib.contextmanager
def block(
    account: Account, recipe: Recipe | None, title: str = "", began: datetime | None = None
) -> Iterator[Callable[[Event], None]]:
    """Show a block about a recipe, or about what `title` names, until the body ends. Print the events above it. began:
    when it began; by default now."""
    current = options.settings()
    if not wanted():
        printing = threading.RLock()

        def say(event: Event) -> None:
            with printing:
                options.tell(event)

        current.undrawn = lambda: printing
        try:
            yield say
        finally:
            current.undrawn = contextlib.nullcontext
        return
    from rich.console import Console  # 60 ms, and only for a terminal

    from batchtrain.cli.resized_live import ResizedLive
    from batchtrain.display.subject import view_of

    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=False)
    view = view_of(account, recipe, title, began=began)
    to_terminal = sys.stdout is not None and sys.stdout.isatty()
    with ResizedLive(
        _Shown(view), console=console, auto_refresh=False, transient=True, redirect_stdout=to_terminal
    ) as screen, _Log(screen.console, screen.refresh).flushed() as log:  # fmt: skip

        def tell(event: Event) -> None:
            with log.lock:  # another thread draws the view
                view.note(event, time.time())
            if isinstance(event, Output) and (to_terminal or not isinstance(event, Stdout)):
                line = of_event(event)
                if options.shows_rank(line.rank):
                    log.add(line._replace(text=options.own_shortened(line.text)))
            elif not isinstance(event, StillWaiting):
                log.flush()
                options.tell(event)

        @contextlib.contextmanager
        def undrawn() -> Iterator[None]:
            screen.transient = False  # the last picture stays: it shows what the user may stop
            screen.stop()
            with log.lock:
                yield

        current.drawing, current.undrawn = True, undrawn
        try:
            yield tell
        except KeyboardInterrupt:
            screen.transient = False
            raise
        finally:
            current.drawing, current.undrawn = False, contextlib.nullcontext


class _Log:
    """Lines on their way to the terminal above the block. A print draws the block again, so lines that come soon after
    each other are printed together, and equal lines of several ranks once."""

    def __init__(
        self, console: Console, refresh: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._refresh, self._clock = console, refresh, clock
        self._size = console.size
        self._lines, self.lock, self._over = list[LogLine](), threading.Lock(), threading.Event()
        self._drawn = float("-inf")

    def add(self, line: LogLine) -> None:
        """A line of a task."""
        with self.lock:
            self._lines.append(line)
            if len(self._lines) >= MOST_HELD:
                self._draw()

    def flush(self) -> None:
        """Print what is held."""
        with self.lock:
            if self._lines:
                self._draw()

    def delay(self) -> float:
        """The seconds until the block may be drawn again."""
        return self._drawn + DRAW_SECONDS - self._clock()

    def tick(self) -> None:
        """Draw the block with the lines that are held, if it is time."""
        with self.lock:
            if self.delay() <= 0 and self._is_still():
                self._draw()

    def _is_still(self) -> bool:
        """Whether the terminal has the size of the last look. While its window is dragged nothing is drawn: each size
        would leave a broken picture."""
        before, self._size = self._size, self._console.size
        if before != self._size:
            self._drawn = self._clock()
        return before == self._size

    def _draw(self) -> None:
        from rich.text import Text

        self._drawn = self._clock()
        if not self._lines:
            self._refresh()
            return
        text = Text.from_ansi("\n".join(folded(self._lines, color=options.colored(sys.stderr))))
        self._lines.clear()
        self._console.print(text, overflow="ignore", no_wrap=True, crop=False)

    @contextlib.contextmanager
    def flushed(self) -> Iterator[_Log]:
        """Draw every DRAW_SECONDS, and print what is left at the end."""
        ticking = threading.Thread(target=self._run, daemon=True)
        ticking.start()
        try:
            yield self
        finally:
            self._over.set()
            ticking.join()
            self.flush()

    def _run(self) -> None:
        while not self._over.wait(max(self.delay(), 0.0)):
            self.tick()


class _Shown:
    """The block as rich draws it, in the size that the terminal has at this moment."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __rich__(self) -> RenderableType:
        from rich.text import Text

        self._view.answers = retry.ANSWERS.recent()
        try:
            width, height = os.get_terminal_size(sys.stderr.fileno())
        except OSError:  # the terminal was closed
            width, height = shutil.get_terminal_size()
        lines = self._view.lines(width - 1, time.time())[: max(height - SMALLEST, 1)]
        text = Text("\n", no_wrap=True, overflow="crop")
        for number, line in enumerate(lines):
            for part, style in line:
                text.append(part, style=None if os.environ.get("NO_COLOR") else style)
            if number < len(lines) - 1:
                text.append("\n")
        return text
