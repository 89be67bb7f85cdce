"""What a command creates: each pool, job and job schedule is registered by the call that creates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from azure.batch import BatchClient

from batchtrain.catalog import api_versions
from batchtrain.errors import AlreadyExists, NotFound, ServiceError, Unreachable
from batchtrain.plan.marks import Marks, marked, marks_of
from batchtrain.plan.step import Action
from batchtrain.service import read
from batchtrain.service.faults import NO_CONNECTION, faults
from batchtrain.service.requests import create, quoted
from batchtrain.service.retry import CLOCK, Attempts

Kind = Literal["job", "job schedule", "pool"]
KINDS: tuple[Kind, ...] = ("job", "job schedule", "pool")
"""The kinds of things in the order in which they are deleted: jobs before the pool that they run on."""
GROUPS: Mapping[Kind, str] = {"pool": "pool", "job": "jobs", "job schedule": "jobs"}
COLLECTIONS: Mapping[Kind, str] = {"pool": "pools", "job": "jobs", "job schedule": "jobschedules"}
"""Where the service has each kind of thing."""
ACTIONS: Mapping[Kind, Action] = {"pool": "pool.add", "job": "job.add", "job schedule": "schedule.add"}
State = Literal["pending", "ours", "existing", "shared"]
"""The request that creates it was sent and has no answer; this command created it; it existed before and is used; it
did, and ends with its last user."""
LATE_SECONDS = 1.0
"""Between two looks at a thing whose request was interrupted: the service may still be reading the request."""

Send = Callable[[Mapping[str, Any], Attempts], str | None]
"""Sends a request to the service; returns the ETag of what it made, if that is known."""


class Thing(NamedTuple):
    """A pool, a job or a job schedule."""

    kind: Kind
    id: str

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.kind} {self.id}"

    @property
    def path(self) -> str:
        """The path of its URL."""
        return f"/{COLLECTIONS[self.kind]}/{quoted(self.id)}"

    def exists(self, text: str, verb: str = "add") -> AlreadyExists:
        """The error of a command that would add or replace it."""
        return AlreadyExists(text, operation=f"{verb} {self.name}", code=f"{self.kind.title().replace(' ', '')}Exists")

    def command(self, verb: str, option: str) -> str:
        """The command that does something with it. option: selects its account."""
        return f"batchtrain {GROUPS[self.kind]} {verb} {self.id}{option}"


class Register:
    """The things that a command creates and uses."""

    def __init__(self, marks: Marks, runs: Mapping[str, str] | None = None) -> None:
        """runs: the names of runs by job id; other things carry the run of `marks`."""
        self._marks, self._runs = marks, runs or {}
        self._adopted: dict[Thing, str] = {}
        self._states: dict[Thing, State] = {}
        self.temporary_kinds: frozenset[Kind] = frozenset()
        """The kinds of things that this command deletes at its end."""
        self.tasks_added = False
        """Whether a task was added."""

    def marks(self, thing: Thing) -> Marks:
        """What the metadata of a thing says when this command creates it."""
        run = self._adopted.get(thing) or self._marks.run
        run = self._runs.get(thing.id, run) if thing.kind == "job" else run
        return self._marks._replace(run=run, ends_with=run if thing.kind in self.temporary_kinds else "")

    @property
    def runs(self) -> frozenset[str]:
        """The names of the runs of this command."""
        return frozenset((self._marks.run, *self._runs.values(), *self._adopted.values()))

    def adopt(self, thing: Thing, run: str) -> None:
        """Take over what a run created that lost its process."""
        self._adopted[thing] = run
        self.note(thing, "ours")

    def note(self, thing: Thing, state: State | None) -> None:
        """Set the state of a thing; None removes it."""
        if state is None:
            self._states.pop(thing, None)
        else:
            self._states[thing] = state

    def things(self, *states: State) -> tuple[Thing, ...]:
        """The things in these states (by default all), in the order in which they are deleted."""
        things = (thing for thing, state in self._states.items() if not states or state in states)
        return tuple(sorted(things, key=lambda thing: KINDS.index(thing.kind)))

    def state(self, thing: Thing) -> State | None:
        """The state of a thing; None if it is not registered."""
        return self._states.get(thing)

    def is_ours(self, client: BatchClient, thing: Thing) -> bool:
        """Whether the thing with this id carries the run of this command now, and is no replacement of another one.
        Raises NotFound."""
        return read_marks(client, thing).run == self.marks(thing).run

    def create(
        self, client: BatchClient, thing: Thing, body: Mapping[str, Any], send: Send | None = None
    ) -> str | None:
        """Create a thing; returns its ETag, if that is known. send: receives the request with its marks, in place of
        the service.

        Raises AlreadyExists for a thing of the same id that another run created. If an attempt had no answer, the thing
        stays pending.
        """
        self.note(thing, "pending")
        attempts, document = Attempts(), marked(ACTIONS[thing.kind], body, self.marks(thing))
        version = api_versions.needed(thing.kind, document)
        send = send or partial(create, client, f"/{COLLECTIONS[thing.kind]}", version=version)
        etag: str | None = None
        try:
            with faults(f"add {thing.name}"):
                etag = send(document, attempts)
        except AlreadyExists:  # perhaps from an earlier attempt, whose answer was lost
            if not self.is_ours(client, thing):
                self.note(thing, None)
                raise
        except ServiceError as error:
            if not attempts.unsure and not (isinstance(error, Unreachable) and error.code != NO_CONNECTION):
                self.note(thing, None)
            raise
        self.note(thing, "ours")
        return etag

    def settle(self, client: BatchClient, sleep: Callable[[float], None] = CLOCK.sleep) -> None:
        """Decide about pending things by reading them; without an answer they stay pending."""
        for thing in self.things("pending"):
            for pause in (LATE_SECONDS, None):
                try:
                    self.note(thing, "ours" if self.is_ours(client, thing) else None)
                    break
                except NotFound:
                    if pause is None:
                        self.note(thing, None)
                    else:
                        sleep(pause)
                except ServiceError:
                    break


def read_marks(client: BatchClient, thing: Thing) -> Marks:
    """The marks of an existing thing. Raises NotFound."""
    return marks_of(read.document(client, thing.kind, COLLECTIONS[thing.kind], thing.id).get("metadata", ()))


def marks_or_none(client: BatchClient, thing: Thing) -> Marks:
    """The marks of a thing; those of no run if it does not exist."""
    try:
        return read_marks(client, thing)
    except NotFound:
        return Marks("")
