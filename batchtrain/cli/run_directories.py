"""Where the runs of a command are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from batchtrain.cli.options import settings
from batchtrain.config import load
from batchtrain.errors import NotFound, UsageError
from batchtrain.runs.directory import LATEST, RunDirectory, find, root_of
from batchtrain.runs.recording import Origin


def runs_root() -> Path:
    """The directory of the runs: that of --runs-dir, of the environment, or the usual one."""
    return root_of(settings().runs_dir, os.environ)


def named_run(name: str, *, in_part: bool = False) -> RunDirectory | None:
    """The run below `runs_root` with this whole name, or `latest`; None if it is the name of something else. in_part:
    the beginning or the end of a name will do, too."""
    try:
        run = find(runs_root(), name)
    except (NotFound, UsageError):
        return None
    return run if in_part or name in (run.name, LATEST) else None


def origin(directory: str | None = None) -> Origin:
    """The location of the run directory, and the facts about the start of the run that it stores."""
    options = settings()
    files = load.read(load.find(directory, options.files), options.files) if directory else {}
    command = ("batchtrain", *sys.argv[1:])
    return Origin(runs_root(), command, dict(options.values), files)
