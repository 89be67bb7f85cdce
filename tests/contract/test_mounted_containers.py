"""A directory and a container become the same: what is new, changed or deleted on one side comes to the other."""

from __future__ import annotations

import logging
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
    made = again(directory, container)
    made.create(azurite)
    return made


def again(directory: Path, container: ContainerClient) -> MountedContainer:
    """As an emulator makes it that starts."""
    return MountedContainer(directory.parent, directory.name, container.container_name)


def files(directory: Path) -> dict[str, str]:
    found = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(directory).as_posix(): path.read_text() for path in found}


def blobs(container: ContainerClient) -> dict[str, str]:
    return {name: container.download_blob(name).readall().decode() for name in container.list_blob_names()}


def test_both_sides_get_what_they_lack(
    azurite: StorageAccount, mounted: MountedContainer, directory: Path, container: ContainerClient
) -> None:
    (directory / "deep").mkdir()
    (directory / "deep" / "a b#.txt").write_text("a")
    container.upload_blob("other/c", "c")
    mounted.copy(azurite)
    assert files(directory) == blobs(container) == {"deep/a b#.txt": "a", "other/c": "c"}


def test_changes_and_deletions_come_to_the_other_side(
    azurite: StorageAccount, mounted: MountedContainer, directory: Path, container: ContainerClient
) -> None:
    for name in ("changed", "rewritten", "removed", "deleted"):
        (directory / name).write_text("old")
    mounted.copy(azurite)
    (directory / "changed").write_text("newer")
    (directory / "removed").unlink()
    container.upload_blob("rewritten", "newest", overwrite=True)
    container.delete_blob("deleted")
    again(directory, container).copy(azurite)
    assert files(directory) == blobs(container) == {"changed": "newer", "rewritten": "newest"}


def test_what_changed_on_both_sides_is_as_it_was_changed_last(
    azurite: StorageAccount, mounted: MountedContainer, directory: Path, container: ContainerClient
) -> None:
    for name, moment in (("earlier", 0), ("later", 2**31)):
        (directory / name).write_text("file")
        container.upload_blob(name, "blob")
        os.utime(directory / name, (moment, moment))
    mounted.copy(azurite)
    assert files(directory) == blobs(container) == {"earlier": "blob", "later": "file"}


def test_a_new_directory_empties_no_container(
    azurite: StorageAccount, mounted: MountedContainer, directory: Path, container: ContainerClient
) -> None:
    container.upload_blob("kept", "x")
    mounted.copy(azurite)
    (directory / "kept").unlink()
    again(directory, container).copy(azurite)
    assert files(directory) == blobs(container) == {"kept": "x"}


def test_links_and_names_that_are_no_blobs_stay_and_the_rest_comes(
    azurite: StorageAccount,
    mounted: MountedContainer,
    directory: Path,
    container: ContainerClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (directory.parent / "outside").write_text("secret")
    (directory / "link").symlink_to(directory.parent / "outside")
    (directory / "two\nlines").write_text("x")
    (directory / "file").write_text("y")
    container.upload_blob("file/below", "z")
    with caplog.at_level(logging.WARNING):
        mounted.copy(azurite)
        mounted.copy(azurite)
    assert blobs(container) == {"file": "y", "file/below": "z"}
    told = [record.getMessage() for record in caplog.records]
    assert sum("'two\\nlines' cannot be the name of both" in line for line in told) == 1
    assert any("file/below is not copied" in line for line in told)
