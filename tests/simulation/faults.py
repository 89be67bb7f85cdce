"""Which faults strike, by the seed; counted by kind.

Each place where a fault may strike has a name, and its fate depends only on the seed and on this name. So one fault can
be left out, and the others stay.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from batchtrain.emulator.injection import Injection
from tests.simulation import owned

if TYPE_CHECKING:
    from tests.simulation.owned import Process
    from tests.simulation.service import Service

REQUEST = ("lost before", "lost after", "late", "twice", "cut", "429", "429+", "500", "500+", "503", "503+", "outage",
           "service dies before its answer")  # fmt: skip
"""What befalls a request. `+`: with Retry-After. outage: the answer is lost, and the network of the client for
minutes."""
OF_STORAGE = tuple(kind for kind in REQUEST if not kind.startswith("service"))
"""What befalls a request to storage."""
TOO_LARGE = "413"
"""What befalls a collection of tasks: halves of it may be accepted."""
UPLOAD = "upload of a node fails"
COMMIT = ("service dies before the commit", "service dies after the commit", "service's disk is full")


def _injected(kind: str) -> Callable[[Service, random.Random], None]:
    return lambda service, rng: service.inject(Injection(kind=kind, count=1, seconds=90.0, code="AllocationFailed"))


def _step(service: Service, rng: random.Random) -> None:
    service.ahead = service.process.ahead = rng.choice((-240, -3, 0, 3, 240)) * owned.TICKS


NODE: Mapping[str, Callable[[Service, str, random.Random], None]] = {
    "node lost": lambda service, node, rng: service.machine.fail_node(node),
    "node preempted": lambda service, node, rng: service.preempt(node, rng.random() * 600),
    "node unusable": lambda service, node, rng: service.break_node(node),
    "node preempted with notice": lambda service, node, rng: service.preempt(node, rng.random() * 600, 30.0),
}
"""What befalls a node that runs."""
ACCOUNT: Mapping[str, Callable[[Service, random.Random], None]] = {
    "boot fails": _injected("boot-fails"),
    "start task fails": _injected("start-task-fails"),
    "node slow": _injected("node-slow"),
    "resize refused": _injected("allocation-refused"),
    "resize partial": _injected("allocation-partial"),
    "allocation slow": _injected("allocation-slow"),
    "service's clock steps": _step,
}
"""What befalls the service."""


Plan = Callable[["Process", random.Random], None]


def _at_requests(*actions: Callable[[Process], None]) -> Plan:
    def plan(process: Process, rng: random.Random) -> None:
        number = 0
        for action in actions:
            number += 1 + int(rng.random() ** 3 * (5 if number else 40))
            process.plans.append((number, action))

    return plan


def _in_a_write(name: str) -> Plan:
    return lambda process, rng: setattr(process, name, 1 + int(rng.random() ** 2 * 30))


def _signal(number: int) -> Callable[[Process], None]:
    return lambda process: process.receive(number)


def _clock_steps(seconds: int) -> Callable[[Process], None]:
    return lambda process: setattr(process, "ahead", seconds * owned.TICKS)


CLIENT: Mapping[str, Plan] = {
    "client dies": _at_requests(lambda process: process.die()),
    "client dies in a write": _in_a_write("dies_in_write"),
    "client's disk is full": _in_a_write("full_at"),
    "client's disk fails": _in_a_write("fails_at"),
    "SIGINT": _at_requests(_signal(signal.SIGINT)),
    "SIGINT twice": _at_requests(_signal(signal.SIGINT), _signal(signal.SIGINT)),
    "SIGTERM": _at_requests(_signal(signal.SIGTERM)),
    "SIGHUP": _at_requests(_signal(signal.SIGHUP)),
    "client's clock goes forward": _at_requests(_clock_steps(240)),
    "client's clock goes back": _at_requests(_clock_steps(-240)),
}
"""What befalls the process of a command. It counts when it strikes, not when it is planned."""
OFTEN = ("client dies",) * 20 + ("client dies in a write",) * 3 + ("client's disk is full", "client's disk fails") * 2
KINDS = (*REQUEST, TOO_LARGE, UPLOAD, *COMMIT, *NODE, *ACCOUNT, *CLIENT)

REFUSED = 0.15
"""How often a collection of tasks is too large; few are sent."""
WRITES, UNSURE = 4, ("lost after", "outage", "outage", "outage", "service dies before its answer")
"""How much more often a fault strikes a request that changes something: there are few of them. These faults are more
frequent then: the client cannot know what has happened."""


class Fates:
    """The faults of one simulation. `over` ends them, so that everything can settle."""

    def __init__(self, seed: int, counts: Counter[str], left_out: Collection[str] = ()) -> None:
        self._seed, self._counts, self._left_out = seed, counts, left_out
        self.over = False
        self.struck: list[str] = []
        """The names of the faults."""
        rng = self.at("rates")
        self._request_rate = rng.choice((0.0, 0.01, 0.03, 0.06))
        self._commit_rate = rng.choice((0.01, 0.02, 0.05, 0.08))
        self._client_rate = rng.choice((0.7, 0.85, 0.95))

    def at(self, place: str) -> random.Random:
        """The source of chance of a place."""
        return random.Random(f"{self._seed} {place}")

    def allows(self, kind: str, place: str) -> bool:
        """Whether a fault may strike: not after their end, and not if it is left out."""
        return not self.over and f"{place}: {kind}" not in self._left_out

    def count(self, kind: str, place: str) -> None:
        """A fault strikes."""
        self._counts[kind] += 1
        self.struck.append(f"{place}: {kind}")

    def strike(self, kind: str, place: str) -> bool:
        """Count a fault, unless this simulation leaves it out."""
        if not self.allows(kind, place):
            return False
        self.count(kind, place)
        return True

    def of_request(self, verb: str, place: str, rng: random.Random, *, is_of_service: bool) -> str:
        """The fate of a request to the service or to storage: a fault or `delivered`."""
        is_read = verb in ("GET", "HEAD")
        rate = self._request_rate * (1 if is_read else WRITES)
        kinds = (REQUEST if is_read else (*REQUEST, *UNSURE)) if is_of_service else OF_STORAGE
        struck, kind = rng.random() < rate, rng.choice(kinds)
        return kind if struck and self.strike(kind, place) else "delivered"

    def of_collection(self, place: str, rng: random.Random) -> str:
        """The fault of a request that adds several tasks; empty for none."""
        return TOO_LARGE if rng.random() < REFUSED and self.strike(TOO_LARGE, place) else ""

    def of_commit(self, place: str, rng: random.Random) -> str:
        """The fault of a commit, which is not counted yet; empty for none."""
        struck, kind = rng.random() < self._commit_rate, rng.choice(COMMIT)
        return kind if struck and self.allows(kind, place) else ""

    def befall(self, process: Process) -> None:
        """Plan the fault of a command."""
        rng = self.at(process.name)
        kind = rng.choice((*CLIENT, *OFTEN))
        if rng.random() < self._client_rate and self.allows(kind, process.name):
            process.on_fault = lambda: self._once(kind, process)
            CLIENT[kind](process, rng)

    def _once(self, kind: str, process: Process) -> None:
        process.on_fault = lambda: None
        self.count(kind, process.name)
