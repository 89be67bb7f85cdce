"""`--pace azure`: nodes come and go about as slowly as on Azure, by the account's clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.batch import BatchClient
from azure.core.exceptions import ResourceNotFoundError

from batchtrain.emulator import steering
from batchtrain.emulator.pace import PACES
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import connect
from tests.emulation import POOL, FakeMachine
from tests.waiting import until

pytestmark = pytest.mark.process

AZURE = PACES["azure"]


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0, pace="azure"), FakeMachine.open) as running:
        steering.turn(running.status, "stepped")
        yield running


@pytest.fixture
def client(emulator: Emulator) -> Iterator[BatchClient]:
    with connect(emulator) as made:
        yield made


def advance(emulator: Emulator, seconds: float) -> None:
    steering.advance(emulator.status, timedelta(seconds=seconds))


def nodes(client: BatchClient) -> list[str]:
    return [node.state.value for node in client.list_nodes("pool")]


def test_nodes_are_allocated_then_boot_each_in_its_own_time(emulator: Emulator, client: BatchClient) -> None:
    client.create_pool({**POOL, "targetDedicatedNodes": 2})
    until(lambda: nodes(client) == ["creating"] * 2)
    advance(emulator, AZURE.allocation - 1)
    assert nodes(client) == ["creating"] * 2
    advance(emulator, 1)
    assert nodes(client) == ["starting"] * 2
    advance(emulator, AZURE.boot[0] - 1)
    assert nodes(client) == ["starting"] * 2
    first, second = sorted(AZURE.boot_of(node.id) for node in client.list_nodes("pool"))
    advance(emulator, second - AZURE.boot[0] + 1)
    until(lambda: nodes(client) == ["idle"] * 2)
    assert AZURE.boot[0] <= first <= second <= AZURE.boot[1]


def test_an_auto_pool_outlives_its_job(emulator: Emulator, client: BatchClient) -> None:
    specification = {name: value for name, value in POOL.items() if name != "id"}
    auto = {"poolLifetimeOption": "job", "pool": {**specification, "targetDedicatedNodes": 1}}
    client.create_job({"id": "job", "poolInfo": {"autoPoolSpecification": auto}})
    (made,) = client.list_pools()
    advance(emulator, 600)
    until(lambda: [node.state.value for node in client.list_nodes(made.id)] == ["idle"])
    client.begin_terminate_job("job", {"terminateReason": "done"})
    until(lambda: client.get_job("job").state == "completed")
    advance(emulator, AZURE.removal - 1)
    assert client.get_pool(made.id).state == "deleting"
    advance(emulator, 1)

    def gone() -> bool:
        try:
            client.get_pool(made.id)
        except ResourceNotFoundError:
            return True
        return False

    until(gone)
