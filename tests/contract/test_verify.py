"""A verification whose client is gone: the service itself removes the nodes before the budget is spent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Price
from batchtrain.client.client import Client
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator import steering
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from batchtrain.verify import verification
from batchtrain.verify.probes import AREAS
from batchtrain.verify.shared_pools import MARGIN, work_of
from batchtrain.verify.verification import Verification

pytestmark = pytest.mark.process


class Killed(BaseException):
    """The end of the client's process, which sends nothing any more."""


def test_the_nodes_of_a_client_that_is_gone_cost_at_most_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator:
        steering.turn(emulator.status, "stepped")
        account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
        client = Client(account)

        def dying(_: Any, recipe: Recipe, **options: Any) -> Any:
            assert recipe.pool is not None
            pool = msgspec.structs.replace(recipe.pool, metadata={"batchtrain-nodes": "simulated"})
            client.pools.add(msgspec.structs.replace(recipe, pool=pool), wait=False, tell=lambda event: None)
            raise Killed

        monkeypatch.setattr(verification, "run", dying)
        size = Catalog().size("Standard_D4s_v5")
        assert size is not None
        works = work_of(size, 2, AREAS[:1], Price(size.name, "westeurope", "USD", 1.0, None), image=None)
        settings = verification.Settings(2, None, 2.0, "", {})
        with pytest.raises(Killed):
            Verification(client, works, settings, lambda event: None, Origin(tmp_path / "runs")).report(size, AREAS[:1])
        steering.advance(emulator.status, timedelta(minutes=30))
        assert client.pools.get("verify-host-d4s-v5").dedicated == 2
        steering.advance(emulator.status, timedelta(minutes=30) - MARGIN / 2 + timedelta(minutes=1))
        assert client.pools.get("verify-host-d4s-v5").dedicated == 0
