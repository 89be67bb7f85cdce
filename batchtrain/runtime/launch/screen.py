"""Joins the output of all processes line by line."""

import collections
import os
import select
import time

from .channel import Loop
from .processes import is_ready
from .spec import LONGEST, Any, Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .primary import Session

PARTIAL = 0.1
"""Seconds after which an unfinished line is shown."""
SCREEN = 40
"""The lines of a terminal."""


class Sink:
    """An output stream. It is written only when it has room, at most the size of a pipe at once, so a slow reader, or
    one that has stopped reading, stops only the output."""

    def __init__(self, loop: Loop, fd: int) -> None:
        self.loop, self.fd = loop, fd
        self.waiting = bytearray()
        self.open_line: "tuple[Any, int] | None" = None
        """The process with the unfinished line at the end."""
        self.watched = False
        self.closed = False
        self.on_room: "Callable[[], None] | None" = None
        self.is_file = False
        try:
            loop.watch(fd, self.flush, writing=True)
            loop.forget(fd)
        except OSError:  # epoll refuses regular files, which always have room
            self.is_file = True

    def write(self, key: "tuple[Any, int]", prefix: bytes, data: bytes, whole: bool) -> None:
        """data: whole lines, or part of one if not `whole`."""
        if self.closed:
            return
        if self.open_line is not None and self.open_line != key:
            self.waiting += b"\n"
        if self.open_line != key:
            self.waiting += prefix
        body = data[:-1] if whole else data
        self.waiting += body.replace(b"\n", b"\n" + prefix)
        if whole:
            self.waiting += b"\n"
        self.open_line = None if whole else key
        if self.is_file or not self.watched:
            self.flush()

    def flush(self) -> None:
        try:
            while self.waiting and (self.is_file or is_ready(self.fd, select.POLLOUT)):
                size = len(self.waiting) if self.is_file else 4096
                del self.waiting[: os.write(self.fd, self.waiting[:size])]
        except BlockingIOError:
            pass
        except OSError:  # the reader is gone; but a full disk may have room again
            self.closed = not self.is_file
            self.waiting.clear()
        if bool(self.waiting) != self.watched:
            self.watched = bool(self.waiting)
            if self.watched:
                self.loop.watch(self.fd, self.flush, writing=True)
            else:
                self.loop.forget(self.fd)
        if self.on_room:
            self.on_room()


class Screen:
    """Joins the output of all processes line by line, and keeps the last lines of each."""

    ROOM = 1 << 20

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        same = os.path.sameopenfile(1, 2)
        first = Sink(loop, 1)
        self.sinks = (first, first if same else Sink(loop, 2))
        self.partial: "dict[tuple[Any, int], bytes]" = {}
        self.printed: "dict[tuple[Any, int], float]" = {}
        """When the last part of each unfinished line came."""
        self.prefixes: "dict[Any, bytes]" = {}
        self.last: "dict[int, bytes]" = collections.defaultdict(bytes)
        self.lines = 0
        self.line_of: "dict[int, int]" = collections.defaultdict(int)
        """The number of lines of all processes when each printed last."""
        self.due = False
        self.debts: "list[tuple[Session, int]]" = []
        for sink in set(self.sinks):
            sink.on_room = self.pay

    def say(self, text: str) -> None:
        self.sinks[1].write(("batchtrain", 1), b"batchtrain: ", text.encode("utf-8", "replace") + b"\n", whole=True)

    def show(self, process: int, stream: int, data: bytes) -> None:
        self.last[process] = (self.last[process] + data)[-32768:]
        self.lines += data.count(b"\n")
        self.line_of[process] = self.lines
        key = (process, stream)
        data = self.partial.pop(key, b"") + data
        cut = data.rfind(b"\n") + 1
        if cut:
            self.sinks[stream].write(key, self.prefixes[process], data[:cut], whole=True)
        if len(data) - cut > LONGEST:
            self.sinks[stream].write(key, self.prefixes[process], data[cut:], whole=False)
        elif len(data) > cut:
            self.partial[key] = data[cut:]
            self.printed[key] = time.monotonic()
            if not self.due:
                self.due = True
                self.loop.later(PARTIAL, self.show_waiting)

    def show_waiting(self) -> None:
        """Show the unfinished lines whose processes print no more: a busy loop is to cut no line."""
        now = time.monotonic()
        self.show_partial([key for key in self.partial if now - self.printed[key] >= PARTIAL])
        self.due = bool(self.partial)
        if self.due:
            self.loop.later(PARTIAL, self.show_waiting)

    def show_partial(self, keys: "list[tuple[Any, int]] | None" = None) -> None:
        for key in list(self.partial) if keys is None else keys:
            process, stream = key
            self.sinks[stream].write(key, self.prefixes[process], self.partial.pop(key), whole=False)

    def end_lines(self) -> None:
        self.show_partial()
        for sink in set(self.sinks):
            if sink.open_line is not None:
                sink.open_line = None
                sink.waiting += b"\n"
            sink.flush()

    def take(self, session: "Session", size: int) -> None:
        """Grant a node more output, at once or when there is room."""
        self.debts.append((session, size))
        self.pay()

    def pay(self) -> None:
        if self.debts and sum(len(sink.waiting) for sink in set(self.sinks)) < self.ROOM:
            debts, self.debts = self.debts, []
            for session, size in debts:
                session.give_credit(size)

    def last_lines(self, process: int) -> "list[str]":
        lines = self.last[process][-16384:].decode("utf-8", "backslashreplace").rstrip("\n").split("\n")
        return [line for line in lines if line.strip()]

    def has_passed(self, process: int) -> bool:
        """Whether other processes have printed more than a screen of lines since this one did."""
        return self.lines - self.line_of[process] > SCREEN

    def is_empty(self) -> bool:
        return not any(sink.waiting for sink in self.sinks)
