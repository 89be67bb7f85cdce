"""A server with blobs in memory, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.storage.blob_server import BlobServer, serve


@pytest.fixture
def blobs() -> Iterator[BlobServer]:
    server = BlobServer()
    with serve(server):
        yield server
