"""A detached run: a job that cannot be added, what its links open, and a run of an earlier version."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.pipeline.transport import RequestsTransport

from batchtrain.client import controller
from batchtrain.client.client import Client
from batchtrain.client.controller_program import FILE
from batchtrain.client.detach import detach
from batchtrain.client.limits import Limits
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator import steering
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import NotFound
from batchtrain.runs.directory import runs
from batchtrain.runs.recording import Origin
from batchtrain.service import read
from batchtrain.service.connect import Account
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import Request, Storage, blob_path
from batchtrain.storage.run_container import container_of, control_of
from tests.azurite import section
from tests.unit.plan import jobs
from tests.waiting import until

pytestmark = pytest.mark.process

QUIET: Callable[[object], None] = lambda event: None  # noqa: E731


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        yield running


LIMITS = Limits(seconds=1800)


def recipe(job: str, storage: StorageAccount, *, controlled: bool = False) -> Recipe:
    pool: dict[str, Any] = {"vm_size": "STANDARD_D2S_V5", "metadata": {"batchtrain-nodes": "simulated"}}
    if controlled:
        pool["candidates"] = {"alternatives": [{"vm_size": "STANDARD_D4S_V5"}], "recover": True, "patience": "1s"}
    task = {"id": "t", "command": "sleep 86400"}
    return jobs.recipe({"id": job}, task, pool, credentials=section(storage))


@pytest.mark.parametrize("job", ["j", "j-controller"])
def test_a_detached_run_that_cannot_be_added_leaves_no_job_and_no_requests(
    emulator: Emulator, azurite: StorageAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    send = RequestsTransport.send

    def refusing(self: Any, request: Any, **options: Any) -> Any:
        if f"/jobs/{job}/" in request.url.partition("?")[0] and request.method == "POST":
            raise KeyboardInterrupt
        return send(self, request, **options)

    monkeypatch.setattr(RequestsTransport, "send", refusing)
    account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
    client, made = Client(account), recipe("j", azurite, controlled=True)
    with pytest.raises(KeyboardInterrupt):
        detach(client, made, tell=QUIET, origin=Origin(tmp_path / "runs"), limits=LIMITS, has_controller=True)
    assert client.jobs.state("j") == client.jobs.state("j-controller") == ""
    [run] = runs(tmp_path / "runs")
    assert run.record().state == "interrupted"
    stored = {item.name for item in blob.stored(client.storage(made)("link"), control_of(run.name))}
    assert "run/run.json" in stored and FILE not in stored


# --- the links ------------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(emulator: Emulator, azurite: StorageAccount, tmp_path: Path) -> tuple[Client, Storage, str]:
    """A detached run with a controller that has no node, and its storage account."""
    made = recipe("j", azurite, controlled=True)
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    client.credentials = made.credentials
    steering.limit(emulator.status, {controller.pool_of(made, "j", "").vm_size: 0})
    [detached] = detach(client, made, tell=QUIET, origin=Origin(tmp_path / "runs"), limits=LIMITS, has_controller=True)
    return client, client.storage(made)("link"), detached.run.name


def links(client: Client, job: str, task: str) -> set[str]:
    """The signed links of a job and its task."""
    documents = read.job_document(client.batch, job), read.task_document(client.batch, job, task)
    return set(re.findall(r"http[^\"]+sig=[^\"]+", msgspec.json.encode(documents).decode()))


def status(method: str, url: str, **headers: str) -> int:
    request = urllib.request.Request(url, b"hostile" if method == "PUT" else None, headers, method=method)
    try:
        with urllib.request.urlopen(request) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


PUT = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2023-11-03"}


def test_a_link_of_a_task_writes_to_the_results_of_its_run_and_opens_nothing_else(
    begun: tuple[Client, Storage, str],
) -> None:
    client, storage, run = begun
    task_links = links(client, "j", "t")
    assert task_links
    for link in task_links:
        container, _, signature = link.partition("?")
        assert container == f"{storage.url}/{container_of(run)}"
        assert status("PUT", f"{container}/tasks/t/mine?{signature}", **PUT) == 201
        assert status("GET", f"{container}/tasks/t/mine?{signature}") == 403
        for name in (controller.PACKAGE, FILE, "run/run.json", "other"):
            assert status("PUT", f"{storage.url}/{control_of(run)}/{name}?{signature}", **PUT) == 403
            assert status("GET", f"{storage.url}/{control_of(run)}/{name}?{signature}") == 403
        assert status("GET", f"{storage.url}/{control_of(run)}?restype=container&comp=list&{signature}") == 403


def test_the_links_of_a_controller_read_its_own_two_blobs(begun: tuple[Client, Storage, str]) -> None:
    client, storage, run = begun
    own_links = links(client, controller.id_of("j"), controller.TASK)
    blobs = {f"{storage.url}/{control_of(run)}/{name}" for name in (controller.PACKAGE, FILE)}
    assert {link.partition("?")[0] for link in own_links} == blobs
    for link in own_links:
        name, _, signature = link.partition("?")
        assert status("GET", link) == 200
        assert status("PUT", link, **PUT) == status("DELETE", link) == 403
        others = (blobs - {name}) | {f"{storage.url}/{control_of(run)}/run/run.json"}
        assert {status("GET", f"{other}?{signature}") for other in others} == {403}
        for container in (control_of(run), container_of(run)):
            assert status("GET", f"{storage.url}/{container}?restype=container&comp=list&{signature}") == 403


def test_the_requests_of_a_controller_go_with_its_run(begun: tuple[Client, Storage, str], tmp_path: Path) -> None:
    client, storage, run = begun
    assert blob.exists(storage, control_of(run), FILE)
    client.stop_run(run, runs_dir=tmp_path / "elsewhere")
    assert not blob.exists(storage, control_of(run), FILE)
    blob.upload(storage, control_of(run), FILE, b"of a machine without this storage account")
    until(lambda: client.jobs.state("j") == "completed")
    client.fetch_run(run, runs_dir=tmp_path / "elsewhere")
    assert not blob.exists(storage, control_of(run), FILE)
    blob.upload(storage, control_of(run), FILE, b"of a run whose job is gone")
    client.jobs.handle("j").delete()
    with pytest.raises(NotFound):
        client.fetch_run(run, runs_dir=tmp_path / "elsewhere")
    assert not blob.exists(storage, control_of(run), FILE)


def test_a_run_of_an_earlier_version_is_fetched_stopped_and_attached(
    begun: tuple[Client, Storage, str], tmp_path: Path
) -> None:
    """It has everything in one container."""
    client, storage, run = begun
    for item in list(blob.stored(storage, control_of(run))):
        path = blob_path(control_of(run), item.name)
        blob.upload(storage, container_of(run), item.name, storage.send("read", Request("GET", path)).body)
    storage.send("delete", Request("DELETE", blob_path(control_of(run)), {"restype": "container"}))
    assert client.fetch_run(run, runs_dir=tmp_path / "elsewhere").state == "detached"
    client.stop_run(run, runs_dir=tmp_path / "elsewhere")
    assert not blob.exists(storage, container_of(run), FILE)
    attached = client.attach(run, runs_dir=tmp_path / "another", tell=QUIET, check=False)
    assert attached.state == "interrupted"
    assert sorted(path.name for path in (attached.path / "config").iterdir()) == ["effective.yaml", "plan.json"]
