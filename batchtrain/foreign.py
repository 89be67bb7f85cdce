"""JSON that a task, a node or another user wrote: it may be anything."""

from __future__ import annotations

from typing import TypeVar

import msgspec

UNREADABLE = (ValueError, RecursionError)
"""What a decoder raises for text that is not the document of a type: cut off, not UTF-8, nested too deep. The errors of
msgspec are ValueErrors."""
Kind = TypeVar("Kind")


def read(content: bytes | str, kind: type[Kind]) -> Kind | None:
    """A document of a type; None if it is something else."""
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE:
        return None
