"""Injected faults: the faults of an account, and whether one strikes now; pure.

Each fault has its own seeded random source, so the same requests meet the same faults again.
"""

from __future__ import annotations

import fnmatch
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from batchtrain.catalog.likeness import mistakes

ANSWERS = ("error", "latency", "drop", "truncate", "skew")
"""Faults of a request: refused, delayed, never answered, answered in part, checked against a wrong clock."""
ALLOCATION = ("allocation-refused", "allocation-partial", "allocation-slow")
NODES = ("boot-fails", "start-task-fails", "node-slow")
KINDS = (*ANSWERS, *ALLOCATION, *NODES)

CODES = ("TooManyRequests", "InternalError", "OperationTimedOut", "ServerBusy")
"""The refusals of `error`, by the service's code."""


class Injection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault: what it affects, where, how often, and its numbers. Seconds are of the account's clock; those of
    `latency` and `retry_after` are the machine's."""

    kind: str
    operation: str = "*"
    """Names of operations, as in the SDK (`create_task`, `list_*`)."""
    resource: str = "*"
    """Path of the resource: `pools/POOL`, `pools/POOL/nodes/NODE`, `jobs/JOB/tasks/TASK`; `*` matches any text."""
    rate: float = 1.0
    """Probability of the fault, 0 to 1."""
    count: int | None = None
    """The maximum number of strikes."""
    seed: int = 0
    code: str = "ServerBusy"
    """error, allocation-refused: the service's code."""
    retry_after: float | None = None
    """error: seconds in the answer's Retry-After."""
    seconds: float = 1.0
    """Seconds of latency, skew, allocation-slow and node-slow."""
    fraction: float = 0.5
    """allocation-partial, truncate: the share that is delivered."""
    exit_code: int = 1
    """start-task-fails: the exit code."""


def read(document: Mapping[str, Any], operations: Collection[str]) -> Injection:
    """A fault from a client's settings. operations: their names. Raises ValueError with the reason."""
    try:
        injection = msgspec.convert(dict(document), Injection)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    if injection.kind not in KINDS:
        raise ValueError(f"there is no fault `{injection.kind}`; known: {', '.join(KINDS)}")
    if not fnmatch.filter(operations, injection.operation):
        near = sorted(operations, key=lambda name: mistakes(injection.operation, name))[:3]
        raise ValueError(f"there is no operation `{injection.operation}`; similar: {', '.join(near)}")
    if injection.operation != "*" and injection.kind not in ANSWERS:
        raise ValueError(f"only faults of answers have an operation: {', '.join(ANSWERS)}")
    if not 0 <= injection.rate <= 1 or not 0 <= injection.fraction <= 1:
        raise ValueError("rate and fraction are between 0 and 1")
    if injection.count is not None and injection.count < 1:
        raise ValueError("count is 1 or more")
    if injection.exit_code != 1 and injection.kind != "start-task-fails":
        raise ValueError("only start-task-fails has an exit code")
    if injection.kind == "error" and injection.code not in CODES:
        raise ValueError(f"`error` answers with {', '.join(CODES)}, not {injection.code}")
    if (injection.kind != "skew" and injection.seconds < 0) or (injection.retry_after or 0) < 0:
        raise ValueError("seconds cannot be negative")
    return injection


class Injections:
    """The faults of an account, each with its random source and its number of strikes."""

    def __init__(self, injections: Iterable[Injection] = ()) -> None:
        self._all: dict[int, tuple[Injection, random.Random]] = {}
        self._struck: Counter[int] = Counter()  # a number is never used again
        self._last = 0
        for injection in injections:
            self.add(injection)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, injection: Injection) -> int:
        """Add a fault and return its number."""
        self._last += 1
        self._all[self._last] = (injection, random.Random(injection.seed))
        return self._last

    def remove(self, number: int) -> bool:
        """Remove a fault; returns whether it existed."""
        return self._all.pop(number, None) is not None

    def clear(self) -> None:
        self._all.clear()

    def documents(self) -> list[dict[str, Any]]:
        """All faults with their numbers and their numbers of strikes."""
        return [
            {"id": number, "struck": self._struck[number], **msgspec.to_builtins(injection)}
            for number, (injection, _) in self._all.items()
        ]

    def strike(self, kinds: Iterable[str], resource: str, operation: str = "") -> Injection | None:
        """The first fault of these kinds that strikes now; the strike is counted."""
        for number, (injection, chance) in self._all.items():
            if injection.kind not in kinds or not (
                fnmatch.fnmatchcase(operation, injection.operation)
                and fnmatch.fnmatchcase(resource.lower(), injection.resource.lower())
            ):
                continue
            if injection.count is not None and self._struck[number] >= injection.count:
                continue
            if chance.random() < injection.rate:
                self._struck[number] += 1
                return injection
        return None
