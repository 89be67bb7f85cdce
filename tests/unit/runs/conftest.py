"""A Batch service that runs, with the directory of the runs of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .batch_server import BatchServer, serve


@pytest.fixture
def service(tmp_path: Path) -> Iterator[BatchServer]:
    server = BatchServer()
    server.root = tmp_path
    with serve(server):
        yield server
