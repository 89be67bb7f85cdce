"""Files of tasks and nodes."""

from __future__ import annotations

from datetime import datetime

from batchtrain.records.record import Record


class File(Record, frozen=True):
    """A file of a task or a node."""

    path: str
    """The bytes of a name that is not UTF-8 are written as `%FF`."""
    size: int
    modified: datetime | None = None
    link: bool = False
    """Whether it was listed as a link, and not as the file to which it leads."""
    raw: bytes = b""
    """The path of the service, if the name is not UTF-8."""
