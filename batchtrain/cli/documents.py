"""Documents on stdout for programs: JSON, JSON lines, YAML or CSV with stable keys; and rows as a table."""

from __future__ import annotations

import csv
import io
import itertools
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import msgspec

from batchtrain.cli.messages import completed
from batchtrain.records import aligned, shown

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""A number that a table has as a text, as `runs compare` does, is one for a spreadsheet, too."""
CHUNK = 1000
"""Rows of a table that are aligned and printed at once."""


def show(value: Any, form: str) -> None:
    """Print one result."""
    _document(_FORMS[form](plain(value)))


def show_rows(rows: Iterable[Any], form: str, empty: str) -> None:
    """Print rows of one kind as they come: a table, a list of objects, or CSV."""
    if form == "table":
        _table(rows, empty)
    elif form == "jsonl":
        for row in rows:
            _document(_FORMS[form](plain(row)))
    elif form == "csv":
        _document(_FORMS[form]([plain(row) for row in rows]))
    else:
        for chunk in _list(map(plain, rows), form):
            _document(chunk)


def _list(rows: Iterator[Any], form: str) -> Iterator[str]:
    """A list as text, in parts. A fault before the first row leaves nothing printed."""
    first = next(rows, None)
    if first is None:
        yield "[]"
    elif form == "yaml":
        for row in itertools.chain((first,), rows):
            yield _yaml([row])
    else:
        last = _indented(first)
        yield "["
        for row in rows:
            yield f"{last},"
            last = _indented(row)
        yield last
        yield "]"


def _indented(row: Any) -> str:
    return textwrap.indent(_json(row), "  ")


def _document(text: str) -> None:
    """Print a document. Characters that stdout cannot encode, or that control a terminal, are written as escapes, as
    JSON and YAML have them."""
    is_plain = encodable(text, sys.stdout) and _is_printable(text)
    print(text if is_plain else escaped(text))


def _is_printable(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


def encodable(text: str, stream: TextIO | None) -> bool:
    """Whether a stream's encoding has every character."""
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def escaped(text: str) -> str:
    """A JSON text, or a YAML text of quoted strings, in ASCII."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(
        chr(unit) if unit < 127 else f"\\u{unit:04x}"
        for unit in (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    )


def plain(value: Any, *, whole: bool = False) -> Any:
    """A value as objects and lists: named tuples and records are objects. whole: also what tables of records omit."""
    if (isinstance(value, tuple) and hasattr(value, "_fields")) or hasattr(value, "columns"):
        names = value.__struct_fields__ if whole and hasattr(value, "columns") else ()
        return {name: plain(item, whole=whole) for name, item in shown(value, names).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, whole=whole) for item in value]
    if isinstance(value, dict):
        return {key: plain(item, whole=whole) for key, item in value.items()}
    if hasattr(value, "__fspath__"):
        return str(value)
    return msgspec.to_builtins(value)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _yaml(value: Any) -> str:
    import yaml  # 20 ms, and only for YAML

    document: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=encodable("é…", sys.stdout))
    if not _is_printable(document):  # as escapes, which only quoted texts have
        document = yaml.safe_dump(value, sort_keys=False)
    return document.rstrip("\n")


def _csv(value: Any) -> str:
    """A line for each object, with the names in the first. A value that is no scalar is JSON."""
    from batchtrain.runtime.batchtrain_sweep import csv_cell  # with argparse

    rows = value if isinstance(value, list) else [value]
    rows = [row if isinstance(row, dict) else {"value": row} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(csv_cell, names))
    for row in rows:
        cells = (_scalar(row.get(name)) for name in names)
        writer.writerow(cell if _NUMBER.fullmatch(str(cell)) else csv_cell(cell) for cell in cells)
    return file.getvalue().rstrip("\n")


def _scalar(value: Any) -> Any:
    """A value that is no scalar is JSON."""
    return value if value is None or isinstance(value, (str, int, float)) else msgspec.json.encode(value).decode()


_FORMS = {"json": _json, "jsonl": lambda value: msgspec.json.encode(value).decode(), "yaml": _yaml, "csv": _csv}


def _table(rows: Iterable[Any], empty: str) -> None:
    if sys.stdout is None or not sys.stdout.isatty():
        remaining = iter(rows)
        widths: list[int] = []
        while chunk := tuple(itertools.islice(remaining, CHUNK)):
            head = not widths
            print(completed("\n".join(aligned(chunk, widths, head=head))))
        if not widths:
            print(completed(empty), file=sys.stderr)
        return
    if not (every := tuple(rows)):
        print(completed(empty), file=sys.stderr)
        return
    from batchtrain.cli import tables  # rich: 40 ms, and only for a terminal

    tables.printed(every)
