"""The official SDK's client, pointed at an embedded service."""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.core.credentials import AzureNamedKeyCredential

from batchtrain.config.types import Secret
from batchtrain.emulator.server import Emulator, Settings, Status
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


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    """An embedded service whose machine runs no processes."""
    with Emulator(Settings(tmp_path / "data", port=0), FakeMachine.open) as running:
        yield running


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
