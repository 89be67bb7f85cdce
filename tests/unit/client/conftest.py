"""An account for the stories of the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client import account
from tests.unit.client.account import Site

GOLDEN = Path(__file__).parents[2] / "golden" / "client"


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    name = request.node.name.removeprefix("test_")
    with account.opened(tmp_path, GOLDEN / f"{name}.txt", monkeypatch) as site:
        yield site
