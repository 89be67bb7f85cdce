"""A server with blobs in memory, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batchtrain.storage.blob_requests import Storage
from tests.unit.storage.blob_server import BlobServer, serve


@pytest.fixture
def blobs() -> BlobServer:
    return BlobServer()


@pytest.fixture
def storage(blobs: BlobServer) -> Iterator[Storage]:
    with serve(blobs) as connected:
        yield connected
