"""What is fetched of a task whose settings do not say it, and which files of its working directory are inputs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.config.task_results import NAMED, settings_of
from batchtrain.config.types import FetchSettings, Results, Task


def settings(**task: Any) -> FetchSettings:
    return settings_of(msgspec.convert({"command": "x", **task}, Task))


def blobs(remote_path: str, **more: Any) -> dict[str, Any]:
    return {"input_data": {"azure_storage": [{"storage_account_settings": "s", "remote_path": remote_path, **more}]}}


@pytest.mark.parametrize(
    ("task", "inputs"),
    [
        ({}, ()),
        ({"resource_files": [{"file_path": "./data/a.npz", "blob_source": "https://x/a"}]}, ("data/a.npz",)),
        ({"resource_files": [{"file_path": "{name}.npz", "blob_source": "https://x/a"}]}, ("*.npz",)),
        ({"resource_files": [{"storage_container_url": "https://x/c", "blob_prefix": "data/tr"}]}, ("data/tr**",)),
        ({"resource_files": [{"storage_container_url": "https://x/c", "file_path": "data"}]}, ("data",)),
        (blobs("container/path", local_path="$AZ_BATCH_TASK_WORKING_DIR/data/"), ("data",)),
        (blobs("container/path"), ("path**",)),
        (blobs("container", local_path="$AZ_BATCH_NODE_SHARED_DIR/data"), ()),
    ],
)
def test_the_inputs_in_a_working_directory_are_no_results(task: dict[str, Any], inputs: tuple[str, ...]) -> None:
    assert settings(**task) == FetchSettings(inputs=inputs)


@pytest.mark.parametrize(
    "task",
    [
        {"resource_files": [{"storage_container_url": "https://x/c"}]},
        {"resource_files": [{"blob_source": "https://x/a"}]},
        blobs("container", local_path="."),
        {"task_factory": {"file": {"azure_storage": {"storage_account_settings": "s", "remote_path": "c"}}}},
    ],
)
def test_inputs_with_unknown_names_leave_only_the_named_results(task: dict[str, Any]) -> None:
    assert settings(**task).results == Results(include=NAMED)
    assert settings(**task, results={"include": ["a"]}).results == Results(include=("a",))


@pytest.mark.parametrize(
    ("gang", "every_node"),
    [
        (None, False),
        ({"num_instances": 2}, True),
        ({"num_instances": 2, "mpi": {"runtime": "openmpi"}}, False),
        ({"num_instances": 2, "pytorch": {}}, False),
    ],
)
def test_without_a_launcher_every_node_of_a_gang_has_results(gang: dict[str, Any] | None, every_node: bool) -> None:
    assert settings(multi_instance=gang).every_node is every_node
