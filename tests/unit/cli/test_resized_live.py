"""A terminal that became narrower has broken the lines of the live display: all their rows are erased."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.text import Text

from batchtrain.cli.resized_live import ResizedLive

UP = "\x1b[1A"


def test_the_rows_of_broken_lines_are_erased_before_the_next_picture() -> None:
    file = StringIO()
    console = Console(file=file, width=80, height=30, force_terminal=True, legacy_windows=False)
    live = ResizedLive(Text("x" * 60 + "\n" + "y" * 70), console=console, auto_refresh=False)
    live.start(refresh=True)
    file.truncate(0)
    live.refresh()
    before = file.getvalue().count(UP)
    console.width = 40  # each line has two rows now
    file.truncate(0)
    live.refresh()
    assert file.getvalue().count(UP) == before + 2
    live.stop()
