"""A Batch service that answers from a table, for the requests of a dashboard in process."""

from __future__ import annotations

import pytest

from tests.unit.dashboard.asking import Service, answered_by


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    answered_by(service, monkeypatch)
    return service
