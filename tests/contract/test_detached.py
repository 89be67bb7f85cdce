"""A detached run that loses its client between any two requests: the service ends it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.pipeline.transport import RequestsTransport

from batchtrain.client.client import Client
from batchtrain.client.detach import detach
from batchtrain.client.limits import Limits
from batchtrain.config.types import Credentials, Recipe, Secret, StorageCredentials
from batchtrain.emulator import steering
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.runs.finished import Runs
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account

pytestmark = pytest.mark.process

MOST_REQUESTS = 40
QUIET: Callable[[object], None] = lambda event: None  # noqa: E731


class Killed(BaseException):
    """The end of the client's process, which sends nothing any more."""


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        steering.turn(running.status, "stepped")
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


def test_the_service_ends_a_run_whose_client_dies_before_or_after_any_request(
    emulator: Emulator, azurite: StorageAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = RequestsTransport.send
    sent: list[str] = []
    last, after = 0, False

    def dying(self: Any, request: Any, **options: Any) -> Any:
        sent.append(request.method)
        if len(sent) == last and not after:
            raise Killed
        response = send(self, request, **options)
        if len(sent) == last:
            raise Killed
        return response

    monkeypatch.setattr(RequestsTransport, "send", dying)
    account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
    origin, limits = Origin(tmp_path / "runs"), Limits(seconds=1800)
    killed = 0
    for number in range(1, MOST_REQUESTS):
        last, after = (number + 1) // 2, number % 2 == 0
        sent.clear()
        try:
            detach(Client(account), recipe(f"j{number}", azurite), tell=QUIET, origin=origin, limits=limits)
        except Killed:
            killed += 1
        last = 0
        steering.advance(emulator.status, timedelta(hours=1))
        client = Client(account)
        assert client.pools.list() == ()
        assert client.jobs.state(f"j{number}") in ("", "completed")
        if killed < number:
            break
    assert "POST" in sent and "PATCH" in sent
    assert 2 * 4 <= killed < MOST_REQUESTS - 1
