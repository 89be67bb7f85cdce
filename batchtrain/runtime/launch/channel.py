"""One loop over events, and the messages between the primary and its nodes."""

import heapq
import json
import os
import select
import selectors
import signal
import struct
import time

from .processes import is_ready
from .spec import Any, Callable, Message


class Loop:
    """Handles events of descriptors, clocks and signals, one after the other."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.clocks: "list[tuple[float, int, Callable[[], None]]]" = []
        self.count = 0
        self.running = True
        self.signals: "dict[int, Callable[[int], None]]" = {}
        self.wake, wakes = os.pipe()
        for fd in (self.wake, wakes):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakes)
        self.watch(self.wake, self._on_signal)

    def watch(self, fd: int, callback: "Callable[[], None]", writing: bool = False) -> None:
        events = selectors.EVENT_WRITE if writing else selectors.EVENT_READ
        self.selector.register(fd, events, callback)

    def forget(self, fd: int) -> None:
        self.selector.unregister(fd)

    def later(self, seconds: float, callback: "Callable[[], None]") -> None:
        self.count += 1
        heapq.heappush(self.clocks, (time.monotonic() + seconds, self.count, callback))

    def on(self, number: int, callback: "Callable[[int], None]") -> None:
        self.signals[number] = callback
        signal.signal(number, lambda *_: None)

    def run(self) -> None:
        while self.running:
            left = max(0, self.clocks[0][0] - time.monotonic()) if self.clocks else None
            signals_first = sorted(self.selector.select(left), key=lambda event: event[0].fd != self.wake)
            for key, _ in signals_first:
                if self.selector.get_map().get(key.fd) is key:  # an earlier callback may have removed it
                    key.data()
            while self.clocks and self.clocks[0][0] <= time.monotonic():
                heapq.heappop(self.clocks)[2]()

    def _on_signal(self) -> None:
        for number in set(os.read(self.wake, 4096)):
            self.signals[number](number)


HEADER = struct.Struct("!Ic")
OUTPUT = struct.Struct("!IB")
GREETING = b"\0batchtrain node\0"
"""The first bytes from a node; a login shell may print other text before."""


class Channel:
    """Frames over two descriptors: length, kind (`J`: JSON, `O`: unchanged output, `B`: a sign of life), body."""

    def __init__(self, loop: Loop, reader: int, writer: int, greeted: bool) -> None:
        self.loop = loop
        self.reader, self.writer = reader, writer
        self.greeted = greeted
        self.heard = time.monotonic()
        self.open = True
        self.on_message: "Callable[[Message], None] | None" = None
        self.on_output: "Callable[[int, int, bytes], None] | None" = None
        self.on_end: "Callable[[], None] | None" = None
        self._in, self._out = bytearray(), bytearray()
        self._writing = False
        for fd in (reader, writer):
            os.set_blocking(fd, False)
        loop.watch(reader, self.receive)

    def send(self, **message: "Any") -> None:
        self._send(b"J", json.dumps(message).encode())

    def beat(self) -> None:
        """Send a sign of life, which has no content."""
        self._send(b"B", b"")

    def send_output(self, process: int, stream: int, data: bytes) -> None:
        self._send(b"O", OUTPUT.pack(process, stream) + data)

    def _send(self, kind: bytes, body: bytes) -> None:
        if self.open:
            self._out += HEADER.pack(len(body), kind) + body
            if not self._writing:
                self.flush()

    def greet(self) -> None:
        self._out += GREETING

    def flush(self) -> None:
        """Write what the other side accepts now, and the rest later."""
        try:
            while self._out:
                del self._out[: os.write(self.writer, bytes(self._out[:65536]))]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # the reader sees the end of the stream
        if bool(self._out) != self._writing and self.open:
            self._writing = bool(self._out)
            if self._writing:
                self.loop.watch(self.writer, self.flush, writing=True)
            else:
                self.loop.forget(self.writer)

    def receive(self) -> None:
        try:
            data = os.read(self.reader, 1 << 17)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            if self.on_end:
                self.on_end()
            return
        self._in += data
        self._deliver()

    def drain(self) -> None:
        """Read everything up to the end of the stream; for a peer that has ended."""
        while self.open and is_ready(self.reader, select.POLLIN):
            self.receive()

    def _deliver(self) -> None:
        if not self.greeted:
            start = self._in.find(GREETING)
            if start < 0:
                del self._in[: max(0, len(self._in) - len(GREETING))]
                return
            del self._in[: start + len(GREETING)]
            self.greeted = True
        at, have = 0, len(self._in)
        while have - at >= HEADER.size:
            length, kind = HEADER.unpack_from(self._in, at)
            if have - at < HEADER.size + length:
                break
            body = bytes(memoryview(self._in)[at + HEADER.size : at + HEADER.size + length])
            at += HEADER.size + length
            self.heard = time.monotonic()
            if kind == b"O" and self.on_output:
                process, stream = OUTPUT.unpack_from(body)
                self.on_output(process, stream, body[OUTPUT.size :])
            elif kind == b"J" and self.on_message:
                self.on_message(json.loads(body.decode()))
        del self._in[:at]

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        self.loop.forget(self.reader)
        if self._writing:
            self.loop.forget(self.writer)
        os.close(self.reader)
        os.close(self.writer)
