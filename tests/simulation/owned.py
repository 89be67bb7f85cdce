"""What the seed owns: time, chance, and who runs next.

`install` replaces them in the standard library, before the product or its libraries are imported. A thread is a
greenlet, and a wait of it is an event of one loop whose time jumps to the next event.
"""

from __future__ import annotations

import asyncio
import datetime as datetime_module
import functools
import io
import math
import os
import queue
import random
import selectors
import signal
import sys
import threading
import time
import typing
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import greenlet  # type: ignore[import-untyped]

EPOCH = 1_795_000_000
"""The start of every simulation, in seconds since 1970."""
TICKS = 1_000_000
"""In a second. Time is a whole number of them; what reads a clock in seconds gets the nearest float."""
RESOLUTION = 1 / TICKS

SWITCHES = 0.02
"""How often a thread gives way at a lock that it takes."""


class Deadlock(Exception):
    """Nothing will ever happen again."""


class _Selector(selectors.BaseSelector):
    """Waits for nothing: the loop's time jumps."""

    loop: Loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock
        self.loop.ticks += max(math.ceil(timeout * TICKS - 0.01), 0)  # less is the rounding of a float
        return []

    def register(self, *_: Any) -> Any: ...
    def unregister(self, *_: Any) -> Any: ...
    def get_map(self) -> Any:
        return {}


class Loop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop, self.ticks = self, 0
        super().__init__(selector)
        self._clock_resolution = RESOLUTION

    @property
    def now(self) -> float:
        """The seconds since the start."""
        return self.ticks / TICKS

    def time(self) -> float:
        return self.now

    def _make_self_pipe(self) -> None: ...
    def _close_self_pipe(self) -> None: ...
    def _write_to_self(self) -> None: ...


class Process:
    """A process of the simulation. After its death none of its greenlets runs again: not even `finally`."""

    def __init__(self, name: str, sim: Simulation) -> None:
        self.name, self.sim, self.alive, self.has_ended = name, sim, True, False
        self.fibers: list[Fiber] = []
        self.requests = self.unanswered = 0
        """The requests that it has sent, and those that have no answer yet."""
        self.plans: list[tuple[int, Callable[[Process], None]]] = []
        """What befalls it, and from which request on: while one is unanswered."""
        self.handlers: dict[int, Any] = {}
        """What it does at a signal; without an entry, what Python does."""
        self.ahead = 0
        """The ticks by which the clock of its machine is ahead."""
        self.output: list[str] = []
        """What it prints."""
        self.on_end: Callable[[Process, BaseException | None], None] = lambda process, error: None
        self.on_death: Callable[[], None] = lambda: None
        self.on_fault: Callable[[], None] = lambda: None
        self.leases: list[Any] = []
        self.writes = 0
        """The files that it has replaced."""
        self.full_at = self.fails_at = self.dies_in_write = 0
        """The number of the file from which on its disk is full, of that which its disk cannot write, and of that in
        whose writing it dies; 0 for never."""

    def start(self, work: Callable[[], None]) -> None:
        """Run the main thread of the process."""

        def body() -> None:
            error: BaseException | None = None
            try:
                work()
            except BaseException as exception:  # noqa: BLE001 - whatever it is, it is the end of the command
                error = exception
            self.has_ended = True
            self.on_end(self, error)

        Fiber(self, body, "main").start()

    def befall(self, action: Callable[[Process], None]) -> None:
        """Let something befall it now if a request is unanswered, otherwise during the next one."""
        if self.unanswered and self.alive:
            self.on_fault()
            action(self)
        else:
            self.plans.append((self.requests + 1, action))

    def receive(self, number: int) -> None:
        """A signal comes. Its handler runs in the main thread; without one the process dies."""
        if not self.alive:
            return
        self.sim.note(f"{self.name} receives signal {number}")
        if callable(self.handler(number)):
            self.fibers[0].pending.append(number)
            self.fibers[0].wake()
        else:
            self.die()

    def handler(self, number: int) -> Any:
        """What happens at a signal."""
        otherwise = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        return self.handlers.get(number, otherwise)

    @property
    def has_bad_disk(self) -> bool:
        """Whether a write may fail."""
        return bool(self.full_at or self.fails_at)

    def die(self) -> None:
        """End the process, unless it has ended; the operating system drops its locks."""
        if not self.alive:
            return
        self.alive = False
        for lease in self.leases:
            lease.release()
        self.sim.note(f"{self.name} dies")
        self.on_death()


class Fiber(greenlet.greenlet):  # type: ignore[misc]
    """A thread of a process."""

    numbers = 1000

    def __init__(self, process: Process, body: Callable[[], None], name: str) -> None:
        super().__init__(body, parent=process.sim.hub)
        Fiber.numbers += 1
        self.process, self.name, self.ident, self.turn = process, name, Fiber.numbers, 0
        self.pending: list[int] = []
        """The signals whose handlers run next."""
        process.fibers.append(self)

    def start(self) -> None:
        self.process.sim.loop.call_soon(self.resume, self.turn)

    def resume(self, turn: int) -> None:
        """Continue, unless it has continued since. Only the loop calls it."""
        if self.process.alive and turn == self.turn and not self.dead:
            self.turn += 1
            self.switch()

    def wake(self) -> None:
        """Continue soon."""
        self.process.sim.loop.call_soon(self.resume, self.turn)


class Simulation:
    """One simulated world."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random, self.loop = seed, random.Random(seed), Loop()
        self.hub = greenlet.getcurrent()
        self.folder = ""
        """The directory of the simulated disks, which is another one each time."""
        self.trace: list[str] = []
        self.errors: list[str] = []

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.now:.6f} {text.replace(self.folder, '') if self.folder in text else text}")

    def park(self, seconds: float | None = None) -> None:
        """Wait until somebody wakes this thread, for some seconds, or until a signal was handled."""
        fiber = current()
        assert fiber is not None, "the service's own thread cannot wait"
        if seconds is not None:
            self.loop.call_later(max(seconds, 0.0), fiber.resume, fiber.turn)
        self.hub.switch()
        while fiber.pending:
            number = fiber.pending.pop(0)
            fiber.process.handler(number)(number, None)

    def give_way(self) -> None:
        """Let the other threads run that can; signals are handled later."""
        fiber = current()
        assert fiber is not None
        fiber.wake()
        self.hub.switch()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        end = self.loop.now + seconds
        self.park(seconds)
        while self.loop.now < end - RESOLUTION:
            self.park(end - self.loop.now)

    def vanish(self) -> None:
        """The process of this thread dies here."""
        fiber = current()
        assert fiber is not None
        fiber.process.die()
        self.hub.switch()

    def request(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """The result of what the service does for a request of this thread. Raises TimeoutError after some seconds."""
        fiber = current()
        assert fiber is not None
        process, end = fiber.process, self.loop.now + seconds
        process.requests += 1
        process.unanswered += 1
        task = self.loop.create_task(work)
        task.add_done_callback(lambda _: fiber.wake())
        for number, action in tuple(process.plans):
            if number <= process.requests:
                process.plans.remove((number, action))
                self.loop.call_later(self.random.random() * 0.1, process.befall, action)
        try:
            while not task.done() and self.loop.now < end - RESOLUTION:
                self.park(end - self.loop.now)
        finally:
            process.unanswered -= 1
            if not task.done():
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not task.done():
            raise TimeoutError
        return task.result()


SIM: list[Simulation] = []
"""The simulation that runs, last."""


def current() -> Fiber | None:
    """The thread that runs; None for the service's loop."""
    fiber = greenlet.getcurrent()
    return fiber if isinstance(fiber, Fiber) else None


# --- locks and threads -----------------------------------------------------------------------------------------------


class Lock:
    """A lock for greenlets."""

    def __init__(self) -> None:
        self._waiting = deque[Fiber]()
        self._held: bool = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        fiber = current()
        if fiber is not None and blocking and fiber.process.sim.random.random() < SWITCHES:
            fiber.process.sim.give_way()
        if not self._held:
            self._held = True
            return True
        if not blocking or timeout == 0:
            return False
        assert fiber is not None, "the service's own thread cannot wait for a lock"
        sim = fiber.process.sim
        end = None if timeout < 0 else sim.loop.now + timeout
        while self._held:
            if end is not None and sim.loop.now >= end - RESOLUTION:
                return False
            self._waiting.append(fiber)
            try:
                sim.park(None if end is None else end - sim.loop.now)
            finally:
                if fiber in self._waiting:
                    self._waiting.remove(fiber)
        self._held = True  # type: ignore[unreachable]  # another greenlet has released it
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._waiting:
            fiber = self._waiting[self._waiting[0].process.sim.random.randrange(len(self._waiting))]
            self._waiting.remove(fiber)
            fiber.wake()

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


class RLock:
    """A reentrant lock for greenlets."""

    def __init__(self) -> None:
        self._lock, self._owner, self._count = Lock(), 0, 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = ident()
        if self._owner != me:
            if not self._lock.acquire(blocking, timeout):
                return False
            self._owner = me
        self._count += 1
        return True

    __enter__ = acquire

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            self._owner = 0
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _release_save(self) -> tuple[int, int]:
        state, self._count, self._owner = (self._count, self._owner), 0, 0
        self._lock.release()
        return state

    def _acquire_restore(self, state: tuple[int, int]) -> None:
        self._lock.acquire()
        self._count, self._owner = state

    def _is_owned(self) -> bool:
        return self._owner == ident()

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


MAIN = threading.get_ident()


def ident() -> int:
    fiber = current()
    return fiber.ident if fiber else MAIN


class Thread:
    """A greenlet in the place of a thread. Its hash is its number, because an executor joins a set of threads."""

    numbers = 0

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name, self.daemon = name or "thread", bool(daemon)
        self._fiber: Fiber | None = None
        self._ended = threading.Event()
        Thread.numbers += 1
        self._number = Thread.numbers

    def __hash__(self) -> int:
        return self._number

    @property
    def ident(self) -> int | None:
        return self._fiber.ident if self._fiber else None

    def start(self) -> None:
        fiber = current()
        process = fiber.process if fiber else SERVICE[-1]
        self._fiber = Fiber(process, self._body, self.name)
        self._fiber.thread = self
        self._fiber.start()

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def _body(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - as with a thread, the process goes on
            SIM[-1].note(f"thread {self.name} ended with {error!r}")
        self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._ended.is_set()


SERVICE: list[Process] = []
"""The process of the service that runs, last: threads that its loop starts belong to it."""


class _Main:
    name, ident, daemon = "MainThread", MAIN, False

    def is_alive(self) -> bool:
        return True


_MAIN = _Main()


def _current_thread() -> Any:
    fiber = current()
    if fiber is None or fiber is fiber.process.fibers[0]:
        return _MAIN
    return getattr(fiber, "thread", fiber)


class Local:
    """The values of each thread."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":  # where click keeps the commands of a thread
            return object.__getattribute__(self, name).setdefault(ident(), {})
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        values = object.__getattribute__(self, "__dict__").get(ident(), {})
        return values[name] if name in values else object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "__dict__").setdefault(ident(), {})[name] = value

    def __delattr__(self, name: str) -> None:
        del object.__getattribute__(self, "__dict__")[ident()][name]


# --- signals and output ----------------------------------------------------------------------------------------------


def _signal(number: int, handler: Any) -> Any:
    fiber = current()
    before = _getsignal(number)
    if fiber is not None:
        fiber.process.handlers[number] = handler
    return before


def _getsignal(number: int) -> Any:
    fiber = current()
    return fiber.process.handler(number) if fiber else signal.SIG_DFL


class Bytes(io.RawIOBase):
    """The same, of bytes."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        sys.stdout.write(bytes(data).decode(errors="replace"))
        return len(data)


class Output(io.TextIOBase):
    """Takes what the process prints that runs."""

    @property
    def buffer(self) -> Bytes:
        return Bytes()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        fiber = current()
        if fiber is None:
            real_stdout.write(text)
        else:
            fiber.process.output.append(text)
        return len(text)


real_stdout = sys.stdout


# --- time ------------------------------------------------------------------------------------------------------------


def _elapsed() -> float:
    return _elapsed_ns() / 1e9


def _elapsed_ns() -> int:
    return SIM[-1].loop.ticks * (10**9 // TICKS) if SIM else 0


def _now() -> float:
    return now_ns() / 1e9


def now_ns() -> int:
    """What the clock of this process's machine says, in nanoseconds since 1970."""
    fiber = current()
    process = fiber.process if fiber else SERVICE[-1] if SERVICE else None
    return EPOCH * 10**9 + _elapsed_ns() + (process.ahead * (10**9 // TICKS) if process else 0)


def _sleep(seconds: float) -> None:
    SIM[-1].sleep(seconds)


class Datetime(datetime_module.datetime):
    """`datetime` with the time of the simulation."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime_module.datetime.fromtimestamp(_now(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return datetime_module.datetime.fromtimestamp(_now(), datetime_module.timezone.utc).replace(tzinfo=None)


def _bytes(count: int) -> bytes:
    return SIM[-1].random.randbytes(count) if SIM else bytes(count)


async def _to_thread(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    await asyncio.sleep(0)
    return work(*arguments, **named)


real_monotonic, real_utime = time.monotonic, os.utime


def _utime(path: Any, times: Any = None, **more: Any) -> None:
    real_utime(path, (_now(), _now()) if times is None and "ns" not in more else times, **more)


def install() -> None:
    """Replace what the seed owns. Nothing of the product may be imported before."""
    changes: dict[Any, dict[str, Any]] = {
        time: {"time": _now, "monotonic": _elapsed, "perf_counter": _elapsed, "sleep": _sleep,
               "time_ns": now_ns, "monotonic_ns": _elapsed_ns},
        threading: {"_allocate_lock": Lock, "Lock": Lock, "RLock": RLock, "_time": _elapsed, "Thread": Thread,
                    "get_ident": ident, "current_thread": _current_thread, "main_thread": lambda: _MAIN,
                    "local": Local},
        signal: {"signal": _signal, "getsignal": _getsignal},
        queue: {"SimpleQueue": queue._PySimpleQueue, "time": _elapsed},  # type: ignore[attr-defined]
        os: {"urandom": _bytes, "utime": _utime},
        random: {"_urandom": _bytes},
        asyncio: {"to_thread": _to_thread},
    }  # fmt: skip
    if hasattr(typing, "_get_protocol_attrs"):  # Python 3.11 lists them at every isinstance, as the HTTP library has it
        typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)
    for module, values in changes.items():
        for name, value in values.items():
            setattr(module, name, value)


def own_datetime() -> None:
    """Modules that read the clock through `datetime` get the simulation's. They are imported already."""
    import azure.batch._patch as signing

    from batchtrain.cli import job_operations, jobs, plan, pool
    from batchtrain.client import late_values
    from batchtrain.runs import recording
    from batchtrain.service import clock_difference, retry
    from batchtrain.storage import blob

    for module in (signing, late_values, recording, clock_difference, retry, blob, job_operations, jobs, plan, pool):
        module.datetime = Datetime  # type: ignore[attr-defined]
