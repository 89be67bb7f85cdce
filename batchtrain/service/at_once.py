"""Several pieces of work at once: threads take them in order, and results come as they are ready."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Result = TypeVar("Result")
Piece = Callable[[], Result | None]
"""A piece of work, with the result of the whole if it was the last piece of it."""

INTERRUPTED_SECONDS = 0.1
"""For each thread to end after an interrupt."""
WORKERS = 8
"""Requests at once; the SDK keeps ten connections."""


class AtOnce(Generic[Result]):
    """Threads that work on pieces. Few are taken before they are due, so the memory is constant and an end is quick."""

    def __init__(self, name: str, pieces: Iterable[Piece[Result]], workers: int = WORKERS) -> None:
        self.stopped = threading.Event()
        self._name, self._workers = name, workers
        self._pieces = iter(pieces)
        self._added: deque[Iterator[Piece[Result]]] = deque()
        self._busy = 0
        self._changed = threading.Condition()
        self._results: queue.SimpleQueue[Result | BaseException | None] = queue.SimpleQueue()

    def add(self, pieces: Iterable[Piece[Result]]) -> None:
        """Add pieces that are due before all others; they are taken one by one. Only a piece may call it."""
        with self._changed:
            self._added.append(iter(pieces))
            self._changed.notify_all()

    def results(self) -> Iterator[Result]:
        """The results as they are ready. An end of the iteration stops the threads; their errors are raised here.
        After an interrupt, threads that wait for an answer of the service are left to end by themselves."""
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(self._work,), name=self._name, daemon=True)
            for _ in range(self._workers)
        ]
        for thread in threads:
            thread.start()
        patience: float | None = None
        try:
            yield from self._until_ended(len(threads))
        except KeyboardInterrupt:
            patience = INTERRUPTED_SECONDS
            raise
        finally:
            self.stopped.set()
            with self._changed:
                self._changed.notify_all()
            for thread in threads:
                thread.join(patience)

    def _until_ended(self, threads: int) -> Iterator[Result]:
        while threads:
            result = self._results.get()
            if result is None:
                threads -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                yield result

    def _work(self) -> None:
        try:
            while (piece := self._taken()) is not None:
                try:
                    result = piece()
                finally:
                    self._done()
                if result is not None:
                    self._results.put(result)
        except BaseException as error:  # noqa: BLE001 - a bug must not leave the caller waiting
            self._results.put(error)
        finally:
            self._results.put(None)

    def _taken(self) -> Piece[Result] | None:
        """The next piece; None when there are no more, and no thread may add any."""
        with self._changed:
            while not self.stopped.is_set():
                while self._added and (piece := next(self._added[0], None)) is None:
                    self._added.popleft()
                if self._added or (piece := next(self._pieces, None)) is not None:
                    self._busy += 1
                    return piece
                if not self._busy:
                    break
                self._changed.wait()
        return None

    def _done(self) -> None:
        with self._changed:
            self._busy -= 1
            if not self._busy:
                self._changed.notify_all()
