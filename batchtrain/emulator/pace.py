"""How long nodes take to come and go: at once, or about as long as on Azure, by the account's clock; pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple


class Pace(NamedTuple):
    """Seconds of the account's clock."""

    allocation: float = 0
    """Until a resize has its virtual machines."""
    boot: tuple[float, float] = (0, 0)
    """From the shortest to the longest boot."""
    removal: float = 0
    """Until a node that leaves is gone, and with the last one a pool that is deleted."""

    def boot_of(self, node_id: str) -> float:
        """Each node has its own, the same at every run."""
        shortest, longest = self.boot
        return shortest + (longest - shortest) * (zlib.crc32(node_id.encode()) % 1000) / 1000


PACES: Mapping[str, Pace] = {"instant": Pace(), "azure": Pace(allocation=90, boot=(40, 120), removal=60)}
"""Azure's are typical for small sizes, and no promise: an allocation may also take a quarter of an hour."""
