"""The standard streams: whether they have lost their reader or their terminal."""

from __future__ import annotations

import errno
import os
import select
import sys
from typing import TextIO


def nobody_reads() -> bool:
    """Whether stdout or stderr has lost its reader, as after `| head -1`; the rest of such an output is discarded."""
    readers_gone = [_unread(stream) for stream in (sys.stdout, sys.stderr)]
    return any(readers_gone)


def _unread(stream: TextIO | None) -> bool:
    if stream is None or not hasattr(select, "poll"):  # Windows has none, and no SIGPIPE either
        return False
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    broken = any(event & select.POLLERR for _, event in poll.poll(0))
    if broken:
        silence(stream)
    return broken


def silence_closed_terminals() -> None:
    """Discard further output to terminals that were closed."""
    for stream in filter(_is_hung_up, (sys.stdout, sys.stderr)):
        silence(stream)


def _is_hung_up(stream: TextIO) -> bool:
    try:
        os.get_terminal_size(stream.fileno())
    except (OSError, ValueError) as error:
        return bool(error.args[0] == errno.EIO)
    return False


def silence(stream: TextIO | None) -> None:
    """Discard further output to a stream without a reader, also when Python ends."""
    if stream is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
