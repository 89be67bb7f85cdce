"""`batchtrain.testing` and its pytest fixtures, as another project uses them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from azure.batch import models

from batchtrain.emulator.interface import STORAGE_ACCOUNT
from batchtrain.testing import BatchService, emulated_batch
from tests.azurite import require
from tests.contract.conftest import eventually, job, pool, task

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def only() -> Iterator[BatchService]:
    with emulated_batch() as running:
        yield running


@pytest.fixture
def service(only: BatchService) -> Iterator[BatchService]:
    yield only
    only.reset()


def test_commands_really_run(service: BatchService) -> None:
    service.client.create_pool(pool())
    service.client.create_job(job())
    service.client.create_task("job", task(command="/bin/sh -c 'echo $((6 * 7))'"))
    eventually(lambda: service.client.get_task("job", "task").state == "completed")
    assert b"".join(service.client.download_task_file("job", "task", "stdout.txt")) == b"42\n"


def test_nothing_runs_on_after_a_reset(service: BatchService) -> None:
    service.client.create_pool(pool(nodes=2))
    service.client.create_job(job())
    mark = f"sleep {1_000_000 + os.getpid()}"
    service.client.create_task("job", task(command=f"/bin/sh -c '{mark}; exit 1'"))
    eventually(lambda: running(mark))
    service.reset()
    assert not running(mark)


def running(words: str) -> list[str]:
    """Command lines on this machine with some words in them."""
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if words in line]


@pytest.mark.slow
def test_output_files_reach_a_container_and_a_reset_empties_the_storage(service: BatchService) -> None:
    require()
    url = service.container("results")
    service.client.create_pool(pool())
    service.client.create_job(job())
    destination = models.OutputFileDestination(container=models.OutputFileBlobContainerDestination(container_url=url))
    options = models.OutputFileUploadConfiguration(upload_condition="tasksuccess")
    upload = models.OutputFile(file_pattern="*.txt", destination=destination, upload_options=options)
    service.client.create_task("job", task(command="/bin/sh -c 'echo 42 > answer.txt'", output_files=[upload]))
    eventually(lambda: service.client.get_task("job", "task").state == "completed")
    blobs = service.storage.get_container_client("results")
    assert blobs.download_blob("answer.txt").readall() == b"42\n"
    assert service.storage.credential.account_key in service.storage_connection_string
    service.reset()
    assert list(service.storage.list_containers()) == []


@pytest.mark.slow
@pytest.mark.parametrize("text", ["first", "second"])
def test_each_test_mounts_an_empty_container(text: str, service: BatchService) -> None:
    require()
    blob = models.AzureBlobFileSystemConfiguration(
        account_name=STORAGE_ACCOUNT, container_name="data", account_key="a2V5", relative_mount_path="data"
    )
    mounts = [models.MountConfiguration(azure_blob_file_system_configuration=blob)]
    service.client.create_pool(pool(mount_configuration=mounts))
    service.client.create_job(job())
    place = "$AZ_BATCH_NODE_MOUNTS_DIR/data"
    service.client.create_task("job", task(command=f"/bin/sh -c 'ls {place}; echo {text} > {place}/{text}'"))
    eventually(lambda: service.client.get_task("job", "task").state == "completed")
    assert b"".join(service.client.download_task_file("job", "task", "stdout.txt")) == b""
    blobs = service.storage.get_container_client("data")
    eventually(lambda: list(blobs.list_blob_names()) == [text])


def test_async_programs_have_a_client_too(service: BatchService) -> None:
    async def pools() -> list[str]:
        async with service.connect_async() as client:
            await client.create_pool(pool(nodes=0))
            return [one.id async for one in client.list_pools()]

    assert asyncio.run(pools()) == ["pool"]


def test_without_aiohttp_an_async_client_names_it(service: BatchService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "azure.core.pipeline.transport._aiohttp", raising=False)
    with pytest.raises(ImportError, match="pip install aiohttp"):
        service.connect_async()


# Under pytest --------------------------------------------------------------------------------------------------------

PROJECT = """
import pytest
from batchtrain.testing import SIMULATED

SEEN = []

def pool(client):
    image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"}
    machine = {"imageReference": image, "nodeAgentSKUId": "batch.node.ubuntu 22.04"}
    client.create_pool({"id": "pool", "vmSize": "standard_d2_v3", "virtualMachineConfiguration": machine,
                        "targetDedicatedNodes": 1, "metadata": [SIMULATED]})

@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_test_has_an_empty_account(batch_client, batch_service, number):
    assert list(batch_client.list_pools()) == []
    SEEN.append(batch_service.endpoint)
    pool(batch_client)

def test_the_server_is_the_sessions():
    assert len(set(SEEN)) == 1
"""

UNUSED = """
import sys

def test_nothing_was_imported():
    slow = [name for name in sys.modules if name.startswith(("azure", "uvicorn", "msgspec", "batchtrain.emulator."))]
    assert slow == ["batchtrain.emulator.pytest_plugin"]
"""


def run_pytest(directory: Path, text: str, environment: Mapping[str, str] | None = None) -> None:
    (directory / "test_project.py").write_text(text, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    plugin = [] if _installed() else ["-p", "batchtrain.emulator.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_project.py"],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root), **(environment or {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _installed() -> bool:
    """Whether the entry point of pyproject.toml is in the installed metadata (an old editable install lacks it)."""
    from importlib.metadata import entry_points

    return any(point.value == "batchtrain.emulator.pytest_plugin" for point in entry_points(group="pytest11"))


@pytest.mark.slow
def test_the_fixtures_serve_another_projects_tests(tmp_path: Path) -> None:
    run_pytest(tmp_path, PROJECT)


def test_a_project_that_does_not_use_them_pays_nothing(tmp_path: Path) -> None:
    run_pytest(tmp_path, UNUSED)


def test_pytest_finds_the_plugin_by_itself(root: Path) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\nbatchtrain = "batchtrain.emulator.pytest_plugin"' in text
