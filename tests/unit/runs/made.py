"""Run directories of runs that have ended."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from batchtrain.runs import directory
from batchtrain.runs.directory import RunDirectory, RunRecord

from .batch_server import START


def made(root: Path, job: str = "j", started: datetime = START, **fields: Any) -> RunDirectory:
    """The directory of a run, by default of a completed one."""
    run = directory.make(root, job, started)
    run.write(RunRecord(**{"id": run.name, "state": "completed", "started": started, "job": job, **fields}))
    return run
