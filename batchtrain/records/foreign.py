"""JSON that a task, a node or another user wrote: it may be anything."""

from __future__ import annotations

from typing import TypeVar

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for text that is not the JSON of a type: cut off, not UTF-8, nested too deep."""
Kind = TypeVar("Kind")


def read(content: bytes | str, kind: type[Kind]) -> Kind | None:
    """A document of a type; None if it is something else."""
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE:
        return None
