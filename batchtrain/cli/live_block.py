"""The live block as rich draws it, with the log above it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime

from rich.console import Console, RenderableType
from rich.text import Text

from batchtrain.cli import event_lines, options
from batchtrain.cli.event_lines import own_shortened, shows_rank
from batchtrain.cli.log_lines import LogLine, folded, of_event
from batchtrain.cli.messages import colored
from batchtrain.cli.resized_live import ResizedLive
from batchtrain.config.types import Recipe
from batchtrain.display.live_view import View
from batchtrain.display.subject import view_of
from batchtrain.records.events import Event, Output, Stdout, StillWaiting
from batchtrain.service import retry
from batchtrain.service.connect import Account

DRAW_SECONDS = 0.25
"""The least time between two redraws, and the longest that a line of a task waits for the next one."""
MOST_HELD = 20_000
"""Lines that wait to be printed together."""
SMALLEST = 6
"""Lines that a log needs above the block."""


@contextlib.contextmanager
def shown(
    account: Account, recipe: Recipe | None, title: str, began: datetime | None
) -> Iterator[Callable[[Event], None]]:
    """Draws the block until the body ends, and prints the events above it."""
    current = options.settings()
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
                if shows_rank(line.rank):
                    log.add(line._replace(text=own_shortened(line.text)))
            elif not isinstance(event, StillWaiting):
                log.flush()
                event_lines.tell(event)

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
            screen.transient, view.phase = False, "interrupted"
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
        self._drawn = self._clock()
        if not self._lines:
            self._refresh()
            return
        text = Text.from_ansi("\n".join(folded(self._lines, color=colored(sys.stderr))))
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


def _size() -> tuple[int, int]:
    """The columns and lines of the terminal; the usual ones if it was closed or does not report its size."""
    with contextlib.suppress(OSError):
        size = os.get_terminal_size(sys.stderr.fileno())
        if all(size):
            return size
    return shutil.get_terminal_size()


class _Shown:
    """The block as rich draws it, in the size that the terminal has at this moment."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __rich__(self) -> RenderableType:
        self._view.seen = retry.ANSWERS.age
        width, height = _size()
        lines = self._view.lines(width - 1, time.time())[: max(height - SMALLEST, 1)]
        text = Text("\n", no_wrap=True, overflow="crop")
        for number, line in enumerate(lines):
            for part, style in line:
                text.append(part, style=None if os.environ.get("NO_COLOR") else style)
            if number < len(lines) - 1:
                text.append("\n")
        return text
