"""Ctrl-C and the signals that act like it, while a command works and while it ends."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from batchtrain.service import retry

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
