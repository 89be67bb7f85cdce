"""The pace of nodes: how long they take to boot and to leave, either almost none or about as long as on Azure, by the
account's clock; pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple


class Pace(NamedTuple):
    """Seconds of the account's clock."""

    allocation: float = 0
    """The time until a resize has its virtual machines."""
    boot: tuple[float, float] = (0, 0)
    """The shortest and the longest boot."""
    replacement: float = 10
    """The time until Azure has another virtual machine for a preempted node."""
    removal: float = 0
    """The time until a leaving node is deleted, and with the last node a pool that is being deleted."""

    def boot_of(self, node_id: str) -> float:
        """The boot time of a node: each has its own, the same in every run."""
        shortest, longest = self.boot
        return shortest + (longest - shortest) * (zlib.crc32(node_id.encode()) % 1000) / 1000


PACES: Mapping[str, Pace] = {
    "instant": Pace(),
    "azure": Pace(allocation=90, boot=(40, 120), replacement=300, removal=60),
}
"""Typical times for small sizes on Azure, without guarantee: an allocation can also take a quarter of an hour."""
