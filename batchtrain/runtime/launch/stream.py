"""Writes what the processes print and measure, line by line, to one file that a client can follow.

stream.jsonl beside the ranks' own files on the primary has a JSON object per line: time, rank, node, attempt, file and
line (batchtrain/metrics/stream.py reads it; lines.awk writes the same for the shell's engine). The ranks' own files are
complete, but end at their limit, and a client cannot follow those of a thousand ranks.
"""

import contextlib
import json
import os
import re
import time

from .channel import Loop
from .process_end import attempt
from .spec import Gang, Process

FILE = "stream.jsonl"
STREAMS = ("stdout", "stderr")
MEASURED = "metrics"
FLUSH = 1.0
"""Seconds after which lines are in the file."""
BEAT = 10.0
"""Seconds between two signs of life."""
SILENCE = 2.0
"""Seconds after which the last line of a process is written even if it can have no metric."""
LONGEST = 64 * 1024
"""Bytes of the longest line that is written."""
BURST, REFILL = 10000, 10
"""Lines of one form that a process may write at once, and per further second, so that none of its others is hidden."""
FORMS = 1000
"""Forms of lines of a process that have a budget of their own."""
_MAY_MEASURE = re.compile(rb"[0-9]|nan|inf", re.IGNORECASE)
_NUMBERS = re.compile(rb"[0-9.]+")
_ENDS = re.compile(rb"[\r\n]")


class Budget:
    """How many lines of one form may still be written."""

    def __init__(self, now: float) -> None:
        self.left = float(BURST)
        self.at = now

    def spend(self, now: float) -> bool:
        self.left = min(float(BURST), self.left + (now - self.at) * REFILL)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Stream:
    """The file on the primary, from the first process to the last. A fault of it is no fault of the gang."""

    def __init__(self, loop: Loop, folder: str) -> None:
        self.loop, self.path = loop, os.path.join(folder, FILE)
        self.fd = -1
        self.fields: "dict[int, dict[str, object]]" = {}
        """The rank, node and attempt of each process."""
        self.rest: "dict[tuple[int, str], bytes]" = {}
        self.sizes: "dict[tuple[int, str], int]" = {}
        """Bytes that each process printed."""
        self.positions = [os.fstat(1).st_size, os.fstat(2).st_size]
        """Bytes of stdout and stderr of the task at the last look."""
        self.budgets: "dict[tuple[int, bytes], Budget]" = {}
        self.forms: "dict[int, int]" = {}
        self.held: "dict[int, tuple[float, str, bytes, int]]" = {}
        """The last line of each process, if it is not written."""
        self.written: "dict[int, float]" = {}
        self.skipped: "dict[int, int]" = {}
        self.waiting = bytearray()
        self.beaten = 0.0

    def open(self) -> None:
        """Make the file before the first node joins."""
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def tell(self, **record: object) -> None:
        """Write a record at once, for a client that waits for it."""
        self.write(record)
        self.flush()

    def begin(self, gang: Gang) -> None:
        """All nodes have joined; the processes start."""
        number, now = attempt(), time.time()
        for process in gang.processes:
            fields = {"rank": rank_of(process), "node": f"n{process.node.index}", "attempt": number}
            self.fields[process.id] = {name: value for name, value in fields.items() if value is not None}
            if "rank" in self.fields[process.id]:
                self.write(dict(self.fields[process.id], time=round(now, 3)))
        if self.fd >= 0:
            self.turn()

    def printed(self, process: int, stream: int, data: bytes) -> None:
        self.take(process, STREAMS[stream], data)

    def measured(self, process: int, data: bytes) -> None:
        """Whole lines of its file of BATCHTRAIN_METRICS."""
        self.take(process, MEASURED, data)

    def take(self, process: int, file: str, data: bytes) -> None:
        if self.fd < 0 or process not in self.fields:
            return
        now, key = time.time(), (process, file)
        content = self.rest.pop(key, b"") + data
        self.sizes[key] = end = self.sizes.get(key, 0) + len(data)
        at = end - len(content)  # of a line that is cut too late, but that is too long to be written
        *lines, rest = _ENDS.split(content)
        if rest:
            self.rest[key] = rest[: LONGEST + 1]
        for line in lines:
            self.line(process, file, line, now, at)
            at += len(line) + 1

    def line(self, process: int, file: str, line: bytes, now: float, at: int) -> None:
        if not line or len(line) > LONGEST:
            return
        if file == MEASURED:
            self.add(process, file, line, now)
        elif not _MAY_MEASURE.search(line):
            self.held[process] = (now, file, line, at)
        elif self.budget(process, line, now).spend(now):
            self.held.pop(process, None)
            self.add(process, file, line, now, at)
        else:
            self.skipped[process] = self.skipped.get(process, 0) + 1
            self.held[process] = (now, file, line, at)

    def budget(self, process: int, line: bytes, now: float) -> Budget:
        key = (process, _NUMBERS.sub(b"0", line)[:200])
        budget = self.budgets.get(key)
        if budget is None:
            count = self.forms.get(process, 0)
            if count >= FORMS:
                key = (process, b"")
            self.forms[process] = count + 1
            budget = self.budgets.setdefault(key, Budget(now))
        return budget

    def add(self, process: int, file: str, line: bytes, now: float, at: int = 0) -> None:
        position = {}
        if file != MEASURED:
            self.written[process] = now
            position["at"] = at
        text = line.decode("utf-8", "replace")
        self.write(dict(self.fields[process], time=round(now, 3), file=file, line=text, **position))

    def write(self, record: "dict[str, object]") -> None:
        self.waiting += json.dumps(record).encode() + b"\n"
        if len(self.waiting) > 1 << 20:
            self.flush()

    def flush(self) -> None:
        try:
            while self.waiting and self.fd >= 0:
                del self.waiting[: os.write(self.fd, self.waiting)]
        except OSError:  # a full disk, for example
            self.waiting.clear()

    def turn(self) -> None:
        """Each second: the last lines of processes that went silent, what was skipped, and signs of life."""
        now = time.time()
        for process, (time_of_line, file, line, at) in list(self.held.items()):
            if now - self.written.get(process, 0.0) >= SILENCE:
                del self.held[process]
                self.add(process, file, line, time_of_line, at)
        self.look_at_output(now)
        self.tell_skipped()
        if now - self.beaten >= BEAT:
            self.beaten = now
            self.write({"time": round(now, 3)})
        self.flush()
        self.loop.later(FLUSH, self.turn)

    def tell_skipped(self) -> None:
        for process, count in self.skipped.items():
            self.write(dict(self.fields[process], skipped=count))
        self.skipped.clear()

    def look_at_output(self, now: float) -> None:
        """How far stdout and stderr of the task had been written before what came in the last second."""
        for stream, before in enumerate(self.positions):
            try:
                position = os.lseek(stream + 1, 0, os.SEEK_CUR)
            except OSError:  # a pipe, for example of a container
                continue
            if position > before:
                self.write({"time": round(now, 3), "attempt": attempt(), "file": STREAMS[stream], "at": before})
            self.positions[stream] = position

    def end(self) -> None:
        """All has been printed: write the rest."""
        now = time.time()
        for (process, file), rest in self.rest.items():
            self.line(process, file, rest, now, self.sizes[process, file] - len(rest))
        for process, (time_of_line, file, line, at) in self.held.items():
            self.add(process, file, line, time_of_line, at)
        self.tell_skipped()
        self.look_at_output(now)
        self.rest.clear()
        self.held.clear()
        self.flush()


def rank_of(process: Process) -> "int | None":
    """Its rank; a worker without one has its number."""
    if process.rank >= 0:
        return process.rank
    return process.index if process.role.name == "worker" else None
