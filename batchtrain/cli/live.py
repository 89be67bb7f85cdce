"""The live block at the bottom of a terminal, with the log above it; plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime

from batchtrain.cli import event_lines, options
from batchtrain.config.types import Recipe
from batchtrain.records.events import Event
from batchtrain.service.connect import Account


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
    if wanted():
        from batchtrain.cli import live_block  # rich: 60 ms, and only for a terminal

        with live_block.shown(account, recipe, title, began) as shown:
            yield shown
        return
    current, printing = options.settings(), threading.RLock()

    def tell(event: Event) -> None:
        with printing:
            event_lines.tell(event)

    current.undrawn = lambda: printing
    try:
        yield tell
    finally:
        current.undrawn = contextlib.nullcontext
