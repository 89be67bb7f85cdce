"""The container of a detached run: the client puts the beginning of its directory there, the service what its tasks
leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchtrain.storage import blob

if TYPE_CHECKING:
    from batchtrain.storage.blob_requests import Storage

RUN = "run"
"""Below this name are the files of the run directory."""
LIVE = "live"
"""Below this name is what tasks print while they run: a directory for each task, and in it for each of its starts."""


def container_of(run: str) -> str:
    """The container of a run, by its name: its time and its last digits, as containers are named."""
    return f"run-{run[:16].lower()}-{run[-4:]}"


def put_run(storage: Storage, directory: Path) -> None:
    """Put the files of a run directory, without its lease, into its container."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name != "lease.json":
            name = path.relative_to(directory).as_posix()
            blob.upload(storage, container_of(directory.name), f"{RUN}/{name}", path.read_bytes())
