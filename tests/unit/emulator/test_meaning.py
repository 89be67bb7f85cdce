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
from tests.emulation import POOL, Stage, call, document, machine, network

IMAGE = POOL["virtualMachineConfiguration"]["imageReference"]
JAMMY = {"publisher": "canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts"}
WINDOWS = {"publisher": "MicrosoftWindowsServer", "offer": "WindowsServer", "sku": "2022-datacenter"}
ON_WINDOWS = {"imageReference": WINDOWS, "nodeAgentSKUId": "batch.node.windows amd64"}
NAT = {
    "name": "a", "protocol": "tcp", "backendPort": 22, "frontendPortRangeStart": 1000, "frontendPortRangeEnd": 1099,
}  # fmt: skip
NONE = {"provision": "nopublicipaddresses"}
EXTENSION = {"name": "e", "publisher": "p", "type": "t"}
COMPUTE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
NETWORKS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network"
GALLERY_IMAGE = f"{COMPUTE}/galleries/g/images/i"
SUBNET = f"{NETWORKS}/virtualNetworks/v/subnets/s"
ADDRESS = f"{NETWORKS}/publicIPAddresses/a"
NFS = {"source": "10.0.0.9:/export/home", "relativeMountPath": "nfs/home"}
CIFS = {"source": "//server/folder", "username": "me", "password": "hush", "relativeMountPath": "cifs"}
BLOB = {"accountName": "acc", "containerName": "data", "sasKey": "hush", "relativeMountPath": "blobs"}


def disks(*pairs: tuple[int, int]) -> dict[str, Any]:
    return machine(dataDisks=[{"lun": lun, "diskSizeGB": size} for lun, size in pairs])


def rolling(**numbers: object) -> dict[str, Any]:
    return {"upgradePolicy": {"mode": "rolling", "rollingUpgradePolicy": numbers}}


def encrypted(kind: str, **more: object) -> dict[str, Any]:
    return machine(osDisk={"managedDisk": {"securityProfile": {"securityEncryptionType": kind}}}, **more)


def agent(profile: str) -> dict[str, Any]:
    return machine(securityProfile={"proxyAgentSettings": {"imds": {"inVMAccessControlProfileReferenceId": profile}}})


def image(**reference: object) -> dict[str, Any]:
    return machine(imageReference=reference)


def addresses(*ids: str, **more: object) -> dict[str, Any]:
    return network(publicIPAddressConfiguration={"provision": "usermanaged", "ipAddressIds": ids, **more})


def families(*names: str) -> dict[str, Any]:
    return network(publicIPAddressConfiguration={"ipFamilies": names})


def nat(**more: object) -> dict[str, Any]:
    return {"endpointConfiguration": {"inboundNATPools": [{**NAT, **more}]}}


def share(url: str) -> dict[str, Any]:
    return mounts({"azureFileShareConfiguration": {"accountName": "a", "accountKey": "k", "azureFileUrl": url,
                                                   "relativeMountPath": "m"}})  # fmt: skip


def mounts(*file_systems: dict[str, Any]) -> dict[str, Any]:
    return {"mountConfiguration": file_systems}


def nfs(path: str) -> dict[str, Any]:
    return {"nfsMountConfiguration": {**NFS, "relativeMountPath": path}}


def accounts(*more: dict[str, Any]) -> dict[str, Any]:
    return {"userAccounts": [{"name": "me", "password": "x", **account} for account in more]}


CUSTOMER_KEY = {"customerManagedKey": {"keyUrl": "https://v/keys/k/1"}}
OS_UPGRADE = {"mode": "automatic", "automaticOSUpgradePolicy": {"enableAutomaticOSUpgrade": True}}
ON_DISK = {"diskEncryptionConfiguration": {"targets": ["temporarydisk"]}}
CONTAINERS = {"containerConfiguration": {"type": "dockerCompatible"}}
BATCH_LOGIN = {"windowsUserConfiguration": {"loginMode": "batch"}}
SCRIPT = {"name": "n", "publisher": "Microsoft.Azure.Extensions", "type": "CustomScript"}
SETS = {"managedDisk": {"diskEncryptionSet": {"id": "/s"}}}
MIXED = {"enableInterNodeCommunication": True, "targetDedicatedNodes": 1, "targetLowPriorityNodes": 1}
POOLS: list[tuple[str, dict[str, Any], str, str]] = [
    ("T: form", machine(serviceArtifactReference={"id": f"{COMPUTE}/galleries/g"}), "id", ""),
    ("T: form", agent(f"{COMPUTE}/galleries/g/inVMAccessControlProfiles/p"), "inVMAccessControlProfileReferenceId", ""),
    ("M", machine(osDisk=SETS), "id", ""),
    ("M", machine(dataDisks=[{"lun": 0, "diskSizeGB": 1, **SETS}]), "id", ""),
    ("T: form", share("https://a.blob.core.windows.net/c"), "azureFileUrl", ""),
    ("T: 100 nodes for each address", {"targetDedicatedNodes": 101, **addresses(ADDRESS)}, "targetDedicatedNodes", ""),
    ("T: not on Linux with an image of a gallery; code M",
     machine(imageReference={"virtualMachineImageId": GALLERY_IMAGE}, **ON_DISK), "diskEncryptionConfiguration", ""),
    ("T: at most 1024; code M", {"displayName": "x" * 1025}, "displayName", ""),
    ("recorded: azure-sdk-for-java 2023-05-01.17.0", accounts(BATCH_LOGIN), "windowsUserConfiguration", ""),
    ("T: must not be with Linux; code M", machine(windowsConfiguration={}), "windowsConfiguration", ""),
    ("recorded: pool tests of azure-sdk-for-java", machine(imageReference=JAMMY, **CONTAINERS),
     "containerConfiguration", "The specified imageReference with publisher canonical offer "
     "0001-com-ubuntu-server-jammy sku 22_04-lts does not support container feature."),
    ("T: letter, digit or _ last", network(**nat(name="a-")), "name", ""),
    ("T: no NAT pools; leaf and code M", network(**nat(), publicIPAddressConfiguration=NONE), "endpointConfiguration",
     ""),
    ("M", network(publicIPAddressConfiguration={**NONE, "ipTags": [{"ipTagType": "a", "tag": "b"}]}), "ipTags", ""),
    ("T: must match", machine(nodeAgentSKUId="batch.node.ubuntu 24.04"), "nodeAgentSKUId", ""),
    ("M", machine(nodeAgentSKUId="batch.node.plan9"), "nodeAgentSKUId", ""),
    ("M", image(**{**IMAGE, "sku": "9999"}), "imageReference", ""),
    ("M", machine(extensions=[EXTENSION, EXTENSION]), "name", ""),
    ("T: 0 to 63", disks((64, 1)), "lun", ""),
    ("T: required", machine(securityProfile={"securityType": "confidentialvm"}), "securityEncryptionType", ""),
    ("T: only for confidential VMs", encrypted("VMGuestStateOnly"), "securityEncryptionType", ""),
    ("T: needs a security type", machine(securityProfile={"uefiSettings": {"vTpmEnabled": True}}), "uefiSettings", ""),
    ("T: distinct", disks((0, 1), (0, 1)), "lun", ""),
    ("M", disks((0, 0)), "diskSizeGB", ""),
    ("T: 5 to 100", rolling(maxBatchInstancePercent=4), "maxBatchInstancePercent", ""),
    ("T: 5 to 100", rolling(maxUnhealthyInstancePercent=101), "maxUnhealthyInstancePercent", ""),
    ("T: 0 to 100", rolling(maxUnhealthyUpgradedInstancePercent=-1), "maxUnhealthyUpgradedInstancePercent", ""),
    ("T: not more than maxUnhealthyInstancePercent",
     rolling(maxBatchInstancePercent=30, maxUnhealthyInstancePercent=20), "maxBatchInstancePercent", ""),
    ("T: only with zonal placement", rolling(enableCrossZoneUpgrade=False), "enableCrossZoneUpgrade", ""),
    ("T: not with enableAutomaticUpdates",
     {**machine(**ON_WINDOWS, windowsConfiguration={"enableAutomaticUpdates": True}), "upgradePolicy": OS_UPGRADE},
     "enableAutomaticOSUpgrade", ""),
    ("T: form", image(virtualMachineImageId="image"), "virtualMachineImageId", "of the form"),
    ("T: form", image(virtualMachineImageId=f"{COMPUTE}/images/i"), "virtualMachineImageId", "galleries"),
    ("T", image(virtualMachineImageId=GALLERY_IMAGE, publisher="p"), "imageReference", "mutually exclusive"),
    ("T", image(communityGalleryImageId="/c", sharedGalleryImageId="/s"), "imageReference", "mutually exclusive"),
    ("T", machine(diskEncryptionConfiguration=CUSTOMER_KEY), "customerManagedKey", "Pool Identity is required when us"),
    ("T", machine(extensions=[SCRIPT]), "type", "reserved for Batch"),
    ("T: form", network(subnetId=SUBNET.removesuffix("/subnets/s")), "subnetId", "of the form"),
    ("T: form", addresses("a"), "ipAddressIds", "of the form"),
    ("T", network(publicIPAddressConfiguration={"ipAddressIds": [ADDRESS]}), "ipAddressIds", "usermanaged"),
    ("T", network(publicIPAddressConfiguration={"provision": "usermanaged"}), "ipAddressIds", "usermanaged"),
    ("T", {"id": "no spaces"}, "id", "A-Z"),
    ("T", mounts({}), "mountConfiguration", ""),
    ("T", mounts({"nfsMountConfiguration": NFS, "cifsMountConfiguration": CIFS}), "mountConfiguration", ""),
    ("T", mounts({"azureBlobFileSystemConfiguration": {**BLOB, "accountKey": "x"}}), "mountConfiguration", ""),
    ("T", mounts(nfs("../x")), "relativeMountPath", ""),
    ("T", mounts(nfs("/x")), "relativeMountPath", ""),
    ("T", mounts(nfs("nfs/home"), nfs("nfs/home")), "relativeMountPath", ""),
    ("T", mounts(nfs("cifs/home"), {"cifsMountConfiguration": CIFS}), "relativeMountPath", ""),
    ("T", accounts({}, {}), "name", "given once"),
    ("T", accounts({"linuxUserConfiguration": {"uid": 1}}), "linuxUserConfiguration", ""),
    ("T", families("IPv6"), "ipFamilies", ""),
    ("T", families(), "ipFamilies", ""),
    ("T", families("IPv4", "IPv4"), "ipFamilies", ""),
]  # fmt: skip
"""Source, change, the name of the property, and a part of the reason."""


@pytest.fixture
def by_token(stage: Stage) -> Stage:
    stage.client["signed_by"] = TOKEN
    return stage


@pytest.mark.parametrize(("source", "change", "leaf", "reason"), POOLS)
def test_a_pool_that_azure_refuses_is_400_with_the_propertys_name(
    by_token: Stage, source: str, change: dict[str, Any], leaf: str, reason: str
) -> None:
    refusal = by_token.refusal(pools.create_pool, body={**POOL, **change})
    assert (refusal.status, refusal.code, refusal.details["PropertyName"]) == (400, "InvalidPropertyValue", leaf), (
        source
    )
    assert reason in refusal.details["Reason"]
    assert not by_token.world.pools


FILE = {"httpUrl": "http://x/y", "filePath": "y", "identityReference": {"resourceId": "/subscriptions/x"}}


@pytest.mark.parametrize(
    ("change", "status", "code", "words"),
    [
        (image(publisher="p", offer="o"), 400, "MissingRequiredProperty", "imageReference/sku"),
        ({"virtualMachineConfiguration": None}, 400, "MissingRequiredProperty", "virtualMachineConfiguration"),
        ({"startTask": {"commandLine": "x", "resourceFiles": [FILE]}}, 501, "NotImplementedByEmulator", "URL"),
        (MIXED, 400, "InvalidPropertyValue",  # Azure/aztk issue 172
         "Pool cannot have both TargetDedicatedNodes and TargetLowPriorityNodes specified if communication is "
         "enabled."),
    ],
)  # fmt: skip
def test_a_pool_that_lacks_something_or_mixes_kinds_of_nodes_is_refused(
    stage: Stage, change: dict[str, Any], status: int, code: str, words: str
) -> None:
    refusal = stage.refusal(pools.create_pool, body={**POOL, **change})
    assert (refusal.status, refusal.code) == (status, code)
    assert words in " ".join(refusal.details.values())


ACCEPTED: list[dict[str, Any]] = [
    {"displayName": "x" * 1024},
    machine(**ON_WINDOWS, windowsConfiguration={"enableAutomaticUpdates": True}),
    machine(**CONTAINERS),
    disks((0, 1), (63, 1)),
    machine(serviceArtifactReference={"id": f"{COMPUTE}/galleries/g/serviceArtifacts/a/vmArtifactsProfiles/p"}),
    agent(f"{COMPUTE}/galleries/g/inVMAccessControlProfiles/p/versions/1"),
    share("https://a.file.core.windows.net/s"),
    encrypted("VMGuestStateOnly", securityProfile={"securityType": "confidentialvm"}),
    rolling(maxBatchInstancePercent=5, maxUnhealthyInstancePercent=5, maxUnhealthyUpgradedInstancePercent=0),
    {**rolling(enableCrossZoneUpgrade=True), **machine(nodePlacementConfiguration={"policy": "zonal"})},
    network(publicIPAddressConfiguration=NONE),
    machine(imageReference={**IMAGE, "sku": "1804"}, nodeAgentSKUId="batch.node.ubuntu 18.04"),
]


@pytest.mark.parametrize("change", ACCEPTED)
def test_a_pool_at_a_limit_is_accepted(stage: Stage, change: dict[str, Any]) -> None:
    assert stage.do(pools.create_pool, body={**POOL, **change}).status == 201


@pytest.mark.parametrize("disk", ["osDisk", "dataDisks"])
def test_only_an_account_that_allocates_in_its_own_subscription_takes_disk_encryption_sets(
    by_token: Stage, disk: str
) -> None:
    """azure-rest-api-specs, ManagedDisk/diskEncryptionSet."""
    managed = {"managedDisk": {"diskEncryptionSet": {"id": f"{COMPUTE}/diskEncryptionSets/d"}}}
    disks_ = {"osDisk": managed, "dataDisks": [{"lun": 0, "diskSizeGB": 1, **managed}]}
    body = {**POOL, **machine(**{disk: disks_[disk]})}
    assert "UserSubscription" in by_token.refusal(pools.create_pool, body=body).details["Reason"]
    by_token.world.allocation = USER_SUBSCRIPTION
    assert by_token.do(pools.create_pool, body=body).status == 201


def test_a_pool_with_an_identity_may_have_a_key_of_its_customer() -> None:
    world = World()
    encryption = {**CUSTOMER_KEY, "targets": ["osdisk"]}
    request = call(body={**POOL, **machine(diskEncryptionConfiguration=encryption)})
    pools.create_pool(world, request, {"type": "UserAssigned", "userAssignedIdentities": []})
    assert world.pool("pool").record.spec["identity"]["type"] == "UserAssigned"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"virtualMachineImageId": GALLERY_IMAGE},) * 2,
        ({"virtualMachineImageId": f"{GALLERY_IMAGE}/versions/1"},) * 2,
        (JAMMY, {**JAMMY, "version": "latest"}),
    ],
)  # fmt: skip
def test_an_image_is_shown_as_it_was_given_and_one_of_the_marketplace_is_the_latest(
    by_token: Stage, given: dict[str, str], shown: dict[str, str]
) -> None:
    by_token.pool(0, **image(**given))
    assert by_token.world.pool("pool").record.spec["virtualMachineConfiguration"]["imageReference"] == shown


LINKED = [
    (network(subnetId=SUBNET), "Network"),
    (addresses(ADDRESS), "Network"),
    (image(virtualMachineImageId=GALLERY_IMAGE), "Compute"),
    (image(sharedGalleryImageId="/s"), "Compute"),
    (image(communityGalleryImageId="/c"), "Compute"),
]


@pytest.mark.parametrize(("more", "kind"), LINKED)
def test_a_pool_with_resources_outside_batch_needs_a_token(stage: Stage, more: dict[str, Any], kind: str) -> None:
    refusal = stage.refusal(pools.create_pool, body={**POOL, **more})
    reason = (
        "The specified type of authentication SharedKey is not allowed when external resources of type {} are linked."
    )
    assert (refusal.status, refusal.code) == (403, "AuthenticationFailed")
    assert refusal.details == {"AuthenticationErrorDetail": reason.format(kind)}
    stage.client["signed_by"] = TOKEN
    assert stage.do(pools.create_pool, body={**POOL, **more}).status == 201


def pool_of_job(**more: object) -> dict[str, Any]:
    pool = {name: value for name, value in {**POOL, **more}.items() if name != "id"}
    return {"id": "job", "poolInfo": {"autoPoolSpecification": {"poolLifetimeOption": "job", "pool": pool}}}


def test_so_does_a_job_whose_pool_is_made_for_it(stage: Stage) -> None:
    body = pool_of_job(**network(subnetId=SUBNET))
    assert stage.refusal(jobs.create_job, body=body).code == "AuthenticationFailed"
    stage.client["signed_by"] = TOKEN
    assert stage.do(jobs.create_job, body=body).status == 201


def test_a_patch_is_judged_as_a_new_pool(stage: Stage) -> None:
    stage.pool(0)
    assert stage.refusal(pools.update_pool, "pool", body=disks((0, 1), (0, 1))).code == "InvalidPropertyValue"


def test_only_start_task_packages_and_metadata_of_a_pool_with_nodes_change(stage: Stage) -> None:
    """T: BatchPoolUpdateOptions."""
    stage.pool(1)
    stage.do(pools.update_pool, "pool", body={"metadata": [{"name": "a", "value": "b"}]})
    refusal = stage.refusal(pools.update_pool, "pool", body=rolling(maxBatchInstancePercent=10))
    assert refusal.code == "OperationInvalidForCurrentState"


def test_the_communication_mode_of_a_pool_with_nodes_changes_in_the_versions_that_have_it(stage: Stage) -> None:
    """2024-07-01, BatchPoolUpdateContent and BatchPoolReplaceContent: omitted means default."""
    stage.pool(1)
    stage.client["revision"] = 20
    assert stage.do(pools.update_pool, "pool", body={"targetNodeCommunicationMode": "Simplified"}).status == 200
    assert stage.world.pool("pool").record.spec["targetNodeCommunicationMode"] == "simplified"
    stage.do(pools.replace_pool_properties, "pool", body={"metadata": [], "applicationPackageReferences": []})
    assert documents.pool_document(stage.world.pool("pool"), "")["targetNodeCommunicationMode"] == "default"


@pytest.mark.parametrize("signed_by", [SHARED_KEY, TOKEN])
def test_a_foreign_or_malformed_subnet_is_400_before_the_sign_in_is_judged(stage: Stage, signed_by: str) -> None:
    """The suites of Azure's SDKs of 2022, 2024 and 2026."""
    stage.client["signed_by"] = signed_by
    for subnet in (SUBNET.replace("subscriptions/s", f"subscriptions/{'0' * 8}-0000-0000-0000-{'0' * 12}"), "x"):
        refusal = stage.refusal(pools.create_pool, body={**POOL, **network(subnetId=subnet)})
        assert (refusal.code, refusal.details["PropertyName"]) == ("InvalidPropertyValue", "subnetId")


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


def refused_task(stage: Stage, **more: object) -> Fault:
    if "job" not in stage.world.jobs:
        stage.job()
    return stage.refusal(tasks.create_task, "job", body={"id": "task", "commandLine": "x", **more})


ON_POOL = {"poolInfo": {"poolId": "pool"}}
FILES = [{"httpUrl": f"https://{'h' * 91}", "filePath": "f"}]
"""100 characters."""


@pytest.mark.parametrize(("count", "is_gang"), [(327, False), (328, False), (328, True)])
def test_the_files_of_a_task_have_a_limit_together(stage: Stage, *, count: int, is_gang: bool) -> None:
    """T: RequestEntityTooLarge; the number: Azure Batch, quotas and limits."""
    files = FILES * count
    gang = {"multiInstanceSettings": {"coordinationCommandLine": "x", "commonResourceFiles": files}}
    change = gang if is_gang else {"resourceFiles": files}
    if count == 327:
        stage.task(**change)
    else:
        refusal = refused_task(stage, **change)
        assert (refusal.code, refusal.status) == ("RequestEntityTooLarge", 413)


@pytest.mark.parametrize(("source", "change", "leaf"), TASKS)
def test_a_task_that_azure_refuses_is_400_with_the_propertys_name(
    stage: Stage, source: str, change: dict[str, Any], leaf: str
) -> None:
    refusal = refused_task(stage, **change)
    assert (refusal.status, refusal.code, refusal.details["PropertyName"]) == (400, "InvalidPropertyValue", leaf), (
        source
    )


def test_a_task_cannot_depend_on_itself(stage: Stage) -> None:
    stage.job(usesTaskDependencies=True)
    stage.task(**exits(1, 2, dependencyAction="satisfy"))
    assert refused_task(stage, id="a", dependsOn={"taskIds": ["A"]}).code == "InvalidPropertyValue"


def test_the_environment_of_a_preparation_task_is_judged_too(stage: Stage) -> None:
    preparation = {"commandLine": "true", "environmentSettings": [{"name": "A=B", "value": "c"}]}
    refusal = stage.refusal(jobs.create_job, body={"id": "job", **ON_POOL, "jobPreparationTask": preparation})
    assert refusal.code == "InvalidPropertyValue"
    assert refusal.property_path == "jobPreparationTask/environmentSettings[0]/name"


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


@pytest.fixture
def newest(stage: Stage) -> Stage:
    stage.client["revision"] = NEWEST
    return stage


@pytest.mark.parametrize(("change", "leaf"), NEWER)
def test_a_pool_of_2026_10_01_that_azure_refuses_is_400(newest: Stage, change: dict[str, Any], leaf: str) -> None:
    refusal = newest.refusal(pools.create_pool, body={**POOL, **change})
    assert (refusal.code, refusal.details["PropertyName"]) == ("InvalidPropertyValue", leaf)


@pytest.mark.parametrize(
    "change",
    [
        mix("standard_d2s_v5", "standard_d2as_v5"),
        mix("standard_d2s_v5", "standard_d2as_v5", ranks=True, allocationStrategy="Prioritized"),
        resilient(maxZoneCount=2, maxInstancePercentPerZonePolicy={"enabled": True, "value": 50}),
        machine(hardwareProfile={"vmSizeProperties": {"vCPUsPerCore": 1}}),
    ],
)
def test_a_property_of_2026_10_01_is_one_of_that_version_only(newest: Stage, change: dict[str, Any]) -> None:
    body = {**POOL, **change}
    assert newest.do(pools.create_pool, body=body).status == 201
    assert "2026-10-01" in Stage().refusal(pools.create_pool, body=body).details["Reason"]


def test_a_mixed_pools_nodes_have_the_size_of_the_first_rank(newest: Stage) -> None:
    sizes = [{"name": "standard_d2as_v5", "rank": 1}, {"name": "Standard_D2s_v5", "rank": 0}]
    profile = {"vmSizes": sizes, "allocationStrategy": "prioritized"}
    (node,) = newest.pool(1, vmSize="Mix", vmSkuProfile=profile)
    shown = documents.node_document(newest.world, newest.world.pools["pool"], node, "")
    assert (shown["vmSize"], shown["publicIPAddress"]) == ("standard_d2s_v5", node.address)


def test_sizes_of_a_mix_have_the_same_number_of_vcpus(newest: Stage) -> None:
    newest.world.find_size = lambda name: Size(4 if "d4" in name else 2)
    body = {**POOL, **mix("standard_d2s_v5", "standard_d4s_v5")}
    assert newest.refusal(pools.create_pool, body=body).code == "InvalidPropertyValue"


def test_retained_data_is_no_option_since_2026_10_01(newest: Stage) -> None:
    newest.pool(1)
    body = {"targetDedicatedNodes": 0, "nodeDeallocationOption": "retaineddata"}
    assert newest.refusal(pools.resize_pool, "pool", body=body).code == "InvalidPropertyValue"
    newest.client["revision"] = CURRENT
    assert newest.do(pools.resize_pool, "pool", body=body).status == 202


def test_a_pools_statistics_have_no_usage_since_2026_10_01(stage: Stage) -> None:
    stage.pool(0)
    for revision, names in ((CURRENT, {"usageStats", "resourceStats"}), (NEWEST, {"resourceStats"})):
        stage.client["revision"] = revision
        shown = document(stage.do(pools.get_pool, "pool", expand="stats"))["stats"]
        assert {name for name in shown if name.endswith("Stats")} == names


def test_a_pool_that_is_made_for_a_job_has_no_hardware_profile(newest: Stage) -> None:
    body = pool_of_job(**machine(hardwareProfile={"vmSizeProperties": {"vCPUsPerCore": 1}}))
    assert newest.refusal(jobs.create_job, body=body).code == "InvalidPropertyValue"
