"""The output of a task as it grows: its bytes for the log, and the numbers and the state of each rank in it."""

from __future__ import annotations

import codecs
import functools
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from batchtrain.dashboard.board import News
from batchtrain.errors import NotFound, ServiceError
from batchtrain.metrics.extract import Pattern
from batchtrain.metrics.stream import Batch, MetricStream
from batchtrain.records import Point
from batchtrain.service.downloads import PAST_THE_END
from batchtrain.service.files import NO_FILE, NOT_YET

Read = Callable[[int, int], bytes]
"""Bytes of the file from a start to before an end."""

BLOCK = 1 << 20
"""Bytes of one read."""
KEPT = 1 << 20
"""The end of the file that is kept for viewers; the page asks for what was before."""
HISTORY = 16 << 20
"""The end of a long file that is searched for numbers."""
FIRST = 256 << 10
"""The end of the file that a new viewer sees."""
AT_MOST = 512 << 10
"""Bytes of one message to a viewer."""
LONGEST_LINE = 1 << 16
RECHECK = 10
"""Reads without news until the size of the file is compared: a retry of the task writes it anew."""
MOST_POINTS = 2000
"""Points of a curve that are sent."""
KEPT_POINTS = 20 * MOST_POINTS
MOST_SERIES = 400


class Output:
    """A file of a task, read once for all viewers. `take` receives its lines."""

    remote = True

    def __init__(
        self,
        size: Callable[[], int],
        read: Read,
        seconds: float,
        take: Callable[[Sequence[str]], None] | None = None,
        forget: Callable[[], None] = lambda: None,
        every: float = 0.0,
    ) -> None:
        """every: a read that another topic did less than so many seconds ago is not repeated."""
        self.seconds, self._every = seconds, every
        self._size, self._read, self._take, self._forget = size, read, take, forget
        self._lock = threading.Lock()
        self._end: int | None = None
        """The position after the last byte that was read; None before the first read."""
        self._kept = b""
        self._partial = b""
        self._empty = 0
        self._has_begun = False
        self._last = float("-inf")

    @property
    def exists(self) -> bool:
        """Whether the task had the file at the last read."""
        return self._end is not None

    def read(self) -> int:
        """Read what is new, unless that was done just now. Returns the number of requests."""
        with self._lock:
            if time.monotonic() - self._last < self._every:
                return 0
            try:
                return self._advance()
            finally:
                self._last = time.monotonic()

    def _advance(self) -> int:
        requests = 0
        if self._end is None or self._empty >= RECHECK:
            requests += self._compare()
        while (content := self._more()) is not None:
            requests += 1
            self._empty = 0 if content else self._empty + 1
            self._add(content)
            if len(content) < BLOCK:
                break
        return requests or 1

    def _compare(self) -> int:
        """Begin anew if the file is shorter than what was read of it."""
        self._empty = 0
        try:
            size = self._size()
        except ServiceError as error:
            if error.code in NO_FILE | NOT_YET:
                return 1
            raise
        if self._end is None or size < self._end:
            if self._has_begun:
                self._forget()
            self._has_begun = True
            self._end = max(size - HISTORY, 0) if self._take else max(size - FIRST, 0)
            self._kept = self._partial = b""
        return 1

    def _more(self) -> bytes | None:
        if self._end is None:
            return None  # the task has not written it yet
        try:
            return self._read(self._end, self._end + BLOCK)
        except ServiceError as error:
            if error.code in PAST_THE_END:
                return b""
            if isinstance(error, NotFound) and error.code in NO_FILE:
                self._end = None  # the task runs again, in a new directory
                return None
            raise

    def _add(self, content: bytes) -> None:
        assert self._end is not None
        self._end += len(content)
        self._kept = (self._kept + content)[-KEPT:]
        if self._take is None or not content:
            return
        *lines, self._partial = (self._partial + content).split(b"\n")
        self._partial = self._partial[-LONGEST_LINE:]
        self._take([line.decode("utf-8", "replace") for line in lines])

    def since(self, position: str) -> News | None:
        """The bytes after a position as text. A new viewer gets the end of the file."""
        with self._lock:
            end, buffer = self._end, self._kept
        if end is None:
            return None
        first, begins = end - len(buffer), not position.isdigit()
        start = max(end - FIRST, first) if begins else int(position)
        if start > end:
            return News(str(first), msgspec.json.encode({"start": first, "end": first, "text": "", "again": True}))
        skipped_bytes, start = max(first - start, 0), max(start, first)
        content = _whole(buffer[start - first :][:AT_MOST])
        if begins and start and (cut := content.find(b"\n") + 1):
            start, content = start + cut, content[cut:]
        if not content and not begins:
            return None
        body = {
            "start": start,
            "end": start + len(content),
            "text": content.decode("utf-8", "replace"),
            "skipped": skipped_bytes,
        }
        return News(str(start + len(content)), msgspec.json.encode(body))


def _whole(content: bytes) -> bytes:
    """Without a character at the end that is cut: its rest comes later."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    incomplete, _ = decoder.getstate()
    return content[: len(content) - len(incomplete)]


# --- what the lines say ---------------------------------------------------------------------------------------------


class Numbers:
    """The curves and the ranks of a task, from its records or its output."""

    def __init__(self, patterns: Callable[[], tuple[Pattern, ...]] = tuple) -> None:
        """patterns: those of the user, asked for once, before the first line."""
        self._patterns = functools.cache(patterns)
        self.forget()

    def forget(self) -> None:
        """The task runs again: its numbers start anew."""
        self._stream: MetricStream | None = None
        self._series: dict[str, dict[str, list[tuple[float | None, float, float]]]] = {}

    def forget_output(self) -> None:
        """The same for the output alone: of a gang that is read by its records, it gives no numbers."""
        if not self.has_records:
            self.forget()

    @property
    def has_records(self) -> bool:
        """Whether the records of a gang are read."""
        return self._stream is not None and self._stream.has_records

    @property
    def stream(self) -> MetricStream:
        """What the lines of the task are read by."""
        if self._stream is None:
            self._stream = MetricStream(self._patterns())
        return self._stream

    def take_output(self, lines: Sequence[str]) -> None:
        """Lines of the merged stdout."""
        now = time.time()
        self._take(self.stream.output(lines, now), now)

    def take_records(self, lines: Sequence[str]) -> None:
        """Lines of the records of a gang."""
        now = time.time()
        self._take(self.stream.records(lines, now), now)

    def take_own(self, rank: int | None, lines: Sequence[str]) -> None:
        """Lines of a file of $BATCHTRAIN_METRICS, or of the samples of a node."""
        now = time.time()
        self._take(self.stream.own(lines, now, rank), now)

    def _take(self, batch: Batch, now: float) -> None:
        for name in tuple(self._series) if batch.again else batch.hidden:
            self._series.pop(name[:100], None)
        for point in batch.points:
            self._add(point, now)

    def _add(self, point: Point, now: float) -> None:
        for name, value in point.values.items():
            if value is None or (name not in self._series and len(self._series) >= MOST_SERIES):
                continue
            key = point.node or ("" if point.rank is None else str(point.rank))
            values = self._series.setdefault(name[:100], {}).setdefault(key, [])
            step = point.epoch if point.step is None else point.step
            values.append((step, now if point.t is None else point.t, value))
            if len(values) > KEPT_POINTS:
                values[:] = thinned(values, KEPT_POINTS // 2)

    def metrics(self) -> dict[str, Any]:
        """The curves, by metric and rank."""
        return {
            name: {key: columns(values) for key, values in tuple(ranks.items())}
            for name, ranks in tuple(self._series.items())
        }

    def ranks(self) -> list[dict[str, Any]]:
        """The state of each rank, in order."""
        return [
            {"rank": rank.number, "node": rank.node, "lines": rank.lines, "last": rank.last, "at": rank.heard}
            for rank in (self._stream.seen() if self._stream else ())
        ]


Value = tuple[float | None, float, float]


def columns(values: Sequence[Value]) -> dict[str, list[float | None]]:
    """A curve as columns of step, time and value, thinned for the page."""
    steps, times, numbers = zip(*thinned(values, MOST_POINTS), strict=True) if values else ((), (), ())
    return {"step": list(steps), "t": list(times), "value": list(numbers)}


def thinned(values: Sequence[Value], most: int) -> list[Value]:
    """At most so many points: the first, the last, and of each part its lowest and its highest."""
    if len(values) <= most:
        return list(values)
    parts = max(most // 2 - 1, 1)
    bounds = [1 + (len(values) - 2) * part // parts for part in range(parts + 1)]
    points = [values[0]]
    for start, end in pairwise(bounds):
        part = values[start:end]
        if part:
            low, high = (choose((row[2], index) for index, row in enumerate(part))[1] for choose in (min, max))
            points += [part[index] for index in sorted({low, high})]
    return [*points, values[-1]]


class Numbered:
    """A topic that a file of a task feeds: its curves or its ranks."""

    remote = True

    def __init__(self, advance: Callable[[], int], show: Callable[[], Any], seconds: float) -> None:
        self._advance, self._show, self.seconds = advance, show, seconds
        self._news: News | None = None

    def read(self) -> int:
        """Read its files, unless the log did so just now."""
        requests = self._advance()
        body = msgspec.json.encode(self._show())
        self._news = News(f"{zlib.crc32(body):08x}", body)
        return requests

    def since(self, position: str) -> News | None:
        """The whole value, if it has changed."""
        news = self._news
        return news if news is not None and news.position != position else None
