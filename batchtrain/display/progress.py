"""The progress of a call of the Python API: a card that updates in place in a notebook, lines in a terminal."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from batchtrain import markup
from batchtrain.display.live_view import Line, View, number, span
from batchtrain.display.terminal import plain_text, terminal_text
from batchtrain.errors import BatchtrainError, printable, short_traceback, shortened
from batchtrain.hints import for_cell, pasted
from batchtrain.life.endings import cause_of
from batchtrain.records.events import Event, Output, Stdout

REDRAWS = 0.25
"""Seconds between two drawings of a card in which something happened; without an event it is drawn each second."""
WIDTH = 96
KEPT_LINES, LAST_LINES, KEPT_VALUES = 500, 10, 2000
"""Lines of output that a card has at its end, and while it is live; values of a metric for its curve."""
CURVE_HEIGHT = 120
_COLORS = {"green": markup.GREEN, "yellow": markup.YELLOW, "red": markup.RED, "cyan": markup.COLORS[0]}
_STYLES = {"bold": "font-weight:600", "dim": "opacity:.6", **{name: f"color:{c}" for name, c in _COLORS.items()}}

Tell = Callable[[Event], None]


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def wanted(display: bool | None) -> bool:
    """Whether progress is shown; by default in a notebook, on a terminal, and in an interactive Python."""
    if display is not None:
        return display
    return in_notebook() or hasattr(sys, "ps1") or (sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def shown(view: Callable[[], View], notice: str, target: str, *, quiet: bool = False) -> Iterator[Tell]:
    """Yield a function that shows events, until the body ends. notice: a sentence, what Ctrl-C leaves. target: the
    options that reach the account. quiet: of a body that succeeded, one line is left."""
    if not in_notebook():
        yield functools.partial(line, target=target)
        return
    with Card(view(), handle(), quiet=quiet).drawn(notice) as card:
        yield card


def line(event: Event, target: str = "") -> None:
    """An event as plain text; the output of tasks goes to stdout."""
    if event.text:
        stream = sys.stdout if isinstance(event, Stdout) else sys.stderr
        text = event.text if isinstance(event, Output) else pasted(event.text, target, "")
        print(terminal_text(text if isinstance(event, Stdout) else shortened(text)), file=stream)


Draw = Callable[[str, str], None]
"""Shows an HTML text, with its plain text."""


def handle() -> Draw:
    """A place below the cell whose content is replaced by each call."""
    display: Any = importlib.import_module("IPython.display").display  # only a notebook has it
    displays: list[Any] = []

    def draw(html: str, text: str) -> None:
        content = {"text/html": html, "text/plain": text}
        if displays:
            displays[0].update(content, raw=True)
        else:
            displays.append(display(content, raw=True, display_id=True))

    return draw


class Card:
    """A view as HTML. A thread draws it, so that a program with many lines is not slowed down."""

    def __init__(self, view: View, draw: Draw, clock: Callable[[], float] = time.time, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._view, self._draw, self._clock = view, draw, clock
        option = " --local" if view.emulated else ""
        self._completed = functools.partial(for_cell, target=option)
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._found: list[str] = []
        """The cause of a failure, and the next step."""
        self._lock, self._news, self._over = threading.Lock(), threading.Event(), threading.Event()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._view.note(event, self._clock())
            if event.text:
                text = event.text if isinstance(event, Output) else self._completed(event.text)
                self._lines.append(printable(plain_text(shortened(text)).rstrip("\n")))
        self._news.set()

    @contextlib.contextmanager
    def drawn(self, notice: str) -> Iterator[Card]:
        """Draw the card until the end of the body; then once more with how it ended."""
        self._draw(self.html(), self.text())
        context = contextvars.copy_context()  # names the cell that the output belongs to
        ticking = threading.Thread(target=context.run, args=(self._tick,), daemon=True)
        ticking.start()
        state = ""
        try:
            yield self
            state = self._view.outcome
        except BaseException as error:
            state = cause_of(error).state
            if isinstance(error, BatchtrainError) and error.finding:
                self._found = list(map(self._completed, error.finding.card()))
            if isinstance(error, KeyboardInterrupt):  # IPython calls it in place of a traceback of all frames
                error._render_traceback_ = functools.partial(short_traceback, error, notice)  # type: ignore[attr-defined]
            raise
        finally:
            self._over.set()
            self._news.set()
            ticking.join()
            self._draw(self.html(state), self.text(state))

    def _tick(self) -> None:
        while not self._over.is_set():
            self._news.wait(1.0)
            self._news.clear()
            if not self._over.is_set():
                self._draw(self.html(), self.text())
            self._over.wait(REDRAWS)

    def html(self, outcome: str = "") -> str:
        """The card now. outcome: how the call ended; then the output is folded."""
        if self._quiet and outcome == "done":
            return f'<div {markup.AS_IT_IS} style="opacity:.75">{markup.text(self.text(outcome))}</div>'
        with self._lock:
            view, now, lines = self._view, self._clock(), list(self._lines)
            took = f"{' after' * bool(outcome)} {span(now - view.began)}"
            block: list[Line] = [((row, ""),) for row in self._found] if outcome else view.lines(WIDTH, now)[1:]
            title = f"{view.title} · {view.target}"
            curve = _curve(view)
        output = markup.pre("\n".join(lines if outcome else lines[-LAST_LINES:])) if lines else ""
        details = markup.fold("output", output, note=f"the last {len(lines):,} lines", open_=outcome == "failed")
        head = markup.head(title, outcome or view.phase, time=took)
        return markup.card(head, _block(block), curve, details if outcome and lines else output)

    def text(self, outcome: str = "") -> str:
        """The card without HTML."""
        with self._lock:
            now = self._clock()
            if outcome:
                head = f"{self._view.title} · {self._view.target}: {outcome} after {span(now - self._view.began)}"
                return "\n".join((head, *self._found))
            lines = ["".join(part for part, _ in line).rstrip() for line in self._view.lines(WIDTH, now)]
            return "\n".join(line for line in [*lines, *list(self._lines)[-LAST_LINES:]] if line)


def _curve(view: View) -> str:
    """The curve of the main metric."""
    curves = {name: {t: tuple(c) for t, c in view.history.get(name, {}).items() if len(c) > 1} for name in view.names}
    name = next((name for name, by_task in curves.items() if by_task), "")
    if not name:
        return ""
    last = f" {number(next(iter(view.values[name].values())))[0]}" if len(view.values[name]) == 1 else ""
    return markup.figure(f"{name}{last}", curves[name], CURVE_HEIGHT)


def _block(lines: list[Line]) -> str:
    """The lines of the view in their colours."""
    rows = ["".join(f'<span style="{_STYLES.get(style, "")}">{markup.text(part)}</span>' for part, style in line)
            for line in lines if line]  # fmt: skip
    return f'<pre style="{markup.PRE};background:none;padding:0">{chr(10).join(rows)}</pre>' if rows else ""
