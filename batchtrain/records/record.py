"""The base of what is read from the service."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from batchtrain.records.rows import row_card


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A thing of the service at the time of the query. Properties that were not queried have their defaults."""

    title: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ()
    """The names of what tables and documents show of it."""

    def _repr_html_(self) -> str:
        return row_card(self.title, self)
