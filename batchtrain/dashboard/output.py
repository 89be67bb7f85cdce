"""The output of a task as it grows: its bytes, for the log and for those who read its lines."""

from __future__ import annotations

import codecs
import io
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from batchtrain.dashboard.board import DocumentTopic, News
from batchtrain.errors import NotFound, ServiceError, UsageError
from batchtrain.metrics.extract import split
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
"""The size of the file is compared at the first read without news, and at each so many: a retry of the task writes it
anew."""
MOST_LIMIT = 4 << 20
"""Bytes of a log in one answer."""


class Output:
    """A file of a task, read once for all viewers. `take` receives its lines."""

    def __init__(
        self,
        size: Callable[[], int],
        read: Read,
        seconds: float,
        take: Callable[[Sequence[str]], None] | None = None,
        forget: Callable[[], None] = lambda: None,
        every: float = 0.0,
        *,
        remote: bool = True,
    ) -> None:
        """every: a read that another topic did less than so many seconds ago is not repeated. remote: whether a read
        is a request to the account."""
        self.seconds, self._every, self.remote = seconds, every, remote
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
        requests = self._compare() if self._end is None else 0
        while (content := self._more()) is not None:
            requests += 1
            self._empty = 0 if content else self._empty + 1
            self._add(content)
            if len(content) < BLOCK:
                break
        if self._empty == 1 or (self._empty and self._empty % RECHECK == 0):
            requests += self._compare()
        return requests or 1

    def _compare(self) -> int:
        """Begin anew if the file is shorter than what was read of it."""
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
            self._empty = 0
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
        content = buffer[start - first :][:AT_MOST]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(content)
        content = content[
            : len(content) - len(decoder.getstate()[0])
        ]  # the rest of a character that is cut comes later
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


def part(
    size_of: Callable[[], int],
    read: Read,
    path: str,
    *,
    start: int | None,
    end: int | None,
    limit: int,
    rank: int | None = None,
) -> dict[str, Any]:
    """A part of a file as text, cut at lines: from `start` on, or up to `end`; by default the end of the file.
    rank: only the lines of this rank."""
    if not 0 < limit <= MOST_LIMIT:
        raise UsageError(f"`limit` is a number of bytes from 1 to {MOST_LIMIT}")
    size = size_of()
    last = min(size if end is None else end, size)
    first = max(last - limit, 0) if start is None else min(start, last)
    last = min(last, first + limit)
    content = read(first, last) if last > first else b""
    if start is None and first and (cut := content.find(b"\n") + 1):
        first, content = first + cut, content[cut:]
    if last < size and (cut := content.rfind(b"\n") + 1):
        content = content[:cut]
    text = content.decode("utf-8", "replace")
    if rank is not None:
        text = "".join(line for line in io.StringIO(text, newline="\n") if split(line)[0] == rank)
    return {"file": path, "size": size, "start": first, "end": first + len(content), "text": text}


class Numbered(DocumentTopic):
    """A topic that a file of a task feeds: its curves or its ranks."""

    def __init__(self, advance: Callable[[], int], show: Callable[[], Any], seconds: float) -> None:
        super().__init__(show, 1, seconds)
        self._advance = advance

    def read(self) -> int:
        """Read its files, unless the log did so just now."""
        requests = self._advance()
        super().read()
        return requests
