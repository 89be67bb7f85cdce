"""Where a planted bug has its effect: requests, answers, commits and starts of the service, and writes of clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from batchtrain.emulator.world import Change
from tests.simulation.storage import Answer

Thing = TypeVar("Thing")
COLLECTION = r"/jobs/[^/]+/addtaskcollection"
"""Where tasks are added, several at a time."""


class Sent(NamedTuple):
    """A request as it is on the wire."""

    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0].lower()

    def at(self, verbs: str, pattern: str) -> bool:
        """Whether it has one of the verbs, and a path that the pattern describes in lower case."""
        return self.verb in verbs.split() and bool(re.fullmatch(pattern, self.path))


class Plant:
    """No bug: whatever passes a door stays as it is. process: the name of the one that sends the request."""

    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        """The requests that arrive in place of one. The last answer is that of all."""
        return (sent,)

    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        return answer

    def stored(self, changes: list[Change]) -> list[Change]:
        """What a commit of the service stores."""
        return changes

    def loaded(self, changes: list[Change]) -> list[Change]:
        """What the service finds when it starts."""
        return changes

    def written(self, process: str, name: str, content: bytes) -> bytes:
        """What a client writes: a file that it replaces."""
        return content


class Doors:
    """The doors of one simulation. strike: called each time the effect of its plant changes what passes."""

    def __init__(self, plant: Plant, strike: Callable[[], None]) -> None:
        self._plant, self._strike = plant, strike

    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        return self._changed((sent,), tuple(self._plant.sent(process, sent)))

    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        return self._changed(answer, self._plant.answered(process, sent, answer))

    def stored(self, changes: Iterable[Change]) -> list[Change]:
        before = list(changes)
        return self._changed(before, self._plant.stored(list(before)))

    def loaded(self, changes: Iterable[Change]) -> list[Change]:
        before = list(changes)
        return self._changed(before, self._plant.loaded(list(before)))

    def written(self, process: str, name: str, lines: Iterable[bytes]) -> Iterable[bytes]:
        if type(self._plant).written is Plant.written:
            return lines
        before = b"".join(lines)
        return (self._changed(before, self._plant.written(process, name, before)),)

    def _changed(self, before: Thing, after: Thing) -> Thing:
        if before != after:
            self._strike()
        return after
