"""Runs of this command line as child processes, some at a time. Ctrl-C is passed on, so that each one cleans up."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TextIO

PROGRAM = ("-m", "batchtrain.cli")


class Child(NamedTuple):
    """A run: its name and its arguments."""

    name: str
    words: tuple[str, ...]


class Line(NamedTuple):
    """A line of the stderr of a run."""

    child: Child
    text: str


class Ended(NamedTuple):
    """How a run ended, and what it printed to stdout."""

    child: Child
    code: int
    output: str


class Children:
    """Runs of which `at_once` run at a time. After the `with` block no further run begins, and all have ended."""

    def __init__(self, at_once: int) -> None:
        self._pool = ThreadPoolExecutor(at_once)
        self._news: queue.SimpleQueue[Line | Ended | OSError] = queue.SimpleQueue()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Each Ctrl-C is passed on to the runs: a second one skips the fetching of results."""
        self._stopped = True
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._interrupt()
        while not self._all_ended():
            self._interrupt()

    def run(self, children: Sequence[Child]) -> Iterator[Line | Ended]:
        """Lines and ends as they come."""
        for child in children:
            self._pool.submit(self._run, child)
        remaining = len(children)
        while remaining:
            news = self._news.get()
            if isinstance(news, OSError):
                raise news
            remaining -= isinstance(news, Ended)
            yield news

    def _all_ended(self) -> bool:
        try:
            self._pool.shutdown(cancel_futures=True)
        except KeyboardInterrupt:
            return False
        return True

    def _interrupt(self) -> None:
        for process in tuple(self._running):
            process.send_signal(signal.SIGINT)

    def _run(self, child: Child) -> None:
        if self._stopped:
            return
        try:
            with (
                tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,  # of any size
                self._started(child, output) as process,
            ):
                self._news.put(self._followed(child, process, output))
        except OSError as error:
            self._news.put(error)

    def _followed(self, child: Child, process: subprocess.Popen[str], output: TextIO) -> Ended:
        self._running.add(process)
        assert process.stderr is not None
        for line in process.stderr:
            self._news.put(Line(child, line.rstrip("\n")))
        code = process.wait()
        self._running.discard(process)
        output.seek(0)
        return Ended(child, code, output.read())

    def _started(self, child: Child, output: TextIO) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *PROGRAM, *child.words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # the terminal would send Ctrl-C too, and twice means something else
        )
