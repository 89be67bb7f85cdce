"""A directory and a container become the same: what is new, changed or deleted on one side comes to the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.machine.mounted_containers import MountedContainer

pytestmark = pytest.mark.process


@pytest.fixture
def container(azurite: StorageAccount) -> Iterator[ContainerClient]:
    credential = {"account_name": azurite.account, "account_key": azurite.key}
    with BlobServiceClient(azurite.endpoint, credential=credential) as client:
        yield client.get_container_client(f"box{os.urandom(6).hex()}")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "mount"
    place.mkdir()
    return place


@pytest.fixture
def mounted(azurite: StorageAccount, container: ContainerClient, directory: Path) -> MountedContainer:
    made = MountedContainer(directory.parent, directory.name, container.container_name)
    made.create(azurite)
    return made


def files(directory: Path) -> dict[str, str]:
    found = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(directory).as_posix(): path.read_text() for path in found}


def blobs(container: ContainerClient) -> dict[str, str]:
    return {name: container.download_blob(name).readall().decode() for name in container.list_blob_names()}


def test_what_a_side_lacks_and_what_changes_or_goes_there_comes_from_the_other(
    azurite: StorageAccount, mounted: MountedContainer, directory: Path, container: ContainerClient
) -> None:
    (directory / "deep").mkdir()
    for name in ("changed", "rewritten", "removed", "deleted", "deep/a b#.txt"):
        (directory / name).write_text("old")
    container.upload_blob("other/c", "c")
    mounted.copy(azurite)
    (directory / "changed").write_text("newer")
    (directory / "removed").unlink()
    container.upload_blob("rewritten", "newest", overwrite=True)
    container.delete_blob("deleted")
    mounted.copy(azurite)
    both = {"changed": "newer", "rewritten": "newest", "deep/a b#.txt": "old", "other/c": "c"}
    assert files(directory) == blobs(container) == both
