"""The official SDK's client, pointed at an embedded service."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.batch import BatchClient, models
from azure.core.credentials import AzureNamedKeyCredential

from batchtrain.config.types import Secret
from batchtrain.emulator import server, wire
from batchtrain.emulator.server import Settings, Status
from batchtrain.emulator.serving import Emulator
from batchtrain.service import connect as signing
from batchtrain.service.connect import Account
from tests.emulation import FakeMachine
from tests.waiting import until as eventually


def connect(status: Status | Emulator, key: str = "", **options: Any) -> BatchClient:
    """A client as anyone would make it."""
    credential = AzureNamedKeyCredential(status.account, key or status.key)
    return BatchClient(endpoint=status.endpoint, credential=credential, retry_total=0, **options)


def ours(status: Status | Emulator) -> BatchClient:
    """A client as batchtrain makes it, which retries."""
    return signing.connect(Account(status.endpoint, status.account, Secret(status.key), emulated=True))


def pool(pool_id: str = "pool", nodes: int = 1, **more: Any) -> models.BatchPoolCreateOptions:
    """The least pool there is."""
    image = models.BatchVmImageReference(publisher="microsoft-dsvm", offer="ubuntu-hpc", sku="2204")
    machine = models.VirtualMachineConfiguration(image_reference=image, node_agent_sku_id="batch.node.ubuntu 22.04")
    more = {"virtual_machine_configuration": machine, "target_dedicated_nodes": nodes, **more}
    return models.BatchPoolCreateOptions(id=pool_id, vm_size="STANDARD_D2_V3", **more)


def job(job_id: str = "job", **more: Any) -> models.BatchJobCreateOptions:
    return models.BatchJobCreateOptions(id=job_id, pool_info=models.BatchPoolInfo(pool_id="pool"), **more)


def task(task_id: str = "task", command: str = "exit 0", **more: Any) -> models.BatchTaskCreateOptions:
    return models.BatchTaskCreateOptions(id=task_id, command_line=command, **more)


def serves(url: str) -> bool:
    """Whether a web server answers there, asked without any proxy."""
    with (
        contextlib.suppress(OSError),
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as found,
    ):
        return bool(found.status == 200)
    return False


def completed(client: BatchClient, task_id: str = "task", job_id: str = "job") -> models.BatchTask:
    """The task, once it is over."""
    eventually(lambda: client.get_task(job_id, task_id).state == "completed")
    return client.get_task(job_id, task_id)


def idle(client: BatchClient, count: int = 1) -> list[models.BatchNode]:
    """The pool's nodes, once all are idle."""

    def nodes() -> list[models.BatchNode] | None:
        found = list(client.list_nodes("pool"))
        return found if len(found) == count and all(node.state == "idle" for node in found) else None

    return list(eventually(nodes))


def raw(
    emulator: Emulator, verb: str, path: str, body: bytes = b"", sign: bool = True, **headers: str
) -> tuple[int, dict[str, str], Any]:
    """A request the SDK would not make; answers status, headers, document."""
    where = urlsplit(emulator.endpoint)
    given = {"ocp-date": wire.http_date(server.clock()), **({"content-type": "application/json"} if body else {})}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    given = {name: value for name, value in given.items() if value}
    if body or verb in ("POST", "PUT"):
        given["content-length"] = str(len(body))
    bare, _, query = path.partition("?")
    if "api-version" not in query and not bare.startswith("/_emulator/"):
        query = "&".join(filter(None, ("api-version=2025-06-01", query)))
        path = f"{bare}?{query}"
    if sign:
        given["authorization"] = wire.authorization(emulator.account, emulator.key, verb, bare, query, given)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    connection.request(verb, path, body=body or None, headers=given)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    found = {name.lower(): value for name, value in response.getheaders()}
    is_json = found.get("content-type", "").startswith("application/json")
    return response.status, found, json.loads(content) if content and is_json else content


@pytest.fixture(scope="module")
def emulator_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    settings = Settings(tmp_path_factory.mktemp("emulator") / "data", port=0)
    with Emulator(settings, FakeMachine.open) as running:
        yield running


@pytest.fixture
def emulator(emulator_of_module: Emulator) -> Iterator[Emulator]:
    """An embedded service with an empty account, whose machine runs no processes."""
    yield emulator_of_module
    server.reset(emulator_of_module.settings.data_dir)


@pytest.fixture
def client(emulator: Emulator) -> Iterator[BatchClient]:
    with connect(emulator) as made:
        yield made


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    """A cgroup with 128 MB for what it is given. It is removed when its processes have ended."""
    is_old = Path("/sys/fs/cgroup/memory").is_dir()  # version 1
    group = Path(f"/sys/fs/cgroup/{'memory/' * is_old}batchtrain-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text("128M")
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip("this user may not limit the memory of a cgroup")
    yield group
    eventually(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()
