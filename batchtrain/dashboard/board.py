"""What the pages watch: one thread reads each topic once for all viewers, and nothing while there is no viewer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from batchtrain.config.masking import masked_text
from batchtrain.dashboard.budget import Budget
from batchtrain.errors import BatchtrainError, ServiceError
from batchtrain.service import retry

LOG = logging.getLogger(__name__)
NEAR_SECONDS, DISK_SECONDS = 0.1, 0.5
"""Seconds between two reads of a topic of the emulator, and of recorded runs."""
SHARE = 10
"""A topic of this machine takes at most one part in so many of the time."""
LONGEST_PAUSE, LONGEST_NEAR_PAUSE = 60.0, 2.0
THROTTLED = frozenset({"TooManyRequests", "ServerBusy", "429"})
THROTTLED_SECONDS = 30.0
LONGEST_READ = 10.0
"""While a read takes longer, nothing that is shown is live."""


class News(NamedTuple):
    """What a viewer has not seen yet, and the position after it."""

    position: str
    body: bytes


class Topic(Protocol):
    """Something that can be watched."""

    seconds: float
    """The time between two reads on Azure."""
    remote: bool
    """Whether reading it sends requests to the account."""

    def read(self) -> int:
        """Read it again, and return the number of requests. Raises BatchtrainError."""

    def since(self, position: str) -> News | None:
        """What is new after a position; None if nothing is."""


class DocumentTopic:
    """A JSON document. Its position is its checksum."""

    def __init__(self, read: Callable[[], Any], cost: int, seconds: float) -> None:
        self._read, self._cost = read, cost
        self.seconds, self.remote = seconds, cost > 0
        self._news: News | None = None

    def read(self) -> int:
        with retry.answer_count() as count:
            body = msgspec.json.encode(self._read())
        self._news = News(f"{zlib.crc32(body):08x}", body)
        return max(self._cost, count.answers)

    def since(self, position: str) -> News | None:
        news = self._news
        return news if news is not None and news.position != position else None


@dataclass(eq=False)
class Watched:
    """A topic with viewers."""

    name: str
    topic: Topic
    due: float
    viewers: int = 0
    failures: int = 0
    at: float | None = None
    """The time of the last successful read."""
    trouble: str = ""
    """Why the last read failed."""


@dataclass(eq=False)
class Viewer:
    """A page, and the topics that it watches."""

    watched: Sequence[Watched]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Something was read. Called by the reading thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, seconds: float) -> None:
        """Wait until something was read, at most so long."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()


class Board:
    """The watched topics of all viewers, and the thread that reads them."""

    def __init__(
        self,
        make: Callable[[str], Topic],
        budget: Budget,
        *,
        near: bool,
        renew: Callable[[], None] = lambda: None,
        completed: Callable[[str], str] = str,
        clock: retry.Clock = retry.CLOCK,
    ) -> None:
        self.make, self._budget, self._near, self._renew, self._clock = make, budget, near, renew, clock
        self._completed = completed
        self._watched: dict[str, Watched] = {}
        self._viewers: list[Viewer] = []
        self._changed = threading.Condition()
        self._closed = False
        self._left = clock.now()
        """When the last viewer left."""
        self._began = float("inf")
        """When the current read began; later than any time without one."""
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the server is ending."""
        return self._closed

    def is_live(self, entry: Watched) -> bool:
        """Whether the last read of a topic succeeded, and no read hangs."""
        return not entry.trouble and self._clock.now() - self._began < LONGEST_READ

    def idle(self) -> float:
        """The seconds without a viewer."""
        return 0.0 if self._viewers else self._clock.now() - self._left

    def end(self) -> None:
        """Let the viewers end. Safe in a signal handler: it takes no lock."""
        self._closed = True
        for viewer in tuple(self._viewers):
            viewer.wake()

    def close(self) -> None:
        """Stop reading."""
        self.end()
        with self._changed:
            self._changed.notify()

    @contextlib.contextmanager
    def watch(self, names: Sequence[str]) -> Iterator[Viewer]:
        """Read topics as long as the block lasts. Raises UsageError for a name that is no topic."""
        with self._changed:
            for name in names:
                if name not in self._watched:
                    self._watched[name] = Watched(name, self.make(name), self._clock.now())
            viewer = Viewer([self._watched[name] for name in names])
            for entry in viewer.watched:
                entry.viewers += 1
            self._viewers.append(viewer)
            self._changed.notify()
        try:
            yield viewer
        finally:
            with self._changed:
                self._viewers.remove(viewer)
                self._left = self._clock.now()
                for entry in viewer.watched:
                    entry.viewers -= 1
                    if not entry.viewers:
                        self._watched.pop(entry.name, None)

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            self._read(entry)
            for viewer in tuple(self._viewers):
                if entry in viewer.watched:
                    viewer.wake()

    def _next(self) -> Watched | None:
        """The next topic to read, when it is due; None at the end."""
        with self._changed:
            while not self._closed:
                delays = [(self._delay(entry), entry) for entry in self._watched.values()]
                delay, entry = min(delays, key=lambda pair: pair[0], default=(None, None))
                if entry is not None and delay is not None and delay <= 0:
                    return entry
                self._changed.wait(delay)
        return None

    def _delay(self, entry: Watched) -> float:
        delay = entry.due - self._clock.now()
        return max(delay, self._budget.delay()) if entry.topic.remote else delay

    def _read(self, entry: Watched) -> None:
        began = self._began = self._clock.now()
        try:
            with retry.until(began):  # one attempt: this thread itself repeats, and the page shows why
                self._budget.spend(entry.topic.read())
        except BatchtrainError as error:
            self._failed(entry, error, str(error))
        except Exception as error:  # the outermost handler of the thread: a bug in one topic must not stop the others
            LOG.exception("reading %s", entry.name)
            self._failed(entry, error, f"this is a bug of batchtrain: {error!r}")
        else:
            entry.at, entry.trouble, entry.failures = time.time(), "", 0
            pause = entry.topic.seconds
            if self._near or not entry.topic.remote:
                least = NEAR_SECONDS if entry.topic.remote else DISK_SECONDS
                pause = max(least, SHARE * (self._clock.now() - began))
            entry.due = self._clock.now() + pause
        finally:
            self._began = float("inf")

    def _failed(self, entry: Watched, error: Exception, text: str) -> None:
        entry.trouble = masked_text(self._completed(text))
        entry.failures += 1
        self._budget.spend(1 if entry.topic.remote else 0)
        if isinstance(error, ServiceError) and error.code in THROTTLED:
            self._budget.exhaust(THROTTLED_SECONDS)
        near = self._near or not entry.topic.remote
        pause = NEAR_SECONDS if near else entry.topic.seconds
        longest = LONGEST_NEAR_PAUSE if near else LONGEST_PAUSE
        entry.due = self._clock.now() + min(pause * 2 ** min(entry.failures, 10), longest)
        self._renew()
