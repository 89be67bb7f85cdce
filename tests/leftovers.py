"""Finds the processes that a test run started and that outlived it."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

MARK = "TEST_SESSION"
"""An environment variable that every process of a test run inherits."""
GRACE = 10.0
"""Seconds for processes that are about to exit."""


def mark() -> None:
    """Mark the environment of this process, and so of every process that it starts."""
    os.environ[MARK] = f"batchtrain-{os.getpid()}-{uuid.uuid4().hex}"


def end(directory: Path) -> list[str]:
    """End the processes of this run, whose nodes lie below `directory`, that do not exit by themselves.

    Returns one line for each. A node's tasks get a new environment, which names the node's directory.
    """
    words = (f"{MARK}={os.environ[MARK]}", f"BATCHTRAIN_EMULATED_NODE={directory}/")
    _, alive = psutil.wait_procs(list(_marked(words)), timeout=GRACE)
    described = []
    for _ in range(10):  # a process may start another one before it ends
        described += [_described(process) for process in alive]
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=GRACE)
        alive = list(_marked(words))
    return described


def _marked(words: tuple[str, ...]) -> Iterator[psutil.Process]:
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        if process.pid not in ours and any(word in _environment(process) for word in words):
            yield process


def _environment(process: psutil.Process) -> str:
    """As it was when the process started; empty for zombies and other users' processes."""
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _described(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())[:200]} (in {process.cwd()})"
    return str(process.pid)
