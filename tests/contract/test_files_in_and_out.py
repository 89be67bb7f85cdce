"""Packages, mounts, resource and output files on nodes that really run commands, with a real Azurite for storage."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.storage.blob import BlobServiceClient, ContainerClient, ContainerSasPermissions, generate_container_sas

from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import completed, connect, eventually, idle, job, pool, serves, task

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def storage(azurite: StorageAccount) -> Iterator[BlobServiceClient]:
    credential = {"account_name": azurite.account, "account_key": azurite.key}
    with BlobServiceClient(azurite.endpoint, credential=credential) as client:
        yield client


@pytest.fixture
def box(storage: BlobServiceClient) -> ContainerClient:
    """A container of the test's own."""
    return storage.create_container(f"box{os.urandom(6).hex()}")


def signed(box: ContainerClient, **permissions: bool) -> str:
    """Its URL, good for what is permitted."""
    allowed = ContainerSasPermissions(**permissions)
    end = datetime.now(timezone.utc) + timedelta(hours=1)
    known = box.credential
    sas = generate_container_sas(
        known.account_name, box.container_name, account_key=known.account_key, permission=allowed, expiry=end
    )
    return f"{box.url}?{sas}"


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Emulator]:
    """An embedded service whose nodes are processes."""
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        yield running


@pytest.fixture
def client(real: Emulator) -> Iterator[BatchClient]:
    with connect(real) as made:
        yield made


def begin(client: BatchClient, **more: Any) -> models.BatchNode:
    client.create_pool(pool(**more))
    client.create_job(job())
    return idle(client)[0]


def out(
    box: ContainerClient, pattern: str, path: str = "", condition: str = "taskcompletion", url: str = "", **headers: str
) -> models.OutputFile:
    given = [models.OutputFileUploadHeader(name=name, value=value) for name, value in headers.items()]
    where = models.OutputFileBlobContainerDestination(
        container_url=url or signed(box, write=True), path=path or None, upload_headers=given or None
    )
    return models.OutputFile(
        file_pattern=pattern,
        destination=models.OutputFileDestination(container=where),
        upload_options=models.OutputFileUploadConfiguration(upload_condition=condition),
    )


def said(client: BatchClient, name: str = "stdout.txt") -> str:
    return b"".join(client.download_task_file("job", "task", name)).decode()


# Output files --------------------------------------------------------------------------------------------------------


def test_output_files_reach_the_container(client: BatchClient, box: ContainerClient) -> None:
    begin(client)
    wanted = [
        out(box, "**/*.txt", "all", **{"x-ms-blob-content-type": "text/plain"}),
        out(box, "../stdout.txt", "one"),
        out(box, "*", "failed", condition="taskfailure"),
        out(box, "nothing"),
    ]
    command = "bash -c 'mkdir -p a/b; echo 1 >a/b/c.txt; echo 2 >d.txt; touch .e.txt; echo hello'"
    client.create_task("job", task(command=command, output_files=wanted))
    assert completed(client).execution_info.result == "success"
    assert sorted(box.list_blob_names()) == ["all/a/b/c.txt", "all/d.txt", "one"]
    assert box.download_blob("one").readall() == b"hello\n"
    assert box.get_blob_client("all/d.txt").get_blob_properties().content_settings.content_type == "text/plain"
    assert said(client, "fileuploadout.txt").splitlines() == [
        "all/a/b/c.txt",
        "all/d.txt",
        "one",
        "nothing matches nothing",
    ]


# Resource files ------------------------------------------------------------------------------------------------------


def test_a_containers_blobs_are_resource_files(client: BatchClient, box: ContainerClient) -> None:
    for name in ("in/a.txt", "in/deep/b.txt", "other.txt"):
        box.upload_blob(name, name)
    begin(client)
    url = signed(box, read=True, list=True)
    files = [
        models.ResourceFile(storage_container_url=url, blob_prefix="in/", file_path="got"),
        models.ResourceFile(storage_container_url=url, blob_prefix="other"),
    ]
    client.create_task("job", task(command="bash -c 'find . -type f | sort'", resource_files=files))
    completed(client)
    assert said(client).splitlines() == ["./got/in/a.txt", "./got/in/deep/b.txt", "./other.txt"]


# Packages and mounts -------------------------------------------------------------------------------------------------


def offer(real: Emulator, name: str, version: str) -> None:
    folder = real.status.data_dir / "applications" / name
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
        program = zipfile.ZipInfo("run")
        program.external_attr = 0o755 << 16
        archive.writestr(program, f"#!/bin/sh\necho {name} {version}\n")


def refer(name: str, version: str | None = None) -> models.BatchApplicationPackageReference:
    return models.BatchApplicationPackageReference(application_id=name, version=version)


def test_packages_of_the_pool_and_of_the_task_run(real: Emulator, client: BatchClient) -> None:
    offer(real, "solver", "1.0")
    offer(real, "viewer", "2")
    begin(client, application_package_references=[refer("solver")])
    command = "bash -c '$AZ_BATCH_APP_PACKAGE_solver/run; $AZ_BATCH_APP_PACKAGE_viewer_2/run'"
    client.create_task("job", task(command=command, application_package_references=[refer("viewer", "2")]))
    assert completed(client).execution_info.result == "success"
    assert said(client) == "solver 1.0\nviewer 2\n"


def test_a_mapped_port_leads_to_the_node(client: BatchClient) -> None:
    web = models.BatchInboundNatPool(
        name="web", protocol="tcp", backend_port=18080, frontend_port_range_start=41000, frontend_port_range_end=41099
    )
    endpoints = models.BatchPoolEndpointConfiguration(inbound_nat_pools=[web])
    node = begin(client, network_configuration=models.NetworkConfiguration(endpoint_configuration=endpoints))
    server = f"python3 -m http.server --bind {node.ip_address} 18080"
    client.create_task("job", task(command=server))
    (endpoint,) = client.get_node("pool", node.id).endpoint_configuration.inbound_endpoints
    url = f"http://{endpoint.public_ip_address}:{endpoint.frontend_port}/"
    assert eventually(lambda: serves(url))
    client.begin_delete_pool("pool", polling_interval=0.01).result()
    assert not serves(url)
