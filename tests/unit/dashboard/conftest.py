"""A Batch service that answers from a table, for the requests of a dashboard in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.dashboard.asking import Client, Service, answered_by, dashboard


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    answered_by(service, monkeypatch)
    return service


@pytest.fixture
def client(runs: Path) -> Iterator[Client]:
    """A dashboard without an account, of the runs of a test."""
    with dashboard(runs) as client:
        yield client
