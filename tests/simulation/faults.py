"""Which faults strike, by the seed; counted by kind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection

REQUEST_FAULTS = ("lost before", "lost after", "late", "twice", "cut", "429", "429+", "500", "500+", "503", "503+")
COMMIT_FAULTS = ("service dies before the commit", "service dies after the commit", "service's disk is full")
NODE_FAULTS = ("node lost", "node preempted", "node preempted with notice", "boot fails", "start task fails",
               "resize refused", "resize partial", "allocation slow")  # fmt: skip
CLIENT_FAULTS = ("client dies", "client interrupted", "client's disk is full")
KINDS = (*REQUEST_FAULTS, *COMMIT_FAULTS, *NODE_FAULTS, *CLIENT_FAULTS)

WRITES = 3
"""How much more often a fault strikes a request that changes something: there are few of them."""


class Fates:
    """The faults of one simulation. They end at `until`, so that everything can settle."""

    def __init__(self, seed: int, counts: Counter[str], left_out: Collection[str] = ()) -> None:
        self.random = random.Random(f"fates {seed}")
        self._counts, self._left_out = counts, left_out
        self.over = False
        self.request_rate = self.random.choice((0.0, 0.02, 0.05, 0.1))
        self.commit_rate = self.random.choice((0.0, 0.02, 0.05, 0.1))

    def strike(self, kind: str) -> bool:
        """Count a fault, unless this simulation leaves it out."""
        if self.over or kind in self._left_out:
            return False
        self._counts[kind] += 1
        return True

    def of_request(self, verb: str) -> str:
        """The fate of a request: a fault or `delivered`."""
        rate = self.request_rate * (1 if verb == "GET" else WRITES)
        struck, kind = self.random.random() < rate, self.random.choice(REQUEST_FAULTS)
        return kind if struck and self.strike(kind) else "delivered"

    def of_commit(self) -> str:
        """The fault of a commit; empty for none."""
        struck, kind = self.random.random() < self.commit_rate, self.random.choice(COMMIT_FAULTS)
        return kind if struck and self.strike(kind) else ""
