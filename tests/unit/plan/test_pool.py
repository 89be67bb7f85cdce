"""From pool.yaml to the request that makes the pool: the image, the disks, how many nodes and how they work."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.config.types import Recipe, convert
from batchtrain.errors import PlanError, Problem
from batchtrain.plan import PoolFacts, plan_pool, plan_recipe, planned_facts, wire
from batchtrain.plan.pool import specification
from tests.unit.plan.pools import IMAGE, plan, recipe, rules, sent

IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"


def machine(**configuration: Any) -> dict[str, Any]:
    built = {"platform_image": IMAGE, **configuration}
    body = sent({"vm_configuration": {key: value for key, value in built.items() if value}})
    return dict(body["virtualMachineConfiguration"])


# --- the image ------------------------------------------------------------------------------------------------------


def test_a_node_agent_in_the_file_wins_over_the_catalogue() -> None:
    assert machine(platform_image={**IMAGE, "node_agent": "mine"})["nodeAgentSKUId"] == "mine"


def test_an_unknown_image_needs_its_node_agent() -> None:
    with pytest.raises(PlanError, match="say it with `node_agent`"):
        machine(platform_image={**IMAGE, "sku": "9999"})


def test_a_pool_with_two_kinds_of_image_is_refused() -> None:
    with pytest.raises(PlanError, match="names several images"):
        machine(custom_image={"arm_image_id": IDENTITY, "node_agent": "b"})


def test_a_pool_without_an_image_is_refused() -> None:
    with pytest.raises(PlanError, match="names no image"):
        machine(platform_image=None)


# --- containers -----------------------------------------------------------------------------------------------------


def test_a_native_pool_is_no_decision_of_ours() -> None:
    made = plan({"vm_configuration": {"platform_image": {**IMAGE, "native": True}}})
    assert rules(made) == []


def test_a_registry_may_be_signed_in_to_by_a_managed_identity() -> None:
    login = {"docker_registry": {"r.io": {"username": "u", "identity": IDENTITY}}}
    body = sent(resources={"docker_images": ["r.io/a"]}, credentials=login)["virtualMachineConfiguration"]
    assert body["containerConfiguration"]["containerRegistries"] == [
        {"registryServer": "r.io", "identityReference": {"resourceId": IDENTITY}}
    ]


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
    images, login = ["r.io/a", "b"], {"docker_registry": {"r.io": {"username": "u", "password": "hunter2"}}}
    delayed = {"delay_docker_image_preload": True}
    made = plan(resources={"docker_images": images}, settings=delayed, credentials=login)
    body = made.steps[0].document["virtualMachineConfiguration"]["containerConfiguration"]
    assert body["containerImageNames"] == ("r.io/a",)
    assert "sign-in-not-delayed" in rules(made)


# --- security -------------------------------------------------------------------------------------------------------


def test_what_is_switched_off_is_said_to_the_service() -> None:
    profile = machine(security_profile={"security_type": "trustedLaunch", "secure_boot": False})["securityProfile"]
    assert profile["uefiSettings"] == {"secureBootEnabled": False}


# --- how many, and how they work ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "full"),
    [("ND96isr_H100_v5", "STANDARD_ND96isr_H100_v5"), ("Standard_D2s_v3",) * 2, ("basic_a1",) * 2, ("small",) * 2],
)
def test_the_service_gets_the_name_of_a_size_with_its_prefix(name: str, full: str) -> None:
    assert sent({"vm_size": name})["vmSize"] == full
    mix = sent({"vm_sizes": {"alternatives": [name]}})["vmSkuProfile"]["vmSizes"]
    assert mix[1]["name"] == full


def test_a_formula_takes_the_place_of_the_targets() -> None:
    formula = "$TargetDedicatedNodes = 1;"
    found = sent({"autoscale": {"formula": formula, "evaluation_interval": "00:05:00"}})
    scales = {"enableAutoScale": True, "autoScaleFormula": formula, "autoScaleEvaluationInterval": "PT5M"}
    assert scales.items() <= found.items() and "targetDedicatedNodes" not in found


# --- users, identities, files that come first -----------------------------------------------------------------------


def test_a_users_secrets_are_placeholders() -> None:
    found = sent(
        {"user_accounts": [{"name": "al", "elevation_level": "admin", "uid": 7, "gid": 8}]},
        credentials={"user_accounts": {"al": {"password": "hunter2", "ssh_private_key": "key.pem"}}},
    )
    linux = {"uid": 7, "gid": 8, "sshPrivateKey": "{{user:al:ssh_private_key}}"}
    user = {"name": "al", "password": "{{user:al:password}}", "elevationLevel": "admin"}
    assert found["userAccounts"] == [{**user, "linuxUserConfiguration": linux}]


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
    destination = {"storage_account_settings": "s", "data_transfer": {"remote_path": "c/d"}}
    files = [{"source": {"path": "data"}, "destination": destination}]
    made = plan({"transfer_files_on_pool_creation": True}, resources={"files": files})
    assert [step.action for step in made.steps] == ["files.upload", "pool.add"]


def test_the_pool_of_a_job_of_its_own_is_the_same_pool_without_its_id() -> None:
    told = recipe({"display_name": "d", "metadata": {"a": "b"}})
    own, made = wire.document(specification(told)), wire.document(plan_pool(told).steps[0].body)  # type: ignore[arg-type]
    assert {"id": "p", **own} == made


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
