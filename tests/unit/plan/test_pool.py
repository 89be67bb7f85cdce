"""From pool.yaml to the request that makes the pool: the image, the disks, how many nodes and how they work."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.config.types import Recipe, convert
from batchtrain.errors import PlanError, Problem
from batchtrain.plan import PoolFacts, plan_pool, plan_recipe, planned_facts, render, wire
from batchtrain.plan.pool import specification
from tests.unit.plan.pools import IMAGE, WINDOWS, plan, recipe, rules, sent

IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"

COMPUTE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
GALLERY, ENCRYPTION_SET = f"{COMPUTE}/galleries/g", f"{COMPUTE}/diskEncryptionSets/d"
PROFILE = f"{GALLERY}/inVMAccessControlProfiles/p/versions/1"
ARTIFACT = f"{GALLERY}/serviceArtifacts/a/vmArtifactsProfiles/p"


def machine(**configuration: Any) -> dict[str, Any]:
    built = {"platform_image": IMAGE, **configuration}
    found: dict[str, Any] = sent({"vm_configuration": {key: value for key, value in built.items() if value}})[
        "virtualMachineConfiguration"
    ]
    return found


# --- the image ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "image", "reference"),
    [
        ("custom_image", {"arm_image_id": f"{GALLERY}/images/i"}, {"virtualMachineImageId": f"{GALLERY}/images/i"}),
        ("shared_gallery_image", {"id": "/b"}, {"sharedGalleryImageId": "/b"}),
        ("community_gallery_image", {"id": "/c"}, {"communityGalleryImageId": "/c"}),
    ],
)
def test_an_image_of_a_gallery_is_named_by_its_id(kind: str, image: dict[str, str], reference: dict[str, str]) -> None:
    found = machine(platform_image=None, **{kind: {**image, "node_agent": "batch.node.el 9"}})
    assert found["imageReference"] == reference
    assert found["nodeAgentSKUId"] == "batch.node.el 9"


def test_a_node_agent_in_the_file_wins_over_the_catalogue() -> None:
    assert machine(platform_image={**IMAGE, "node_agent": "mine"})["nodeAgentSKUId"] == "mine"


def test_an_unknown_image_needs_its_node_agent() -> None:
    with pytest.raises(PlanError, match="say it with `node_agent`"):
        machine(platform_image={**IMAGE, "sku": "9999"})


def test_a_pool_with_two_kinds_of_image_is_refused() -> None:
    with pytest.raises(PlanError, match="names several images"):
        machine(custom_image={"arm_image_id": f"{GALLERY}/images/i", "node_agent": "b"})


def test_a_pool_without_an_image_is_refused() -> None:
    with pytest.raises(PlanError, match="names no image"):
        machine(platform_image=None)


def test_a_licence_and_a_version_travel() -> None:
    found = machine(platform_image={**WINDOWS, "version": "1.2", "license_type": "Windows_Server"})
    assert (found["licenseType"], found["imageReference"]["version"]) == ("Windows_Server", "1.2")


# --- containers -----------------------------------------------------------------------------------------------------


def test_a_native_pool_says_which_container_technology() -> None:
    found = machine(platform_image={**IMAGE, "native": True}, container_type="criCompatible")
    assert found["containerConfiguration"] == {"type": "criCompatible"}


def test_a_native_pool_is_no_decision_of_ours() -> None:
    made = plan({"vm_configuration": {"platform_image": {**IMAGE, "native": True}}})
    assert rules(made) == []


def test_a_registry_may_be_signed_in_to_by_a_managed_identity() -> None:
    found = sent(
        resources={"docker_images": ["r.io/a"]},
        credentials={"docker_registry": {"r.io": {"username": "u", "identity": IDENTITY}}},
    )["virtualMachineConfiguration"]["containerConfiguration"]["containerRegistries"]
    assert found == [{"registryServer": "r.io", "identityReference": {"resourceId": IDENTITY}}]


def test_a_registry_without_a_login_is_public() -> None:
    found = sent(resources={"docker_images": ["a"], "additional_registries": {"docker": ["r.io"]}})
    assert "containerRegistries" not in found["virtualMachineConfiguration"]["containerConfiguration"]


def test_delayed_images_are_fetched_by_the_start_task_alone() -> None:
    found = sent(resources={"docker_images": ["a/b:1"]}, settings={"delay_docker_image_preload": True})
    assert found["virtualMachineConfiguration"]["containerConfiguration"] == {"type": "dockerCompatible"}
    text = {item["name"]: item["value"] for item in found["startTask"]["environmentSettings"]}
    assert "\nbt_pull_soon a/b:1\n" in text["BATCHTRAIN_NODE_PREPARATION"]


def test_the_start_task_has_both_names_of_a_delayed_image_with_a_second_registry() -> None:
    second = {"delay_docker_image_preload": True, "fallback_registry": "me.azurecr.io/batch/"}
    found = sent(resources={"docker_images": ["r.io:5000/a/b:1"]}, settings=second)
    text = {item["name"]: item["value"] for item in found["startTask"]["environmentSettings"]}
    both = "r.io:5000/a/b:1 me.azurecr.io/batch/a/b:1"
    assert f"\nbt_pull_soon {both}\n" in text["BATCHTRAIN_NODE_PREPARATION"]


def test_a_delayed_image_of_a_registry_with_a_sign_in_stays_with_batch_and_says_so() -> None:
    made = plan(
        resources={"docker_images": ["r.io/a", "b"]},
        settings={"delay_docker_image_preload": True},
        credentials={"docker_registry": {"r.io": {"username": "u", "password": "hunter2"}}},
    )
    body = made.steps[0].document["virtualMachineConfiguration"]["containerConfiguration"]
    assert body["containerImageNames"] == ("r.io/a",)
    assert "sign-in-not-delayed" in rules(made)


# --- disks and security ---------------------------------------------------------------------------------------------


def test_the_systems_disk_travels() -> None:
    disk = {
        "ephemeral": True,
        "caching": "readonly",
        "size_gb": 100,
        "storage_account_type": "premium_lrs",
        "security_encryption": "VMGuestStateOnly",
        "disk_encryption_set": ENCRYPTION_SET,
        "write_accelerator": True,
    }
    confidential = {"security_type": "confidentialvm"}
    assert machine(os_disk=disk, security_profile=confidential)["osDisk"] == {
        "ephemeralOSDiskSettings": {"placement": "cachedisk"},
        "caching": "readonly",
        "diskSizeGB": 100,
        "managedDisk": {
            "storageAccountType": "premium_lrs",
            "securityProfile": {"securityEncryptionType": "VMGuestStateOnly"},
            "diskEncryptionSet": {"id": ENCRYPTION_SET},
        },
        "writeAcceleratorEnabled": True,
    }


def test_data_disks_travel() -> None:
    disk = {"lun": 0, "size_gb": 10, "caching": "none", "storage_account_type": "standard_lrs"}
    assert machine(data_disks=[disk])["dataDisks"] == [
        {"lun": 0, "diskSizeGB": 10, "caching": "none", "managedDisk": {"storageAccountType": "standard_lrs"}}
    ]


def test_the_security_of_a_machine_travels() -> None:
    told = {
        "security_type": "trustedLaunch",
        "encryption_at_host": True,
        "secure_boot": False,
        "vtpm": True,
        "proxy_agent": {"imds": {"mode": "Audit"}, "wire_server": {"access_control_profile": PROFILE}},
    }
    assert machine(security_profile=told)["securityProfile"] == {
        "securityType": "trustedLaunch",
        "encryptionAtHost": True,
        "uefiSettings": {"secureBootEnabled": False, "vTpmEnabled": True},
        "proxyAgentSettings": {
            "enabled": True,
            "imds": {"mode": "Audit"},
            "wireServer": {"inVMAccessControlProfileReferenceId": PROFILE},
        },
    }


def test_the_encryption_of_disks_travels() -> None:
    told = {
        "targets": ["osdisk"],
        "customer_managed_key": {
            "key_url": "https://v.vault.azure.net/keys/k/1",
            "identity": IDENTITY,
            "rotation": True,
        },
    }
    assert machine(disk_encryption=told)["diskEncryptionConfiguration"] == {
        "targets": ["osdisk"],
        "customerManagedKey": {
            "keyUrl": "https://v.vault.azure.net/keys/k/1",
            "identityReference": {"resourceId": IDENTITY},
            "rotationToLatestKeyVersionEnabled": True,
        },
    }


def test_placement_extensions_artifacts_and_updates_travel() -> None:
    extension = {
        "name": "n",
        "publisher": "p",
        "type": "t",
        "type_handler_version": "1",
        "auto_upgrade_minor_version": True,
        "enable_automatic_upgrade": False,
        "settings": {"a": "b"},
        "provision_after": ["m"],
    }
    found = machine(
        platform_image=WINDOWS,
        node_placement="zonal",
        extensions=[extension],
        service_artifact=ARTIFACT,
        windows_automatic_updates=True,
    )
    assert found["nodePlacementConfiguration"] == {"policy": "zonal"}
    assert found["extensions"] == [
        {
            "name": "n",
            "publisher": "p",
            "type": "t",
            "typeHandlerVersion": "1",
            "autoUpgradeMinorVersion": True,
            "enableAutomaticUpgrade": False,
            "settings": {"a": "b"},
            "provisionAfterExtensions": ["m"],
        }
    ]
    assert found["serviceArtifactReference"] == {"id": ARTIFACT}
    assert found["windowsConfiguration"] == {"enableAutomaticUpdates": True}


# --- how many, and how they work ------------------------------------------------------------------------------------


def test_a_formula_takes_the_place_of_the_targets() -> None:
    found = sent({"autoscale": {"formula": "$TargetDedicatedNodes = 1;", "evaluation_interval": "00:05:00"}})
    assert found["enableAutoScale"] is True
    assert found["autoScaleFormula"] == "$TargetDedicatedNodes = 1;"
    assert found["autoScaleEvaluationInterval"] == "PT5M"
    assert "targetDedicatedNodes" not in found


def test_a_scenario_becomes_a_formula() -> None:
    scenario = {"name": "active_tasks", "maximum_vm_count": {"dedicated": 4}}
    assert "$ActiveTasks" in sent({"autoscale": {"scenario": scenario}})["autoScaleFormula"]


def test_a_pool_request_has_the_properties_of_the_pool() -> None:
    found = sent(
        {
            "display_name": "Mine",
            "resize_timeout": "00:20:00",
            "metadata": {"a": "b"},
            "application_packages": [{"id": "app", "version": "2"}, {"id": "other"}],
            "task_slots_per_node": 4,
            "node_fill_type": "pack",
            "job_default_order": "creationtime",
        }
    )
    assert (found["displayName"], found["resizeTimeout"], found["taskSlotsPerNode"]) == ("Mine", "PT20M", 4)
    assert found["metadata"] == [{"name": "a", "value": "b"}]
    assert found["applicationPackageReferences"] == [
        {"applicationId": "app", "version": "2"},
        {"applicationId": "other"},
    ]
    assert found["taskSchedulingPolicy"] == {"nodeFillType": "pack", "jobDefaultOrder": "creationtime"}


def test_an_upgrade_policy_travels() -> None:
    told = {
        "mode": "rolling",
        "automatic_os": {
            "enabled": True,
            "disable_rollback": False,
            "use_rolling_upgrade": True,
            "defer_while_tasks_run": True,
        },
        "rolling": {
            "enable_cross_zone_upgrade": True,
            "max_batch_instance_percent": 20,
            "max_unhealthy_instance_percent": 20,
            "max_unhealthy_upgraded_instance_percent": 0,
            "pause_time_between_batches": "00:00:30",
            "prioritize_unhealthy_instances": True,
            "rollback_failed_instances_on_policy_breach": False,
        },
    }
    zonal = {"platform_image": IMAGE, "node_placement": "zonal"}
    assert sent({"upgrade_policy": told, "vm_configuration": zonal})["upgradePolicy"] == {
        "mode": "rolling",
        "automaticOSUpgradePolicy": {
            "enableAutomaticOSUpgrade": True,
            "disableAutomaticRollback": False,
            "useRollingUpgradePolicy": True,
            "osRollingUpgradeDeferral": True,
        },
        "rollingUpgradePolicy": {
            "enableCrossZoneUpgrade": True,
            "maxBatchInstancePercent": 20,
            "maxUnhealthyInstancePercent": 20,
            "maxUnhealthyUpgradedInstancePercent": 0,
            "pauseTimeBetweenBatches": "PT30S",
            "prioritizeUnhealthyInstances": True,
            "rollbackFailedInstancesOnPolicyBreach": False,
        },
    }


# --- users, identities, files that come first -----------------------------------------------------------------------


def test_a_users_secrets_are_placeholders() -> None:
    found = sent(
        {"user_accounts": [{"name": "al", "elevation_level": "admin", "uid": 7, "gid": 8}]},
        credentials={"user_accounts": {"al": {"password": "hunter2", "ssh_private_key": "key.pem"}}},
    )
    assert found["userAccounts"] == [
        {
            "name": "al",
            "password": "{{user:al:password}}",
            "elevationLevel": "admin",
            "linuxUserConfiguration": {"uid": 7, "gid": 8, "sshPrivateKey": "{{user:al:ssh_private_key}}"},
        }
    ]


def test_a_windows_user_says_how_it_logs_in() -> None:
    vm = {"platform_image": WINDOWS}
    found = sent({"user_accounts": [{"name": "al", "login_mode": "batch"}], "vm_configuration": vm})["userAccounts"]
    assert found[0]["windowsUserConfiguration"] == {"loginMode": "batch"}


def test_a_pool_with_identities_is_made_without_nodes_and_grows_when_it_has_them() -> None:
    made = plan({"identities": [IDENTITY], "resize_timeout": "00:10:00"})
    assert [step.action for step in made.steps] == ["pool.add", "pool.identity", "pool.resize"]
    add, identity, grows = (step.document for step in made.steps)
    assert (add["targetDedicatedNodes"], add["targetLowPriorityNodes"]) == (0, 0)
    assert identity == {"identities": [IDENTITY]}
    assert grows == {"targetDedicatedNodes": 2, "targetLowPriorityNodes": 0, "resizeTimeout": "PT10M"}


def test_a_pool_with_identities_that_scales_itself_begins_when_it_has_them() -> None:
    made = plan({"identities": [IDENTITY], "autoscale": {"formula": "$TargetDedicatedNodes = 1;"}})
    assert [step.action for step in made.steps] == ["pool.add", "pool.identity", "pool.autoscale"]
    assert "enableAutoScale" not in made.steps[0].document
    assert made.steps[2].document == {"autoScaleFormula": "$TargetDedicatedNodes = 1;"}


def test_files_of_this_machine_come_before_the_pool_where_the_file_says_so() -> None:
    files = [
        {
            "source": {"path": "data"},
            "destination": {"storage_account_settings": "s", "data_transfer": {"remote_path": "c/d"}},
        }
    ]
    made = plan({"transfer_files_on_pool_creation": True}, resources={"files": files})
    assert [step.action for step in made.steps] == ["files.upload", "pool.add"]


def test_the_pool_of_a_job_of_its_own_is_the_same_pool_without_its_id() -> None:
    told = recipe({"display_name": "d", "metadata": {"a": "b"}})
    own, made = wire.document(specification(told)), wire.document(plan_pool(told).steps[0].body)  # type: ignore[arg-type]
    assert {"id": "p", **own} == made


def test_no_secret_of_the_files_is_in_a_plan() -> None:
    credentials = {
        "docker_registry": {"r.io": {"username": "u", "password": "hunter2"}},
        "singularity_registry": {"s.io": {"username": "u", "password": "hunter2"}},
        "storage": {"s": {"account": "a", "account_key": "aHVudGVyMg=="}},
        "user_accounts": {"al": {"password": "hunter2"}},
        "shares": {"c": {"username": "u", "password": "hunter2"}},
    }
    volumes = {
        "b": {"volume_driver": "azureblob", "storage_account_settings": "s", "azure_blob_container_name": "x"},
        "f": {"volume_driver": "azurefile", "storage_account_settings": "s", "azure_file_share_name": "x"},
        "c": {"volume_driver": "cifs", "source": "//s/x", "mount_options": ["password=hunter2"]},
    }
    images = {"unsigned": [{"image": "oras://s.io/x"}]}
    made = plan(
        {"user_accounts": [{"name": "al"}], "rdp": {"username": "al", "password": "hunter2"}},
        credentials=credentials,
        resources={
            "docker_images": ["r.io/a"],
            "volumes": {"shared_data_volumes": volumes},
            "singularity_images": images,
        },
    )
    text = msgspec.json.encode(render.as_document(made)).decode() + str(made)
    assert "hunter2" not in text
    assert "aHVudGVyMg" not in text


@pytest.mark.parametrize(
    ("told", "policy"),
    [
        ({}, None),
        ({"node_fill_type": "pack"}, {"nodeFillType": "pack"}),
        ({"job_default_order": "creationtime"}, {"nodeFillType": "spread", "jobDefaultOrder": "creationtime"}),
    ],
)
def test_tasks_are_scheduled_by_a_policy_only_if_the_pool_says_so(told: dict[str, Any], policy: Any) -> None:
    assert sent(told).get("taskSchedulingPolicy") == policy


def test_the_facts_of_a_pool_are_those_after_its_creation() -> None:
    told = {"vm_size": "standard_d4s_v5", "vm_count": {"dedicated": 3, "low_priority": 4}, "task_slots_per_node": 5,
            "inter_node_communication_enabled": False}  # fmt: skip
    assert planned_facts(recipe(told)) == PoolFacts("p", "STANDARD_D4S_V5", 3, 4, False, 5)
    assert planned_facts(recipe({"autoscale": "to_zero"})) is None
    assert planned_facts(convert({"directory": "x"}, Recipe)) is None


def test_a_recipe_of_jobs_with_their_own_pools_makes_no_other() -> None:
    def actions(**job: Any) -> list[str]:
        made = plan_recipe(recipe(jobs=[{"id": "j", "tasks": [{"command": "x"}], **job}]))
        return [step.action for step in made.steps]

    assert "pool.add" in actions()
    assert "pool.add" not in actions(auto_pool={})


def test_a_silenced_warning_is_not_in_the_plan() -> None:
    warnings = tuple(Problem(rule, "text", level="warning") for rule in ("loud", "silent"))
    told = msgspec.structs.replace(recipe(), warnings=warnings, silent=frozenset({"silent"}))
    assert [warning.rule for warning in plan_recipe(told).warnings if warning in warnings] == ["loud"]


@pytest.mark.parametrize(
    ("nodes", "more", "timeout"),
    [
        (10, {}, None),
        (11, {}, "PT16M"),
        (64, {}, "PT42M"),
        (1000, {}, "PT2H"),
        (64, {"resize_timeout": "00:20:00"}, "PT20M"),
    ],
)
def test_a_large_pool_has_more_time_for_its_allocation(nodes: int, more: dict[str, Any], timeout: str | None) -> None:
    made = plan({"vm_count": {"dedicated": nodes}, **more})
    assert made.steps[0].document.get("resizeTimeout") == timeout
    assert any(row.rule == "resize-timeout-by-nodes" for row in made.implicit) is (nodes > 10 and not more)
