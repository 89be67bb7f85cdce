"""Pools like those of the examples that Azure publishes for Resource Manager 2026-10-01: each is taken, and shown as it
was sent. The bodies have the properties of the examples and values of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from batchtrain.emulator.world import Application
from tests.emulation import Stage, document
from tests.unit.emulator import arm
from tests.unit.emulator.arm import ACCOUNT, UBUNTU

GROUP = "/subscriptions/s/resourceGroups/g"
IDENTITY = f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
GALLERY = f"{GROUP}/providers/Microsoft.Compute/galleries/gallery"
WINDOWS = {
    "imageReference": {"publisher": "MicrosoftWindowsServer", "offer": "WindowsServer", "sku": "2022-datacenter"},
    "nodeAgentSkuId": "batch.node.windows amd64",
}
TWO: dict[str, Any] = {"fixedScale": {"targetDedicatedNodes": 2, "targetLowPriorityNodes": 0}}


def pool_body(machine: dict[str, Any] = UBUNTU, **more: object) -> dict[str, Any]:
    """The properties of a pool."""
    deployment = {"virtualMachineConfiguration": machine}
    return {"vmSize": "Standard_d4s_v3", "deploymentConfiguration": deployment, "scaleSettings": TWO, **more}


def pool(machine: dict[str, Any] = UBUNTU, /, *, identity: object = None, tags: object = None, **more: object) -> Any:
    outer = {"identity": identity, "tags": tags}
    return {"properties": pool_body(machine, **more), **{name: value for name, value in outer.items() if value}}


def assigned() -> dict[str, object]:
    return {"type": "UserAssigned", "userAssignedIdentities": {IDENTITY: {}}}


KEY = {"keyUrl": "https://v.vault.azure.net/keys/k/1", "identityReference": {"resourceId": IDENTITY}}
NAT = {
    "name": "ssh", "protocol": "TCP", "backendPort": 22, "frontendPortRangeStart": 30_000,
    "frontendPortRangeEnd": 30_100, "networkSecurityGroupRules": [
        {"access": "Allow", "priority": 300, "sourceAddressPrefix": "192.0.2.0/24", "sourcePortRanges": ["1-9", "22"]},
        {"access": "Deny", "priority": 400, "sourceAddressPrefix": "*", "sourcePortRanges": ["*"]},
    ],
}  # fmt: skip
EXTENSION = {
    "name": "e", "type": "KeyVaultForLinux", "publisher": "Microsoft.Azure.KeyVault", "typeHandlerVersion": "2.0",
    "autoUpgradeMinorVersion": True, "enableAutomaticUpgrade": True,
    "settings": {"access": "allow", "userName": "u", "nodeAgentSkuId": "x"},
}  # fmt: skip
ROLLING = {
    "enableCrossZoneUpgrade": True, "maxBatchInstancePercent": 10, "maxUnhealthyInstancePercent": 30,
    "maxUnhealthyUpgradedInstancePercent": 30, "pauseTimeBetweenBatches": "PT5S",
    "prioritizeUnhealthyInstances": True, "rollbackFailedInstancesOnPolicyBreach": True,
}  # fmt: skip
AUTOMATIC = {
    "disableAutomaticRollback": False, "enableAutomaticOSUpgrade": True, "osRollingUpgradeDeferral": False,
    "useRollingUpgradePolicy": True,
}  # fmt: skip
FULL = pool(
    {
        **UBUNTU,
        "dataDisks": [
            {"lun": 0, "diskSizeGB": 10, "caching": "ReadWrite",
             "managedDisk": {"storageAccountType": "StandardSSD_LRS"}},
        ],
        "licenseType": "RHEL_BYOS",
        "osDisk": {"ephemeralOSDiskSettings": {"placement": "CacheDisk"}},
        "diskEncryptionConfiguration": {"targets": ["OsDisk", "TemporaryDisk"]},
    },
    displayName="full",
    interNodeCommunication="Enabled",
    scaleSettings={"fixedScale": {"targetDedicatedNodes": 1, "resizeTimeout": "PT8M"}},
    taskSchedulingPolicy={"nodeFillType": "Pack", "jobDefaultOrder": "CreationTime"},
    taskSlotsPerNode=4,
    applicationPackages=[{"id": f"{ACCOUNT}/applications/app", "version": "1"}],
    metadata=[{"name": "a", "value": "b"}],
    userAccounts=[{"name": "u", "elevationLevel": "Admin", "linuxUserConfiguration": {"uid": 1, "gid": 2}}],
    startTask={
        "commandLine": "prepare", "maxTaskRetryCount": 2, "waitForSuccess": True,
        "environmentSettings": [{"name": "A", "value": "b"}],
        "resourceFiles": [{"httpUrl": "https://h/f", "filePath": "f", "fileMode": "777"}],
        "userIdentity": {"autoUser": {"scope": "Pool", "elevationLevel": "Admin"}},
    },
)  # fmt: skip
FULL["properties"]["userAccounts"][0]["password"] = "p"

EXAMPLES: dict[str, Any] = {
    "minimal": pool(),
    "full": FULL,
    "accelerated networking": pool(WINDOWS, networkConfiguration={"enableAcceleratedNetworking": True}),
    "customer managed key": pool(
        {**WINDOWS, "diskEncryptionConfiguration": {"targets": ["OsDisk"], "customerManagedKey": KEY}},
        identity=assigned(),
    ),
    "dual stack": pool(
        networkConfiguration={
            "publicIPAddressConfiguration": {"ipFamilies": ["IPv4", "IPv6"]},
            "endpointConfiguration": {"inboundNatPools": [NAT]},
        }
    ),
    "no public addresses": pool(
        networkConfiguration={
            "subnetId": f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/s",
            "publicIPAddressConfiguration": {"provision": "NoPublicIPAddresses"},
        }
    ),
    "public addresses": pool(
        networkConfiguration={
            "subnetId": f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/s",
            "publicIPAddressConfiguration": {
                "provision": "UserManaged",
                "ipAddressIds": [f"{GROUP}/providers/Microsoft.Network/publicIPAddresses/a"],
            },
        }
    ),
    "trusted launch": pool(
        {**UBUNTU, "securityProfile": {"encryptionAtHost": True, "securityType": "trustedLaunch",
                                       "uefiSettings": {"vTpmEnabled": False, "secureBootEnabled": False}}}
    ),
    "confidential": pool(
        {
            **WINDOWS,
            "securityProfile": {"securityType": "confidentialVM", "uefiSettings": {"vTpmEnabled": True}},
            "osDisk": {"managedDisk": {"securityProfile": {"securityEncryptionType": "VMGuestStateOnly"}}},
        }
    ),
    "gallery": pool({**UBUNTU, "imageReference": {"id": f"{GALLERY}/images/image/versions/1.0.0"}}),
    "tags": pool(tags={"team": "t"}),
    "identities": pool(identity=assigned()),
    "upgrade policy": pool(
        {**WINDOWS, "nodePlacementConfiguration": {"policy": "Zonal"},
         "windowsConfiguration": {"enableAutomaticUpdates": False}},
        upgradePolicy={"mode": "automatic", "automaticOSUpgradePolicy": AUTOMATIC, "rollingUpgradePolicy": ROLLING},
    ),
    "extensions": pool(
        {**UBUNTU, "extensions": [EXTENSION]},
        scaleSettings={"autoScale": {"evaluationInterval": "PT5M", "formula": "$TargetDedicatedNodes=1"}},
    ),
    "managed disk": pool(
        {**WINDOWS, "osDisk": {"caching": "ReadWrite", "diskSizeGB": 100, "writeAcceleratorEnabled": False,
                               "managedDisk": {"storageAccountType": "Premium_LRS"}}}
    ),
    "service artifact": pool(
        {**WINDOWS, "windowsConfiguration": {"enableAutomaticUpdates": False},
         "serviceArtifactReference": {"id": f"{GALLERY}/serviceArtifacts/a/vmArtifactsProfiles/p"}},
        upgradePolicy={"mode": "automatic", "automaticOSUpgradePolicy": {"enableAutomaticOSUpgrade": True}},
    ),
}  # fmt: skip
"""The examples Pool_Create and Pool_Get of azure-rest-api-specs, `stable/2026-10-01/examples`."""


def ask(stage: Stage, verb: str, body: object) -> dict[str, Any]:
    return document(arm.ask(stage, verb, f"{ACCOUNT}/pools/p", body, version="2026-10-01"))


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.world.applications = lambda: (Application("app", ("1",), "1"),)
    return stage


def differences(sent: Any, answer: Any, path: str = "") -> Iterator[str]:
    """What an answer does not repeat."""
    if isinstance(sent, dict) and isinstance(answer, dict):
        for name, value in sent.items():
            yield from differences(value, answer.get(name), f"{path}/{name}")
    elif isinstance(sent, list) and isinstance(answer, list) and len(sent) == len(answer):
        for index, (item, other) in enumerate(zip(sent, answer, strict=True)):
            yield from differences(item, other, f"{path}[{index}]")
    elif sent != answer:
        yield f"{path}: {answer!r} for {sent!r}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_published_kind_of_pool_is_shown_as_it_was_sent(stage: Stage, name: str) -> None:
    answer = ask(stage, "PUT", EXAMPLES[name])
    unlike = {"/properties/vmSize", "/properties/userAccounts[0]/password"}
    assert {text.partition(":")[0] for text in differences(EXAMPLES[name], answer)} <= unlike
    assert answer["properties"]["vmSize"] == "STANDARD_D4S_V3"


UPDATES: dict[str, Any] = {
    "formula": {"scaleSettings": {"autoScale": {"formula": "$TargetDedicatedNodes=1"}}},
    "size": {"scaleSettings": {"fixedScale": {
        "targetDedicatedNodes": 5, "targetLowPriorityNodes": 0, "resizeTimeout": "PT8M"}}},
    "other properties": {"metadata": [{"name": "c", "value": "d"}],
                         "applicationPackages": [{"id": f"{ACCOUNT}/applications/app"}]},
}  # fmt: skip
"""The examples Pool_Update."""


@pytest.mark.parametrize("name", UPDATES)
def test_a_published_kind_of_update_is_shown_as_it_was_sent(stage: Stage, name: str) -> None:
    ask(stage, "PUT", pool(scaleSettings={}))
    stage.settle()
    answer = ask(stage, "PATCH", {"properties": UPDATES[name]})
    assert not list(differences(UPDATES[name], answer["properties"]))


def test_a_resize_shows_its_start_and_what_happens_to_the_tasks_of_removed_nodes(stage: Stage) -> None:
    ask(stage, "PUT", pool())
    stage.settle()
    stage.later(60)
    scale = {"targetDedicatedNodes": 3, "nodeDeallocationOption": "TaskCompletion"}
    resize = ask(stage, "PATCH", {"properties": {"scaleSettings": {"fixedScale": scale}}})
    status = resize["properties"]["resizeOperationStatus"]
    assert (status["nodeDeallocationOption"], status["startTime"]) == (
        "TaskCompletion",
        resize["properties"]["allocationStateTransitionTime"],
    )
