"""What a command adds to an account: how it is reported if it is kept, and how it is deleted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from batchtrain.catalog.prices import Hour, Price
from batchtrain.errors import BatchtrainError, Differs, NotFound, ServiceError, TimedOut, Unreachable
from batchtrain.records.events import (
    Deleted,
    Event,
    JobAdded,
    JobAdding,
    JobReused,
    Leftover,
    PoolAdded,
    PoolAdding,
    PoolReused,
    ScheduleAdded,
    ScheduleAdding,
    Standing,
    TasksAdded,
)
from batchtrain.records.seen import PoolSeen
from batchtrain.service.faults import NO_CONNECTION
from batchtrain.service.requests import CLOCK_STEP

if TYPE_CHECKING:
    from batchtrain.operations import Operations, Tell

Kind = Literal["job", "job schedule", "pool"]
KINDS: tuple[Kind, ...] = ("job", "job schedule", "pool")
"""The kinds of things in the order in which they are deleted."""
ADDING: Mapping[type[Event], Kind] = {JobAdding: "job", ScheduleAdding: "job schedule", PoolAdding: "pool"}
"""The kind of thing that is about to be added, by the event that reports it."""
ADDED: Mapping[type[Event], Kind] = {
    JobAdded: "job",
    JobReused: "job",
    ScheduleAdded: "job schedule",
    PoolAdded: "pool",
    PoolReused: "pool",
}
"""The kind of thing that was added or is used, by the event that reports it."""
GROUPS: Mapping[Kind, str] = {"pool": "pool", "job": "jobs", "job schedule": "jobs"}


class Thing(NamedTuple):
    """A pool, a job or a job schedule."""

    kind: Kind
    id: str

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.kind} {self.id}"

    def command(self, verb: str, option: str) -> str:
        """The command that does something with it. option: selects its account."""
        return f"batchtrain {GROUPS[self.kind]} {verb} {self.id}{option}"


def left(
    things: Sequence[Thing], option: str, *, waits: Iterable[Thing] = (), files: Iterable[Thing] = (), cost: str = ""
) -> str:
    """What is kept, and the commands that wait, fetch files and delete it, one per line."""
    head = f"left as {'it is' if len(things) == 1 else 'they are'}: {', '.join(thing.name for thing in things)}{cost}"
    lines = [f"wait: {thing.command('wait', option)}" for thing in waits]
    lines += [f"fetch files: {thing.command('fetch', option)}" for thing in files]
    lines += [f"delete: {thing.command('del', option)}" for thing in things]
    return "\n  ".join((head, *lines))


def sent(error: BaseException) -> bool:
    """Whether a request that ended with this error may have had an effect: it was sent and not refused."""
    if isinstance(error, Unreachable):
        return error.code != NO_CONNECTION
    return not isinstance(error, ServiceError)


def _says_nothing(error: BaseException) -> bool:
    """Whether an error is unrelated to the work itself, so that waiting again may succeed."""
    return isinstance(error, (TimedOut, Unreachable)) or not isinstance(error, BatchtrainError)


class Created:
    """What a command has added so far, according to its events."""

    def __init__(self, client: Operations, tell: Tell, *, keep: Iterable[Kind] = ()) -> None:
        """keep: the kinds of things that `clean_up` does not delete."""
        self._client, self._tell, self.keep = client, tell, frozenset(keep)
        self._option = client.account.option
        self._things: list[Thing] = []
        self._asked: Thing | None = None
        self._since: dict[Thing, float] = {}
        """When the addition of each was asked for."""
        self._created: dict[Thing, str] = {}
        """The creation time of each thing, if known: another program may have replaced the thing under the same id."""
        self._standing: dict[Thing, BaseException] = {}
        self.added = self.submitted = False
        """Whether some task was added, and whether everything was."""
        self.ended: set[str] = set()
        """The jobs whose tasks have ended."""
        self.pool: PoolSeen | None = None
        self.price: Price | None = None
        """The price of a node of it, if it is known."""

    def tell(self, event: Event) -> None:
        """Note an event and pass it on."""
        if adding := ADDING.get(type(event)):
            self._asked = Thing(adding, event.subject)
            self._since[self._asked] = time.monotonic()
        elif added := ADDED.get(type(event)):
            self._things.append(thing := Thing(added, event.subject))
            self._asked = None
            if thing.kind not in self.keep:
                with contextlib.suppress(BatchtrainError):
                    self._created[thing] = self._client.creation(*thing).time
        self.added |= isinstance(event, TasksAdded)
        self._tell(event)

    def settle(self, error: BaseException) -> None:
        """Decide whether the thing whose addition ended with an error is counted."""
        refused = isinstance(error, (Differs, TimedOut))  # another job has the id, or the quota stayed reached
        if self._asked is not None and sent(error) and not refused:
            self._things.append(self._asked)
        self._asked = None

    def say_left(self, error: BaseException | None = None) -> None:
        """Report what is kept, and the next commands."""
        things = self._sorted()
        if not things:
            return
        jobs = [thing for thing in things if thing.kind == "job"] if self.submitted else []
        waits = [thing for thing in jobs if thing.id not in self.ended]
        if not self.submitted and error is not None and _says_nothing(error):
            waits = [thing for thing in things if thing.kind == "pool"]
        text = left(things, self._option, waits=waits, files=jobs, cost=self._cost())
        self._tell(Standing(things[0].name, text))

    def _sorted(self) -> list[Thing]:
        """Jobs before the pool that they run on."""
        return sorted(self._things, key=lambda thing: KINDS.index(thing.kind))

    def _cost(self) -> str:
        """The cost of an hour of the pool; empty on the emulator."""
        seen = self.pool
        if seen is None or self._client.account.emulated:
            return ""
        return f"; {Hour(seen.id, seen.vm_size, seen.dedicated, seen.spot, self.price)}"

    # --- deleting ----------------------------------------------------------------------------------------------------

    def clean_up(self, *, successful: bool) -> BaseException | None:
        """Delete every job and pool, then wait for each deletion; returns why something could not be deleted."""
        things = [thing for thing in self._sorted() if thing.kind not in self.keep]
        asked = [thing for thing in things if self._do(thing, self._delete)]
        for thing in asked:
            if self._do(thing, self._gone):
                self._tell(Deleted(thing.name, f"deleted {thing.name}"))
        self._things = [thing for thing in self._things if thing not in things]
        return self._failure(successful) if self._standing else None

    def _is_ours(self, thing: Thing) -> bool:
        """Whether the thing with this id is the one that this command added, and not a replacement."""
        creation = self._client.creation(*thing)
        if thing in self._created:
            return creation.time == self._created[thing]
        return creation.age is not None and creation.age <= time.monotonic() - self._since[thing] + CLOCK_STEP

    def _delete(self, thing: Thing) -> None:
        if not self._is_ours(thing):
            self._tell(Standing(thing.name, f"left as it is: {thing.name}, which this command did not add"))
            raise NotFound(f"{thing.name} was replaced", operation=f"delete {thing.name}")
        if thing.kind == "pool":
            self._client.pools.delete(thing.id, wait=False, tell=self._tell)
        else:
            self._client.jobs.handle(thing.id).delete(wait=False, tell=self._tell)

    def _gone(self, thing: Thing) -> None:
        if thing.kind == "pool":
            self._client.pools.gone(thing.id, tell=self._tell)
        else:
            self._client.jobs.handle(thing.id).gone(tell=self._tell)

    def _do(self, thing: Thing, step: Callable[[Thing], None]) -> bool:
        """One step of a deletion; reports a failure and returns False."""
        try:
            step(thing)
        except NotFound:
            return False
        except (BatchtrainError, KeyboardInterrupt) as error:
            if isinstance(error, ServiceError) and error.code.endswith("BeingDeleted"):
                return True
            reason, command = str(error) or "interrupted", thing.command("del", self._option)
            self._tell(Leftover(thing.name, f"{thing.name} was not deleted ({reason}); delete it: {command}"))
            self._standing[thing] = error
            return False
        return True

    def _failure(self, successful: bool) -> BaseException:
        """The error of a run that succeeded but whose nodes may still cost money."""
        error = list(self._standing.values())[-1]
        if not isinstance(error, BatchtrainError):
            return error
        done = "the tasks ended well, but " if successful else ""
        paid = not self._client.account.emulated and any(thing.kind == "pool" for thing in self._standing)
        names = " and ".join(thing.name for thing in self._standing)
        commands = "; ".join(thing.command("del", self._option) for thing in self._standing)
        cost = ", and nodes cost money" if paid else ""
        return type(error)(f"{done}{names} could not be deleted{cost}; delete by: {commands}")
