"""What a request body may hold: the vendor's documents as two tables, and the reader that goes by them; pure.

Input is read leniently, as other clients need it: numbers and truth values may be strings (the Azure CLI sends them
so), enum values may have any case, unknown properties and nulls are dropped, but for retired ones that ask for
something. What is read comes back canonical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from batchtrain.emulator import wire
from batchtrain.emulator.faults import Fault, invalid_property

Document = dict[str, Any]

MODELS = """
BatchPoolCreateOptions
    id:str! displayName:str vmSize:str! virtualMachineConfiguration:VirtualMachineConfiguration
    resizeTimeout:duration targetDedicatedNodes:int targetLowPriorityNodes:int enableAutoScale:bool
    autoScaleFormula:str autoScaleEvaluationInterval:duration enableInterNodeCommunication:bool
    networkConfiguration:NetworkConfiguration startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* taskSlotsPerNode:int
    taskSchedulingPolicy:BatchTaskSchedulingPolicy userAccounts:UserAccount* metadata:BatchMetadataItem*
    mountConfiguration:MountConfiguration* upgradePolicy:UpgradePolicy
BatchPoolUpdateOptions
    displayName:str vmSize:str enableInterNodeCommunication:bool startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* metadata:BatchMetadataItem*
    virtualMachineConfiguration:VirtualMachineConfiguration taskSlotsPerNode:int
    taskSchedulingPolicy:BatchTaskSchedulingPolicy networkConfiguration:NetworkConfiguration
    userAccounts:UserAccount* mountConfiguration:MountConfiguration* upgradePolicy:UpgradePolicy
BatchPoolReplaceOptions
    startTask:BatchStartTask applicationPackageReferences:BatchApplicationPackageReference*!
    metadata:BatchMetadataItem*!
BatchPoolResizeOptions
    targetDedicatedNodes:int targetLowPriorityNodes:int resizeTimeout:duration
    nodeDeallocationOption:BatchNodeDeallocationOption
BatchPoolEnableAutoScaleOptions
    autoScaleFormula:str autoScaleEvaluationInterval:duration
BatchPoolEvaluateAutoScaleOptions
    autoScaleFormula:str!
BatchNodeUserCreateOptions
    name:str! isAdmin:bool expiryTime:time password:str sshPublicKey:str
BatchNodeUserReplaceOptions
    password:str expiryTime:time sshPublicKey:str
BatchNodeReimageOptions
    nodeReimageOption:BatchNodeRebootKind
BatchNodeDeallocateOptions
    nodeDeallocateOption:BatchNodeDeallocationOption
UploadBatchServiceLogsOptions
    containerUrl:str! startTime:time! endTime:time identityReference:BatchNodeIdentityReference
BatchNodeRemoveOptions
    nodeList:str*! resizeTimeout:duration nodeDeallocationOption:BatchNodeDeallocationOption
BatchJobCreateOptions
    id:str! displayName:str usesTaskDependencies:bool priority:int allowTaskPreemption:bool maxParallelTasks:int
    constraints:BatchJobConstraints jobManagerTask:BatchJobManagerTask
    jobPreparationTask:BatchJobPreparationTask jobReleaseTask:BatchJobReleaseTask
    commonEnvironmentSettings:EnvironmentSetting* poolInfo:BatchPoolInfo!
    onAllTasksComplete:BatchAllTasksCompleteMode onTaskFailure:BatchTaskFailureMode
    networkConfiguration:BatchJobNetworkConfiguration metadata:BatchMetadataItem*
BatchJobUpdateOptions
    priority:int allowTaskPreemption:bool maxParallelTasks:int constraints:BatchJobConstraints
    poolInfo:BatchPoolInfo onAllTasksComplete:BatchAllTasksCompleteMode metadata:BatchMetadataItem*
    networkConfiguration:BatchJobNetworkConfiguration
BatchJobScheduleCreateOptions
    id:str! displayName:str schedule:BatchJobScheduleConfiguration! jobSpecification:BatchJobSpecification!
    metadata:BatchMetadataItem*
BatchJobScheduleUpdateOptions
    schedule:BatchJobScheduleConfiguration jobSpecification:BatchJobSpecification metadata:BatchMetadataItem*
BatchJobScheduleConfiguration
    doNotRunUntil:time doNotRunAfter:time startWindow:duration recurrenceInterval:duration
BatchJobSpecification
    priority:int allowTaskPreemption:bool maxParallelTasks:int displayName:str usesTaskDependencies:bool
    onAllTasksComplete:BatchAllTasksCompleteMode onTaskFailure:BatchTaskFailureMode
    networkConfiguration:BatchJobNetworkConfiguration constraints:BatchJobConstraints
    jobManagerTask:BatchJobManagerTask jobPreparationTask:BatchJobPreparationTask
    jobReleaseTask:BatchJobReleaseTask commonEnvironmentSettings:EnvironmentSetting* poolInfo:BatchPoolInfo!
    metadata:BatchMetadataItem*
BatchJobDisableOptions
    disableTasks:DisableBatchJobOption!
BatchJobTerminateOptions
    terminateReason:str
BatchTaskCreateOptions
    id:str! displayName:str exitConditions:ExitConditions commandLine:str!
    containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile* outputFiles:OutputFile*
    environmentSettings:EnvironmentSetting* affinityInfo:BatchAffinityInfo constraints:BatchTaskConstraints
    requiredSlots:int userIdentity:UserIdentity multiInstanceSettings:MultiInstanceSettings
    dependsOn:BatchTaskDependencies applicationPackageReferences:BatchApplicationPackageReference*
BatchTaskConstraints
    maxWallClockTime:duration retentionTime:duration maxTaskRetryCount:int
BatchNodeRebootOptions
    nodeRebootOption:BatchNodeRebootKind
BatchNodeDisableSchedulingOptions
    nodeDisableSchedulingOption:BatchNodeDisableSchedulingOption
VirtualMachineConfiguration
    imageReference:BatchVmImageReference! nodeAgentSKUId:str! windowsConfiguration:WindowsConfiguration
    dataDisks:DataDisk* licenseType:str containerConfiguration:BatchContainerConfiguration
    diskEncryptionConfiguration:DiskEncryptionConfiguration
    nodePlacementConfiguration:BatchNodePlacementConfiguration extensions:VMExtension* osDisk:BatchOsDisk
    securityProfile:SecurityProfile serviceArtifactReference:ServiceArtifactReference
NetworkConfiguration
    subnetId:str dynamicVNetAssignmentScope:DynamicVNetAssignmentScope
    endpointConfiguration:BatchPoolEndpointConfiguration
    publicIPAddressConfiguration:BatchPublicIpAddressConfiguration enableAcceleratedNetworking:bool
BatchStartTask
    commandLine:str! containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    environmentSettings:EnvironmentSetting* userIdentity:UserIdentity maxTaskRetryCount:int waitForSuccess:bool
BatchApplicationPackageReference
    applicationId:str! version:str
BatchTaskSchedulingPolicy
    jobDefaultOrder:BatchJobDefaultOrder nodeFillType:BatchNodeFillType!
UserAccount
    name:str! password:str! elevationLevel:ElevationLevel linuxUserConfiguration:LinuxUserConfiguration
    windowsUserConfiguration:WindowsUserConfiguration
BatchMetadataItem
    name:str! value:str!
MountConfiguration
    azureBlobFileSystemConfiguration:AzureBlobFileSystemConfiguration
    nfsMountConfiguration:NfsMountConfiguration cifsMountConfiguration:CifsMountConfiguration
    azureFileShareConfiguration:AzureFileShareConfiguration
UpgradePolicy
    mode:UpgradeMode! automaticOSUpgradePolicy:AutomaticOsUpgradePolicy
    rollingUpgradePolicy:RollingUpgradePolicy
BatchJobConstraints
    maxWallClockTime:duration maxTaskRetryCount:int
BatchJobManagerTask
    id:str! displayName:str commandLine:str! containerSettings:BatchTaskContainerSettings
    resourceFiles:ResourceFile* outputFiles:OutputFile* environmentSettings:EnvironmentSetting*
    constraints:BatchTaskConstraints requiredSlots:int killJobOnCompletion:bool userIdentity:UserIdentity
    runExclusive:bool applicationPackageReferences:BatchApplicationPackageReference* allowLowPriorityNode:bool
BatchJobPreparationTask
    id:str commandLine:str! containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    environmentSettings:EnvironmentSetting* constraints:BatchTaskConstraints waitForSuccess:bool
    userIdentity:UserIdentity rerunOnNodeRebootAfterSuccess:bool
BatchJobReleaseTask
    id:str commandLine:str! containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    environmentSettings:EnvironmentSetting* maxWallClockTime:duration retentionTime:duration
    userIdentity:UserIdentity
EnvironmentSetting
    name:str! value:str
BatchPoolInfo
    poolId:str autoPoolSpecification:BatchAutoPoolSpecification
BatchJobNetworkConfiguration
    subnetId:str! skipWithdrawFromVNet:bool
ExitConditions
    exitCodes:ExitCodeMapping* exitCodeRanges:ExitCodeRangeMapping* preProcessingError:ExitOptions
    fileUploadError:ExitOptions default:ExitOptions
BatchTaskContainerSettings
    containerRunOptions:str imageName:str! registry:ContainerRegistryReference
    workingDirectory:ContainerWorkingDirectory containerHostBatchBindMounts:ContainerHostBatchBindMountEntry*
ResourceFile
    autoStorageContainerName:str storageContainerUrl:str httpUrl:str blobPrefix:str filePath:str fileMode:str
    identityReference:BatchNodeIdentityReference
OutputFile
    filePattern:str! destination:OutputFileDestination! uploadOptions:OutputFileUploadConfiguration!
BatchAffinityInfo
    affinityId:str!
UserIdentity
    username:str autoUser:AutoUserSpecification
MultiInstanceSettings
    numberOfInstances:int coordinationCommandLine:str! commonResourceFiles:ResourceFile*
BatchTaskDependencies
    taskIds:str* taskIdRanges:BatchTaskIdRange*
BatchVmImageReference
    publisher:str offer:str sku:str version:str virtualMachineImageId:str exactVersion:str
    sharedGalleryImageId:str communityGalleryImageId:str
WindowsConfiguration
    enableAutomaticUpdates:bool
DataDisk
    lun:int! caching:CachingType diskSizeGB:int! managedDisk:ManagedDisk
BatchContainerConfiguration
    type:ContainerType! containerImageNames:str* containerRegistries:ContainerRegistryReference*
DiskEncryptionConfiguration
    customerManagedKey:DiskCustomerManagedKey targets:DiskEncryptionTarget*
BatchNodePlacementConfiguration
    policy:BatchNodePlacementPolicyType
VMExtension
    name:str! publisher:str! type:str! typeHandlerVersion:str autoUpgradeMinorVersion:bool
    enableAutomaticUpgrade:bool settings:any protectedSettings:any provisionAfterExtensions:str*
BatchOsDisk
    ephemeralOSDiskSettings:BatchDiffDiskSettings caching:CachingType diskSizeGB:int managedDisk:ManagedDisk
    writeAcceleratorEnabled:bool
SecurityProfile
    encryptionAtHost:bool proxyAgentSettings:ProxyAgentSettings securityType:SecurityTypes
    uefiSettings:BatchUefiSettings
ServiceArtifactReference
    id:str!
BatchPoolEndpointConfiguration
    inboundNATPools:BatchInboundNatPool*!
BatchPublicIpAddressConfiguration
    provision:IpAddressProvisioningType ipFamilies:IPFamily* ipAddressIds:str* ipTags:IPTag*
LinuxUserConfiguration
    uid:int gid:int sshPrivateKey:str
WindowsUserConfiguration
    loginMode:LoginMode
AzureBlobFileSystemConfiguration
    accountName:str! containerName:str! accountKey:str sasKey:str blobfuseOptions:str relativeMountPath:str!
    identityReference:BatchNodeIdentityReference
NfsMountConfiguration
    source:str! relativeMountPath:str! mountOptions:str
CifsMountConfiguration
    username:str! source:str! relativeMountPath:str! mountOptions:str password:str!
AzureFileShareConfiguration
    accountName:str! accountKey:str! azureFileUrl:str! relativeMountPath:str! mountOptions:str
AutomaticOsUpgradePolicy
    disableAutomaticRollback:bool enableAutomaticOSUpgrade:bool useRollingUpgradePolicy:bool
    osRollingUpgradeDeferral:bool
RollingUpgradePolicy
    enableCrossZoneUpgrade:bool maxBatchInstancePercent:int maxUnhealthyInstancePercent:int
    maxUnhealthyUpgradedInstancePercent:int pauseTimeBetweenBatches:duration prioritizeUnhealthyInstances:bool
    rollbackFailedInstancesOnPolicyBreach:bool
BatchAutoPoolSpecification
    autoPoolIdPrefix:str poolLifetimeOption:BatchPoolLifetimeOption! keepAlive:bool pool:BatchPoolSpecification
ExitCodeMapping
    code:int! exitOptions:ExitOptions!
ExitCodeRangeMapping
    start:int! end:int! exitOptions:ExitOptions!
ExitOptions
    jobAction:BatchJobActionKind dependencyAction:DependencyAction
ContainerRegistryReference
    username:str password:str registryServer:str identityReference:BatchNodeIdentityReference
ContainerHostBatchBindMountEntry
    source:ContainerHostDataPath isReadOnly:bool
BatchNodeIdentityReference
    resourceId:str
OutputFileDestination
    container:OutputFileBlobContainerDestination
OutputFileUploadConfiguration
    uploadCondition:OutputFileUploadCondition!
AutoUserSpecification
    scope:AutoUserScope elevationLevel:ElevationLevel
BatchTaskIdRange
    start:int! end:int!
ManagedDisk
    diskEncryptionSet:DiskEncryptionSetParameters storageAccountType:StorageAccountType
    securityProfile:BatchVmDiskSecurityProfile
DiskCustomerManagedKey
    identityReference:BatchPoolIdentityReference keyUrl:str rotationToLatestKeyVersionEnabled:bool
BatchDiffDiskSettings
    placement:DiffDiskPlacement
ProxyAgentSettings
    enabled:bool imds:HostEndpointSettings wireServer:HostEndpointSettings
BatchUefiSettings
    secureBootEnabled:bool vTpmEnabled:bool
BatchInboundNatPool
    name:str! protocol:InboundEndpointProtocol! backendPort:int! frontendPortRangeStart:int!
    frontendPortRangeEnd:int! networkSecurityGroupRules:NetworkSecurityGroupRule*
IPTag
    ipTagType:str tag:str
BatchPoolSpecification
    displayName:str vmSize:str! virtualMachineConfiguration:VirtualMachineConfiguration taskSlotsPerNode:int
    taskSchedulingPolicy:BatchTaskSchedulingPolicy resizeTimeout:duration targetDedicatedNodes:int
    targetLowPriorityNodes:int enableAutoScale:bool autoScaleFormula:str autoScaleEvaluationInterval:duration
    enableInterNodeCommunication:bool networkConfiguration:NetworkConfiguration startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* userAccounts:UserAccount*
    metadata:BatchMetadataItem* mountConfiguration:MountConfiguration* upgradePolicy:UpgradePolicy
OutputFileBlobContainerDestination
    path:str containerUrl:str! identityReference:BatchNodeIdentityReference
    uploadHeaders:OutputFileUploadHeader*
DiskEncryptionSetParameters
    id:str
BatchVmDiskSecurityProfile
    securityEncryptionType:SecurityEncryptionTypes
BatchPoolIdentityReference
    resourceId:str
HostEndpointSettings
    inVMAccessControlProfileReferenceId:str mode:HostEndpointSettingsModeTypes
NetworkSecurityGroupRule
    priority:int! access:NetworkSecurityGroupRuleAccess! sourceAddressPrefix:str! sourcePortRanges:str*
OutputFileUploadHeader
    name:str! value:str
"""
"""Service version 2025-06-01. `!` is required, `*` is a list; a type is a scalar, an enum or another model."""

ENUMS = """
AutoUserScope: task pool
BatchAllTasksCompleteMode: noaction terminatejob
BatchJobActionKind: none disable terminate
BatchJobDefaultOrder: none creationtime
BatchNodeDeallocationOption: requeue terminate taskcompletion retaineddata
BatchNodeDisableSchedulingOption: requeue terminate taskcompletion
BatchNodeFillType: Spread Pack
BatchNodePlacementPolicyType: regional zonal
BatchNodeRebootKind: requeue terminate taskcompletion retaineddata
BatchPoolLifetimeOption: jobschedule job
BatchTaskFailureMode: noaction performexitoptionsjobaction
CachingType: none readonly readwrite
ContainerHostDataPath: Shared Startup VfsMounts Task JobPrep Applications
ContainerType: dockerCompatible criCompatible
ContainerWorkingDirectory: taskWorkingDirectory containerImageDefault
DependencyAction: satisfy block
DiffDiskPlacement: cachedisk
DisableBatchJobOption: requeue terminate wait
DiskEncryptionTarget: osdisk temporarydisk
DynamicVNetAssignmentScope: none job
ElevationLevel: nonadmin admin
HostEndpointSettingsModeTypes: Audit Enforce
IPFamily: IPv4 IPv6
InboundEndpointProtocol: tcp udp
IpAddressProvisioningType: batchmanaged usermanaged nopublicipaddresses
LoginMode: batch interactive
NetworkSecurityGroupRuleAccess: allow deny
OutputFileUploadCondition: tasksuccess taskfailure taskcompletion
SecurityEncryptionTypes: DiskWithVMGuestState NonPersistedTPM VMGuestStateOnly
SecurityTypes: trustedLaunch confidentialvm
StorageAccountType: standard_lrs premium_lrs standardssd_lrs
UpgradeMode: automatic manual rolling
"""
"""The values in the case in which the service answers them."""


def decode(body: bytes) -> Document:
    """A body as a JSON object; an empty one is `{}`; raises Fault 400."""
    if not body.strip():
        return {}
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault("InvalidRequestBody", Reason=str(error)) from error
    if not isinstance(document, dict):
        raise Fault("InvalidRequestBody", Reason="The body must be a JSON object.")
    return document


def read(model: str, document: object, place: str = "") -> Document:
    """The document with only its known properties, in canonical form; raises Fault 400 naming the property."""
    if not isinstance(document, dict):
        raise Fault("InvalidRequestBody", PropertyName=place or model, Reason="An object was expected.")
    shape = _SHAPES[model]
    read_ = {}
    for name, value in document.items():
        if value is not None and (reader := shape.readers.get(name)):
            read_[name] = reader(value, f"{place}/{name}" if place else name)
        elif value and name in RETIRED:
            raise invalid_property(f"{place}/{name}" if place else name, "", RETIRED[name])
    for name in shape.required:
        if name not in read_:
            raise Fault("MissingRequiredProperty", PropertyName=f"{place}/{name}" if place else name)
    return read_


RETIRED = {
    "certificateReferences": "Certificates were retired in February 2024.",
    "cloudServiceConfiguration": "Cloud Services were retired in February 2024: use virtualMachineConfiguration.",
}
"""What older versions of the service had, and no pool can have any more. Empty lists of it do no harm."""


# Readers: one a type --------------------------------------------------------------------------------------------------

Reader = Callable[[Any, str], Any]

MOST = 2**31 - 1
"""The service's whole numbers are 32 bits wide; a longer one could not even be stored."""


def _str(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    raise invalid_property(place, value, "A string was expected.")


def _int(value: Any, place: str) -> int:
    if isinstance(value, str):
        value = value.strip()
    try:
        if isinstance(value, bool) or int(value) != float(value):
            raise ValueError
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        raise invalid_property(place, value, "A whole number was expected.") from None
    if not -MOST - 1 <= whole <= MOST:
        raise invalid_property(place, value, f"The value must be between {-MOST - 1} and {MOST}.")
    return whole


def _bool(value: Any, place: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise invalid_property(place, value, "true or false was expected.")


def _duration(value: Any, place: str) -> str:
    try:
        return wire.duration(wire.parse_duration(_str(value, place)))
    except ValueError:
        raise invalid_property(place, value, "An ISO 8601 duration was expected.") from None


def _time(value: Any, place: str) -> str:
    try:
        return wire.timestamp(wire.parse_timestamp(_str(value, place)))
    except ValueError:
        raise invalid_property(place, value, "An ISO 8601 time was expected.") from None


def _any(value: Any, place: str) -> Any:
    return value


def _enum(values: tuple[str, ...]) -> Reader:
    canonical = {value.lower(): value for value in values}

    def read_enum(value: Any, place: str) -> str:
        if found := canonical.get(_str(value, place).lower()):
            return found
        raise invalid_property(place, value, f"The value must be one of {', '.join(values)}.")

    return read_enum


def _model(name: str) -> Reader:
    return lambda value, place: read(name, value, place)


def _list(item: Reader) -> Reader:
    def read_list(value: Any, place: str) -> list[Any]:
        if not isinstance(value, list):
            raise invalid_property(place, value, "A list was expected.")
        return [item(one, f"{place}[{index}]") for index, one in enumerate(value)]

    return read_list


class _Shape(NamedTuple):
    readers: Mapping[str, Reader]
    required: tuple[str, ...]


_SCALARS: Mapping[str, Reader] = {
    "str": _str,
    "int": _int,
    "bool": _bool,
    "duration": _duration,
    "time": _time,
    "any": _any,
}


def _shapes(models: str, enums: str) -> dict[str, _Shape]:
    readers = dict(_SCALARS)
    for name, values in _entries(enums, ":"):
        readers[name] = _enum(tuple(values.split()))
    return {name: _shape(fields, readers) for name, fields in _entries(models, "")}


def _entries(table: str, separator: str) -> list[tuple[str, str]]:
    """Name and text of each entry: an unindented line and the indented ones that continue it."""
    joined = table.strip().replace("\n    ", " ")
    lines = (line.partition(" ") for line in joined.splitlines())
    return [(name.removesuffix(separator), text) for name, _, text in lines]


def _shape(fields: str, scalars: Mapping[str, Reader]) -> _Shape:
    readers, required = {}, []
    for field in fields.split():
        name, _, kind = field.partition(":")
        if kind.endswith("!"):
            required.append(name)
        bare = kind.rstrip("*!")
        reader = scalars.get(bare) or _model(bare)
        readers[name] = _list(reader) if "*" in kind else reader
    return _Shape(readers, tuple(required))


_SHAPES = _shapes(MODELS, ENUMS)
