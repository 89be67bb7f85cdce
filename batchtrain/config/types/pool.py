"""pool.yaml as types: the nodes, what they run on, how many there are, and how they are reached."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from batchtrain.catalog.meaning import LUNS, MOST_MIXED, MOST_SLOTS, PRIORITIES, ZONE_SHARES
from batchtrain.config.types.base import (
    IGNORED,
    MOST_NODES,
    ApplicationPackage,
    Block,
    DisplayName,
    Duration,
    Id,
    InputData,
    Percentage,
    Port,
    ResourceFile,
    Retries,
    Share,
    Span,
    Text,
    copies,
    says,
)
from batchtrain.config.types.secret import Secret

VM = "pool.virtualMachineConfiguration"
DISK_KEY = f"{VM}.diskEncryptionConfiguration.customerManagedKey"
SECURITY = f"{VM}.securityProfile"
NETWORK = "pool.networkConfiguration"
NAT = f"{NETWORK}.endpointConfiguration.inboundNATPools"
RULES = f"{NAT}.networkSecurityGroupRules"
ADDRESS = f"{NETWORK}.publicIPAddressConfiguration"
BY_NAME = "batchtrain: warning `network-by-name`"
START = "pool.startTask"
FORMULA = "pool.autoScaleFormula"
ROLLING = "pool.upgradePolicy.rollingUpgradePolicy"
OS_UPGRADE = "pool.upgradePolicy.automaticOSUpgradePolicy"

# Tables of properties: the formatter would spread a row over up to nine lines.
# fmt: off


# --- the image ------------------------------------------------------------------------------------------------------


Native = Annotated[bool, says("Batch itself runs the tasks in containers.", f"{VM}.containerConfiguration.type")]
License = Annotated[Text | None, copies("On-premises licence to apply (Windows only).", f"{VM}.licenseType")]
NodeAgent = Annotated[Text, says("Node agent SKU id that fits the image.", f"{VM}.nodeAgentSKUId")]


class PlatformImage(Block, frozen=True, kw_only=True):
    publisher: Annotated[Text, copies("Publisher of the marketplace image.", f"{VM}.imageReference.publisher")]
    offer: Annotated[Text, copies("Offer of the marketplace image.", f"{VM}.imageReference.offer")]
    sku: Annotated[Text, copies("SKU of the marketplace image.", f"{VM}.imageReference.sku")]
    version: Annotated[Text, copies("Version of the image.", f"{VM}.imageReference.version")] = "latest"
    node_agent: Annotated[Text | None, says(
        "Node agent SKU id. Default: the one in the catalogue.", f"{VM}.nodeAgentSKUId")] = None
    native: Native = False
    license_type: License = None


class CustomImage(Block, frozen=True, kw_only=True):
    arm_image_id: Annotated[Text, copies(
        "Resource id of a managed or gallery image; needs Entra sign-in.",
        f"{VM}.imageReference.virtualMachineImageId")]
    node_agent: Annotated[Text, says(
        "Node agent SKU id that fits the image.", f"{VM}.nodeAgentSKUId", example="batch.node.ubuntu 24.04")]
    native: Native = False
    license_type: License = None


class SharedGalleryImage(Block, frozen=True, kw_only=True):
    id: Annotated[Text, copies("Id of an image in a shared gallery.", f"{VM}.imageReference.sharedGalleryImageId")]
    node_agent: NodeAgent
    native: Native = False
    license_type: License = None


class CommunityGalleryImage(Block, frozen=True, kw_only=True):
    id: Annotated[Text, copies(
        "Id of an image in a community gallery.", f"{VM}.imageReference.communityGalleryImageId")]
    node_agent: NodeAgent
    native: Native = False
    license_type: License = None


Image = PlatformImage | CustomImage | SharedGalleryImage | CommunityGalleryImage

Caching = Literal["none", "readonly", "readwrite"]
StorageType = Literal["standard_lrs", "premium_lrs", "standardssd_lrs"]
DiskSecurity = Literal["DiskWithVMGuestState", "NonPersistedTPM", "VMGuestStateOnly"]


class OsDisk(Block, frozen=True, kw_only=True):
    ephemeral: Annotated[bool, says(
        "The operating system disk is on the cache of the host: fast, and lost with the node.",
        f"{VM}.osDisk.ephemeralOSDiskSettings.placement")] = False
    caching: Annotated[Caching | None, copies("Host caching.", f"{VM}.osDisk.caching")] = None
    size_gb: Annotated[Annotated[int, Meta(ge=1, le=4095)] | None, copies(
        "Size in GB, at least that of the image.", f"{VM}.osDisk.diskSizeGB")] = None
    storage_account_type: Annotated[StorageType | None, copies(
        "Kind of managed disk.", f"{VM}.osDisk.managedDisk.storageAccountType")] = None
    security_encryption: Annotated[DiskSecurity | None, copies(
        "What a confidential VM encrypts.", f"{VM}.osDisk.managedDisk.securityProfile.securityEncryptionType")] = None
    disk_encryption_set: Annotated[Text | None, copies(
        "Resource id of a disk encryption set.", f"{VM}.osDisk.managedDisk.diskEncryptionSet.id")] = None
    write_accelerator: Annotated[bool | None, copies(
        "Write accelerator (M series).", f"{VM}.osDisk.writeAcceleratorEnabled")] = None


class DataDisk(Block, frozen=True, kw_only=True):
    lun: Annotated[int, copies(
        "Logical unit number, unique for each disk.", f"{VM}.dataDisks.lun", ge=LUNS[0], le=LUNS[-1])]
    size_gb: Annotated[int, copies("Size in GB.", f"{VM}.dataDisks.diskSizeGB", ge=1, le=32767)]
    caching: Annotated[Caching | None, copies("Host caching.", f"{VM}.dataDisks.caching")] = None
    storage_account_type: Annotated[StorageType | None, copies(
        "Kind of managed disk.", f"{VM}.dataDisks.managedDisk.storageAccountType")] = None
    disk_encryption_set: Annotated[Text | None, copies(
        "Resource id of a disk encryption set.", f"{VM}.dataDisks.managedDisk.diskEncryptionSet.id")] = None


AGENT = f"{VM}.securityProfile.proxyAgentSettings"


class HostEndpoint(Block, frozen=True, kw_only=True):
    mode: Annotated[Literal["Audit", "Enforce"] | None, says(
        "Mode of the proxy agent.", f"{AGENT}.imds.mode, {AGENT}.wireServer.mode")] = None
    access_control_profile: Annotated[Text | None, says(
        "Resource id of the access rules.", f"{AGENT}.imds.inVMAccessControlProfileReferenceId,"
        f" {AGENT}.wireServer.inVMAccessControlProfileReferenceId")] = None


class ProxyAgent(Block, frozen=True, kw_only=True):
    enabled: Annotated[bool, copies("Enable the metadata security protocol.", f"{AGENT}.enabled")] = True
    imds: Annotated[HostEndpoint | None, copies("The instance metadata service.", f"{AGENT}.imds")] = None
    wire_server: Annotated[HostEndpoint | None, copies("The wire server.", f"{AGENT}.wireServer")] = None


class SecurityProfile(Block, frozen=True, kw_only=True):
    security_type: Annotated[Literal["trustedLaunch", "confidentialvm"] | None, copies(
        "Kind of VM.", f"{SECURITY}.securityType")] = None
    encryption_at_host: Annotated[bool | None, copies(
        "Also encrypt the disks on the host.", f"{SECURITY}.encryptionAtHost")] = None
    secure_boot: Annotated[bool | None, copies(
        "Secure boot; unsigned GPU and InfiniBand drivers do not load.",
        f"{SECURITY}.uefiSettings.secureBootEnabled")] = None
    vtpm: Annotated[bool | None, copies("Virtual TPM.", f"{SECURITY}.uefiSettings.vTpmEnabled")] = None
    proxy_agent: Annotated[ProxyAgent | None, copies("Metadata security protocol.", AGENT)] = None


class CustomerManagedKey(Block, frozen=True, kw_only=True):
    key_url: Annotated[Text, copies("URL of the Key Vault key.", f"{DISK_KEY}.keyUrl")]
    identity: Annotated[Text, copies(
        "Resource id of the identity that may use the key.", f"{DISK_KEY}.identityReference.resourceId")]
    rotation: Annotated[bool | None, copies(
        "Use the latest version of the key.", f"{DISK_KEY}.rotationToLatestKeyVersionEnabled")] = None


class DiskEncryption(Block, frozen=True, kw_only=True):
    targets: Annotated[tuple[Literal["osdisk", "temporarydisk"], ...], copies(
        "Disks to encrypt.", f"{VM}.diskEncryptionConfiguration.targets")] = ()
    customer_managed_key: Annotated[CustomerManagedKey | None, copies("A customer-managed key.", DISK_KEY)] = None


class Extension(Block, frozen=True, kw_only=True):
    name: Annotated[Text, copies("Name of the extension on the node.", f"{VM}.extensions.name")]
    publisher: Annotated[Text, copies("Publisher.", f"{VM}.extensions.publisher")]
    type: Annotated[Text, copies("Type.", f"{VM}.extensions.type", example="AzureMonitorLinuxAgent")]
    type_handler_version: Annotated[Text | None, copies("Version.", f"{VM}.extensions.typeHandlerVersion")] = None
    auto_upgrade_minor_version: Annotated[bool | None, copies(
        "Install the newest minor version.", f"{VM}.extensions.autoUpgradeMinorVersion")] = None
    enable_automatic_upgrade: Annotated[bool | None, copies(
        "Upgrade the extension automatically.", f"{VM}.extensions.enableAutomaticUpgrade")] = None
    settings: Annotated[dict[str, str], copies("Settings of the extension.", f"{VM}.extensions.settings")] = {}
    provision_after: Annotated[tuple[Text, ...], copies(
        "Extensions that are installed before this one.", f"{VM}.extensions.provisionAfterExtensions")] = ()


class Zones(Block, frozen=True, kw_only=True):
    max_count: Annotated[Annotated[int, Meta(ge=1)] | None, copies(
        "Maximum number of zones.", f"{VM}.resiliencyPolicy.zoneAllocationPolicy.maxZoneCount")] = None
    max_percent_per_zone: Annotated[Annotated[int, Meta(ge=ZONE_SHARES[0], le=ZONE_SHARES[-1])] | None, copies(
        "Maximum percentage of the nodes in one zone.",
        f"{VM}.resiliencyPolicy.zoneAllocationPolicy.maxInstancePercentPerZonePolicy.value")] = None


class VmConfiguration(Block, frozen=True, kw_only=True):
    platform_image: Annotated[PlatformImage | None, says("A marketplace image. Give exactly one kind of image.")] = None
    custom_image: Annotated[CustomImage | None, says("Your own image. Give exactly one kind of image.")] = None
    shared_gallery_image: Annotated[SharedGalleryImage | None, says("An image in a shared gallery.")] = None
    community_gallery_image: Annotated[CommunityGalleryImage | None, says("An image in a community gallery.")] = None
    container_type: Annotated[Literal["dockerCompatible", "criCompatible"], says(
        "Container technology of a native pool.", f"{VM}.containerConfiguration.type")] = "dockerCompatible"
    plain_docker: Annotated[bool | None, says(
        "Accepted as `false` for older files. Batch itself runs the containers.",
        "batchtrain: error `plain-docker`")] = None
    os_disk: Annotated[OsDisk | None, copies("The operating system disk.", f"{VM}.osDisk")] = None
    data_disks: Annotated[tuple[DataDisk, ...], copies(
        "Empty disks. The start task must format and mount them.", f"{VM}.dataDisks")] = ()
    security_profile: Annotated[SecurityProfile | None, copies("Trusted launch and confidential VMs.", SECURITY)] = None
    disk_encryption: Annotated[DiskEncryption | None, copies(
        "Encryption of the disks.", f"{VM}.diskEncryptionConfiguration")] = None
    node_placement: Annotated[Literal["regional", "zonal"] | None, copies(
        "Place the nodes in the region, or spread them over its zones.",
        f"{VM}.nodePlacementConfiguration.policy")] = None
    extensions: Annotated[tuple[Extension, ...], copies("VM extensions.", f"{VM}.extensions")] = ()
    service_artifact: Annotated[Text | None, copies(
        "Resource id of the service artifact that fixes image versions.", f"{VM}.serviceArtifactReference.id")] = None
    windows_automatic_updates: Annotated[bool | None, copies(
        "Install Windows updates automatically.", f"{VM}.windowsConfiguration.enableAutomaticUpdates")] = None
    hyper_threading: Annotated[bool, says(
        "`false`: a core of a node shows one vCPU, not two.",
        f"{VM}.hardwareProfile.vmSizeProperties.vCPUsPerCore")] = True
    vcpus: Annotated[Annotated[int, Meta(ge=1)] | None, copies(
        "Number of vCPUs of a node, if it is to have fewer than its size.",
        f"{VM}.hardwareProfile.vmSizeProperties.vCPUsAvailable")] = None
    zones: Annotated[Zones | None, says(
        "Azure chooses the availability zones of the nodes.",
        f"{VM}.placement.zonePlacementPolicy")] = None

    @property
    def images(self) -> tuple[Image, ...]:
        """The images in the file; a valid file has exactly one."""
        candidates = (self.platform_image, self.custom_image, self.shared_gallery_image, self.community_gallery_image)
        return tuple(image for image in candidates if image is not None)

    @property
    def native(self) -> bool:
        """Whether the file asks for Batch's own container support."""
        return any(image.native for image in self.images)


# --- how many -------------------------------------------------------------------------------------------------------


class VmCount(Block, frozen=True, kw_only=True):
    dedicated: Annotated[int, says("Dedicated nodes.", "pool.targetDedicatedNodes", ge=0, le=MOST_NODES)] = 0
    low_priority: Annotated[int, says(
        "Spot nodes (formerly low-priority).", "pool.targetLowPriorityNodes", ge=0, le=MOST_NODES)] = 0

    @property
    def total(self) -> int:
        """The nodes of both kinds."""
        return self.dedicated + self.low_priority


class NodeCaps(Block, frozen=True, kw_only=True):
    dedicated: Annotated[int | None, says(
        "Limit of dedicated nodes. A negative number means no limit.", FORMULA)] = None
    low_priority: Annotated[int | None, says("Limit of spot nodes. A negative number means no limit.", FORMULA)] = None


class WeekdayRange(Block, frozen=True, kw_only=True):
    start: Annotated[int, says("First weekday; 0 is Sunday.", FORMULA, ge=0, le=6)]
    end: Annotated[int, says("Last weekday.", FORMULA, ge=0, le=6)]


class HourRange(Block, frozen=True, kw_only=True):
    start: Annotated[int, says("First hour, UTC.", FORMULA, ge=0, le=23)]
    end: Annotated[int, says("Last hour, UTC.", FORMULA, ge=0, le=23)]


class TimeRanges(Block, frozen=True, kw_only=True):
    weekdays: Annotated[WeekdayRange, says("Working days.")] = WeekdayRange(start=1, end=5)
    work_hours: Annotated[HourRange, says("Working hours.")] = HourRange(start=8, end=17)


ScenarioName = Literal[
    "active_tasks", "pending_tasks", "workday", "workday_with_offpeak_max_low_priority", "weekday", "weekend",
]


class Scenario(Block, frozen=True, kw_only=True):
    name: Annotated[ScenarioName, says("The rule that sets the number of nodes.", FORMULA)]
    maximum_vm_count: Annotated[NodeCaps, says("Maximum number of nodes.")]
    maximum_vm_increment_per_evaluation: Annotated[NodeCaps | None, says(
        "Maximum number of nodes added by one evaluation.")] = None
    node_deallocation_option: Annotated[Literal["requeue", "retaineddata", "taskcompletion", "terminate"], says(
        "What happens to the tasks of a node that is removed.", FORMULA)] = "taskcompletion"
    sample_lookback_interval: Annotated[Span, says("Period whose samples are used.", FORMULA)] = "00:10:00"
    required_sample_percentage: Annotated[Percentage, says("Percentage of samples that must exist.", FORMULA)] = 70
    bias_last_sample: Annotated[bool, says("Weight the last sample more.", FORMULA)] = True
    bias_node_type: Annotated[Literal["auto", "dedicated", "low_priority"] | None, says(
        "Nodes to prefer.", FORMULA)] = None
    rebalance_preemption_percentage: Annotated[Percentage | None, says(
        "Percentage of preempted spot nodes above which dedicated nodes replace them.", FORMULA)] = None
    time_ranges: Annotated[TimeRanges, says("Working days and hours.")] = TimeRanges()


class Autoscale(Block, frozen=True, kw_only=True):
    formula: Annotated[Text | None, says("Your own formula. It overrides a scenario.", FORMULA)] = None
    evaluation_interval: Annotated[Span | None, says(
        "Evaluation interval, 5 minutes to 7 days. Default: 15 minutes.", "pool.autoScaleEvaluationInterval")] = None
    scenario: Annotated[Scenario | None, says("A rule for which batchtrain writes the formula.")] = None


# --- preparation ----------------------------------------------------------------------------------------------------


class PrepCommands(Block, frozen=True, kw_only=True):
    pre: Annotated[tuple[str, ...], says(
        "Shell lines that run before batchtrain's own preparation.", f"{START}.commandLine")] = ()
    post: Annotated[tuple[str, ...], says(
        "Shell lines that run after batchtrain's own preparation.", f"{START}.commandLine")] = ()


class AdditionalNodePrep(Block, frozen=True, kw_only=True):
    commands: Annotated[PrepCommands, says("Shell lines that run as root on each node when it joins.")] = PrepCommands()
    environment_variables: Annotated[dict[str, str], says(
        "Environment variables of these lines.", f"{START}.environmentSettings")] = {}
    environment_variables_keyvault_secret_id: Annotated[Text | None, says(
        "Key Vault secret with more variables, as a YAML or JSON mapping.", f"{START}.environmentSettings")] = None
    max_task_retries: Annotated[Retries, says("Number of retries after a failure.", f"{START}.maxTaskRetryCount")] = 0


# --- the network ----------------------------------------------------------------------------------------------------


class Ssh(Block, frozen=True, kw_only=True):
    username: Annotated[Text, says("Login name to create on every node.", "node user.name")]
    expiry_days: Annotated[int, says("Days until the login expires.", "node user.expiryTime", ge=0)] = 30
    ssh_public_key: Annotated[Text | None, says("Path of a public key.", "node user.sshPublicKey")] = None
    ssh_public_key_data: Annotated[Text | None, says("The text of a public key.", "node user.sshPublicKey")] = None
    ssh_private_key: Annotated[Text | None, says(
        "Path of the matching private key.", "batchtrain: shown with the login")] = None
    generated_file_export_path: Annotated[Text, says(
        "Directory for a new key pair if no key is given.", "batchtrain: a new key pair")] = "."
    generate_docker_tunnel_script: Annotated[bool, says("A script for tunnels to Docker.", IGNORED)] = False
    hpn_server_swap: Annotated[bool, says("HPN-SSH in place of OpenSSH.", IGNORED)] = False
    allow_docker_access: Annotated[bool, says("The login may use Docker.", f"{START}.commandLine")] = False


class Rdp(Block, frozen=True, kw_only=True):
    username: Annotated[Text, says("Login name to create on every Windows node.", "node user.name")]
    expiry_days: Annotated[int, says("Days until the login expires.", "node user.expiryTime", ge=0)] = 30
    password: Annotated[Secret | None, says(
        "Password of the login. Write it in credentials.yaml.", "node user.password")] = None


class RemoteAccessControl(Block, frozen=True, kw_only=True):
    starting_port: Annotated[int, says(
        "First of 1,000 public ports for SSH or RDP logins.", f"{NAT}.frontendPortRangeStart", ge=1, le=64536)] = 49000
    allow: Annotated[tuple[Text, ...], says("Addresses (CIDR) that may connect.", RULES)] = ()
    deny: Annotated[tuple[Text, ...], says("Addresses (CIDR) that may not connect. `*` means all others.", RULES)] = ()


class Subnet(Block, frozen=True, kw_only=True):
    name: Annotated[Text | None, says("Name of the subnet.", f"{NETWORK}.subnetId")] = None
    address_prefix: Annotated[Text | None, says("Address range for a new network.", BY_NAME)] = None


class VirtualNetwork(Block, frozen=True, kw_only=True):
    arm_subnet_id: Annotated[Text | None, says("Resource id of the subnet.", f"{NETWORK}.subnetId")] = None
    name: Annotated[Text | None, says(
        "Name of the network in place of an id. Needs `management.subscription_id`.", f"{NETWORK}.subnetId")] = None
    resource_group: Annotated[Text | None, says(
        "Resource group of the network. Default: that of the Batch account.", f"{NETWORK}.subnetId")] = None
    subnet: Annotated[Subnet, says("The subnet.")] = Subnet()
    create_nonexistant: Annotated[bool, says("Create the network if it does not exist.", BY_NAME)] = False
    address_space: Annotated[Text | None, says("Address range for a new network.", BY_NAME)] = None


class NetworkRule(Block, frozen=True, kw_only=True):
    priority: Annotated[int, says(
        "Priority of the rule. Lower numbers are evaluated first.", f"{RULES}.priority", ge=PRIORITIES[0],
        le=PRIORITIES[-1])]
    access: Annotated[Literal["allow", "deny"], says("Effect of the rule.", f"{RULES}.access")]
    source_address_prefix: Annotated[Text, says(
        "Source address, CIDR, `*` or a service tag.", f"{RULES}.sourceAddressPrefix")]
    source_port_ranges: Annotated[tuple[Text, ...], says("Source ports.", f"{RULES}.sourcePortRanges")] = ()


class InboundNatPool(Block, frozen=True, kw_only=True):
    name: Annotated[Text, says("Name of the endpoint, at most 77 characters.", f"{NAT}.name")]
    protocol: Annotated[Literal["tcp", "udp"], says("Protocol.", f"{NAT}.protocol")] = "tcp"
    backend_port: Annotated[Port, says("Port on the node.", f"{NAT}.backendPort")]
    frontend_port_range: Annotated[tuple[int, int], says(
        "First and last public port: at least 40 ports.", f"{NAT}.frontendPortRangeStart")]
    rules: Annotated[tuple[NetworkRule, ...], says(
        "Rules for connections. Without rules, all addresses may connect.")] = ()


class IpTag(Block, frozen=True, kw_only=True):
    type: Annotated[Text, copies("Type of the tag.", f"{ADDRESS}.ipTags.ipTagType")]
    tag: Annotated[Text, copies("Value of the tag.", f"{ADDRESS}.ipTags.tag")]


class Network(Block, frozen=True, kw_only=True):
    accelerated_networking: Annotated[bool | None, copies(
        "Accelerated networking: SR-IOV for the Ethernet card.", f"{NETWORK}.enableAcceleratedNetworking")] = None
    dynamic_vnet_assignment_scope: Annotated[Literal["none", "job"] | None, copies(
        "Whether nodes join the network of the job.", f"{NETWORK}.dynamicVNetAssignmentScope")] = None
    inbound_nat_pools: Annotated[tuple[InboundNatPool, ...], says(
        "Ports of the nodes that are reachable from outside.", max_length=5)] = ()
    public_ip: Annotated[Literal["batchmanaged", "usermanaged", "nopublicipaddresses"] | None, says(
        "How public addresses are provided.", f"{ADDRESS}.provision")] = None
    ip_families: Annotated[tuple[Literal["IPv4", "IPv6"], ...], copies(
        "Address families: IPv4, or both for dual stack.", f"{ADDRESS}.ipFamilies")] = ()
    ip_tags: Annotated[tuple[IpTag, ...], copies("Tags of the public addresses.", f"{ADDRESS}.ipTags")] = ()


# --- the rest -------------------------------------------------------------------------------------------------------


class UserAccount(Block, frozen=True, kw_only=True):
    """A user account on every node. Its password and key are in credentials.yaml under `user_accounts.NAME`."""

    name: Annotated[Text, copies("User name, at most 20 characters.", "pool.userAccounts.name")]
    elevation_level: Annotated[Literal["nonadmin", "admin"] | None, copies(
        "Rights of the user.", "pool.userAccounts.elevationLevel")] = None
    uid: Annotated[Annotated[int, Meta(ge=0)] | None, copies(
        "User id; with `gid`.", "pool.userAccounts.linuxUserConfiguration.uid")] = None
    gid: Annotated[Annotated[int, Meta(ge=0)] | None, copies(
        "Group id; with `uid`.", "pool.userAccounts.linuxUserConfiguration.gid")] = None
    login_mode: Annotated[Literal["batch", "interactive"] | None, copies(
        "How a Windows user logs in.", "pool.userAccounts.windowsUserConfiguration.loginMode")] = None


class RollingUpgrade(Block, frozen=True, kw_only=True):
    enable_cross_zone_upgrade: Annotated[bool | None, copies(
        "Upgrade several zones at once.", f"{ROLLING}.enableCrossZoneUpgrade")] = None
    max_batch_instance_percent: Annotated[Share | None, copies(
        "Percentage of nodes that are upgraded at once.", f"{ROLLING}.maxBatchInstancePercent")] = None
    max_unhealthy_instance_percent: Annotated[Share | None, copies(
        "Percentage of unhealthy nodes that stops the upgrade.", f"{ROLLING}.maxUnhealthyInstancePercent")] = None
    max_unhealthy_upgraded_instance_percent: Annotated[Annotated[int, Meta(ge=0, le=100)] | None, copies(
        "Percentage of unhealthy upgraded nodes that stops the upgrade.",
        f"{ROLLING}.maxUnhealthyUpgradedInstancePercent")] = None
    pause_time_between_batches: Annotated[Span | None, says(
        "Pause between batches.", f"{ROLLING}.pauseTimeBetweenBatches")] = None
    prioritize_unhealthy_instances: Annotated[bool | None, copies(
        "Upgrade unhealthy nodes first.", f"{ROLLING}.prioritizeUnhealthyInstances")] = None
    rollback_failed_instances_on_policy_breach: Annotated[bool | None, copies(
        "Roll back nodes whose upgrade failed.", f"{ROLLING}.rollbackFailedInstancesOnPolicyBreach")] = None


class AutomaticOsUpgrade(Block, frozen=True, kw_only=True):
    enabled: Annotated[bool | None, copies(
        "Keep the operating system image up to date.", f"{OS_UPGRADE}.enableAutomaticOSUpgrade")] = None
    disable_rollback: Annotated[bool | None, copies(
        "Do not roll back a failed upgrade.", f"{OS_UPGRADE}.disableAutomaticRollback")] = None
    use_rolling_upgrade: Annotated[bool | None, copies(
        "Use the rolling upgrade policy.", f"{OS_UPGRADE}.useRollingUpgradePolicy")] = None
    defer_while_tasks_run: Annotated[bool | None, copies(
        "Defer the upgrade of a node while it runs tasks.", f"{OS_UPGRADE}.osRollingUpgradeDeferral")] = None


class UpgradePolicy(Block, frozen=True, kw_only=True):
    mode: Annotated[Literal["automatic", "manual", "rolling"], copies(
        "How nodes are upgraded.", "pool.upgradePolicy.mode")]
    automatic_os: Annotated[AutomaticOsUpgrade | None, copies(
        "Upgrades of the operating system image.", OS_UPGRADE)] = None
    rolling: Annotated[RollingUpgrade | None, copies("Upgrades in batches.", ROLLING)] = None


class NvidiaDriver(Block, frozen=True, kw_only=True):
    source: Annotated[Text | None, says(
        "URL of a driver to install. HPC images have a driver.", f"{START}.commandLine")] = None


class Gpu(Block, frozen=True, kw_only=True):
    nvidia_driver: Annotated[NvidiaDriver, says("The driver.")] = NvidiaDriver()
    ignore_warnings: Annotated[bool, says("Continue with a GPU that reports a fault.", IGNORED)] = False


class NodeExporter(Block, frozen=True, kw_only=True):
    enabled: Annotated[bool, says("Run the exporter.", IGNORED)] = False
    port: Annotated[Port | None, says("Port of the exporter.", IGNORED)] = None
    options: Annotated[tuple[str, ...], says("Options of the exporter.", IGNORED)] = ()


class Prometheus(Block, frozen=True, kw_only=True):
    node_exporter: Annotated[NodeExporter | None, says("Metrics of the node.")] = None
    cadvisor: Annotated[NodeExporter | None, says("Metrics of its containers.")] = None


class ContainerRuntimes(Block, frozen=True, kw_only=True):
    install: Annotated[tuple[Literal["kata_containers", "runc", "singularity"], ...], says(
        "What to install in addition to Docker. `singularity` installs Apptainer.", f"{START}.commandLine")] = ()
    default: Annotated[Literal["kata_containers", "runc"] | None, says("Default runtime of Docker.", IGNORED)] = None


class VmSizes(Block, frozen=True, kw_only=True):
    """Other VM sizes that Azure may allocate in place of `vm_size` (Instance Mix)."""

    alternatives: Annotated[tuple[Text, ...], says(
        "Other sizes with as many vCPUs, at most 4.", "pool.vmSkuProfile.vmSizes.name", max_length=MOST_MIXED - 1,
        example=["STANDARD_ND96ISR_H200_V5"])]
    allocation_strategy: Annotated[Literal["lowestPrice", "capacityOptimized", "prioritized"], says(
        "Which size Azure prefers. `prioritized`: `vm_size`, then the alternatives in their order.",
        "pool.vmSkuProfile.allocationStrategy")] = "lowestPrice"


THERE = "batchtrain: the pool of this candidate"


class Alternative(Block, frozen=True, kw_only=True):
    """Another place for the pool: what differs from the pool file."""

    account: Annotated[Text | None, says(
        "Name of a Batch account of `batch_accounts` in credentials.yaml. Default: the account of `batch`.",
        "batchtrain: the account of the requests", example="west")] = None
    vm_size: Annotated[Text | None, says("VM size of the nodes.", THERE, example="STANDARD_ND96ISR_H200_V5")] = None
    spot: Annotated[bool | None, says(
        "`true`: all nodes are spot nodes. `false`: all are dedicated.", THERE)] = None
    zones: Annotated[Zones | None, says("Availability zones of the nodes.")] = None


class Candidates(Block, frozen=True, kw_only=True):
    """Where `run` and `pool add` look for nodes: as the pool file says, then the alternatives."""

    alternatives: Annotated[tuple[Alternative, ...], says("What may differ, in the order in which it is tried.",
        min_length=1)]
    order: Annotated[Literal["given", "price", "price-per-gpu"], says(
        "Which candidate is tried first: the pool file, or the cheapest by the prices of catalog.yaml.",
        "batchtrain: order of the candidates")] = "given"
    patience: Annotated[Duration, says(
        "Time that a candidate gets to allocate all nodes, if waiting may help. A quota that is reached, or a size that"
        " is not offered, ends it at once.", "batchtrain: tries the next candidate", example="20m")] = "15m"
    recover: Annotated[bool, says(
        "If the pool of a running job cannot get its nodes back within `patience`, `run` moves the job to the next"
        " candidate, where it continues from its checkpoint.", "batchtrain: moves a job")] = False
    controller_identity: Annotated[Text | None, says(
        "Resource id of the managed identity with which the controller of a detached run (`run --detach --controller`)"
        " signs in to the Batch account.", "batchtrain: `identity` of the controller's pool")] = None


class Pool(Block, frozen=True, kw_only=True):
    id: Annotated[Id, copies("Name of the pool, at most 64 letters, digits, `-` and `_`.", "pool.id")]
    vm_configuration: Annotated[VmConfiguration, says("The image of the nodes, their disks and extensions.")]
    vm_size: Annotated[Text, says("VM size of the nodes.", "pool.vmSize", example="STANDARD_ND96ISR_H100_V5")]
    vm_sizes: Annotated[VmSizes | None, says("Several VM sizes (Instance Mix).", "pool.vmSkuProfile")] = None
    candidates: Annotated[Candidates | None, says(
        "Other accounts, sizes and kinds of nodes, if this pool gets no nodes.")] = None
    vm_count: Annotated[VmCount, says("Number of nodes. If a scenario scales the pool: the minimum.")] = VmCount()
    display_name: Annotated[DisplayName | None, copies("Display name.", "pool.displayName")] = None
    task_slots_per_node: Annotated[int, copies(
        "Number of tasks that a node runs at once.", "pool.taskSlotsPerNode", ge=1, le=MOST_SLOTS)] = 1
    inter_node_communication_enabled: Annotated[bool, copies(
        "Nodes can reach each other. Multi-instance tasks need it.", "pool.enableInterNodeCommunication")] = False
    resize_timeout: Annotated[Span | None, says(
        "Time limit of the allocation, at least 5 minutes. Default: 15 minutes for 10 nodes, and a minute more for each"
        " two further ones.", "pool.resizeTimeout", example="00:20:00")] = None
    on_bad_node: Annotated[Literal["fail", "replace"] | None, says(
        "What happens if the check before a launch finds faults of a node. `fail`: the task fails. `replace`: if they"
        " are faults of its GPUs or InfiniBand, `run` and `jobs add --follow` remove the node, wait for another one,"
        " and the gang starts again. Default: `fail`.", "task.commandLine")] = None
    node_fill_type: Annotated[Literal["pack", "spread"] | None, copies(
        "How tasks are distributed over nodes.", "pool.taskSchedulingPolicy.nodeFillType")] = None
    job_default_order: Annotated[Literal["none", "creationtime"] | None, copies(
        "Order of jobs with the same priority.", "pool.taskSchedulingPolicy.jobDefaultOrder")] = None
    autoscale: Annotated[Autoscale | Literal["to_zero"] | None, says(
        "Autoscale: the number of nodes follows the work. The word `to_zero`: as many nodes as the work needs, at most"
        " `vm_count`, and none without work.", FORMULA)] = None
    idle_timeout: Annotated[Duration | None, says(
        "Time without a task after which the pool has no nodes, at least 5 minutes; a new task brings all of them back."
        " Default: the nodes stay. `run --reuse` sets 30m.", FORMULA, example="30m")] = None
    additional_node_prep: Annotated[AdditionalNodePrep, says(
        "Your own preparation, which runs as root when a node joins.")] = AdditionalNodePrep()
    resource_files: Annotated[tuple[ResourceFile, ...], says("Files for the start task's working directory.")] = ()
    input_data: Annotated[InputData, says("Data that every node downloads when it joins.")] = InputData()
    application_packages: Annotated[tuple[ApplicationPackage, ...], says(
        "Applications of the account to install on every node.", max_length=10)] = ()
    metadata: Annotated[dict[str, str], says("Names and values that are stored with the pool.", "pool.metadata")] = {}
    user_accounts: Annotated[tuple[UserAccount, ...], says("User accounts on every node.")] = ()
    identities: Annotated[tuple[Text, ...], says(
        "Resource ids of managed identities of the nodes; set through Azure Resource Manager.",
        "batchtrain: `identity` of the pool resource")] = ()
    ssh: Annotated[Ssh | None, says("A login on every node.")] = None
    rdp: Annotated[Rdp | None, says("A login on every Windows node.")] = None
    remote_access_control: Annotated[RemoteAccessControl | None, says("Who may reach the logins from outside.")] = None
    virtual_network: Annotated[VirtualNetwork | None, says("Virtual network of the nodes. Needs Entra sign-in.")] = None
    public_ips: Annotated[tuple[Text, ...], copies(
        "Resource ids of your own public addresses.", f"{ADDRESS}.ipAddressIds")] = ()
    network: Annotated[Network, says("Endpoints, addresses and acceleration.")] = Network()
    upgrade_policy: Annotated[UpgradePolicy | None, copies(
        "How nodes are kept up to date.", "pool.upgradePolicy")] = None
    container_runtimes: Annotated[ContainerRuntimes, says("Container runtimes.")] = ContainerRuntimes()
    gpu: Annotated[Gpu | None, says("NVIDIA driver.")] = None
    block_until_all_global_resources_loaded: Annotated[bool, says(
        "A node takes tasks only after it has pulled its images.", f"{START}.waitForSuccess")] = True
    transfer_files_on_pool_creation: Annotated[bool, says(
        "Copy `global_resources.files` before the pool is created.",
        "batchtrain: `data ingress` before the pool")] = False
    reboot_on_start_task_failed: Annotated[bool, says(
        "While waiting for the pool, reboot nodes whose start task failed, at most 5 times.",
        "batchtrain: reboots while waiting")] = False
    attempt_recovery_on_unusable: Annotated[bool, says(
        "While waiting for the pool, reboot unusable nodes.", "batchtrain: reboots while waiting")] = False
    upload_diagnostics_logs_on_unusable: Annotated[bool, says(
        "Upload Batch's logs of unusable nodes to storage.", IGNORED)] = False
    certificates: Annotated[dict[str, Any] | None, says("Certificates of the Batch account.", IGNORED)] = None
    per_job_auto_scratch: Annotated[bool, says("BeeOND over the nodes' disks.", IGNORED)] = False
    batch_insights_enabled: Annotated[bool, says("Batch Insights.", IGNORED)] = False
    prometheus: Annotated[Prometheus | None, says("Metrics for Prometheus.")] = None

    @property
    def sizes(self) -> tuple[str, ...]:
        """The VM sizes that its nodes may have."""
        return (self.vm_size, *(self.vm_sizes.alternatives if self.vm_sizes is not None else ()))

    @property
    def scales(self) -> bool:
        """Whether a formula decides how many nodes it has."""
        return self.autoscale is not None or self.idle_timeout is not None

    @property
    def idles(self) -> bool:
        """Whether it has all its nodes or none, by its idle timeout."""
        return self.autoscale is None and self.idle_timeout is not None
