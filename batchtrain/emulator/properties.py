"""Every property of the wire: its type, and what the emulator does with it; pure. Which service versions have it is in
`catalog.api_versions`.

A word of a table reads `name:type`, then as needed `*` for a list, `!` for required, `>path` for where a later version
has it, and `=EFFECT`:

- none: the emulator acts on it;
- `kept`: kept with all that is below it, shown again, and nothing more;
- `unshown`: taken and never shown, as in Azure;
- `refused`: a request that gives it is refused, with the reason.

A type is a scalar, an enum or another model. `+MODEL` stands for all properties of another model.
"""

from __future__ import annotations

MODELS = """
BatchPoolCreateOptions
    id:str! vmSkuProfile:VirtualMachineSkuProfile +BatchPoolSpecification
BatchPoolUpdateOptions
    displayName:str=kept vmSize:str vmSkuProfile:VirtualMachineSkuProfile enableInterNodeCommunication:bool
    startTask:BatchStartTask applicationPackageReferences:BatchApplicationPackageReference*
    metadata:BatchMetadataItem*=kept virtualMachineConfiguration:VirtualMachineConfiguration taskSlotsPerNode:int
    taskSchedulingPolicy:BatchTaskSchedulingPolicy networkConfiguration:NetworkConfiguration userAccounts:UserAccount*
    mountConfiguration:MountConfiguration* upgradePolicy:UpgradePolicy=kept certificateReferences:retired
    resourceTags:map=kept targetNodeCommunicationMode:NodeCommunicationMode=kept
BatchPoolReplaceOptions
    startTask:BatchStartTask applicationPackageReferences:BatchApplicationPackageReference*!
    metadata:BatchMetadataItem*!=kept certificateReferences:retired
    targetNodeCommunicationMode:NodeCommunicationMode=kept
BatchPoolResizeOptions
    targetDedicatedNodes:int targetLowPriorityNodes:int resizeTimeout:duration
    nodeDeallocationOption:BatchNodeDeallocationOption
BatchPoolEnableAutoScaleOptions
    autoScaleFormula:str autoScaleEvaluationInterval:duration
BatchPoolEvaluateAutoScaleOptions
    autoScaleFormula:str!
BatchNodeUserCreateOptions
    name:str! isAdmin:bool=unshown +BatchNodeUserReplaceOptions
BatchNodeUserReplaceOptions
    password:str=unshown expiryTime:time sshPublicKey:str=unshown
BatchNodeReimageOptions
    nodeReimageOption:BatchNodeRebootKind
BatchNodeDeallocateOptions
    nodeDeallocateOption:BatchNodeDeallocationOption
UploadBatchServiceLogsOptions
    containerUrl:str! startTime:time! endTime:time identityReference:BatchNodeIdentityReference=refused
BatchNodeRemoveOptions
    nodeList:str*! resizeTimeout:duration nodeDeallocationOption:BatchNodeDeallocationOption
BatchJobCreateOptions
    id:str! +BatchJobSpecification
BatchJobUpdateOptions
    priority:int allowTaskPreemption:bool maxParallelTasks:int constraints:BatchJobConstraints poolInfo:BatchPoolInfo
    onAllTasksComplete:BatchAllTasksCompleteMode metadata:BatchMetadataItem*=kept
    networkConfiguration:BatchJobNetworkConfiguration=kept
BatchJobScheduleCreateOptions
    id:str! displayName:str=kept schedule:BatchJobScheduleConfiguration! jobSpecification:BatchJobSpecification!
    metadata:BatchMetadataItem*=kept
BatchJobScheduleUpdateOptions
    schedule:BatchJobScheduleConfiguration jobSpecification:BatchJobSpecification metadata:BatchMetadataItem*=kept
BatchJobScheduleConfiguration
    doNotRunUntil:time doNotRunAfter:time startWindow:duration recurrenceInterval:duration
BatchJobSpecification
    priority:int allowTaskPreemption:bool maxParallelTasks:int displayName:str=kept usesTaskDependencies:bool
    onAllTasksComplete:BatchAllTasksCompleteMode onTaskFailure:BatchTaskFailureMode
    networkConfiguration:BatchJobNetworkConfiguration=kept constraints:BatchJobConstraints
    jobManagerTask:BatchJobManagerTask jobPreparationTask:BatchJobPreparationTask jobReleaseTask:BatchJobReleaseTask
    commonEnvironmentSettings:EnvironmentSetting* poolInfo:BatchPoolInfo! metadata:BatchMetadataItem*=kept
BatchJobDisableOptions
    disableTasks:DisableBatchJobOption!
BatchJobTerminateOptions
    terminateReason:str
BatchTaskCreateOptions
    id:str! displayName:str=kept exitConditions:ExitConditions commandLine:str!
    containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile* outputFiles:OutputFile*
    environmentSettings:EnvironmentSetting* affinityInfo:BatchAffinityInfo constraints:BatchTaskConstraints
    requiredSlots:int userIdentity:UserIdentity multiInstanceSettings:MultiInstanceSettings
    dependsOn:BatchTaskDependencies applicationPackageReferences:BatchApplicationPackageReference*
    authenticationTokenSettings:retired
BatchTaskConstraints
    maxWallClockTime:duration retentionTime:duration maxTaskRetryCount:int
BatchNodeRebootOptions
    nodeRebootOption:BatchNodeRebootKind
BatchNodeDisableSchedulingOptions
    nodeDisableSchedulingOption:BatchNodeDisableSchedulingOption
BatchJobReplaceOptions
    priority:int allowTaskPreemption:bool maxParallelTasks:int constraints:BatchJobConstraints poolInfo:BatchPoolInfo!
    onAllTasksComplete:BatchAllTasksCompleteMode metadata:BatchMetadataItem*=kept
BatchJobScheduleReplaceOptions
    schedule:BatchJobScheduleConfiguration jobSpecification:BatchJobSpecification! metadata:BatchMetadataItem*=kept
BatchTaskReplaceOptions
    constraints:BatchTaskConstraints
Nothing
BatchTaskGroup
    value:BatchTaskCreateOptions*!
VirtualMachineConfiguration
    imageReference:BatchVmImageReference!=kept nodeAgentSKUId:str!=kept windowsConfiguration:WindowsConfiguration=kept
    dataDisks:DataDisk*=kept licenseType:str=kept containerConfiguration:BatchContainerConfiguration
    diskEncryptionConfiguration:DiskEncryptionConfiguration=kept
    nodePlacementConfiguration:BatchNodePlacementConfiguration=kept extensions:VMExtension*=kept osDisk:BatchOsDisk=kept
    securityProfile:SecurityProfile=kept serviceArtifactReference:ServiceArtifactReference=kept
    hardwareProfile:HardwareProfile=kept placement:Placement=kept resiliencyPolicy:ResiliencyPolicy=kept
VirtualMachineSkuProfile
    vmSizes:VirtualMachineSkuProfileVmSize* allocationStrategy:VirtualMachineSkuProfileAllocationStrategy=kept
VirtualMachineSkuProfileVmSize
    name:str! rank:int
HardwareProfile
    vmSizeProperties:VmSizeProperties
VmSizeProperties
    vCPUsAvailable:int vCPUsPerCore:int
Placement
    zonePlacementPolicy:ZonePlacementPolicy!
ResiliencyPolicy
    zoneAllocationPolicy:ZoneAllocationPolicy!
ZoneAllocationPolicy
    maxZoneCount:int maxInstancePercentPerZonePolicy:MaxInstancePercentPerZonePolicy
MaxInstancePercentPerZonePolicy
    enabled:bool value:int!
NetworkConfiguration
    subnetId:subnet=kept dynamicVNetAssignmentScope:DynamicVNetAssignmentScope=kept
    endpointConfiguration:BatchPoolEndpointConfiguration
    publicIPAddressConfiguration:BatchPublicIpAddressConfiguration=kept enableAcceleratedNetworking:bool=kept
    publicIPs:address*>publicIPAddressConfiguration/ipAddressIds=kept
BatchStartTask
    commandLine:str! containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    environmentSettings:EnvironmentSetting* userIdentity:UserIdentity maxTaskRetryCount:int waitForSuccess:bool
BatchApplicationPackageReference
    applicationId:str! version:str
BatchTaskSchedulingPolicy
    jobDefaultOrder:BatchJobDefaultOrder nodeFillType:BatchNodeFillType!
UserAccount
    name:str! password:str!=unshown elevationLevel:ElevationLevel linuxUserConfiguration:LinuxUserConfiguration=kept
    windowsUserConfiguration:WindowsUserConfiguration=kept
BatchMetadataItem
    name:str! value:str!
MountConfiguration
    azureBlobFileSystemConfiguration:AzureBlobFileSystemConfiguration nfsMountConfiguration:NfsMountConfiguration
    cifsMountConfiguration:CifsMountConfiguration azureFileShareConfiguration:AzureFileShareConfiguration
UpgradePolicy
    mode:UpgradeMode! automaticOSUpgradePolicy:AutomaticOsUpgradePolicy rollingUpgradePolicy:RollingUpgradePolicy
BatchJobConstraints
    maxWallClockTime:duration maxTaskRetryCount:int
BatchJobManagerTask
    id:str! displayName:str=kept commandLine:str! containerSettings:BatchTaskContainerSettings
    resourceFiles:ResourceFile* outputFiles:OutputFile* environmentSettings:EnvironmentSetting*
    constraints:BatchTaskConstraints requiredSlots:int killJobOnCompletion:bool userIdentity:UserIdentity
    runExclusive:bool applicationPackageReferences:BatchApplicationPackageReference* allowLowPriorityNode:bool
    authenticationTokenSettings:retired
BatchJobPreparationTask
    id:str commandLine:str! containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    environmentSettings:EnvironmentSetting* constraints:BatchTaskConstraints waitForSuccess:bool
    userIdentity:UserIdentity rerunOnNodeRebootAfterSuccess:bool
BatchJobReleaseTask
    id:str commandLine:str! containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    environmentSettings:EnvironmentSetting* maxWallClockTime:duration retentionTime:duration userIdentity:UserIdentity
EnvironmentSetting
    name:str! value:str
BatchPoolInfo
    poolId:str autoPoolSpecification:BatchAutoPoolSpecification
BatchJobNetworkConfiguration
    subnetId:subnet! skipWithdrawFromVNet:bool
ExitConditions
    exitCodes:ExitCodeMapping* exitCodeRanges:ExitCodeRangeMapping* preProcessingError:ExitOptions
    fileUploadError:ExitOptions default:ExitOptions
BatchTaskContainerSettings
    containerRunOptions:str imageName:str! registry:ContainerRegistryReference
    workingDirectory:ContainerWorkingDirectory containerHostBatchBindMounts:ContainerHostBatchBindMountEntry*
ResourceFile
    autoStorageContainerName:str storageContainerUrl:str httpUrl:str blobPrefix:str filePath:str fileMode:str
    identityReference:BatchNodeIdentityReference=refused
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
    publisher:str offer:str sku:str version:str virtualMachineImageId:image sharedGalleryImageId:gallery
    communityGalleryImageId:gallery
WindowsConfiguration
    enableAutomaticUpdates:bool
DataDisk
    lun:int! caching:CachingType diskSizeGB:int! managedDisk:ManagedDisk
    storageAccountType:StorageAccountType>managedDisk/storageAccountType=kept
BatchContainerConfiguration
    type:ContainerType!=kept containerImageNames:str* containerRegistries:ContainerRegistryReference*
DiskEncryptionConfiguration
    customerManagedKey:DiskCustomerManagedKey=refused targets:DiskEncryptionTarget*
BatchNodePlacementConfiguration
    policy:BatchNodePlacementPolicyType
VMExtension
    name:str! publisher:str! type:str! typeHandlerVersion:str autoUpgradeMinorVersion:bool enableAutomaticUpgrade:bool
    settings:object protectedSettings:object=unshown provisionAfterExtensions:str*
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
    provision:IpAddressProvisioningType ipFamilies:IPFamily* ipAddressIds:address* ipTags:IPTag*
LinuxUserConfiguration
    uid:int gid:int sshPrivateKey:str=unshown
WindowsUserConfiguration
    loginMode:LoginMode
AzureBlobFileSystemConfiguration
    accountName:str! containerName:str! accountKey:str=unshown sasKey:str=unshown blobfuseOptions:str=kept
    relativeMountPath:str! identityReference:BatchNodeIdentityReference=kept
NfsMountConfiguration
    source:str! relativeMountPath:str! mountOptions:str=kept
CifsMountConfiguration
    username:str!=kept source:str! relativeMountPath:str! mountOptions:str=kept password:str!=unshown
AzureFileShareConfiguration
    accountName:str! accountKey:str!=unshown azureFileUrl:str! relativeMountPath:str! mountOptions:str=kept
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
    username:str password:str=unshown registryServer:str identityReference:BatchNodeIdentityReference=kept
ContainerHostBatchBindMountEntry
    source:ContainerHostDataPath isReadOnly:bool
BatchNodeIdentityReference
    resourceId:str
OutputFileDestination
    container:OutputFileBlobContainerDestination
OutputFileUploadConfiguration
    uploadCondition:OutputFileUploadCondition!
AutoUserSpecification
    scope:AutoUserScope=kept elevationLevel:ElevationLevel
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
    name:str! protocol:InboundEndpointProtocol! backendPort:int! frontendPortRangeStart:int! frontendPortRangeEnd:int!
    networkSecurityGroupRules:NetworkSecurityGroupRule*=kept
IPTag
    ipTagType:str tag:str
BatchPoolSpecification
    displayName:str=kept vmSize:str! virtualMachineConfiguration:VirtualMachineConfiguration taskSlotsPerNode:int
    taskSchedulingPolicy:BatchTaskSchedulingPolicy resizeTimeout:duration targetDedicatedNodes:int
    targetLowPriorityNodes:int enableAutoScale:bool autoScaleFormula:str autoScaleEvaluationInterval:duration
    enableInterNodeCommunication:bool networkConfiguration:NetworkConfiguration startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* userAccounts:UserAccount*
    metadata:BatchMetadataItem*=kept mountConfiguration:MountConfiguration* upgradePolicy:UpgradePolicy=kept
    maxTasksPerNode:int>taskSlotsPerNode certificateReferences:retired cloudServiceConfiguration:retired
    applicationLicenses:retired resourceTags:map=kept targetNodeCommunicationMode:NodeCommunicationMode=kept
OutputFileBlobContainerDestination
    path:str containerUrl:str! identityReference:BatchNodeIdentityReference=refused
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
"""The models of request bodies."""

ENTITIES = """
BatchPool
    url:str eTag:str lastModified:time creationTime:time state:BatchPoolState stateTransitionTime:time
    allocationState:AllocationState allocationStateTransitionTime:time resizeErrors:any* autoScaleRun:any stats:any
    currentDedicatedNodes:int currentLowPriorityNodes:int identity:any
    currentNodeCommunicationMode:NodeCommunicationMode +BatchPoolCreateOptions
BatchNode
    id:str url:str state:BatchNodeState schedulingState:str stateTransitionTime:time lastBootTime:time
    allocationTime:time ipAddress:str ipv6Address:str affinityId:str vmSize:str totalTasksRun:int runningTasksCount:int
    runningTaskSlotsCount:int totalTasksSucceeded:int recentTasks:any* startTask:BatchStartTask
    startTaskInfo:BatchStartTaskInfo errors:any* isDedicated:bool endpointConfiguration:any nodeAgentInfo:any
    virtualMachineInfo:VirtualMachineInfo certificateReferences:any* publicIPAddress:str publicIPv6Address:str
VirtualMachineInfo
    imageReference:BatchVmImageReferenceShown scaleSetVmResourceId:str
BatchVmImageReferenceShown
    publisher:str offer:str sku:str version:str virtualMachineImageId:str exactVersion:str sharedGalleryImageId:str
    communityGalleryImageId:str
BatchStartTaskInfo
    state:BatchStartTaskState startTime:time endTime:time exitCode:int containerInfo:any failureInfo:any retryCount:int
    lastRetryTime:time result:BatchTaskExecutionResult
BatchJob
    id:str url:str eTag:str lastModified:time creationTime:time state:BatchJobState stateTransitionTime:time
    previousState:BatchJobState previousStateTransitionTime:time executionInfo:BatchJobExecutionInfo stats:any
    +BatchJobSpecification
BatchJobExecutionInfo
    startTime:time endTime:time poolId:str schedulingError:any terminateReason:str
BatchJobSchedule
    url:str eTag:str lastModified:time creationTime:time state:BatchJobScheduleState stateTransitionTime:time
    previousState:BatchJobScheduleState previousStateTransitionTime:time executionInfo:BatchJobScheduleExecutionInfo
    stats:any +BatchJobScheduleCreateOptions
BatchJobScheduleExecutionInfo
    nextRunTime:time recentJob:any endTime:time
BatchTask
    url:str eTag:str lastModified:time creationTime:time state:BatchTaskState stateTransitionTime:time
    previousState:BatchTaskState previousStateTransitionTime:time executionInfo:BatchTaskExecutionInfo nodeInfo:any
    stats:any +BatchTaskCreateOptions
BatchTaskExecutionInfo
    startTime:time endTime:time exitCode:int containerInfo:any failureInfo:any retryCount:int lastRetryTime:time
    requeueCount:int lastRequeueTime:time result:BatchTaskExecutionResult
BatchSubtask
    id:int nodeInfo:any startTime:time endTime:time exitCode:int containerInfo:any failureInfo:any state:str
    stateTransitionTime:time previousState:str previousStateTransitionTime:time result:BatchTaskExecutionResult
BatchTaskCountsResult
    taskCounts:any taskSlotCounts:any active:int>taskCounts/active running:int>taskCounts/running
    completed:int>taskCounts/completed succeeded:int>taskCounts/succeeded failed:int>taskCounts/failed
BatchPoolNodeCounts
    poolId:str dedicated:BatchNodeCounts lowPriority:BatchNodeCounts
BatchNodeCounts
    creating:int idle:int offline:int preempted:int rebooting:int reimaging:int running:int starting:int
    startTaskFailed:int leavingPool:int unknown:int unusable:int waitingForStartTask:int deallocated:int
    deallocating:int total:int upgradingOS:int
BatchSupportedImage
    nodeAgentSKUId:str imageReference:BatchVmImageReferenceShown osType:OSType capabilities:str*
    batchSupportEndOfLife:time verificationType:ImageVerificationType
BatchJobPreparationAndReleaseTaskStatus
    poolId:str nodeId:str nodeUrl:str jobPreparationTaskExecutionInfo:BatchJobPreparationTaskExecutionInfo
    jobReleaseTaskExecutionInfo:BatchJobReleaseTaskExecutionInfo
BatchJobPreparationTaskExecutionInfo
    startTime:time endTime:time state:BatchJobPreparationTaskState taskRootDirectory:str taskRootDirectoryUrl:str
    exitCode:int containerInfo:any failureInfo:any retryCount:int lastRetryTime:time result:BatchTaskExecutionResult
BatchJobReleaseTaskExecutionInfo
    startTime:time endTime:time state:BatchJobReleaseTaskState taskRootDirectory:str taskRootDirectoryUrl:str
    exitCode:int containerInfo:any failureInfo:any result:BatchTaskExecutionResult
BatchNodeFile
    name:str url:str isDirectory:bool properties:any
BatchNodeVMExtension
    provisioningState:str vmExtension:VMExtension instanceView:any
BatchNodeRemoteLoginSettings
    ipv6RemoteLoginIPAddress:str ipv6RemoteLoginPort:int remoteLoginIPAddress:str remoteLoginPort:int
BatchPoolUsageMetrics
    poolId:str startTime:time endTime:time vmSize:str totalCoreHours:float
"""
"""The models of answers; `any` marks properties that no filter reads and no version changed."""

RESOURCE_MANAGER = """
ArmPool
    properties:ArmPoolProperties identity:ArmPoolIdentity tags:map id:any name:any type:any etag:any systemData:any
ArmPoolIdentity
    type:PoolIdentityType! userAssignedIdentities:object principalId:any tenantId:any
ArmPoolProperties
    deploymentConfiguration:ArmDeploymentConfiguration scaleSettings:ArmScaleSettings
    interNodeCommunication:InterNodeCommunicationState applicationPackages:ArmApplicationPackageReference*
    certificates:retired applicationLicenses:retired displayName:any vmSize:any vmSkuProfile:any
    networkConfiguration:any taskSlotsPerNode:any taskSchedulingPolicy:any userAccounts:any metadata:any startTask:any
    mountConfiguration:any targetNodeCommunicationMode:any upgradePolicy:any resourceTags:any currentDedicatedNodes:any
    currentLowPriorityNodes:any creationTime:any lastModified:any provisioningState:any
    provisioningStateTransitionTime:any allocationState:any allocationStateTransitionTime:any autoScaleRun:any
    resizeOperationStatus:any currentNodeCommunicationMode:any
ArmDeploymentConfiguration
    virtualMachineConfiguration:any cloudServiceConfiguration:retired
ArmScaleSettings
    fixedScale:ArmFixedScaleSettings autoScale:ArmAutoScaleSettings
ArmFixedScaleSettings
    resizeTimeout:duration targetDedicatedNodes:int targetLowPriorityNodes:int
    nodeDeallocationOption:BatchNodeDeallocationOption
ArmAutoScaleSettings
    formula:str! evaluationInterval:duration
ArmApplicationPackageReference
    id:str! version:str
ArmApplication
    properties:ArmApplicationProperties tags:any id:any name:any type:any etag:any
ArmApplicationProperties
    displayName:str allowUpdates:bool defaultVersion:str
"""
"""The outer models of a pool in Resource Manager, and an application; `any` marks what the service reads, and what is
read-only."""

ENUMS = """
AllocationState*: Steady Resizing Stopping
AutoUserScope*: Task Pool
BatchAllTasksCompleteMode: noaction terminatejob
BatchJobActionKind: none disable terminate
BatchJobDefaultOrder*: None CreationTime
BatchJobPreparationTaskState: running completed
BatchJobReleaseTaskState: running completed
BatchJobScheduleState: active completed disabled terminating deleting
BatchJobState: active disabling disabled enabling terminating completed deleting
BatchNodeDeallocationOption*: Requeue Terminate TaskCompletion RetainedData
BatchNodeDisableSchedulingOption: requeue terminate taskcompletion
BatchNodeFillType: Spread Pack
BatchNodePlacementPolicyType*: Regional Zonal
BatchNodeRebootKind: requeue terminate taskcompletion retaineddata
BatchNodeState: idle rebooting reimaging running unusable creating starting waitingforstarttask starttaskfailed
    unknown leavingpool offline preempted upgradingos deallocated deallocating
BatchPoolLifetimeOption: jobschedule job
BatchPoolState: active deleting
BatchStartTaskState: running completed
BatchTaskExecutionResult: success failure
BatchTaskFailureMode: noaction performexitoptionsjobaction
BatchTaskState: active preparing running completed
CachingType*: None ReadOnly ReadWrite
ContainerHostDataPath: Shared Startup VfsMounts Task JobPrep Applications
ContainerType: dockerCompatible=DockerCompatible criCompatible=CriCompatible
ContainerWorkingDirectory: taskWorkingDirectory=TaskWorkingDirectory containerImageDefault=ContainerImageDefault
DependencyAction: satisfy block
DiffDiskPlacement*: CacheDisk
DisableBatchJobOption: requeue terminate wait
DiskEncryptionTarget*: OsDisk TemporaryDisk
DynamicVNetAssignmentScope: none job
ElevationLevel*: NonAdmin Admin
HostEndpointSettingsModeTypes: Audit Enforce
IPFamily: IPv4 IPv6
ImageVerificationType: verified unverified
InboundEndpointProtocol*: TCP UDP
InterNodeCommunicationState: Enabled Disabled
IpAddressProvisioningType*: BatchManaged UserManaged NoPublicIPAddresses
LoginMode*: Batch Interactive
NetworkSecurityGroupRuleAccess*: Allow Deny
NodeCommunicationMode*: Default Classic Simplified
OSType: linux windows
OutputFileUploadCondition: tasksuccess taskfailure taskcompletion
SecurityEncryptionTypes: DiskWithVMGuestState NonPersistedTPM VMGuestStateOnly
SecurityTypes: trustedLaunch confidentialvm=confidentialVM
PoolIdentityType: UserAssigned None
StorageAccountType*: Standard_LRS Premium_LRS StandardSSD_LRS
UpgradeMode: automatic manual rolling
VirtualMachineSkuProfileAllocationStrategy: lowestPrice=LowestPrice capacityOptimized=CapacityOptimized
    prioritized=Prioritized
ZonePlacementPolicy: Auto
"""
"""The enum values as the service writes them, and with `=` Resource Manager's spelling if it is another. With
`*`, they are in Resource Manager's spelling, and the service writes them in lower case."""

ARM_NAMES = {
    ("BatchPoolEndpointConfiguration", "inboundNATPools"): ("inboundNatPools", 0),
    ("BatchVmImageReference", "virtualMachineImageId"): ("id", 0),
    ("CifsMountConfiguration", "username"): ("userName", 16),
    ("NetworkConfiguration", "dynamicVNetAssignmentScope"): ("dynamicVnetAssignmentScope", 16),
    ("UserIdentity", "username"): ("userName", 0),
    ("VirtualMachineConfiguration", "nodeAgentSKUId"): ("nodeAgentSkuId", 0),
}
"""Model and property -> its name in Resource Manager, and the revision since which it has that name."""
