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

from batchtrain.emulator import server
from batchtrain.emulator.interface import STORAGE_ACCOUNT, StorageAccount
from batchtrain.emulator.machine import output_files
from batchtrain.emulator.machine import own_storage as own_storage_module
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests.azurite import require
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


def test_a_large_file_goes_in_blocks(box: ContainerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "BLOCK", 1 << 20)
    file = tmp_path / "large"
    file.write_bytes(os.urandom((3 << 20) + 17))
    url = signed(box, write=True)
    with file.open("rb") as body:
        output_files.put(output_files.blob_url(url, "large"), body, {"Content-Type": "x/y"}, lambda: False)
    assert box.download_blob("large").readall() == file.read_bytes()
    assert box.get_blob_client("large").get_blob_properties().content_settings.content_type == "x/y"


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


def own_storage(real: Emulator) -> BlobServiceClient:
    """A client of the emulator's own storage account."""
    require()
    found = server.ask("POST", real.status, "storage")
    credential = {"account_name": found["account"], "account_key": found["key"]}
    return BlobServiceClient(found["endpoint"], credential=credential)


@pytest.mark.slow
def test_a_container_of_auto_storage_is_resource_files(real: Emulator, client: BatchClient) -> None:
    with own_storage(real) as storage:
        storage.create_container("box").upload_blob("in/a.txt", "a")
    begin(client)
    files = [models.ResourceFile(auto_storage_container_name="box", blob_prefix="in/", file_path="got")]
    client.create_task("job", task(command="cat got/in/a.txt", resource_files=files))
    completed(client)
    assert said(client) == "a"


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


def test_nodes_share_what_stands_for_a_mounted_file_system(real: Emulator, client: BatchClient) -> None:
    nfs = models.NfsMountConfiguration(source="10.0.0.9:/home", relative_mount_path="home")
    begin(client, mount_configuration=[models.MountConfiguration(nfs_mount_configuration=nfs)])
    client.create_task("job", task(command="bash -c 'echo shared >$AZ_BATCH_NODE_MOUNTS_DIR/home/x'"))
    assert completed(client).execution_info.result == "success"
    place = real.status.data_dir / "mounts" / "nfs" / "10.0.0.9" / "home"
    assert (place / "x").read_text() == "shared\n"
    (place / "y").write_text("from outside")
    client.create_task("job", task("second", command="bash -c 'cat $AZ_BATCH_NODE_MOUNTS_DIR/home/y'"))
    completed(client, "second")
    assert b"".join(client.download_task_file("job", "second", "stdout.txt")) == b"from outside"


@pytest.mark.slow
def test_what_a_running_task_writes_to_a_mounted_container_reaches_it(
    real: Emulator, client: BatchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_storage_module, "EVERY_SECONDS", 0.05)
    mount = models.AzureBlobFileSystemConfiguration(
        account_name=STORAGE_ACCOUNT, container_name="box", account_key="a2V5", relative_mount_path="blobs"
    )
    with own_storage(real) as storage:
        begin(client, mount_configuration=[models.MountConfiguration(azure_blob_file_system_configuration=mount)])
        box = storage.get_container_client("box")
        command = (
            "cd $AZ_BATCH_NODE_MOUNTS_DIR/blobs; echo 1 >written; until test -e go; do sleep 0.05; done; rm written"
        )
        client.create_task("job", task(command=f"bash -c '{command}'"))
        eventually(lambda: box.get_blob_client("written").exists())
        box.upload_blob("go", "")
        assert completed(client).execution_info.result == "success"
        assert [*box.list_blob_names()] == ["go"]


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
