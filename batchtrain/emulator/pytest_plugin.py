"""Fixtures with an Azure Batch for any project's tests; pytest finds them where batchtrain is installed.

Nothing is imported or started before a test requests one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from azure.batch import BatchClient

    from batchtrain.emulator.testing import BatchService


@pytest.fixture(scope="session")
def batch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchService]:
    """One service for the whole session; tests use `batch_service`, which starts empty."""
    from batchtrain.emulator.testing import emulated_batch  # a slow import, not needed by most sessions

    with emulated_batch(tmp_path_factory.mktemp("batch") / "account") as service:
        yield service


@pytest.fixture
def batch_service(batch_server: BatchService) -> Iterator[BatchService]:
    """An empty Azure Batch account: endpoint, account, key, client, storage, clock, faults."""
    try:
        yield batch_server
    finally:
        batch_server.reset()


@pytest.fixture
def batch_client(batch_service: BatchService) -> BatchClient:
    """A client of the official SDK for that account."""
    return batch_service.client
