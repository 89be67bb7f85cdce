"""Results on stdout: a table for people, or a document for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from batchtrain.cli.messages import completed
from batchtrain.cli.options import settings
from batchtrain.cli.wrapping import broken
from batchtrain.errors import printable_lines, shortened


def show(value: Any, text: str | None = None) -> None:
    """Print one result. A table shows `text` if it is given, otherwise the text of the value. A text of several lines
    is a document, whose commands are not changed."""
    form = settings().output
    if form == "table":
        content = str(text if text is not None else value)
        write(shortened(content if "\n" in content else completed(content)))
        return
    _documents().show(value, form)


def write(text: str) -> None:
    """Print a text for people: broken between words, and without characters that control a terminal."""
    print(broken(printable_lines(text), sys.stdout), flush=True)


def show_rows(rows: Iterable[Any], *, empty: str = "nothing") -> None:
    """Print rows of one kind as they come: a table, a list of objects, or CSV."""
    _documents().show_rows(rows, settings().output, empty)


def _documents() -> Any:
    """What prints documents and rows: 40 modules, which texts do not need."""
    from batchtrain.cli import documents

    return documents
