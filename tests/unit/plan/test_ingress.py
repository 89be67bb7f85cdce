"""`global_resources.files`: where each entry goes, decided without reading a file."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.config.types import Recipe, convert
from batchtrain.errors import PlanError
from batchtrain.plan import ingress


def recipe(destination: dict[str, Any], **source: Any) -> Recipe:
    link = {"storage_account_settings": "link"}
    volumes = {
        "blobs": {"volume_driver": "azureblob", **link, "azure_blob_container_name": "mounted"},
        "half": {"volume_driver": "azureblob"},
        "share": {"volume_driver": "azurefile", **link, "azure_file_share_name": "s"},
        "nfs": {"volume_driver": "nfs", "source": "host:/path"},
    }
    files = [{"source": {"path": "data", **source}, "destination": destination}]
    document = {"directory": "x", "resources": {"volumes": {"shared_data_volumes": volumes}, "files": files}}
    return convert(document, Recipe)


def paths(destination: dict[str, Any]) -> list[str]:
    return [step.path for step in ingress.plan(recipe(destination)).steps]


@pytest.mark.parametrize(
    ("destination", "wanted"),
    [
        ({"storage_account_settings": "link", "data_transfer": {"remote_path": "box"}}, "/link/box"),
        ({"storage_account_settings": "link", "data_transfer": {"remote_path": "/box/a/"}}, "/link/box/a"),
        ({"storage_account_settings": "link", "relative_destination_path": "box/a"}, "/link/box/a"),
        ({"storage_account_settings": "link", "data_transfer": {"remote_path": "box/a"},
          "relative_destination_path": "b"}, "/link/box/a/b"),
        ({"shared_data_volume": "blobs"}, "/link/mounted"),
        ({"shared_data_volume": "blobs", "relative_destination_path": "a/b/"}, "/link/mounted/a/b"),
    ],
)  # fmt: skip
def test_a_destination_is_a_link_a_container_and_a_path(destination: dict[str, Any], wanted: str) -> None:
    assert paths(destination) == [wanted]


def test_a_step_says_what_is_taken() -> None:
    destination = {"shared_data_volume": "blobs"}
    (step,) = ingress.plan(recipe(destination, include=["*.txt"], exclude=["x*"])).steps
    assert step.body == {"source": "data", "include": ["*.txt"], "exclude": ["x*"]}


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        ({}, "the nodes' own disks"),
        ({"data_transfer": {"method": "multinode_scp"}}, "the nodes' own disks"),
        ({"shared_data_volume": "nfs"}, "the nodes' own disks"),
        ({"shared_data_volume": "share"}, "az storage file upload-batch"),
        ({"storage_account_settings": "link", "data_transfer": {"remote_path": "s", "is_file_share": True}},
         "az storage file upload-batch"),
    ],
)  # fmt: skip
def test_files_for_no_container_are_left_out_with_a_reason(destination: dict[str, Any], words: str) -> None:
    assert paths(destination) == []
    (left,) = ingress.left_out(recipe(destination))
    assert words in left.reason
    assert left.path.startswith("global_resources.files[0].destination")


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        ({"storage_account_settings": "link"}, "must say to which container"),
        ({"shared_data_volume": "other"}, r"no volume `other` \(known: blobs, half, share, nfs\)"),
        ({"shared_data_volume": "half"}, "needs `storage_account_settings` and `azure_blob_container_name`"),
    ],
)
def test_a_destination_that_nothing_places_is_refused(destination: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        paths(destination)
