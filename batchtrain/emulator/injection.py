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

CODES = ("TooManyRequests", "InternalError", "OperationTimedOut", "ServerBusy")
"""The refusals of `error`, by the service's code."""

ANSWERS: Mapping[str, str] = {
    "error": f"The request is refused with `code` ({', '.join(CODES)}; default ServerBusy) and has no effect."
    " The answer has a Retry-After of `retry_after` seconds if that is given.",
    "latency": "The request is carried out, and answered `seconds` (default 1) late by the clock of the machine.",
    "drop": "The request is carried out, and the connection is closed without an answer. A request that the service"
    " refuses is answered.",
    "truncate": "The request is carried out, and the connection is closed after `fraction` (default 0.5) of the body"
    " of the answer.",
    "skew": "The clock that checks signatures and dates is ahead by `seconds` (default 1; negative: behind). Beyond 15"
    " minutes, the request is refused with 403 AuthenticationFailed.",
}
"""What happens to a request, by the kind of fault."""
ALLOCATION: Mapping[str, str] = {
    "allocation-refused": "A resize gives no nodes and ends with the resize error `code` (default AllocationFailed).",
    "allocation-partial": "A resize gives `fraction` (default 0.5) of the nodes and ends with the resize error"
    " AllocationTimedOut.",
    "allocation-slow": "New nodes of a pool start to boot `seconds` (default 1) late.",
}
NODES: Mapping[str, str] = {
    "boot-fails": "A new node is given up, and the resize of its pool ends with the resize error AllocationFailed. A"
    " node that boots again, as after a reboot, becomes `unusable`. (Azure does not document what it does.)",
    "start-task-fails": "The start task of a node does not run, and ends with `exit_code` (default 1): after its"
    " retries, the node is `starttaskfailed`, if its pool waits for the success of start tasks.",
    "node-slow": "Each command on a node (of a task, a start task, a job preparation or release task) starts `seconds`"
    " (default 1) late.",
}
KINDS: Mapping[str, str] = {**ANSWERS, **ALLOCATION, **NODES}
LIFE = (
    "A fault strikes everything that it affects until it is removed; `count` and `rate` limit how often, and"
    " `operation` (of a request) and `resource` what. Seconds of nodes and allocations are those of the clock of the"
    " account."
)

EXPLANATION = (LIFE, *(f"{kind}: {effect}" for kind, effect in KINDS.items()))
"""The paragraphs that end the documentation of what adds a fault."""


class Injection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault: what it affects, where, how often, and its numbers, which `KINDS` explains."""

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
    retry_after: float | None = None
    seconds: float = 1.0
    fraction: float = 0.5
    exit_code: int = 1


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
