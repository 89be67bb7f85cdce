"""Processes by the marker in their environment: the last resort against what a plain process node left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from pathlib import Path

logger = logging.getLogger("batchtrain.emulator.machine")

ROUNDS, SECONDS = 50, 0.1
"""Rounds of killing the processes of a dead node, and seconds in each to wait for a process that does not end."""


def kill(marker: str) -> None:
    """Kill what a plain-process node left behind when its agent was killed: all processes with its marker."""
    needle = marker.encode()
    for _ in range(ROUNDS):
        pids = _processes_with(needle)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _wait_for_end(pids[0], SECONDS)
    logger.warning("processes of a node that died cannot be killed: %s (%s)", ", ".join(map(str, pids)), marker)


def _wait_for_end(pid: int, seconds: float) -> None:
    """Wait until a process has ended, or for this long."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3
        time.sleep(seconds)
        return
    try:
        wait_readable(fd, seconds)
    finally:
        os.close(fd)


def _processes_with(variable: bytes) -> list[int]:
    """This user's other processes with it in their environment; that of a zombie, which is already dead, is empty."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_own = entry.name.isdigit() and int(entry.name) != os.getpid() and entry.stat().st_uid == os.getuid()
            if is_own and variable in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return pids


def wait_readable(fd: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(seconds * 1000)
