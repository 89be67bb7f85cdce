"""Answers of every operation of Resource Manager against azure-mgmt-batch 19: names, types and words of enums."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import models, pools
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.machine import packages
from batchtrain.emulator.package_files import PackageFolder
from batchtrain.emulator.properties import ARM_NAMES
from batchtrain.emulator.tokens import TOKEN
from batchtrain.emulator.versions import CURRENT
from batchtrain.emulator.world import USER_SUBSCRIPTION, Application
from tests import environments
from tests.contract import wire_properties
from tests.emulation import Stage, call, document
from tests.unit.emulator.arm import ACCOUNT, ACCOUNTS, LOCATION
from tests.unit.emulator.arm import answer as ask
from tests.unit.emulator.test_examples_of_resource_manager import EXAMPLES, pool_body

pytestmark = pytest.mark.slow

POOL, PACKAGE = f"{ACCOUNT}/pools/p", f"{ACCOUNT}/applications/a/versions/1"
FORMULA = {"properties": {"scaleSettings": {"autoScale": {"formula": "$TargetDedicatedNodes = missing;"}}}}
OPERATIONS: Mapping[str, tuple[str, str, Any]] = {
    "operations.list": ("GET", "/providers/Microsoft.Batch/operations", None),
    "batch_account.begin_create": ("PUT", ACCOUNT, {"location": "eastus"}),
    "batch_account.begin_delete": ("DELETE", ACCOUNT, None),
    "batch_account.get": ("GET", ACCOUNT, None),
    "batch_account.get_detector": ("GET", f"{ACCOUNT}/detectors/x", None),
    "batch_account.get_keys": ("POST", f"{ACCOUNT}/listKeys", None),
    "batch_account.list": ("GET", "/subscriptions/s/providers/Microsoft.Batch/batchAccounts", None),
    "batch_account.list_by_resource_group": ("GET", ACCOUNTS, None),
    "batch_account.list_detectors": ("GET", f"{ACCOUNT}/detectors", None),
    "batch_account.list_outbound_network_dependencies_endpoints": (
        "GET", f"{ACCOUNT}/outboundNetworkDependenciesEndpoints", None),
    "batch_account.regenerate_key": ("POST", f"{ACCOUNT}/regenerateKeys", {"keyName": "Primary"}),
    "batch_account.synchronize_auto_storage_keys": ("POST", f"{ACCOUNT}/syncAutoStorageKeys", None),
    "batch_account.update": ("PATCH", ACCOUNT, {}),
    "application.create": ("PUT", f"{ACCOUNT}/applications/a", {"properties": {"displayName": "A"}}),
    "application.get": ("GET", f"{ACCOUNT}/applications/a", None),
    "application.list": ("GET", f"{ACCOUNT}/applications", None),
    "application_package.create": ("PUT", PACKAGE, {}),
    "application_package.activate": ("POST", f"{PACKAGE}/activate", {"format": "zip"}),
    "application_package.get": ("GET", PACKAGE, None),
    "application_package.list": ("GET", f"{ACCOUNT}/applications/a/versions", None),
    "application.update": ("PATCH", f"{ACCOUNT}/applications/a", {"properties": {"defaultVersion": "1"}}),
    "application_package.delete": ("DELETE", PACKAGE, None),
    "application.delete": ("DELETE", f"{ACCOUNT}/applications/a", None),
    "private_link_resource.get": ("GET", f"{ACCOUNT}/privateLinkResources/batchAccount", None),
    "private_link_resource.list_by_batch_account": ("GET", f"{ACCOUNT}/privateLinkResources", None),
    "private_endpoint_connection.begin_delete": ("DELETE", f"{ACCOUNT}/privateEndpointConnections/x", None),
    "private_endpoint_connection.begin_update": ("PATCH", f"{ACCOUNT}/privateEndpointConnections/x", {}),
    "private_endpoint_connection.get": ("GET", f"{ACCOUNT}/privateEndpointConnections/x", None),
    "private_endpoint_connection.list_by_batch_account": ("GET", f"{ACCOUNT}/privateEndpointConnections", None),
    "pool.create": ("PUT", POOL, {"properties": pool_body(scaleSettings={"fixedScale": {"targetDedicatedNodes": 1}})}),
    "pool.get": ("GET", POOL, None),
    "pool.list_by_batch_account": ("GET", f"{ACCOUNT}/pools", None),
    "pool.stop_resize": ("POST", f"{POOL}/stopResize", None),
    "pool.update": ("PATCH", POOL, FORMULA),
    "pool.disable_auto_scale": ("POST", f"{POOL}/disableAutoScale", None),
    "pool.begin_delete": ("DELETE", POOL, None),
    "network_security_perimeter.begin_reconcile_configuration": (
        "POST", f"{ACCOUNT}/networkSecurityPerimeterConfigurations/x/reconcile", None),
    "network_security_perimeter.get_configuration": (
        "GET", f"{ACCOUNT}/networkSecurityPerimeterConfigurations/x", None),
    "network_security_perimeter.list_configurations": (
        "GET", f"{ACCOUNT}/networkSecurityPerimeterConfigurations", None),
    "location.check_name_availability": ("POST", f"{LOCATION}/checkNameAvailability", {"name": "UPPER"}),
    "location.get_quotas": ("GET", f"{LOCATION}/quotas", None),
    "location.list_supported_virtual_machine_skus": ("GET", f"{LOCATION}/virtualMachineSkus", None),
}  # fmt: skip
"""Operation of the SDK -> its request; in an order in which each finds what it works on."""
REFUSALS = {
    "batch_account.begin_delete": 409, "batch_account.get_detector": 404, "batch_account.regenerate_key": 409,
    "private_endpoint_connection.begin_delete": 404, "private_endpoint_connection.begin_update": 404,
    "private_endpoint_connection.get": 404, "network_security_perimeter.begin_reconcile_configuration": 404,
    "network_security_perimeter.get_configuration": 404,
}  # fmt: skip
"""What the emulator's account does not have, or cannot do."""
SCALARS: Mapping[str, Callable[[Any], bool]] = {
    "Any": lambda value: True,
    "NoneType": lambda value: value is None,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "datetime": lambda value: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value) is not None,
    "timedelta": lambda value: re.fullmatch(r"P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", value) is not None,
}


@pytest.fixture(scope="module")
def sdk() -> Any:
    try:
        python = environments.prefix("azure-mgmt-batch-19") / "bin" / "python"
    except environments.Missing as missing:
        pytest.skip(str(missing))
    script = Path(__file__).with_name("mgmt_models.py")
    return json.loads(subprocess.run([python, script], check=True, capture_output=True, text=True).stdout)


def flaws(sdk: Any, kind: str, value: Any, path: str) -> Iterator[str]:
    """Where a value is not what a model, an enum or a scalar of the SDK can be."""
    if kind in sdk["enums"]:
        if value not in sdk["enums"][kind]:
            yield f"{path}: {value!r} is none of {sdk['enums'][kind]}"
    elif kind not in sdk["models"]:
        if not SCALARS[kind](value):
            yield f"{path}: {value!r} is no {kind}"
    else:
        for name, item in value.items():
            if name not in sdk["models"][kind]:
                yield f"{path}.{name}: {kind} has no such property"
                continue
            inner, is_list, is_map = sdk["models"][kind][name]
            items = enumerate(item) if is_list else item.items() if is_map else [("", item)]
            for key, entry in items:
                yield from flaws(sdk, inner, entry, f"{path}.{name}[{key}]")


def test_the_answer_of_every_operation_is_what_its_model_says(sdk: Any, tmp_path: Path) -> None:
    stage = Stage()
    stage.world.package_files = PackageFolder(tmp_path)
    stage.world.applications = lambda: packages.installed(tmp_path)
    assert sdk["operations"].keys() == OPERATIONS.keys()
    for name, (verb, path, body) in OPERATIONS.items():
        if name == "application_package.activate":
            (tmp_path / "applications" / "a" / "1.pending").write_bytes(b"zip")
        if name == "pool.update":
            stage.settle()
        reply = ask(stage, verb, path, body)
        if name in REFUSALS:
            assert reply.status == REFUSALS[name], (name, reply)
            assert not list(flaws(sdk, "CloudError", reply.document, name))
            continue
        assert reply.status < 300, (name, reply)
        value = reply.document
        for item in value["value"] if value is not None and "value" in value else [value]:
            assert not list(flaws(sdk, sdk["operations"][name], item, name))


def test_a_pool_with_any_property_is_what_the_model_of_a_pool_says(sdk: Any) -> None:
    bodies = [case.body for case in wire_properties.cases() if case.operation == "create_pool"]
    identity = {"type": "UserAssigned", "userAssignedIdentities": [{"resourceId": "/i"}]}
    assert len(bodies) > 100
    for body in bodies:
        stage = Stage()
        stage.world.allocation = USER_SUBSCRIPTION  # the only mode with disk encryption sets
        stage.world.applications = lambda: (Application("app", ("1",), "1"),)
        try:
            pools.create_pool(stage.world, call(body={**body, "id": "p"})._replace(signed_by=TOKEN), identity)
        except Fault as fault:
            assert fault.status == 501, (fault, body)
            continue
        assert not list(flaws(sdk, "Pool", document(ask(stage, "GET", POOL)), "pool")), body


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pool_of_an_example_is_what_the_model_of_a_pool_says(sdk: Any, name: str) -> None:
    stage = Stage()
    stage.world.applications = lambda: (Application("app", ("1",), "1"),)
    reply = ask(stage, "PUT", POOL, EXAMPLES[name], version="2026-10-01")
    assert not list(flaws(sdk, "Pool", document(ask(stage, "GET", POOL)), "pool")), reply


def test_every_word_of_an_enum_is_resource_managers(sdk: Any) -> None:
    words = dict(enums_below(sdk, "PoolProperties", "BatchPool"))
    words |= dict(enums_below(sdk, "VirtualMachineConfiguration", "VirtualMachineConfiguration"))
    assert len(words) > 20
    for kind, enum in words.items():
        emulated = {models.in_resource_manager(kind, value, CURRENT) for value in models.enums()[kind]}
        assert emulated == set(sdk["enums"][enum]), kind


def enums_below(sdk: Any, model: str, kind: str) -> Iterator[tuple[str, str]]:
    """Enums of the emulator at any depth of a model, each with the SDK's name for it."""
    for field in models.fields()[kind]:
        arm_name = ARM_NAMES.get((kind, field.name), (field.name, 0))[0]
        inner = sdk["models"][model].get(arm_name, [""])[0]
        if inner in sdk["enums"]:
            yield field.kind, inner
        elif inner in sdk["models"] and field.kind in models.fields():
            yield from enums_below(sdk, inner, field.kind)
