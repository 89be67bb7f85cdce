"""A detached run whose job cannot be added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.pipeline.transport import RequestsTransport

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.client.client import Client
from batchtrain.client.detach import detach
from batchtrain.client.limits import Limits
from batchtrain.config.types import Credentials, Recipe, Secret, StorageCredentials
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.errors import UsageError
from batchtrain.runs.finished import Runs
from batchtrain.runs.recording import Origin
from batchtrain.service import read
from batchtrain.service.connect import Account

pytestmark = pytest.mark.process

QUIET: Callable[[object], None] = lambda event: None  # noqa: E731


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        yield running


def recipe(job: str, storage: StorageAccount) -> Recipe:
    image = {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}}
    count, simulated = {"dedicated": 2}, {"batchtrain-nodes": "simulated"}
    pool = {"id": "p", "vm_size": "STANDARD_D2S_V5", "vm_count": count, "vm_configuration": image}
    tasks = [{"id": "t", "command": "sleep 86400"}]
    made = msgspec.convert(
        {"directory": "x", "pool": {**pool, "metadata": simulated}, "jobs": [{"id": job, "tasks": tasks}]}, Recipe
    )
    account = StorageCredentials(account=storage.account, account_key=Secret(storage.key), endpoint=storage.endpoint)
    return msgspec.structs.replace(made, credentials=Credentials(storage={"link": account}))


def test_a_detached_run_that_cannot_be_added_leaves_no_job(
    emulator: Emulator, azurite: StorageAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = RequestsTransport.send

    def refusing(self: Any, request: Any, **options: Any) -> Any:
        if "tasks" in request.url.partition("?")[0] and request.method == "POST":
            raise KeyboardInterrupt
        return send(self, request, **options)

    monkeypatch.setattr(RequestsTransport, "send", refusing)
    account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
    client = Client(account)
    with pytest.raises(KeyboardInterrupt):
        detach(client, recipe("j", azurite), tell=QUIET, origin=Origin(tmp_path / "runs"), limits=Limits(seconds=1800))
    assert client.jobs.state("j") == ""
    assert [run.state for run in Runs(tmp_path / "runs").list()] == ["failed"]


def test_the_pool_of_a_detached_run_gets_no_more_nodes_than_its_limit_of_the_price_counts(
    emulator: Emulator, azurite: StorageAccount, tmp_path: Path
) -> None:
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    prices = Catalog(prices=(Prices("west", "EUR", {"STANDARD_D2S_V5": 1.0}),))
    priced = msgspec.structs.replace(recipe("j", azurite), catalog=prices)
    [run] = detach(client, priced, tell=QUIET, origin=Origin(tmp_path / "runs"), limits=Limits(price=3))
    job = read.job(client.batch, "j", read.EXAMINED_JOB)
    assert job.wall_clock == 1.5 * 3600
    with pytest.raises(UsageError, match=f"run {run.run.name} may cost at most 3 .*batchtrain runs stop"):
        client.pools.resize(job.pool, dedicated=3)
    client.pools.resize(job.pool, dedicated=1, wait=False)
