"""Azure Batch's request bodies as frozen types: pools and their nodes.

Field names and enum values are the service's (API 2025-06-01); a test holds each type against the SDK's own models.
What is None or empty by default does not travel.
"""

from collections.abc import Mapping
from typing import Any

from batchtrain.plan.wire.base import (
    API_VERSION,
    NEWER_API_VERSION,
    ApplicationPackage,
    ContainerSettings,
    IdentityReference,
    Metadata,
    Registry,
    ResourceFile,
    Settings,
    Text,
    UserIdentity,
    Wire,
)


class ImageReference(Wire, frozen=True, kw_only=True):
    publisher: str | None = None
    offer: str | None = None
    sku: str | None = None
    version: str | None = None
    virtual_machine_image_id: str | None = None
    exact_version: str | None = None
    shared_gallery_image_id: str | None = None
    community_gallery_image_id: str | None = None


class ContainerConfiguration(Wire, frozen=True, kw_only=True):
    type: str
    container_image_names: tuple[str, ...] = ()
    container_registries: tuple[Registry, ...] = ()


class WindowsConfiguration(Wire, frozen=True, kw_only=True):
    enable_automatic_updates: bool | None = None


class DiskEncryptionSet(Wire, frozen=True, kw_only=True):
    id: str | None = None


class DiskSecurityProfile(Wire, frozen=True, kw_only=True):
    security_encryption_type: str | None = None


class ManagedDisk(Wire, frozen=True, kw_only=True):
    disk_encryption_set: DiskEncryptionSet | None = None
    storage_account_type: str | None = None
    security_profile: DiskSecurityProfile | None = None


class DataDisk(Wire, frozen=True, kw_only=True):
    lun: int
    disk_size_gb: int
    caching: str | None = None
    managed_disk: ManagedDisk | None = None


class PoolIdentityReference(Wire, frozen=True, kw_only=True):
    resource_id: str | None = None


class CustomerManagedKey(Wire, frozen=True, kw_only=True):
    identity_reference: PoolIdentityReference | None = None
    key_url: str | None = None
    rotation_to_latest_key_version_enabled: bool | None = None


class DiskEncryption(Wire, frozen=True, kw_only=True):
    customer_managed_key: CustomerManagedKey | None = None
    targets: tuple[str, ...] = ()


class NodePlacement(Wire, frozen=True, kw_only=True):
    policy: str | None = None


class Extension(Wire, frozen=True, kw_only=True):
    """A VM extension; its protected settings are never planned."""

    name: str
    publisher: str
    type: str
    type_handler_version: str | None = None
    auto_upgrade_minor_version: bool | None = None
    enable_automatic_upgrade: bool | None = None
    settings: dict[str, str] = {}
    provision_after_extensions: tuple[str, ...] = ()


class EphemeralDisk(Wire, frozen=True, kw_only=True):
    placement: str | None = None


class OsDisk(Wire, frozen=True, kw_only=True):
    ephemeral_os_disk_settings: EphemeralDisk | None = None
    caching: str | None = None
    disk_size_gb: int | None = None
    managed_disk: ManagedDisk | None = None
    write_accelerator_enabled: bool | None = None


class UefiSettings(Wire, frozen=True, kw_only=True):
    secure_boot_enabled: bool | None = None
    vtpm_enabled: bool | None = None


class HostEndpoint(Wire, frozen=True, kw_only=True):
    in_vm_access_control_profile_reference_id: str | None = None
    mode: str | None = None


class ProxyAgent(Wire, frozen=True, kw_only=True):
    enabled: bool | None = None
    imds: HostEndpoint | None = None
    wire_server: HostEndpoint | None = None


class SecurityProfile(Wire, frozen=True, kw_only=True):
    encryption_at_host: bool | None = None
    proxy_agent_settings: ProxyAgent | None = None
    security_type: str | None = None
    uefi_settings: UefiSettings | None = None


class ServiceArtifact(Wire, frozen=True, kw_only=True):
    id: str


class VmSizeProperties(Wire, frozen=True, kw_only=True):
    vcpus_per_core: int | None = None


class HardwareProfile(Wire, frozen=True, kw_only=True):
    vm_size_properties: VmSizeProperties


class Placement(Wire, frozen=True, kw_only=True):
    zone_placement_policy: str


class InstancePercentPolicy(Wire, frozen=True, kw_only=True):
    value: int
    enabled: bool


class ZoneAllocationPolicy(Wire, frozen=True, kw_only=True):
    max_zone_count: int | None = None
    max_instance_percent_per_zone_policy: InstancePercentPolicy | None = None


class ResiliencyPolicy(Wire, frozen=True, kw_only=True):
    zone_allocation_policy: ZoneAllocationPolicy


class VmConfiguration(Wire, frozen=True, kw_only=True):
    image_reference: ImageReference
    node_agent_sku_id: str
    windows_configuration: WindowsConfiguration | None = None
    data_disks: tuple[DataDisk, ...] = ()
    license_type: str | None = None
    container_configuration: ContainerConfiguration | None = None
    disk_encryption_configuration: DiskEncryption | None = None
    node_placement_configuration: NodePlacement | None = None
    extensions: tuple[Extension, ...] = ()
    os_disk: OsDisk | None = None
    security_profile: SecurityProfile | None = None
    service_artifact_reference: ServiceArtifact | None = None
    hardware_profile: HardwareProfile | None = None
    placement: Placement | None = None
    resiliency_policy: ResiliencyPolicy | None = None


class NetworkSecurityGroupRule(Wire, frozen=True, kw_only=True):
    priority: int
    access: str
    source_address_prefix: str
    source_port_ranges: tuple[str, ...] = ()


class InboundNatPool(Wire, frozen=True, kw_only=True):
    name: str
    protocol: str
    backend_port: int
    frontend_port_range_start: int
    frontend_port_range_end: int
    network_security_group_rules: tuple[NetworkSecurityGroupRule, ...] = ()


class EndpointConfiguration(Wire, frozen=True, kw_only=True):
    inbound_nat_pools: tuple[InboundNatPool, ...]


class IpTag(Wire, frozen=True, kw_only=True):
    ip_tag_type: str | None = None
    tag: str | None = None


class PublicIpAddressConfiguration(Wire, frozen=True, kw_only=True):
    provision: str | None = None
    ip_families: tuple[str, ...] = ()
    ip_address_ids: tuple[str, ...] = ()
    ip_tags: tuple[IpTag, ...] = ()


class NetworkConfiguration(Wire, frozen=True, kw_only=True):
    subnet_id: Text | None = None
    dynamic_vnet_assignment_scope: str | None = None
    endpoint_configuration: EndpointConfiguration | None = None
    public_ip_address_configuration: PublicIpAddressConfiguration | None = None
    enable_accelerated_networking: bool | None = None


class LinuxUser(Wire, frozen=True, kw_only=True):
    uid: int | None = None
    gid: int | None = None
    ssh_private_key: Text | None = None


class WindowsUser(Wire, frozen=True, kw_only=True):
    login_mode: str | None = None


class UserAccount(Wire, frozen=True, kw_only=True):
    name: str
    password: Text
    elevation_level: str | None = None
    linux_user_configuration: LinuxUser | None = None
    windows_user_configuration: WindowsUser | None = None


class BlobMount(Wire, frozen=True, kw_only=True):
    account_name: Text
    container_name: str
    relative_mount_path: str
    account_key: Text | None = None
    sas_key: str | None = None
    blobfuse_options: str | None = None
    identity_reference: IdentityReference | None = None


class NfsMount(Wire, frozen=True, kw_only=True):
    source: str
    relative_mount_path: str
    mount_options: str | None = None


class CifsMount(Wire, frozen=True, kw_only=True):
    username: Text
    source: str
    relative_mount_path: str
    password: Text
    mount_options: str | None = None


class FileShareMount(Wire, frozen=True, kw_only=True):
    account_name: Text
    account_key: Text
    azure_file_url: Text
    relative_mount_path: str
    mount_options: str | None = None


class Mount(Wire, frozen=True, kw_only=True):
    azure_blob_file_system_configuration: BlobMount | None = None
    nfs_mount_configuration: NfsMount | None = None
    cifs_mount_configuration: CifsMount | None = None
    azure_file_share_configuration: FileShareMount | None = None


class AutomaticOsUpgrade(Wire, frozen=True, kw_only=True):
    disable_automatic_rollback: bool | None = None
    enable_automatic_os_upgrade: bool | None = None
    use_rolling_upgrade_policy: bool | None = None
    os_rolling_upgrade_deferral: bool | None = None


class RollingUpgrade(Wire, frozen=True, kw_only=True):
    enable_cross_zone_upgrade: bool | None = None
    max_batch_instance_percent: int | None = None
    max_unhealthy_instance_percent: int | None = None
    max_unhealthy_upgraded_instance_percent: int | None = None
    pause_time_between_batches: str | None = None
    prioritize_unhealthy_instances: bool | None = None
    rollback_failed_instances_on_policy_breach: bool | None = None


class UpgradePolicy(Wire, frozen=True, kw_only=True):
    mode: str
    automatic_os_upgrade_policy: AutomaticOsUpgrade | None = None
    rolling_upgrade_policy: RollingUpgrade | None = None


class StartTask(Wire, frozen=True, kw_only=True):
    command_line: str
    container_settings: ContainerSettings | None = None
    resource_files: tuple[ResourceFile, ...] = ()
    environment_settings: Settings = ()
    user_identity: UserIdentity | None = None
    max_task_retry_count: int | None = None
    wait_for_success: bool | None = None


class TaskSchedulingPolicy(Wire, frozen=True, kw_only=True):
    node_fill_type: str
    job_default_order: str | None = None


class PoolSpecification(Wire, frozen=True, kw_only=True):
    """The pool of a job of its own."""

    vm_size: str
    display_name: str | None = None
    virtual_machine_configuration: VmConfiguration | None = None
    resize_timeout: str | None = None
    target_dedicated_nodes: int | None = None
    target_low_priority_nodes: int | None = None
    enable_auto_scale: bool | None = None
    auto_scale_formula: str | None = None
    auto_scale_evaluation_interval: str | None = None
    enable_inter_node_communication: bool | None = None
    network_configuration: NetworkConfiguration | None = None
    start_task: StartTask | None = None
    application_package_references: tuple[ApplicationPackage, ...] = ()
    task_slots_per_node: int | None = None
    task_scheduling_policy: TaskSchedulingPolicy | None = None
    user_accounts: tuple[UserAccount, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    mount_configuration: tuple[Mount, ...] = ()
    upgrade_policy: UpgradePolicy | None = None


class MixedSize(Wire, frozen=True, kw_only=True):
    name: str
    rank: int | None = None


class SkuProfile(Wire, frozen=True, kw_only=True):
    vm_sizes: tuple[MixedSize, ...]
    allocation_strategy: str


class PoolCreate(PoolSpecification, frozen=True):
    """POST /pools."""

    id: str
    vm_sku_profile: SkuProfile | None = None


def api_version(pool: Mapping[str, Any]) -> str:
    """The API version that a pool's document needs: the older one, which more clients can read, if it suffices."""
    machine = pool.get("virtualMachineConfiguration", {})
    newer = "vmSkuProfile" in pool or not NEWER_PROPERTIES.isdisjoint(machine)
    return NEWER_API_VERSION if newer else API_VERSION


NEWER_PROPERTIES = frozenset({"hardwareProfile", "placement", "resiliencyPolicy"})
"""Properties of the nodes that only the newer version has."""


class NodeUserCreate(Wire, frozen=True, kw_only=True):
    """POST /pools/{id}/nodes/{id}/users."""

    name: str
    is_admin: bool | None = None
    expiry_time: Text | None = None
    password: Text | None = None
    ssh_public_key: Text | None = None
