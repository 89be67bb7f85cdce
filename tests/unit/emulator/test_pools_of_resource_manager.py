"""PUT of a pool through Azure Resource Manager: the same request twice changes nothing the second time."""

from __future__ import annotations

import pytest

from batchtrain.emulator import resource_manager
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply
from tests.emulation import BASE, Stage, document
from tests.unit.emulator import arm

PATH = "/subscriptions/s/resourceGroups/my%20group/providers/Microsoft.Batch/batchAccounts/batchtrain"


def ask(stage: Stage, verb: str, body: object = None, **headers: str) -> Reply:
    return arm.ask(stage, verb, f"{PATH}/pools/p", body, headers=headers, version="2024-07-01")


def refused_put(stage: Stage, body: object, **headers: str) -> Fault:
    with pytest.raises(Fault) as refusal:
        ask(stage, "PUT", body, **headers)
    return refusal.value


def pool(nodes: int = 0, **more: object) -> dict[str, object]:
    return {"properties": arm.pool_body(nodes, **more)}


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    ask(made, "PUT", pool(1))
    made.boot()
    return made


def test_an_equal_put_changes_nothing(stage: Stage) -> None:
    before = document(ask(stage, "GET"))
    stage.later()
    assert document(ask(stage, "PUT", pool(1))) == before


def test_another_number_of_nodes_resizes_the_pool(stage: Stage) -> None:
    changed = document(ask(stage, "PUT", pool(3)))["properties"]
    assert changed["scaleSettings"]["fixedScale"]["targetDedicatedNodes"] == 3
    assert changed["allocationState"] == "Resizing"


def test_a_formula_replaces_the_number_of_nodes_and_the_reverse(stage: Stage) -> None:
    scale = {"autoScale": {"formula": "$TargetDedicatedNodes = 0;"}}
    assert document(ask(stage, "PUT", pool(scaleSettings=scale)))["properties"]["scaleSettings"]["autoScale"]
    stage.boot()
    stage.later(60)
    nodes = stage.world.pools["p"].record.target_dedicated
    assert "fixedScale" in document(ask(stage, "PUT", pool(nodes)))["properties"]["scaleSettings"]


def test_metadata_and_start_task_are_replaced_while_there_are_nodes(stage: Stage) -> None:
    body = pool(1, metadata=[{"name": "a", "value": "b"}], startTask={"commandLine": "prepare"})
    shown = document(ask(stage, "PUT", body))["properties"]
    assert (shown["metadata"], shown["startTask"]["commandLine"]) == ([{"name": "a", "value": "b"}], "prepare")
    assert "startTask" not in document(ask(stage, "PUT", pool(1)))["properties"]


def test_a_patch_with_an_empty_start_task_removes_it(stage: Stage) -> None:
    """azure-rest-api-specs, the example PoolUpdate_RemoveStartTask of Resource Manager."""
    ask(stage, "PATCH", {"properties": {"startTask": {"commandLine": "prepare"}}})
    assert "startTask" not in document(ask(stage, "PATCH", {"properties": {"startTask": {}}}))["properties"]


def test_a_pool_has_one_kind_of_scale_settings(stage: Stage) -> None:
    scale = {"fixedScale": {"targetDedicatedNodes": 1}, "autoScale": {"formula": "$TargetDedicatedNodes = 0;"}}
    assert refused_put(stage, pool(scaleSettings=scale)).code == "InvalidPropertyValue"


def test_errors_of_a_formula_and_a_resize_have_the_names_of_resource_manager() -> None:
    """azure-mgmt-batch: AutoScaleRun and ResizeError."""
    stage = Stage()
    ask(stage, "PUT", pool(scaleSettings={"autoScale": {"formula": "$TargetDedicatedNodes = missing;"}}))
    entry = stage.world.pools["p"]
    entry.record.resize_errors = [{"code": "AllocationFailed", "message": "m", "values": [{"name": "n", "value": "v"}]}]
    shown = document(ask(stage, "GET"))["properties"]
    run, (error,) = shown["autoScaleRun"], shown["resizeOperationStatus"]["errors"]
    assert run.keys() == {"evaluationTime", "results", "error"}
    assert run["error"]["details"][0]["code"] == "Message"
    assert error == {"code": "AllocationFailed", "message": "m", "details": [{"code": "n", "message": "v"}]}


def test_the_names_of_tags_are_the_users() -> None:
    stage, tags = Stage(), {"userName": "a", "type": "pool"}
    shown = document(ask(stage, "PUT", pool(resourceTags=tags)))["properties"]
    assert shown["resourceTags"] == stage.world.pools["p"].record.spec["resourceTags"] == tags


def test_another_vm_size_is_refused_while_there_are_nodes(stage: Stage) -> None:
    refusal = refused_put(stage, pool(1, vmSize="STANDARD_D4_V3"))
    assert (refusal.status, refusal.details["PropertyName"]) == (409, "vmSize")


@pytest.mark.parametrize("headers", [{"if-none-match": "*"}, {"if-match": "0x1"}])
def test_the_conditions_of_a_put_count(stage: Stage, headers: dict[str, str]) -> None:
    assert refused_put(stage, pool(1), **headers).status == 412


def test_the_address_of_a_deletion_is_quoted(stage: Stage) -> None:
    assert "/resourceGroups/my%20group/" in ask(stage, "DELETE").headers["Location"]


# --- the account and its other requests -----------------------------------------------------------------------------


def other(stage: Stage, verb: str, path: str, account: str = PATH, **query: str) -> Reply:
    return arm.ask(stage, verb, f"{account}{path}", **{"version": "2024-07-01", **query})


def refused(stage: Stage, verb: str, path: str, account: str = PATH, **query: str) -> str:
    with pytest.raises(Fault) as refusal:
        other(stage, verb, path, account, **query)
    return refusal.value.code


def test_the_account_shows_its_endpoint_its_storage_and_its_quotas(stage: Stage) -> None:
    stage.world.quotas = stage.world.quotas._replace(pools=3)
    account = document(other(stage, "GET", ""))
    assert (account["id"], account["name"]) == (PATH.replace("%20", " "), "batchtrain")
    properties = account["properties"]
    assert (properties["accountEndpoint"], properties["provisioningState"]) == ("127.0.0.1", "Succeeded")
    assert (properties["poolQuota"], properties["dedicatedCoreQuota"]) == (3, 2**31 - 1)
    assert properties["autoStorage"]["storageAccountId"] == (
        "/subscriptions/s/resourceGroups/my group/providers/Microsoft.Storage/storageAccounts/batchtrainlocal"
    )
    listed = document(other(stage, "GET", "", PATH.rpartition("/")[0]))["value"]
    assert [one["name"] for one in listed] == ["batchtrain"]
    assert other(stage, "GET", "", listed[0]["id"]).status == 200


def test_the_key_of_the_account_is_both_of_its_keys(stage: Stage) -> None:
    keys = document(other(stage, "POST", "/listKeys"))
    assert keys == {"accountName": "batchtrain", "primary": arm.KEY, "secondary": arm.KEY}


def test_pools_are_listed_in_the_order_of_their_creation(stage: Stage) -> None:
    stage.pool(0)
    listed = document(other(stage, "GET", "/pools"))["value"]
    assert [pool["name"] for pool in listed] == ["p", "pool"]
    assert listed[0]["id"].endswith("/batchAccounts/batchtrain/pools/p")
    assert listed[0] == document(ask(stage, "GET"))


def test_a_deletion_is_followed_to_its_end(stage: Stage) -> None:
    answer = ask(stage, "DELETE")
    assert (answer.status, answer.headers["Retry-After"]) == (202, "1")
    assert document(ask(stage, "GET"))["properties"]["provisioningState"] == "Deleting"
    assert ask(stage, "DELETE").status == 202, "again"
    assert refused_put(stage, pool(1)).code == "PoolBeingDeleted"
    operation = answer.headers["Location"].removeprefix(f"{BASE}{PATH}").partition("?")[0]
    assert operation.startswith("/poolOperationResults/delete-p-")
    assert other(stage, "GET", operation).status == 202
    del stage.world.pools["p"]
    assert other(stage, "GET", operation).status == 200
    assert ask(stage, "DELETE").status == 204


def test_what_the_account_does_not_have_is_refused(stage: Stage) -> None:
    assert refused(stage, "GET", "", PATH.replace("batchtrain", "other")) == "ResourceNotFound"
    assert refused(stage, "GET", "/certificates") == "NotImplementedByEmulator"
    assert refused(stage, "GET", "/pools", expand="x") == "NotImplementedByEmulator"
    for query in ({"version": "1999-01-01"}, {"maxresults": "0"}):
        assert refused(stage, "GET", "/pools", **query) == "InvalidQueryParameterValue"
    assert other(stage, "GET", "", PATH.replace("batchtrain", "BatchTrain")).status == 200, "case does not matter"


@pytest.mark.parametrize(
    "body",
    [
        {"properties": 5},
        {"properties": {"vmsize": "x"}},
        {"properties": {"startTask": {"nonsense": 1}}},
        {"properties": {"applicationPackages": [3]}},
        {"identity": 7},
    ],
)
def test_a_body_that_is_no_pools_is_refused(stage: Stage, body: object) -> None:
    assert refused_put(stage, body).code == "InvalidRequestBody"


def test_a_deletion_is_made_only_on_its_condition(stage: Stage) -> None:
    with pytest.raises(Fault, match="ConditionNotMet"):
        ask(stage, "DELETE", **{"if-match": "0x1"})
    assert ask(stage, "DELETE", **{"if-match": stage.world.pool("p").record.etag}).status == 202


def test_only_its_own_paths_are_resource_managers() -> None:
    for path, is_its_own in (("/subscriptions", True), (PATH, True), ("/subscriptionsx", False), ("/pools", False)):
        assert resource_manager.is_path(path) is is_its_own


def test_a_refusal_has_the_form_of_resource_manager() -> None:
    fault = Fault("PoolBeingDeleted", "It goes.")
    reply = resource_manager.refusal(fault)
    error = document(reply)["error"]
    assert (reply.status, error["code"], error["message"][:8]) == (fault.status, "PoolBeingDeleted", "It goes.")
