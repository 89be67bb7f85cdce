"""How a command that creates pools and jobs ends: its results are fetched, what it created is deleted or named with the
commands that delete it, and only then anything is written."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from batchtrain.catalog.prices import Hour, Price
from batchtrain.errors import BatchtrainError, NotFound, TimedOut, Unreachable
from batchtrain.records import Pool
from batchtrain.records.events import Deleted, Event, Leftover, Standing
from batchtrain.service import pool_users, retry, watch
from batchtrain.service.deadlines import GONE_SECONDS
from batchtrain.service.register import Kind, Register, Thing

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.client.shown_progress import Tell

HURRY_SECONDS = 3.0
"""For all requests that are left when the user interrupts an ending."""
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
TOGETHER_SECONDS = 0.5
"""A Ctrl-C that comes so soon after the end of the work is the same one: a wrapper may pass it on a second time."""


class Interrupts:
    """Ctrl-C and the signals that act like it. The first one ends the work by KeyboardInterrupt; those after it are
    counted, and raise only where the ending allows it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._raises, self._holding, self._first = True, False, float("-inf")
        self._asking = False
        self._hurry_until: float | None = None
        self.further = 0
        """How often the user pressed Ctrl-C since the work ended: once hurries the ending, twice stops it."""

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in SIGNALS if hasattr(signal, name)):
                if callable(previous := signal.getsignal(number)):
                    self._previous[number] = previous
                    signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        interrupt = KeyboardInterrupt()
        try:
            self._previous[number](number, frame)
        except KeyboardInterrupt as error:
            interrupt = error
        if (
            self._holding
            and not self._asking
            and (number != signal.SIGINT or self._now() - self._first < TOGETHER_SECONDS)
        ):
            return  # a closed terminal sends several signals, and so do a shell and a service manager
        raises, self._raises = self._raises, False
        if raises:
            if not self._holding:
                self._first = self._now()
                self.hold()
            raise interrupt
        self.note()

    def hold(self) -> None:
        """The work has ended: from now on, Ctrl-C is counted, and other signals are ignored."""
        self._raises, self._holding = False, True

    def note(self) -> None:
        """Count a signal, or a KeyboardInterrupt in a thread, which receives no signals."""
        self.further += 1
        if self._hurry_until is None:
            self._hurry_until = self._now() + HURRY_SECONDS

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """While the user answers a question, each signal raises KeyboardInterrupt, and is not counted."""
        self._raises = self._asking = True
        try:
            yield
        finally:
            self._raises = self._asking = False

    @contextlib.contextmanager
    def cut_short(self) -> Iterator[None]:
        """A signal in the block raises KeyboardInterrupt. In a hurry, the requests of the block end with it."""
        hurry = contextlib.nullcontext() if self._hurry_until is None else retry.until(self._hurry_until, last=True)
        before = self.further
        try:
            with hurry:
                self._raises = True
                yield
        except KeyboardInterrupt:
            if self.further == before:
                self.note()
            raise
        finally:
            self._raises = False


def left(
    things: Sequence[Thing],
    option: str,
    *,
    waits: Iterable[Thing] = (),
    files: Iterable[Thing] = (),
    cost: str = "",
    everything: bool = False,
) -> str:
    """What is kept, and the commands that wait, fetch files and delete it, one per line. everything: files of any
    size."""
    head = f"left as {'it is' if len(things) == 1 else 'they are'}: {', '.join(thing.name for thing in things)}{cost}"
    lines = [f"wait: {thing.command('wait', option)}" for thing in waits]
    lines += [f"fetch files: {thing.command('fetch', option)}{' --all' if everything else ''}" for thing in files]
    lines += [f"delete: {thing.command('del', option)}" for thing in things]
    return "\n  ".join((head, *lines))


def unrelated(error: BaseException | None) -> bool:
    """Whether an error is unrelated to the work itself, so that waiting again may succeed."""
    return isinstance(error, (TimedOut, Unreachable)) or (
        error is not None and not isinstance(error, (BatchtrainError, KeyboardInterrupt))
    )


class Ending:
    """The end of one command."""

    def __init__(
        self,
        client: Operations,
        register: Register,
        tell: Tell,
        interrupts: Interrupts,
        kept_kinds: Iterable[Kind] = (),
    ) -> None:
        """kept_kinds: the kinds of things that are not deleted."""
        self.client, self.register, self._interrupts = client, register, interrupts
        """The client of the account where the things are."""
        self.kept_kinds = frozenset(kept_kinds)
        self._tell_user = tell
        self._not_deleted: dict[Thing, BaseException] = {}
        self.submitted = False
        """Whether everything was added."""
        self.ended: set[str] = set()
        """The jobs whose tasks have ended."""
        self.pool: Pool | None = None
        self.price: Price | None = None
        """The price of a node of it, if it is known."""
        self.planned: Hour | None = None
        """An hour of the pool as it was planned."""
        self.bound = ""
        """How long the nodes stay that have results; empty if nothing ends them."""
        self.exceeds_limit = False
        """Whether all results that are not here exceed a limit, so that only `--all` fetches them."""

    @property
    def is_hurried(self) -> bool:
        """Whether the user has asked again to end it at once."""
        return self._interrupts.further > 0

    def tell(self, event: Event) -> None:
        """Pass an event on; a terminal that is gone ends no ending."""
        with contextlib.suppress(OSError, ValueError):
            self._tell_user(event)

    def settle(self) -> None:
        """Decide which of the things exist whose creation was interrupted."""
        with contextlib.suppress(BatchtrainError, KeyboardInterrupt), self._interrupts.cut_short():
            self.register.settle(self.client.batch)

    def say_left(self, error: BaseException | None = None) -> None:
        """Report what is kept, and the next commands."""
        things = self.register.things()
        if not things:
            return
        jobs = [thing for thing in things if thing.kind == "job"] if self.submitted else []
        waits = [thing for thing in jobs if thing.id not in self.ended]
        if not self.submitted and unrelated(error):
            waits = [thing for thing in things if thing.kind == "pool"]
        account = self.client.account
        cost = (f"; {self.hour}" if self.hour and not account.emulated else "") + self.bound
        text = left(things, account.option, waits=waits, files=jobs, cost=cost, everything=self.exceeds_limit)
        self.tell(Standing(things[0].name, text))

    @property
    def hour(self) -> str:
        """An hour of the pool with its cost: as it is, or as it was planned; empty without a pool."""
        pool = self.pool
        if pool is None:  # its nodes were not ready yet
            return str(self.planned or "")
        return str(Hour(pool.id, pool.vm_size, pool.dedicated, pool.spot, self.price))

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete(self) -> list[Thing]:
        """Delete every job and pool that this command created, then wait for each deletion. The pool, which costs
        money, is first once the user hurries. Returns what is deleted."""
        things = [thing for thing in self.register.things("ours", "pending") if thing.kind not in self.kept_kinds]
        things += self.register.things("shared") if "job" not in self.kept_kinds else ()
        deletions: list[Thing] = []
        while things:
            thing = things.pop(-1 if self._interrupts.further else 0)
            error = self.error_of(partial(self._request_deletion, thing))
            if isinstance(error, KeyboardInterrupt) and self._interrupts.further == 1:
                things.insert(0, thing)  # once more, in a hurry, after the pool
            elif error is None:
                deletions.append(thing)
            elif not isinstance(error, NotFound):
                self._report_not_deleted(thing, error)
            self.register.note(thing, None)
        for thing in deletions:
            interrupt = KeyboardInterrupt() if self._interrupts.further else None
            self._report_deletion(thing, interrupt or self.error_of(partial(self._wait_until_gone, thing)))
        return deletions

    def error_of(self, step: Callable[[], None]) -> BaseException | None:
        """What ended a step of the ending; None if it succeeded. After a second signal nothing is tried any more."""
        if self._interrupts.further > 1:
            return KeyboardInterrupt()
        try:
            with self._interrupts.cut_short():
                step()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, the other steps follow
            return error
        return None

    def _request_deletion(self, thing: Thing) -> None:
        if self.register.state(thing) != "shared" and not self.register.is_ours(self.client.batch, thing):
            self.tell(Standing(thing.name, f"left as it is: {thing.name}, which this command did not add"))
            raise NotFound(f"{thing.name} was replaced", operation=f"delete {thing.name}")
        if thing.kind == "pool":
            self._end_pool(thing)
        else:
            self.client.jobs.handle(thing.id).delete(wait=False, tell=self.tell)

    def _end_pool(self, thing: Thing) -> None:
        with watch.Deadline(GONE_SECONDS, f"the deletion of {thing.name}", self.tell):
            others = pool_users.end(self.client.batch, thing.id, self.register.runs)
        if others:
            self.tell(Standing(thing.name, pool_users.stays(thing.id, others, self.client.account.option)))
            raise NotFound(f"{thing.name} is used", operation=f"delete {thing.name}")

    def _wait_until_gone(self, thing: Thing) -> None:
        if thing.kind == "pool":
            self.client.pools.gone(thing.id, tell=self.tell)
        else:
            self.client.jobs.handle(thing.id).gone(tell=self.tell)

    def _report_deletion(self, thing: Thing, error: BaseException | None) -> None:
        if error is None or isinstance(error, NotFound):
            self.tell(Deleted(thing.name, f"deleted {thing.name}"))
        elif isinstance(error, KeyboardInterrupt):
            self.tell(Deleted(thing.name, f"{thing.name} is being deleted"))
        else:
            self._report_not_deleted(thing, error)

    def _report_not_deleted(self, thing: Thing, error: BaseException) -> None:
        reason, command = str(error) or "interrupted", thing.command("del", self.client.account.option)
        self.tell(Leftover(thing.name, f"{thing.name} was not deleted ({reason}); delete it: {command}"))
        self._not_deleted[thing] = error

    def failure(self, *, successful: bool) -> BaseException | None:
        """The error of a command that left something whose deletion failed; None if nothing is left."""
        if not self._not_deleted:
            return None
        error = list(self._not_deleted.values())[-1]
        if not isinstance(error, BatchtrainError):
            return error
        success = "the tasks ended well, but " if successful else ""
        paid = not self.client.account.emulated and any(thing.kind == "pool" for thing in self._not_deleted)
        names = " and ".join(thing.name for thing in self._not_deleted)
        commands = "; ".join(thing.command("del", self.client.account.option) for thing in self._not_deleted)
        cost = ", and nodes cost money" if paid else ""
        return type(error)(f"{success}{names} could not be deleted{cost}; delete by: {commands}")


@contextlib.contextmanager
def registered(client: Operations, register: Register, tell: Tell, kept_kinds: Iterable[Kind] = ()) -> Iterator[Ending]:
    """The ending of a command that adds things. If it fails, those of `kept_kinds` are reported with the next commands,
    and the others are deleted."""
    with Interrupts() as interrupts:
        ending = Ending(client, register, tell, interrupts, kept_kinds)
        try:
            try:
                yield ending
            finally:
                interrupts.hold()
        except BaseException as error:
            ending.settle()
            ending.delete()
            ending.say_left(error)
            raise
