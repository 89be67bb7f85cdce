"""The two containers of a detached run. Its tasks have a link that writes to the container of its results. No link of
its job opens the control container: the client puts the beginning of the run directory there, and the program
of a controller.

Runs of an earlier version have everything in the container of the results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchtrain.storage import blob

if TYPE_CHECKING:
    from batchtrain.storage.blob_requests import Storage

RUN = "run"
"""Below this name are the files of the run directory, in the control container."""
LIVE = "live"
"""Below this name is what tasks print while they run: a directory for each task, and in it for each of its starts."""


def container_of(run: str) -> str:
    """The container of the results of a run, by its name: its time and its last digits, as containers are named."""
    return f"run-{run[:16].lower()}-{run[-4:]}"


def control_of(run: str) -> str:
    """The control container of a run."""
    return f"{container_of(run)}-control"


def put_run(storage: Storage, directory: Path) -> None:
    """Put the files of a run directory, without its lease, into its control container."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name != "lease.json":
            name = path.relative_to(directory).as_posix()
            blob.upload(storage, control_of(directory.name), f"{RUN}/{name}", path.read_bytes())
