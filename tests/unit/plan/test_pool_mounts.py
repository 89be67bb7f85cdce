"""Shared volumes: what Batch mounts, what the start task mounts, and where it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.config.types import SharedDataVolume, StorageCredentials
from batchtrain.errors import PlanError
from batchtrain.plan.mounts import host_path
from tests.unit.plan.pools import plan, sent

STORAGE = {"storage": {"s": {"account": "acct", "account_key": "a2V5"}}}


def volumes(**told: Any) -> dict[str, Any]:
    return {"volumes": {"shared_data_volumes": told}}


def mount(told: dict[str, Any], **more: Any) -> dict[str, Any]:
    (found,) = sent(resources=volumes(v=told), **more)["mountConfiguration"]
    ((_, inner),) = found.items()
    return dict(inner)


def custom(vfstype: str, options: str = "defaults") -> dict[str, Any]:
    entry = {"fs_spec": "s:/x", "fs_vfstype": vfstype, "fs_mntops": options}
    return {"volume_driver": "custom_linux_mount", "fstab_entry": entry}


BLOB = {"volume_driver": "azureblob", "storage_account_settings": "s", "azure_blob_container_name": "c"}
SHARE = {"volume_driver": "azurefile", "storage_account_settings": "s", "azure_file_share_name": "f"}


def test_a_blob_container_is_mounted_by_key_with_the_options_of_blobfuse() -> None:
    assert mount({**BLOB, "mount_options": ["-o", "allow_other"]}, credentials=STORAGE) == {
        "accountName": "acct", "accountKey": "{{storage:s:key}}", "containerName": "c", "relativeMountPath": "v",
        "blobfuseOptions": "-o allow_other",
    }  # fmt: skip


def test_a_blob_container_is_mounted_by_a_managed_identity_without_a_key() -> None:
    found = mount({**BLOB, "identity": "/i"}, credentials=STORAGE)
    assert found["identityReference"] == {"resourceId": "/i"}
    assert "accountKey" not in found


def test_a_file_share_is_mounted_by_its_url() -> None:
    assert mount({**SHARE, "mount_options": ["file_mode=0777", "dir_mode=0777"]}, credentials=STORAGE) == {
        "accountName": "acct", "accountKey": "{{storage:s:key}}", "relativeMountPath": "v",
        "azureFileUrl": "https://acct.file.core.windows.net/f", "mountOptions": "-o file_mode=0777,dir_mode=0777",
    }  # fmt: skip


def test_options_of_the_docker_driver_for_file_shares_get_the_names_of_mount() -> None:
    found = mount({**SHARE, "mount_options": ["filemode=0777", "dirmode=0770", "uid=1"]}, credentials=STORAGE)
    assert found["mountOptions"] == "-o file_mode=0777,dir_mode=0770,uid=1"


def test_a_share_of_an_account_that_is_not_known_yet_is_planned_with_placeholders() -> None:
    found = mount(SHARE)
    assert (found["accountName"], found["azureFileUrl"]) == ("{{storage:s:account}}", "{{storage:s:files}}/f")


def test_nfs_is_mounted_by_batch() -> None:
    told = {"volume_driver": "nfs", "source": "s:/x", "mount_options": ["ro"]}
    assert mount(told) == {"source": "s:/x", "relativeMountPath": "v", "mountOptions": "-o ro"}


def test_a_cifs_share_takes_its_login_from_credentials() -> None:
    login = {"shares": {"v": {"username": "al", "password": "hunter2"}}}
    share = {"source": "//s/x", "relativeMountPath": "v", "username": "al", "password": "{{share:v:password}}"}
    assert mount({"volume_driver": "cifs", "source": "//s/x"}, credentials=login) == share


@pytest.mark.parametrize(
    ("options", "user", "others"),
    [
        ("vers=3.0,username=al,password=hunter2", "al", "-o vers=3.0"),
        ("user=al=b,password=a=b,prefixpath=x=y", "al=b", "-o prefixpath=x=y"),
    ],
)
def test_a_login_among_mount_options_does_not_reach_the_plan(options: str, user: str, others: str) -> None:
    """An option is a name, and all that follows its first equals sign."""
    found = mount(custom("cifs", options))
    assert (found["username"], found["mountOptions"]) == (user, others)


@pytest.mark.parametrize(("vfstype", "options"), [("nfs", None), ("nfs4", "-o vers=4")])
def test_an_nfs_line_of_fstab_is_mounted_by_batch(vfstype: str, options: str | None) -> None:
    assert mount(custom(vfstype)).get("mountOptions") == options


def test_a_file_system_that_batch_has_no_word_for_is_mounted_by_the_start_task() -> None:
    found = sent(resources=volumes(v=custom("lustre", "noatime")))
    assert "mountConfiguration" not in found
    script = found["startTask"]["environmentSettings"][0]["value"]
    assert "bt_mount v s:/x lustre noatime 0 0" in script


@pytest.mark.parametrize("driver", ["glusterfs_on_compute", "storage_cluster"])
def test_a_gluster_volume_is_not_mounted(driver: str) -> None:
    assert "mountConfiguration" not in sent(resources=volumes(v={"volume_driver": driver}))


def test_a_volume_is_found_below_the_mounts_of_its_node() -> None:
    told = msgspec.convert(BLOB, SharedDataVolume)
    assert host_path("v", told) == "$AZ_BATCH_NODE_MOUNTS_DIR/v"
    assert host_path("v", msgspec.structs.replace(told, volume_driver="storage_cluster")) == ""


@pytest.mark.parametrize(
    "told", [{"volume_driver": name} for name in ("azureblob", "azurefile", "nfs", "cifs", "custom_linux_mount")]
)
def test_a_volume_without_its_source_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="the volume `v`"):
        plan(resources=volumes(v=told))


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("core.windows.net", "https://acct.file.core.windows.net"),
        ("http://127.0.0.1:10000/acct", "https://acct.file.core.windows.net"),
        ("https://acct.blob.core.usgovcloudapi.net/", "https://acct.file.core.usgovcloudapi.net"),
        ("https://acct.blob.x.blob.y", "https://acct.file.x.blob.y"),
    ],
)
def test_the_file_service_of_an_account_is_beside_its_blob_service(endpoint: str, url: str) -> None:
    assert StorageCredentials(account="acct", endpoint=endpoint).files_url == url
