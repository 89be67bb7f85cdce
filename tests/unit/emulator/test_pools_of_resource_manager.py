"""PUT of a pool through Azure Resource Manager: the same request twice changes nothing the second time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.emulator import resource_manager
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply
from batchtrain.emulator.resource_manager import Account, Request
from tests.emulation import BASE, Stage, document

ACCOUNT = Account("batchtrain", "key", "127.0.0.1")
PATH = "/subscriptions/s/resourceGroups/my%20group/providers/Microsoft.Batch/batchAccounts/batchtrain"
IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"}
MACHINE: dict[str, Any] = {"imageReference": IMAGE, "nodeAgentSkuId": "batch.node.ubuntu 22.04"}


def ask(stage: Stage, verb: str, body: object = None, **headers: str) -> Reply:
    content = b"" if body is None else msgspec.json.encode(body)
    query = {"api-version": "2024-07-01"}
    request = Request(verb, f"{PATH}/pools/p", query, headers, content, BASE, stage.now)
    return resource_manager.answer(stage.world, ACCOUNT, request)


def pool(nodes: int = 0, **more: object) -> dict[str, object]:
    scale = {"fixedScale": {"targetDedicatedNodes": nodes}}
    machine = {"virtualMachineConfiguration": MACHINE}
    own = {"vmSize": "STANDARD_D2_V3", "deploymentConfiguration": machine, "scaleSettings": scale}
    return {"properties": {**own, **more}}


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
    assert (changed["scaleSettings"]["fixedScale"]["targetDedicatedNodes"], changed["allocationState"]) == (
        3,
        "Resizing",
    )


def test_a_formula_replaces_the_number_of_nodes_and_the_reverse(stage: Stage) -> None:
    scale = {"autoScale": {"formula": "$TargetDedicatedNodes = 0;"}}
    assert document(ask(stage, "PUT", pool(scaleSettings=scale)))["properties"]["scaleSettings"]["autoScale"]
    stage.settle()
    stage.boot()
    stage.later(60)
    assert (
        "fixedScale"
        in document(ask(stage, "PUT", pool(stage.world.pools["p"].record.target_dedicated)))["properties"][
            "scaleSettings"
        ]
    )


def test_metadata_and_start_task_are_replaced_while_there_are_nodes(stage: Stage) -> None:
    body = pool(1, metadata=[{"name": "a", "value": "b"}], startTask={"commandLine": "prepare"})
    shown = document(ask(stage, "PUT", body))["properties"]
    assert (shown["metadata"], shown["startTask"]["commandLine"]) == ([{"name": "a", "value": "b"}], "prepare")
    assert "startTask" not in document(ask(stage, "PUT", pool(1)))["properties"]


def test_another_vm_size_is_refused_while_there_are_nodes(stage: Stage) -> None:
    with pytest.raises(Fault) as refusal:
        ask(stage, "PUT", pool(1, vmSize="STANDARD_D4_V3"))
    assert (refusal.value.status, refusal.value.details["PropertyName"]) == (409, "vmSize")


@pytest.mark.parametrize("headers", [{"if-none-match": "*"}, {"if-match": "0x1"}])
def test_the_conditions_of_a_put_count(stage: Stage, headers: dict[str, str]) -> None:
    with pytest.raises(Fault) as refusal:
        ask(stage, "PUT", pool(1), **headers)
    assert refusal.value.status == 412


def test_the_names_of_tags_and_settings_are_the_users() -> None:
    stage = Stage()
    tags = {"userName": "a", "type": "pool"}
    settings = {"nodeAgentSkuId": "x", "access": "allow"}
    extension = {"name": "e", "publisher": "p", "type": "t", "settings": settings}
    machine = {**MACHINE, "extensions": [extension]}
    body = pool(resourceTags=tags, deploymentConfiguration={"virtualMachineConfiguration": machine})
    shown = document(ask(stage, "PUT", body))["properties"]
    assert shown["resourceTags"] == stage.world.pools["p"].record.spec["resourceTags"] == tags
    (kept,) = shown["deploymentConfiguration"]["virtualMachineConfiguration"]["extensions"]
    assert kept["settings"] == settings


def test_the_address_of_a_deletion_is_quoted(stage: Stage) -> None:
    assert "/resourceGroups/my%20group/" in ask(stage, "DELETE").headers["Location"]
