"""Results on stdout: a table for people, or JSON, JSON lines or YAML with stable keys for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import msgspec

from batchtrain.cli.options import settings


def show(value: Any, text: str | None = None) -> None:
    """Print one result: `text` for people when given, else the value's own."""
    form = settings().output
    if form == "table":
        print(text if text is not None else value)
        return
    print(_FORMS[form](plain(value)))


def show_rows(rows: Sequence[Any], *, empty: str = "nothing") -> None:
    """Print rows of one kind: a table, or a list of objects."""
    form = settings().output
    if form == "table":
        _table(rows, empty)
        return
    if form == "jsonl":
        for row in rows:
            print(msgspec.json.encode(plain(row)).decode())
        return
    print(_FORMS[form]([plain(row) for row in rows]))


def colored(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that wants colours."""
    if stream is None or not stream.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def plain(value: Any) -> Any:
    """A value as objects and lists: named tuples are objects."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "__fspath__"):
        return str(value)
    return msgspec.to_builtins(value)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _yaml(value: Any) -> str:
    import yaml  # only where asked for

    dumped: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return dumped.rstrip("\n")


_FORMS = {"json": _json, "jsonl": lambda value: msgspec.json.encode(value).decode(), "yaml": _yaml}


def _table(rows: Sequence[Any], empty: str) -> None:
    from batchtrain.service.seen import Table, cells, columns

    if not rows:
        print(empty, file=sys.stderr)
        return
    if sys.stdout is None or not sys.stdout.isatty():
        print(Table(rows))
        return
    from rich import table as rich_table  # 40 ms, and only for a terminal
    from rich.console import Console
    from rich.text import Text

    heads = [
        rich_table.Column(name, overflow="fold") for name in columns(rows)
    ]  # folded, so that an id can be read and copied
    table = rich_table.Table(*heads, box=None, header_style="bold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in cells(row)))
    Console().print(table)
