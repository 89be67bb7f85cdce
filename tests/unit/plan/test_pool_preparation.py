"""The start task: a person's own lines, our part, files and data, and what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.config.node_preparation import LARGEST
from batchtrain.errors import PlanError
from tests.unit.plan.pools import WINDOWS, plan, rules, sent

PREP: dict[str, Any] = {"commands": {"pre": ["one"], "post": ["two"]}}
SIGNED = {"image": "library://x/y:1", "signing_key": {"fingerprint": "AB12", "file": "key.asc"}}


def start(pool: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return dict(sent(pool, **more)["startTask"])


def settings(task: dict[str, Any]) -> dict[str, str | None]:
    return {item["name"]: item.get("value") for item in task["environmentSettings"]}


def ours(pool: dict[str, Any] | None = None, **more: Any) -> str:
    return settings(start(pool, **more))["BATCHTRAIN_NODE_PREPARATION"] or ""


def test_a_pool_with_nothing_to_prepare_has_no_start_task() -> None:
    assert "startTask" not in sent()


def test_variables_of_a_vault_come_before_those_in_the_file() -> None:
    prep = {**PREP, "environment_variables": {"A": "b"}, "environment_variables_keyvault_secret_id": "https://v/s"}
    names = list(settings(start({"additional_node_prep": prep})))
    assert names == ["{{keyvault:https://v/s}}", "A", "BATCHTRAIN_PREPARATION"]


@pytest.mark.parametrize("size", ["STANDARD_HB120RS_V3", "STANDARD_NV32AS_V4"])
def test_no_nvidia_driver_is_installed_on_a_size_that_cannot_use_it(size: str) -> None:
    gpu = {"nvidia_driver": {"source": "https://d"}}
    assert "https://d" in ours({"vm_size": "STANDARD_NC4AS_T4_V3", "gpu": gpu})
    assert "startTask" not in sent({"vm_size": size, "gpu": gpu, "inter_node_communication_enabled": False})


def input_of(**told: Any) -> dict[str, Any]:
    item = {"storage_account_settings": "s", "remote_path": "c/d", **told}
    return {"input_data": {"azure_storage": [item]}}


def test_blobs_come_from_their_container_by_what_their_names_begin_with() -> None:
    assert start(input_of(local_path="data"))["resourceFiles"] == [
        {"storageContainerUrl": "{{sas:s/c?days=30}}", "blobPrefix": "d", "filePath": "data"}
    ]


def test_each_pattern_is_narrowed_to_its_text_before_the_first_wildcard() -> None:
    files = start(input_of(include=["a/*.txt", "a/b*", "c?"]))["resourceFiles"]
    assert [file["blobPrefix"] for file in files] == ["d/a/", "d/c"]


def test_data_for_a_place_that_batch_cannot_write_to_is_moved_there() -> None:
    told = input_of(local_path="$AZ_BATCH_NODE_SHARED_DIR/my data")
    assert start(told)["resourceFiles"][0]["filePath"] == ".batchtrain/input/0"
    assert "cp -a .batchtrain/input/0/. \"${AZ_BATCH_NODE_SHARED_DIR}\"'/my data'/" in ours(told)


def test_a_file_share_is_not_fetched() -> None:
    assert "startTask" not in sent(input_of(is_file_share=True))


def test_only_the_fetching_of_images_is_left_behind() -> None:
    told = {"block_until_all_global_resources_loaded": False}
    images = {"resources": {"docker_images": ["a"]}, "settings": {"delay_docker_image_preload": True}}
    assert start(told, **images)["waitForSuccess"] is False


def test_tasks_wait_for_the_users_preparation_and_the_plan_says_so() -> None:
    told = {"block_until_all_global_resources_loaded": False, "additional_node_prep": PREP}
    assert start(told)["waitForSuccess"] is True
    assert rules(plan(told)) == ["own-preparation-waits"]


def test_apptainer_images_are_fetched_and_apptainer_with_them() -> None:
    more = {"resources": {"singularity_images": {"unsigned": [{"image": "docker://a/b"}]}}}
    assert "bt_fetch_sif docker://a/b" in ours(**more)
    assert rules(plan(**more)) == ["apptainer-installed"]


def test_a_signed_image_is_verified_by_the_key_of_its_file() -> None:
    task = start(resources={"singularity_images": {"signed": [SIGNED]}})
    assert settings(task)["BATCHTRAIN_GIVEN_KEY_0"] == "{{file:key.asc}}"
    assert "bt_verify library://x/y:1" in (settings(task)["BATCHTRAIN_NODE_PREPARATION"] or "")


def test_a_signed_image_needs_its_key() -> None:
    with pytest.raises(PlanError, match="`fingerprint`"):
        plan(resources={"singularity_images": {"signed": [{"image": "library://x"}]}})


def test_the_password_of_an_apptainer_registry_is_a_placeholder_and_a_warning() -> None:
    more: dict[str, Any] = {
        "resources": {"additional_registries": {"singularity": ["r.io"]}},
        "credentials": {"singularity_registry": {"r.io": {"username": "u", "password": "hunter2"}}},
    }
    assert settings(start(**more))["BATCHTRAIN_GIVEN_PASSWORD_0"] == "{{singularity:r.io}}"
    assert [warning.rule for warning in plan(**more).warnings] == ["password-on-nodes"]


def test_windows_gets_one_line_of_its_own_shell() -> None:
    task = start({"vm_configuration": {"platform_image": WINDOWS}, "additional_node_prep": PREP})
    assert task["commandLine"] == 'cmd.exe /d /s /c "%BATCHTRAIN_PREPARATION%"'
    assert settings(task)["BATCHTRAIN_PREPARATION"] == "one && two"


def test_a_preparation_too_long_for_a_request_names_the_way_out() -> None:
    with pytest.raises(PlanError, match="`resource_files`"):
        plan({"additional_node_prep": {"commands": {"pre": ["x" * (LARGEST + 1)]}}})


def test_images_that_make_the_preparation_too_long_for_a_request_are_refused() -> None:
    def prepared(count: int) -> str:
        images = [f"registry.example/{'x' * 200}:{number}" for number in range(count)]
        return ours(resources={"docker_images": images}, settings={"delay_docker_image_preload": True})

    assert LARGEST // 2 < len(prepared(LARGEST // 400)) <= LARGEST
    with pytest.raises(PlanError, match=rf"images to fetch.* bytes, and {LARGEST:,} fit into a request; list fewer"):
        prepared(LARGEST // 200)


def test_users_cannot_set_reserved_variables() -> None:
    variables = {"BATCHTRAIN_GIVEN_X": "{{file:/etc/shadow}}"}
    with pytest.raises(PlanError, match="BATCHTRAIN_GIVEN_X"):
        plan({"additional_node_prep": {**PREP, "environment_variables": variables}})


def test_an_empty_prefix_of_blobs_is_unset() -> None:
    file = {"blob_source": "https://x/y", "file_path": "y", "blob_prefix": ""}
    assert start({"resource_files": [file]})["resourceFiles"] == [{"httpUrl": "https://x/y", "filePath": "y"}]
