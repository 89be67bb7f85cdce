"""The versions of the Azure Batch API, and which properties came and went with each; pure.

Client and emulator share this table. A line of a text is a place and the names of its properties. The place is a path
in a request, as the types of the language have it (`pool.networkConfiguration`), or a model of the API. The names in an
enum are its values.

Sources: Azure/azure-rest-api-specs, `models.tsp` of the data plane; azure-batch 8.0, 14.2 and 15.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from batchtrain.catalog import meaning


class Version(NamedTuple):
    """One version, against the one before it."""

    name: str
    revision: int
    """The middle number of its name; later versions continue the count."""
    added: str = ""
    removed: str = ""


VERSIONS = (
    Version("2019-08-01.10.0", 10),
    Version("2020-03-01.11.0", 11, """
        pool.virtualMachineConfiguration diskEncryptionConfiguration
        pool.networkConfiguration publicIPAddressConfiguration
        """, """
        pool.networkConfiguration publicIPs
        """),
    Version("2020-09-01.12.0", 12, """
        pool taskSlotsPerNode
        task requiredSlots
        job.jobManagerTask requiredSlots
        BatchNode runningTaskSlotsCount
        BatchTaskCountsResult taskCounts taskSlotCounts
        """, """
        pool maxTasksPerNode
        BatchTaskCountsResult active running completed succeeded failed
        """),
    Version("2021-06-01.14.0", 14, """
        pool.virtualMachineConfiguration nodePlacementConfiguration extensions osDisk
        pool.mountConfiguration.azureBlobFileSystemConfiguration identityReference
        job maxParallelTasks
        task.resourceFiles identityReference
        task.containerSettings.registry identityReference
        task.outputFiles.destination.container identityReference
        BatchJobUpdateOptions maxParallelTasks
        BatchNode virtualMachineInfo
        BatchPool identity
        UploadBatchServiceLogsOptions identityReference
        """),
    Version("2022-01-01.15.0", 15, """
        job allowTaskPreemption
        task.outputFiles.destination.container uploadHeaders
        BatchJobReplaceOptions allowTaskPreemption maxParallelTasks
        BatchJobUpdateOptions allowTaskPreemption
        """),
    Version("2022-10-01.16.0", 16, """
        pool targetNodeCommunicationMode
        BatchPool currentNodeCommunicationMode
        BatchPoolReplaceOptions targetNodeCommunicationMode
        BatchPoolUpdateOptions targetNodeCommunicationMode
        """),
    Version("2023-05-01.17.0", 17, """
        pool.networkConfiguration enableAcceleratedNetworking
        pool.virtualMachineConfiguration.extensions enableAutomaticUpgrade
        """),
    Version("2023-11-01.18.0", 18, """
        pool resourceTags
        pool.virtualMachineConfiguration securityProfile serviceArtifactReference
        pool.virtualMachineConfiguration.osDisk caching diskSizeGB managedDisk writeAcceleratorEnabled
        VirtualMachineInfo scaleSetVmResourceId
        """),
    Version("2024-02-01.19.0", 19, """
        pool upgradePolicy
        BatchNodeCounts upgradingOS
        """),
    Version("2024-07-01.20.0", 20, """
        pool.virtualMachineConfiguration.dataDisks.managedDisk securityProfile
        pool.virtualMachineConfiguration.imageReference sharedGalleryImageId communityGalleryImageId
        job.networkConfiguration skipWithdrawFromVNet
        task.containerSettings containerHostBatchBindMounts
        BatchJobUpdateOptions networkConfiguration
        BatchNodeCounts deallocated deallocating
        BatchPoolUpdateOptions displayName vmSize enableInterNodeCommunication virtualMachineConfiguration
        BatchPoolUpdateOptions taskSlotsPerNode taskSchedulingPolicy networkConfiguration userAccounts
        BatchPoolUpdateOptions mountConfiguration upgradePolicy resourceTags
        BatchVmImageReferenceShown sharedGalleryImageId communityGalleryImageId
        """),
    Version("2025-06-01", 21, """
        pool.networkConfiguration.publicIPAddressConfiguration ipFamilies ipTags
        pool.taskSchedulingPolicy jobDefaultOrder
        pool.virtualMachineConfiguration.dataDisks managedDisk
        pool.virtualMachineConfiguration.dataDisks.managedDisk diskEncryptionSet
        pool.virtualMachineConfiguration.diskEncryptionConfiguration customerManagedKey
        pool.virtualMachineConfiguration.securityProfile proxyAgentSettings
        BatchNode ipv6Address
        BatchNodeRemoteLoginSettings ipv6RemoteLoginIPAddress ipv6RemoteLoginPort
        """, """
        pool certificateReferences cloudServiceConfiguration applicationLicenses resourceTags
        pool targetNodeCommunicationMode
        pool.virtualMachineConfiguration.dataDisks storageAccountType
        job.jobManagerTask authenticationTokenSettings
        task authenticationTokenSettings
        BatchNode certificateReferences
        BatchPool currentNodeCommunicationMode
        BatchPoolReplaceOptions certificateReferences targetNodeCommunicationMode
        BatchPoolUpdateOptions certificateReferences resourceTags targetNodeCommunicationMode
        """),
    Version("2026-10-01", 22, """
        pool vmSkuProfile
        pool.virtualMachineConfiguration hardwareProfile placement resiliencyPolicy
        BatchNode publicIPAddress publicIPv6Address
        BatchPoolUpdateOptions vmSkuProfile
        """, """
        BatchNodeDeallocationOption retaineddata
        BatchNodeRebootKind retaineddata
        """),
)  # fmt: skip
CURRENT = next(version for version in VERSIONS if version.name == "2025-06-01")
"""The version of azure-batch 15.1, and so of every request whose properties it has."""


def spans() -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
    """Place and property, with the first and the last revision that has it, if not all have it."""
    last, since = VERSIONS[0].revision, {}
    for version in VERSIONS:
        since.update(dict.fromkeys(_properties(version.added), version.revision))
        yield from ((item, (since.pop(item, 0), last)) for item in _properties(version.removed))
        last = version.revision
    yield from ((item, (first, last)) for item, first in since.items())


def _properties(text: str) -> Iterator[tuple[str, str]]:
    for parent, *names in map(str.split, filter(None, map(str.strip, text.splitlines()))):
        yield from ((parent, name) for name in names)


NEWER: Mapping[str, str] = {
    f"{parent}.{name}": version.name
    for version in VERSIONS
    if version.revision > CURRENT.revision
    for parent, name in _properties(version.added)
}
"""What the current version does not have -> the version that added it."""
_NEWER = tuple(NEWER)


def newer(field: str) -> str:
    """The version that a field of a request (`pool.vmSkuProfile.vmSizes`) needs; empty if the current one has it."""
    if not field.startswith(_NEWER):  # nearly always
        return ""
    return max((NEWER.get(part, "") for part in accumulate(field.split("."), "{}.{}".format)), default="")


def needed(request: str, document: Mapping[str, Any]) -> str:
    """The first version, from the current one on, that has every property of a request."""
    places = ((field.removeprefix(f"{request}.").split("."), name) for field, name in NEWER.items())
    return max((name for path, name in places if any(meaning.values(document, tuple(path)))), default=CURRENT.name)
