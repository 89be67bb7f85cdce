"""Bodies of the right form that Azure refuses: each row names its source, and the refusal has Azure's code and the
property's own name. T: the field's text in `models.tsp` of azure-rest-api-specs (0c0b1966). M: from memory."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.emulator import documents, jobs, pools, tasks
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.interface import Size
from batchtrain.emulator.tokens import SHARED_KEY, TOKEN
from batchtrain.emulator.versions import CURRENT, NEWEST
from batchtrain.emulator.world import USER_SUBSCRIPTION, World
from tests.emulation import POOL, Stage, call, machine, network

IMAGE = POOL["virtualMachineConfiguration"]["imageReference"]
JAMMY = {"publisher": "canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts"}
WINDOWS = {"publisher": "MicrosoftWindowsServer", "offer": "WindowsServer", "sku": "2022-datacenter"}
ON_WINDOWS = {"imageReference": WINDOWS, "nodeAgentSKUId": "batch.node.windows amd64"}
NAT = {
    "name": "a", "protocol": "tcp", "backendPort": 22, "frontendPortRangeStart": 1000, "frontendPortRangeEnd": 1099,
}  # fmt: skip
NONE = {"provision": "nopublicipaddresses"}
EXTENSION = {"name": "e", "publisher": "p", "type": "t"}


def disks(*pairs: tuple[int, int]) -> dict[str, Any]:
    return machine(dataDisks=[{"lun": lun, "diskSizeGB": size} for lun, size in pairs])


def rolling(**numbers: object) -> dict[str, Any]:
    return {"upgradePolicy": {"mode": "rolling", "rollingUpgradePolicy": numbers}}


def encrypted(kind: str, **more: object) -> dict[str, Any]:
    return machine(osDisk={"managedDisk": {"securityProfile": {"securityEncryptionType": kind}}}, **more)


COMPUTE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
NETWORKS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network"


def agent(profile: str) -> dict[str, Any]:
    return machine(securityProfile={"proxyAgentSettings": {"imds": {"inVMAccessControlProfileReferenceId": profile}}})


def addressed(nodes: int, addresses: int) -> dict[str, Any]:
    ids = [f"{NETWORKS}/publicIPAddresses/a{number}" for number in range(addresses)]
    return {"targetDedicatedNodes": nodes, **network(publicIPAddressConfiguration={
        "provision": "usermanaged", "ipAddressIds": ids})}  # fmt: skip


def share(url: str) -> dict[str, Any]:
    settings = {"accountName": "a", "accountKey": "k", "azureFileUrl": url, "relativeMountPath": "m"}
    return {"mountConfiguration": [{"azureFileShareConfiguration": settings}]}


POOLS: list[tuple[str, dict[str, Any], str]] = [
    ("T: form", machine(serviceArtifactReference={"id": f"{COMPUTE}/galleries/g"}), "id"),
    ("T: form", agent(f"{COMPUTE}/galleries/g/inVMAccessControlProfiles/p"), "inVMAccessControlProfileReferenceId"),
    ("M", machine(osDisk={"managedDisk": {"diskEncryptionSet": {"id": "/s"}}}), "id"),
    ("M", machine(dataDisks=[{"lun": 0, "diskSizeGB": 1, "managedDisk": {"diskEncryptionSet": {"id": "s"}}}]), "id"),
    ("T: form", share("https://a.blob.core.windows.net/c"), "azureFileUrl"),
    ("T: 100 nodes for each address; code M", addressed(101, 1), "targetDedicatedNodes"),
    ("T: at most 20 characters", {"userAccounts": [{"name": "u" * 21, "password": "p"}]}, "name"),
    (
        "T: not on Linux with an image of a gallery; code M",
        machine(
            imageReference={"virtualMachineImageId": f"{COMPUTE}/galleries/g/images/i"},
            diskEncryptionConfiguration={"targets": ["temporarydisk"]},
        ),
        "diskEncryptionConfiguration",
    ),
    ("T: 1 to 64 characters; code M", {"id": ""}, "id"),
    ("T: at most 1024; code M", {"displayName": "x" * 1025}, "displayName"),
    (
        "recorded: azure-sdk-for-java 2023-05-01.17.0",
        {"userAccounts": [{"name": "u", "password": "p", "windowsUserConfiguration": {"loginMode": "batch"}}]},
        "windowsUserConfiguration",
    ),
    ("T: must not be with Linux; code M", machine(windowsConfiguration={}), "windowsConfiguration"),
    (
        "recorded: pool tests of azure-sdk-for-java",
        machine(imageReference=JAMMY, containerConfiguration={"type": "dockerCompatible"}),
        "containerConfiguration",
    ),
    (
        "T: letter, digit or _ last",
        network(endpointConfiguration={"inboundNATPools": [{**NAT, "name": "a-"}]}),
        "name",
    ),
    (
        "T: no NAT pools; leaf and code M",
        network(endpointConfiguration={"inboundNATPools": [NAT]}, publicIPAddressConfiguration=NONE),
        "endpointConfiguration",
    ),
    ("M", network(publicIPAddressConfiguration={**NONE, "ipTags": [{"ipTagType": "a", "tag": "b"}]}), "ipTags"),
    ("T: must match", machine(nodeAgentSKUId="batch.node.ubuntu 24.04"), "nodeAgentSKUId"),
    ("M", machine(nodeAgentSKUId="batch.node.plan9"), "nodeAgentSKUId"),
    ("M", machine(imageReference={**IMAGE, "sku": "9999"}), "imageReference"),
    ("M", machine(extensions=[EXTENSION, EXTENSION]), "name"),
    ("T: 0 to 63", disks((64, 1)), "lun"),
    ("T: required", machine(securityProfile={"securityType": "confidentialvm"}), "securityEncryptionType"),
    ("T: only for confidential VMs", encrypted("VMGuestStateOnly"), "securityEncryptionType"),
    ("T: needs a security type", machine(securityProfile={"uefiSettings": {"vTpmEnabled": True}}), "uefiSettings"),
    ("T: distinct", disks((0, 1), (0, 1)), "lun"),
    ("M", disks((0, 0)), "diskSizeGB"),
    ("T: 5 to 100", rolling(maxBatchInstancePercent=4), "maxBatchInstancePercent"),
    ("T: 5 to 100", rolling(maxUnhealthyInstancePercent=101), "maxUnhealthyInstancePercent"),
    ("T: 0 to 100", rolling(maxUnhealthyUpgradedInstancePercent=-1), "maxUnhealthyUpgradedInstancePercent"),
    (
        "T: not more than maxUnhealthyInstancePercent",
        rolling(maxBatchInstancePercent=30, maxUnhealthyInstancePercent=20),
        "maxBatchInstancePercent",
    ),
    ("T: true or false only with zonal placement", rolling(enableCrossZoneUpgrade=False), "enableCrossZoneUpgrade"),
    (
        "T: not with enableAutomaticUpdates",
        {
            **machine(**ON_WINDOWS, windowsConfiguration={"enableAutomaticUpdates": True}),
            "upgradePolicy": {"mode": "automatic", "automaticOSUpgradePolicy": {"enableAutomaticOSUpgrade": True}},
        },
        "enableAutomaticOSUpgrade",
    ),
]


@pytest.mark.parametrize(("source", "change", "leaf"), POOLS)
def test_a_pool_that_azure_refuses_is_400_with_the_propertys_name(
    source: str, change: dict[str, Any], leaf: str
) -> None:
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        pools.create_pool(Stage().world, call(body={**POOL, **change})._replace(signed_by=TOKEN))
    assert (refusal.value.status, refusal.value.details["PropertyName"]) == (400, leaf), source


ACCEPTED: list[dict[str, Any]] = [
    {"displayName": "x" * 1024},
    machine(**ON_WINDOWS, windowsConfiguration={"enableAutomaticUpdates": True}),
    machine(containerConfiguration={"type": "dockerCompatible"}),
    disks((0, 1), (63, 1)),
    machine(serviceArtifactReference={"id": f"{COMPUTE}/galleries/g/serviceArtifacts/a/vmArtifactsProfiles/p"}),
    agent(f"{COMPUTE}/galleries/g/inVMAccessControlProfiles/p/versions/1"),
    share("https://a.file.core.windows.net/s"),
    {"userAccounts": [{"name": "u" * 20, "password": "p"}]},
    encrypted("VMGuestStateOnly", securityProfile={"securityType": "confidentialvm"}),
    rolling(maxBatchInstancePercent=5, maxUnhealthyInstancePercent=5, maxUnhealthyUpgradedInstancePercent=0),
    {**rolling(enableCrossZoneUpgrade=True), **machine(nodePlacementConfiguration={"policy": "zonal"})},
    network(publicIPAddressConfiguration=NONE),
    machine(imageReference={**IMAGE, "sku": "1804"}, nodeAgentSKUId="batch.node.ubuntu 18.04"),
]


@pytest.mark.parametrize("change", ACCEPTED)
def test_a_pool_at_a_limit_is_accepted(change: dict[str, Any]) -> None:
    assert Stage().do(pools.create_pool, body={**POOL, **change}).status == 201


@pytest.mark.parametrize("disk", ["osDisk", "dataDisks"])
def test_only_an_account_that_allocates_in_its_own_subscription_takes_disk_encryption_sets(disk: str) -> None:
    """azure-rest-api-specs, ManagedDisk/diskEncryptionSet."""
    managed = {"managedDisk": {"diskEncryptionSet": {"id": f"{COMPUTE}/diskEncryptionSets/d"}}}
    disks_ = {"osDisk": managed, "dataDisks": [{"lun": 0, "diskSizeGB": 1, **managed}]}
    request = call(body={**POOL, **machine(**{disk: disks_[disk]})})._replace(signed_by=TOKEN)
    assert pools.create_pool(World(allocation=USER_SUBSCRIPTION), request).status == 201
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        pools.create_pool(World(), request)
    assert "UserSubscription" in refusal.value.details["Reason"]


def test_an_image_without_containers_has_azures_reason() -> None:
    change = machine(imageReference=JAMMY, containerConfiguration={"type": "dockerCompatible"})
    with pytest.raises(Fault) as refusal:
        Stage().do(pools.create_pool, body={**POOL, **change})
    assert refusal.value.details["Reason"] == (
        "The specified imageReference with publisher canonical offer 0001-com-ubuntu-server-jammy sku 22_04-lts does"
        " not support container feature."
    )


def test_a_mixed_inter_node_pool_has_azures_reason() -> None:
    """Azure/aztk issue 172."""
    mixed = {"enableInterNodeCommunication": True, "targetDedicatedNodes": 1, "targetLowPriorityNodes": 1}
    with pytest.raises(Fault) as refusal:
        Stage().do(pools.create_pool, body={**POOL, **mixed})
    assert refusal.value.details["Reason"] == (
        "Pool cannot have both TargetDedicatedNodes and TargetLowPriorityNodes specified if communication is enabled."
    )


def test_a_patch_is_judged_as_a_new_pool(stage: Stage) -> None:
    stage.pool(0)
    assert stage.refusal(pools.update_pool, "pool", body=disks((0, 1), (0, 1))).code == "InvalidPropertyValue"


def test_only_start_task_packages_and_metadata_of_a_pool_with_nodes_change(stage: Stage) -> None:
    """T: BatchPoolUpdateOptions."""
    stage.pool(1)
    stage.do(pools.update_pool, "pool", body={"metadata": [{"name": "a", "value": "b"}]})
    with pytest.raises(Fault, match="OperationInvalidForCurrentState"):
        stage.do(pools.update_pool, "pool", body=rolling(maxBatchInstancePercent=10))


def test_the_communication_mode_of_a_pool_with_nodes_changes_in_the_versions_that_have_it(stage: Stage) -> None:
    """2024-07-01, BatchPoolUpdateContent and BatchPoolReplaceContent: omitted means default."""
    stage.pool(1)
    body = {"targetNodeCommunicationMode": "Simplified"}
    assert pools.update_pool(stage.world, call("pool", body=body)._replace(revision=20)).status == 200
    assert stage.world.pool("pool").record.spec["targetNodeCommunicationMode"] == "simplified"
    replacement = {"metadata": [], "applicationPackageReferences": []}
    pools.replace_pool_properties(stage.world, call("pool", body=replacement)._replace(revision=20))
    assert documents.pool_document(stage.world.pool("pool"), "")["targetNodeCommunicationMode"] == "default"


@pytest.mark.parametrize("signed_by", [SHARED_KEY, TOKEN])
def test_a_foreign_subnet_is_400_before_the_sign_in_is_judged(signed_by: str) -> None:
    """The suites of Azure's SDKs of 2022, 2024 and 2026."""
    subnet = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/r/providers/Microsoft.Network"
    body = {**POOL, **network(subnetId=f"{subnet}/virtualNetworks/v/subnets/s")}
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        pools.create_pool(Stage().world, call(body=body)._replace(signed_by=signed_by))
    assert refusal.value.details["PropertyName"] == "subnetId"


def exits(start: int, end: int, **options: str) -> dict[str, Any]:
    return {"exitConditions": {"exitCodeRanges": [{"start": start, "end": end, "exitOptions": options}]}}


SPAN = exits(1, 2)["exitConditions"]["exitCodeRanges"]
TASKS: list[tuple[str, dict[str, Any], str]] = [
    ("T: at most 1024; code M", {"displayName": "x" * 1025}, "displayName"),
    ("older REST reference", exits(1, 2, dependencyAction="satisfy"), "dependencyAction"),
    ("M", exits(2, 1), "start"),
    ("M", {"exitConditions": {"exitCodeRanges": [*SPAN, *SPAN]}}, "start"),
    ("M", {"environmentSettings": [{"name": "A=B", "value": "c"}]}, "name"),
    ("M", {"requiredSlots": 257}, "requiredSlots"),
]


FILES = [{"httpUrl": f"https://{'h' * 91}", "filePath": "f"}]
"""100 characters."""


@pytest.mark.parametrize(("count", "is_gang"), [(327, False), (328, False), (328, True)])
def test_the_files_of_a_task_have_a_limit_together(*, count: int, is_gang: bool) -> None:
    """T: RequestEntityTooLarge; the number: Azure Batch, quotas and limits."""
    stage, files = Stage(), FILES * count
    stage.job()
    gang = {"multiInstanceSettings": {"coordinationCommandLine": "x", "commonResourceFiles": files}}
    change = gang if is_gang else {"resourceFiles": files}
    if count == 327:
        stage.task(**change)
        return
    with pytest.raises(Fault, match="RequestEntityTooLarge") as refusal:
        stage.task(**change)
    assert refusal.value.status == 413


@pytest.mark.parametrize(("source", "change", "leaf"), TASKS)
def test_a_task_that_azure_refuses_is_400_with_the_propertys_name(
    stage: Stage, source: str, change: dict[str, Any], leaf: str
) -> None:
    stage.job()
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        stage.task(**change)
    assert (refusal.value.status, refusal.value.details["PropertyName"]) == (400, leaf), source


def test_a_task_cannot_depend_on_itself(stage: Stage) -> None:
    stage.job(usesTaskDependencies=True)
    stage.task(**exits(1, 2, dependencyAction="satisfy"))
    with pytest.raises(Fault, match="InvalidPropertyValue"):
        stage.do(tasks.create_task, "job", body={"id": "a", "commandLine": "x", "dependsOn": {"taskIds": ["A"]}})


def test_the_environment_of_a_preparation_task_is_judged_too() -> None:
    settings = [{"name": "A=B", "value": "c"}]
    preparation = {"commandLine": "true", "environmentSettings": settings}
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        Stage().do(jobs.create_job, body={"id": "job", "poolInfo": {"poolId": "p"}, "jobPreparationTask": preparation})
    assert refusal.value.property_path == "jobPreparationTask/environmentSettings[0]/name"


# 2026-10-01: T of azure-rest-api-specs (0c0b1966) -------------------------------------------------------------------

AUTO = {"zonePlacementPolicy": "Auto"}


def mix(*names: str, ranks: bool = False, size: str = "Mix", **more: object) -> dict[str, Any]:
    sizes = [{"name": name, **({"rank": rank} if ranks else {})} for rank, name in enumerate(names)]
    return {"vmSize": size, "vmSkuProfile": {"vmSizes": sizes, **more}}


def resilient(**more: object) -> dict[str, Any]:
    return machine(placement=AUTO, resiliencyPolicy={"zoneAllocationPolicy": more})


NEWER: list[tuple[dict[str, Any], str]] = [
    (mix("standard_d2s_v5", size="standard_d2s_v5"), "vmSize"),
    ({"vmSize": "Mix"}, "vmSize"),
    (mix(), "vmSizes"),
    (mix(*(f"standard_d{n}s_v5" for n in (2, 4, 8, 16, 32, 48))), "vmSizes"),
    (mix("standard_d2s_v5", "STANDARD_D2S_V5"), "name"),
    (mix("standard_d2s_v5", ranks=True), "rank"),
    (mix("standard_d2s_v5", allocationStrategy="prioritized"), "rank"),
    (machine(placement=AUTO, nodePlacementConfiguration={"policy": "zonal"}), "placement"),
    (machine(resiliencyPolicy={"zoneAllocationPolicy": {}}), "resiliencyPolicy"),
    (resilient(maxZoneCount=0), "maxZoneCount"),
    (resilient(maxInstancePercentPerZonePolicy={"value": 101}), "value"),
    (machine(hardwareProfile={"vmSizeProperties": {"vCPUsPerCore": 0}}), "vCPUsPerCore"),
]


def make(change: dict[str, Any], revision: int = NEWEST) -> Stage:
    stage = Stage()
    pools.create_pool(stage.world, call(body={**POOL, **change})._replace(revision=revision))
    return stage


@pytest.mark.parametrize(("change", "leaf"), NEWER)
def test_a_pool_of_2026_10_01_that_azure_refuses_is_400(change: dict[str, Any], leaf: str) -> None:
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        make(change)
    assert refusal.value.details["PropertyName"] == leaf


@pytest.mark.parametrize(
    "change",
    [
        mix("standard_d2s_v5", "standard_d2as_v5"),
        mix("standard_d2s_v5", "standard_d2as_v5", ranks=True, allocationStrategy="Prioritized"),
        resilient(maxZoneCount=2, maxInstancePercentPerZonePolicy={"enabled": True, "value": 50}),
        machine(hardwareProfile={"vmSizeProperties": {"vCPUsPerCore": 1}}),
    ],
)
def test_a_property_of_2026_10_01_is_one_of_that_version_only(change: dict[str, Any]) -> None:
    assert make(change).world.pools
    with pytest.raises(Fault, match="2026-10-01"):
        make(change, CURRENT)


def test_a_mixed_pools_nodes_have_the_size_of_the_first_rank() -> None:
    sizes = [{"name": "standard_d2as_v5", "rank": 1}, {"name": "Standard_D2s_v5", "rank": 0}]
    profile = {"vmSizes": sizes, "allocationStrategy": "prioritized"}
    stage = make({"vmSize": "Mix", "vmSkuProfile": profile, "targetDedicatedNodes": 1})
    stage.boot()
    (node,) = stage.nodes()
    shown = documents.node_document(stage.world, stage.world.pools["pool"], node, "")
    assert (shown["vmSize"], shown["publicIPAddress"]) == ("standard_d2s_v5", node.address)


def test_sizes_of_a_mix_have_the_same_number_of_vcpus(stage: Stage) -> None:
    stage.world.find_size = lambda name: Size(4 if "d4" in name else 2)
    body = {**POOL, **mix("standard_d2s_v5", "standard_d4s_v5")}
    with pytest.raises(Fault, match="InvalidPropertyValue"):
        pools.create_pool(stage.world, call(body=body)._replace(revision=NEWEST))


def test_retained_data_is_no_option_since_2026_10_01(stage: Stage) -> None:
    stage.pool(1)
    body = {"targetDedicatedNodes": 0, "nodeDeallocationOption": "retaineddata"}
    with pytest.raises(Fault, match="InvalidPropertyValue"):
        pools.resize_pool(stage.world, call("pool", body=body)._replace(revision=NEWEST))
    assert stage.do(pools.resize_pool, "pool", body=body).status == 202


def test_a_pools_statistics_have_no_usage_since_2026_10_01(stage: Stage) -> None:
    stage.pool(0)
    for revision, names in ((CURRENT, {"usageStats", "resourceStats"}), (NEWEST, {"resourceStats"})):
        reply = pools.get_pool(stage.world, call("pool", expand="stats")._replace(revision=revision))
        assert {name for name in reply.document["stats"] if name.endswith("Stats")} == names  # type: ignore[index]


def test_a_pool_that_is_made_for_a_job_has_no_hardware_profile() -> None:
    pool = {**POOL, **machine(hardwareProfile={"vmSizeProperties": {"vCPUsPerCore": 1}})}
    del pool["id"]
    info = {"autoPoolSpecification": {"poolLifetimeOption": "job", "pool": pool}}
    with pytest.raises(Fault, match="InvalidPropertyValue"):
        jobs.create_job(Stage().world, call(body={"id": "job", "poolInfo": info})._replace(revision=NEWEST))
