"""The base of what is read from the service."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, ClassVar

import msgspec

from batchtrain.records.rows import row_card

Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time of a record, which always has a time zone. A time without one cannot be compared, so it is not read."""
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
"""A number of the service."""


def minute(time: datetime) -> str:
    """A time in words, to the minute."""
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A thing of the service at the time of the query. Properties that were not queried have their defaults."""

    title: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ()
    """The names of what tables and documents show of it."""

    def _repr_html_(self) -> str:
        return row_card(self.title, self)
