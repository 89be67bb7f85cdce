"""A controller that is ended after any request: its next start moves the job, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.pipeline.transport import RequestsTransport
from msgspec.structs import replace

from batchtrain.client import controller
from batchtrain.client.client import Client
from batchtrain.client.controller_program import CANDIDATE, FILE, Controller, Requests
from batchtrain.client.detach import detach
from batchtrain.client.limits import Limits
from batchtrain.config.types import Candidates, Recipe, Secret
from batchtrain.emulator import steering
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.plan.marks import values_of
from batchtrain.runs.recording import Origin
from batchtrain.service import read
from batchtrain.service.connect import Account
from batchtrain.storage import blob
from batchtrain.storage.download import download
from batchtrain.storage.run_container import control_of
from tests.waiting import until

from .test_detached import recipe as simulated

pytestmark = [pytest.mark.process, pytest.mark.slow]
QUIET: Callable[[object], None] = lambda event: None  # noqa: E731
MOST_REQUESTS = 60
LARGER = "STANDARD_D4S_V5"


class Killed(BaseException):
    """The end of the node of a controller."""


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        yield running


def recipe(job: str, storage: StorageAccount) -> Recipe:
    made = simulated(job, storage)
    assert made.pool is not None
    options = msgspec.convert({"alternatives": [{"vm_size": LARGER}], "recover": True, "patience": "1s"}, Candidates)
    [task] = made.jobs[0].tasks
    jobs = (replace(made.jobs[0], tasks=(replace(task, command="true"),)),)
    return replace(made, pool=replace(made.pool, candidates=options), jobs=jobs)


def test_a_controller_that_is_ended_after_any_request_moves_the_job_once(
    emulator: Emulator, azurite: StorageAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, sent, last = RequestsTransport.send, 0, 0

    def dying(self: Any, request: Any, **options: Any) -> Any:
        nonlocal sent
        response = send(self, request, **options)
        sent += 1
        if sent == last:
            raise Killed
        return response

    monkeypatch.setattr(RequestsTransport, "send", dying)
    account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
    node = controller.pool_of(recipe("j", azurite), "j", "").vm_size
    steering.limit(emulator.status, {"STANDARD_D2S_V5": 0, node: 0})  # the controller runs in this test
    client = Client(account)
    for number in range(1, MOST_REQUESTS):
        made = recipe(f"j{number}", azurite)
        client.credentials = made.credentials
        [begun] = detach(
            client, made, tell=QUIET, origin=Origin(tmp_path / "runs"), limits=Limits(seconds=1800), has_controller=True
        )
        requests, own_id = requests_of(client, made, begun.run.name, tmp_path), controller.id_of(begun.job)
        sent, last = 0, number
        try:
            Controller(client, requests, own_id, QUIET).control()
        except Killed:
            Controller(client, requests, own_id, QUIET).control()
        is_whole, last = sent < number, 0
        until(lambda job_id=begun.job: client.jobs.state(job_id) == "completed")  # type: ignore[misc]
        assert values_of(read.job_document(client.batch, begun.job)["metadata"])[CANDIDATE] == "1"
        assert (read.job(client.batch, begun.job, read.EXAMINED_JOB).wall_clock or 9999) <= 1800
        assert [task.result for task in client.jobs.handle(begun.job).tasks] == ["success"]
        client.stop_run(begun.run.name, runs_dir=tmp_path / "elsewhere")
        until(lambda: client.pools.list() == ())
        until(lambda job_id=own_id: client.jobs.state(job_id) == "")  # type: ignore[misc]
        if is_whole:
            break
    assert number > 5


def requests_of(client: Client, made: Recipe, run: str, directory: Path) -> Requests:
    """What the controller of a run has, with less patience."""
    storage, container = client.storage(made)("link"), control_of(run)
    [item] = [item for item in blob.below(storage, container, "controller") if item.name == FILE]
    for moved in download(storage, container, [(item, directory / "requests.json")], directory):
        assert moved.error is None
    requests = msgspec.json.decode((directory / "requests.json").read_bytes(), type=Requests)
    return replace(requests, patience=0.05)
