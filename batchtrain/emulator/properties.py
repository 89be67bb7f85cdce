"""Every property of the wire: its type, the service versions that have it, and what the emulator does with it; pure.

A line of a table reads `name:type`, then as needed `*` for a list, `!` for required, `@SINCE-UNTIL` for the revisions
that have it (`versions`), `>path` for where a later version has it, and `=EFFECT`:

- none: the emulator acts on it;
- `kept`: kept with all that is below it, shown again, and nothing more;
- `unshown`: taken and never shown, as in Azure;
- `refused`: a request that gives it is refused, with the reason.

A type is a scalar, an enum or another model.
"""

from __future__ import annotations

MODELS = """
BatchPoolCreateOptions
    id:str! displayName:str=kept vmSize:str! vmSkuProfile:VirtualMachineSkuProfile@22
    virtualMachineConfiguration:VirtualMachineConfiguration resizeTimeout:duration targetDedicatedNodes:int
    targetLowPriorityNodes:int enableAutoScale:bool
    autoScaleFormula:str autoScaleEvaluationInterval:duration enableInterNodeCommunication:bool
    networkConfiguration:NetworkConfiguration startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* taskSlotsPerNode:int@12
    taskSchedulingPolicy:BatchTaskSchedulingPolicy userAccounts:UserAccount* metadata:BatchMetadataItem*=kept
    mountConfiguration:MountConfiguration* upgradePolicy:UpgradePolicy@19=kept
    maxTasksPerNode:int@-11>taskSlotsPerNode certificateReferences:retired@-20
    cloudServiceConfiguration:retired@-20 applicationLicenses:retired@-20 resourceTags:map@18-20=kept
    targetNodeCommunicationMode:NodeCommunicationMode@16-20=kept
BatchPoolUpdateOptions
    displayName:str@20=kept vmSize:str@20 vmSkuProfile:VirtualMachineSkuProfile@22
    enableInterNodeCommunication:bool@20 startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* metadata:BatchMetadataItem*=kept
    virtualMachineConfiguration:VirtualMachineConfiguration@20 taskSlotsPerNode:int@20
    taskSchedulingPolicy:BatchTaskSchedulingPolicy@20 networkConfiguration:NetworkConfiguration@20
    userAccounts:UserAccount*@20 mountConfiguration:MountConfiguration*@20 upgradePolicy:UpgradePolicy@20=kept
    certificateReferences:retired@-20 resourceTags:map@20-20=kept
    targetNodeCommunicationMode:NodeCommunicationMode@16-20=kept
BatchPoolReplaceOptions
    startTask:BatchStartTask applicationPackageReferences:BatchApplicationPackageReference*!
    metadata:BatchMetadataItem*!=kept certificateReferences:retired@-20
    targetNodeCommunicationMode:NodeCommunicationMode@16-20=kept
BatchPoolResizeOptions
    targetDedicatedNodes:int targetLowPriorityNodes:int resizeTimeout:duration
    nodeDeallocationOption:BatchNodeDeallocationOption@-21
    nodeDeallocationOption:BatchNodeDisableSchedulingOption@22
BatchPoolEnableAutoScaleOptions
    autoScaleFormula:str autoScaleEvaluationInterval:duration
BatchPoolEvaluateAutoScaleOptions
    autoScaleFormula:str!
BatchNodeUserCreateOptions
    name:str! isAdmin:bool=unshown expiryTime:time password:str=unshown sshPublicKey:str=unshown
BatchNodeUserReplaceOptions
    password:str=unshown expiryTime:time sshPublicKey:str=unshown
BatchNodeReimageOptions
    nodeReimageOption:BatchNodeRebootKind@-21
    nodeReimageOption:BatchNodeDisableSchedulingOption@22
BatchNodeDeallocateOptions
    nodeDeallocateOption:BatchNodeDeallocationOption@-21
    nodeDeallocateOption:BatchNodeDisableSchedulingOption@22
UploadBatchServiceLogsOptions
    containerUrl:str! startTime:time! endTime:time identityReference:BatchNodeIdentityReference@14=refused
BatchNodeRemoveOptions
    nodeList:str*! resizeTimeout:duration nodeDeallocationOption:BatchNodeDeallocationOption@-21
    nodeDeallocationOption:BatchNodeDisableSchedulingOption@22
BatchJobCreateOptions
    id:str! displayName:str=kept usesTaskDependencies:bool priority:int allowTaskPreemption:bool@15
    maxParallelTasks:int@14 constraints:BatchJobConstraints jobManagerTask:BatchJobManagerTask
    jobPreparationTask:BatchJobPreparationTask jobReleaseTask:BatchJobReleaseTask
    commonEnvironmentSettings:EnvironmentSetting* poolInfo:BatchPoolInfo!
    onAllTasksComplete:BatchAllTasksCompleteMode onTaskFailure:BatchTaskFailureMode
    networkConfiguration:BatchJobNetworkConfiguration=kept metadata:BatchMetadataItem*=kept
BatchJobUpdateOptions
    priority:int allowTaskPreemption:bool@15 maxParallelTasks:int@14 constraints:BatchJobConstraints
    poolInfo:BatchPoolInfo onAllTasksComplete:BatchAllTasksCompleteMode metadata:BatchMetadataItem*=kept
    networkConfiguration:BatchJobNetworkConfiguration@20=kept
BatchJobScheduleCreateOptions
    id:str! displayName:str=kept schedule:BatchJobScheduleConfiguration! jobSpecification:BatchJobSpecification!
    metadata:BatchMetadataItem*=kept
BatchJobScheduleUpdateOptions
    schedule:BatchJobScheduleConfiguration jobSpecification:BatchJobSpecification metadata:BatchMetadataItem*=kept
BatchJobScheduleConfiguration
    doNotRunUntil:time doNotRunAfter:time startWindow:duration recurrenceInterval:duration
BatchJobSpecification
    priority:int allowTaskPreemption:bool@15 maxParallelTasks:int@14 displayName:str=kept
    usesTaskDependencies:bool onAllTasksComplete:BatchAllTasksCompleteMode onTaskFailure:BatchTaskFailureMode
    networkConfiguration:BatchJobNetworkConfiguration=kept constraints:BatchJobConstraints
    jobManagerTask:BatchJobManagerTask jobPreparationTask:BatchJobPreparationTask
    jobReleaseTask:BatchJobReleaseTask commonEnvironmentSettings:EnvironmentSetting* poolInfo:BatchPoolInfo!
    metadata:BatchMetadataItem*=kept
BatchJobDisableOptions
    disableTasks:DisableBatchJobOption!
BatchJobTerminateOptions
    terminateReason:str
BatchTaskCreateOptions
    id:str! displayName:str=kept exitConditions:ExitConditions commandLine:str!
    containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile* outputFiles:OutputFile*
    environmentSettings:EnvironmentSetting* affinityInfo:BatchAffinityInfo constraints:BatchTaskConstraints
    requiredSlots:int@12 userIdentity:UserIdentity multiInstanceSettings:MultiInstanceSettings
    dependsOn:BatchTaskDependencies applicationPackageReferences:BatchApplicationPackageReference*
    authenticationTokenSettings:retired@-20
BatchTaskConstraints
    maxWallClockTime:duration retentionTime:duration maxTaskRetryCount:int
BatchNodeRebootOptions
    nodeRebootOption:BatchNodeRebootKind@-21
    nodeRebootOption:BatchNodeDisableSchedulingOption@22
BatchNodeDisableSchedulingOptions
    nodeDisableSchedulingOption:BatchNodeDisableSchedulingOption
BatchJobReplaceOptions
    priority:int allowTaskPreemption:bool@15 maxParallelTasks:int@15 constraints:BatchJobConstraints
    poolInfo:BatchPoolInfo! onAllTasksComplete:BatchAllTasksCompleteMode metadata:BatchMetadataItem*=kept
BatchJobScheduleReplaceOptions
    schedule:BatchJobScheduleConfiguration jobSpecification:BatchJobSpecification!
    metadata:BatchMetadataItem*=kept
BatchTaskReplaceOptions
    constraints:BatchTaskConstraints
Nothing
BatchTaskGroup
    value:BatchTaskCreateOptions*!
VirtualMachineConfiguration
    imageReference:BatchVmImageReference!=kept nodeAgentSKUId:str!=kept
    windowsConfiguration:WindowsConfiguration=kept dataDisks:DataDisk*=kept licenseType:str=kept
    containerConfiguration:BatchContainerConfiguration
    diskEncryptionConfiguration:DiskEncryptionConfiguration@11=kept
    nodePlacementConfiguration:BatchNodePlacementConfiguration@14=kept extensions:VMExtension*@14=kept
    osDisk:BatchOsDisk@14=kept securityProfile:SecurityProfile@18=kept
    serviceArtifactReference:ServiceArtifactReference@18=kept hardwareProfile:HardwareProfile@22=kept
    placement:Placement@22=kept resiliencyPolicy:ResiliencyPolicy@22=kept
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
    publicIPAddressConfiguration:BatchPublicIpAddressConfiguration@11=kept
    enableAcceleratedNetworking:bool@17=kept publicIPs:address*@-10>publicIPAddressConfiguration/ipAddressIds=kept
BatchStartTask
    commandLine:str! containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    environmentSettings:EnvironmentSetting* userIdentity:UserIdentity maxTaskRetryCount:int waitForSuccess:bool
BatchApplicationPackageReference
    applicationId:str! version:str
BatchTaskSchedulingPolicy
    jobDefaultOrder:BatchJobDefaultOrder@21 nodeFillType:BatchNodeFillType!
UserAccount
    name:str! password:str!=unshown elevationLevel:ElevationLevel
    linuxUserConfiguration:LinuxUserConfiguration=kept windowsUserConfiguration:WindowsUserConfiguration=kept
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
    constraints:BatchTaskConstraints requiredSlots:int@12 killJobOnCompletion:bool userIdentity:UserIdentity
    runExclusive:bool applicationPackageReferences:BatchApplicationPackageReference* allowLowPriorityNode:bool
    authenticationTokenSettings:retired@-20
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
    subnetId:subnet! skipWithdrawFromVNet:bool@20
ExitConditions
    exitCodes:ExitCodeMapping* exitCodeRanges:ExitCodeRangeMapping* preProcessingError:ExitOptions
    fileUploadError:ExitOptions default:ExitOptions
BatchTaskContainerSettings
    containerRunOptions:str imageName:str! registry:ContainerRegistryReference
    workingDirectory:ContainerWorkingDirectory containerHostBatchBindMounts:ContainerHostBatchBindMountEntry*@20
ResourceFile
    autoStorageContainerName:str storageContainerUrl:str httpUrl:str blobPrefix:str filePath:str
    fileMode:str identityReference:BatchNodeIdentityReference@14=refused
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
    publisher:str offer:str sku:str version:str virtualMachineImageId:image sharedGalleryImageId:gallery@20
    communityGalleryImageId:gallery@20
WindowsConfiguration
    enableAutomaticUpdates:bool
DataDisk
    lun:int! caching:CachingType diskSizeGB:int! managedDisk:ManagedDisk@21
    storageAccountType:StorageAccountType@-20>managedDisk/storageAccountType=kept
BatchContainerConfiguration
    type:ContainerType!=kept containerImageNames:str* containerRegistries:ContainerRegistryReference*
DiskEncryptionConfiguration
    customerManagedKey:DiskCustomerManagedKey@21=refused targets:DiskEncryptionTarget*
BatchNodePlacementConfiguration
    policy:BatchNodePlacementPolicyType
VMExtension
    name:str! publisher:str! type:str! typeHandlerVersion:str autoUpgradeMinorVersion:bool
    enableAutomaticUpgrade:bool@17 settings:object protectedSettings:object=unshown provisionAfterExtensions:str*
BatchOsDisk
    ephemeralOSDiskSettings:BatchDiffDiskSettings caching:CachingType@18 diskSizeGB:int@18
    managedDisk:ManagedDisk@18 writeAcceleratorEnabled:bool@18
SecurityProfile
    encryptionAtHost:bool proxyAgentSettings:ProxyAgentSettings@21 securityType:SecurityTypes
    uefiSettings:BatchUefiSettings
ServiceArtifactReference
    id:str!
BatchPoolEndpointConfiguration
    inboundNATPools:BatchInboundNatPool*!
BatchPublicIpAddressConfiguration
    provision:IpAddressProvisioningType ipFamilies:IPFamily*@21 ipAddressIds:address* ipTags:IPTag*@21
LinuxUserConfiguration
    uid:int gid:int sshPrivateKey:str=unshown
WindowsUserConfiguration
    loginMode:LoginMode
AzureBlobFileSystemConfiguration
    accountName:str! containerName:str! accountKey:str=unshown sasKey:str=unshown blobfuseOptions:str=kept
    relativeMountPath:str! identityReference:BatchNodeIdentityReference@14=kept
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
    username:str password:str=unshown registryServer:str identityReference:BatchNodeIdentityReference@14=kept
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
    diskEncryptionSet:DiskEncryptionSetParameters@21 storageAccountType:StorageAccountType
    securityProfile:BatchVmDiskSecurityProfile@20
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
    frontendPortRangeEnd:int! networkSecurityGroupRules:NetworkSecurityGroupRule*=kept
IPTag
    ipTagType:str tag:str
BatchPoolSpecification
    displayName:str=kept vmSize:str! virtualMachineConfiguration:VirtualMachineConfiguration
    taskSlotsPerNode:int@12 taskSchedulingPolicy:BatchTaskSchedulingPolicy resizeTimeout:duration
    targetDedicatedNodes:int targetLowPriorityNodes:int enableAutoScale:bool autoScaleFormula:str
    autoScaleEvaluationInterval:duration enableInterNodeCommunication:bool
    networkConfiguration:NetworkConfiguration startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* userAccounts:UserAccount*
    metadata:BatchMetadataItem*=kept mountConfiguration:MountConfiguration* upgradePolicy:UpgradePolicy@19=kept
    maxTasksPerNode:int@-11>taskSlotsPerNode certificateReferences:retired@-20
    cloudServiceConfiguration:retired@-20 applicationLicenses:retired@-20 resourceTags:map@18-20=kept
    targetNodeCommunicationMode:NodeCommunicationMode@16-20=kept
OutputFileBlobContainerDestination
    path:str containerUrl:str! identityReference:BatchNodeIdentityReference@14=refused
    uploadHeaders:OutputFileUploadHeader*@15
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
    id:str displayName:str url:str eTag:str lastModified:time creationTime:time state:BatchPoolState
    stateTransitionTime:time allocationState:AllocationState allocationStateTransitionTime:time vmSize:str
    vmSkuProfile:VirtualMachineSkuProfile@22 virtualMachineConfiguration:VirtualMachineConfiguration
    resizeTimeout:duration resizeErrors:any*
    currentDedicatedNodes:int currentLowPriorityNodes:int targetDedicatedNodes:int targetLowPriorityNodes:int
    enableAutoScale:bool autoScaleFormula:str autoScaleEvaluationInterval:duration autoScaleRun:any
    enableInterNodeCommunication:bool networkConfiguration:NetworkConfiguration startTask:BatchStartTask
    applicationPackageReferences:BatchApplicationPackageReference* taskSlotsPerNode:int@12
    taskSchedulingPolicy:BatchTaskSchedulingPolicy userAccounts:UserAccount* metadata:BatchMetadataItem* stats:any
    mountConfiguration:MountConfiguration* identity:any@14 upgradePolicy:UpgradePolicy@19
    maxTasksPerNode:int@-11>taskSlotsPerNode certificateReferences:any*@-20 cloudServiceConfiguration:any@-20
    applicationLicenses:str*@-20 resourceTags:map@18-20 targetNodeCommunicationMode:NodeCommunicationMode@16-20
    currentNodeCommunicationMode:NodeCommunicationMode@16-20
BatchNode
    id:str url:str state:BatchNodeState schedulingState:str stateTransitionTime:time lastBootTime:time
    allocationTime:time ipAddress:str ipv6Address:str@21 affinityId:str vmSize:str totalTasksRun:int
    runningTasksCount:int runningTaskSlotsCount:int@12 totalTasksSucceeded:int recentTasks:any*
    startTask:BatchStartTask startTaskInfo:BatchStartTaskInfo errors:any* isDedicated:bool endpointConfiguration:any
    nodeAgentInfo:any virtualMachineInfo:VirtualMachineInfo@14 certificateReferences:any*@-20
    publicIPAddress:str@22 publicIPv6Address:str@22
VirtualMachineInfo
    imageReference:BatchVmImageReferenceShown scaleSetVmResourceId:str@18
BatchVmImageReferenceShown
    publisher:str offer:str sku:str version:str virtualMachineImageId:str exactVersion:str
    sharedGalleryImageId:str@20 communityGalleryImageId:str@20
BatchStartTaskInfo
    state:BatchStartTaskState startTime:time endTime:time exitCode:int containerInfo:any failureInfo:any
    retryCount:int lastRetryTime:time result:BatchTaskExecutionResult
BatchJob
    id:str displayName:str usesTaskDependencies:bool url:str eTag:str lastModified:time creationTime:time
    state:BatchJobState stateTransitionTime:time previousState:BatchJobState previousStateTransitionTime:time
    priority:int allowTaskPreemption:bool@15 maxParallelTasks:int@14 constraints:BatchJobConstraints
    jobManagerTask:BatchJobManagerTask jobPreparationTask:BatchJobPreparationTask
    jobReleaseTask:BatchJobReleaseTask commonEnvironmentSettings:EnvironmentSetting* poolInfo:BatchPoolInfo
    onAllTasksComplete:BatchAllTasksCompleteMode onTaskFailure:BatchTaskFailureMode
    networkConfiguration:BatchJobNetworkConfiguration metadata:BatchMetadataItem*
    executionInfo:BatchJobExecutionInfo stats:any
BatchJobExecutionInfo
    startTime:time endTime:time poolId:str schedulingError:any terminateReason:str
BatchJobSchedule
    id:str displayName:str url:str eTag:str lastModified:time creationTime:time state:BatchJobScheduleState
    stateTransitionTime:time previousState:BatchJobScheduleState previousStateTransitionTime:time
    schedule:BatchJobScheduleConfiguration jobSpecification:BatchJobSpecification
    executionInfo:BatchJobScheduleExecutionInfo metadata:BatchMetadataItem* stats:any
BatchJobScheduleExecutionInfo
    nextRunTime:time recentJob:any endTime:time
BatchTask
    id:str displayName:str url:str eTag:str lastModified:time creationTime:time exitConditions:ExitConditions
    state:BatchTaskState stateTransitionTime:time previousState:BatchTaskState previousStateTransitionTime:time
    commandLine:str containerSettings:BatchTaskContainerSettings resourceFiles:ResourceFile*
    outputFiles:OutputFile* environmentSettings:EnvironmentSetting* affinityInfo:BatchAffinityInfo
    constraints:BatchTaskConstraints requiredSlots:int@12 userIdentity:UserIdentity
    executionInfo:BatchTaskExecutionInfo nodeInfo:any multiInstanceSettings:MultiInstanceSettings stats:any
    dependsOn:BatchTaskDependencies applicationPackageReferences:BatchApplicationPackageReference*
BatchTaskExecutionInfo
    startTime:time endTime:time exitCode:int containerInfo:any failureInfo:any retryCount:int lastRetryTime:time
    requeueCount:int lastRequeueTime:time result:BatchTaskExecutionResult
BatchSubtask
    id:int nodeInfo:any startTime:time endTime:time exitCode:int containerInfo:any failureInfo:any state:str
    stateTransitionTime:time previousState:str previousStateTransitionTime:time result:BatchTaskExecutionResult
BatchTaskCountsResult
    taskCounts:any@12 taskSlotCounts:any@12 active:int@-11>taskCounts/active running:int@-11>taskCounts/running
    completed:int@-11>taskCounts/completed succeeded:int@-11>taskCounts/succeeded
    failed:int@-11>taskCounts/failed
BatchPoolNodeCounts
    poolId:str dedicated:BatchNodeCounts lowPriority:BatchNodeCounts
BatchNodeCounts
    creating:int idle:int offline:int preempted:int rebooting:int reimaging:int running:int starting:int
    startTaskFailed:int leavingPool:int unknown:int unusable:int waitingForStartTask:int deallocated:int@20
    deallocating:int@20 total:int upgradingOS:int@19
BatchSupportedImage
    nodeAgentSKUId:str imageReference:BatchVmImageReferenceShown osType:OSType capabilities:str*
    batchSupportEndOfLife:time verificationType:ImageVerificationType
BatchJobPreparationAndReleaseTaskStatus
    poolId:str nodeId:str nodeUrl:str jobPreparationTaskExecutionInfo:BatchJobPreparationTaskExecutionInfo
    jobReleaseTaskExecutionInfo:BatchJobReleaseTaskExecutionInfo
BatchJobPreparationTaskExecutionInfo
    startTime:time endTime:time state:BatchJobPreparationTaskState taskRootDirectory:str taskRootDirectoryUrl:str
    exitCode:int containerInfo:any failureInfo:any retryCount:int lastRetryTime:time
    result:BatchTaskExecutionResult
BatchJobReleaseTaskExecutionInfo
    startTime:time endTime:time state:BatchJobReleaseTaskState taskRootDirectory:str taskRootDirectoryUrl:str
    exitCode:int containerInfo:any failureInfo:any result:BatchTaskExecutionResult
BatchNodeFile
    name:str url:str isDirectory:bool properties:any
BatchNodeVMExtension
    provisioningState:str vmExtension:VMExtension instanceView:any
BatchNodeRemoteLoginSettings
    ipv6RemoteLoginIPAddress:str@21 ipv6RemoteLoginPort:int@21 remoteLoginIPAddress:str remoteLoginPort:int
BatchPoolUsageMetrics
    poolId:str startTime:time endTime:time vmSize:str totalCoreHours:float
"""
"""The models of answers; `any` marks properties that no filter reads and no version changed."""

ENUMS = """
AllocationState: steady resizing stopping
AutoUserScope: task pool
BatchAllTasksCompleteMode: noaction terminatejob
BatchJobActionKind: none disable terminate
BatchJobDefaultOrder: none creationtime
BatchJobPreparationTaskState: running completed
BatchJobReleaseTaskState: running completed
BatchJobScheduleState: active completed disabled terminating deleting
BatchJobState: active disabling disabled enabling terminating completed deleting
BatchNodeDeallocationOption: requeue terminate taskcompletion retaineddata
BatchNodeDisableSchedulingOption: requeue terminate taskcompletion
BatchNodeFillType: Spread Pack
BatchNodePlacementPolicyType: regional zonal
BatchNodeRebootKind: requeue terminate taskcompletion retaineddata
BatchNodeState: idle rebooting reimaging running unusable creating starting waitingforstarttask starttaskfailed
    unknown leavingpool offline preempted upgradingos deallocated deallocating
BatchPoolLifetimeOption: jobschedule job
BatchPoolState: active deleting
BatchStartTaskState: running completed
BatchTaskExecutionResult: success failure
BatchTaskFailureMode: noaction performexitoptionsjobaction
BatchTaskState: active preparing running completed
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
ImageVerificationType: verified unverified
InboundEndpointProtocol: tcp udp
IpAddressProvisioningType: batchmanaged usermanaged nopublicipaddresses
LoginMode: batch interactive
NetworkSecurityGroupRuleAccess: allow deny
NodeCommunicationMode: default classic simplified
OSType: linux windows
OutputFileUploadCondition: tasksuccess taskfailure taskcompletion
SecurityEncryptionTypes: DiskWithVMGuestState NonPersistedTPM VMGuestStateOnly
SecurityTypes: trustedLaunch confidentialvm
StorageAccountType: standard_lrs premium_lrs standardssd_lrs
UpgradeMode: automatic manual rolling
VirtualMachineSkuProfileAllocationStrategy: lowestPrice capacityOptimized prioritized
ZonePlacementPolicy: Auto
"""
"""The enum values as the service writes them."""
