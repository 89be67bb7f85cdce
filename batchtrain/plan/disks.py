"""Disks, their encryption, the security of the machine and its extensions."""

from __future__ import annotations

from batchtrain.config import types
from batchtrain.plan import wire


def os_disk(disk: types.OsDisk) -> wire.OsDisk:
    """The disk of the operating system; an ephemeral one is in the cache of the host."""
    managed_disk = wire.ManagedDisk(
        storage_account_type=disk.storage_account_type,
        security_profile=wire.unless_empty(wire.DiskSecurityProfile(security_encryption_type=disk.security_encryption)),
        disk_encryption_set=wire.unless_empty(wire.DiskEncryptionSet(id=disk.disk_encryption_set)),
    )
    return wire.OsDisk(
        ephemeral_os_disk_settings=wire.EphemeralDisk(placement="cachedisk") if disk.ephemeral else None,
        caching=disk.caching,
        disk_size_gb=disk.size_gb,
        managed_disk=wire.unless_empty(managed_disk),
        write_accelerator_enabled=disk.write_accelerator,
    )


def data_disk(disk: types.DataDisk) -> wire.DataDisk:
    """One empty disk."""
    managed_disk = wire.ManagedDisk(
        storage_account_type=disk.storage_account_type,
        disk_encryption_set=wire.unless_empty(wire.DiskEncryptionSet(id=disk.disk_encryption_set)),
    )
    return wire.DataDisk(
        lun=disk.lun, disk_size_gb=disk.size_gb, caching=disk.caching, managed_disk=wire.unless_empty(managed_disk)
    )


def encryption(settings: types.DiskEncryption) -> wire.DiskEncryption:
    """The encrypted disks, and the key."""
    if (key := settings.customer_managed_key) is None:
        return wire.DiskEncryption(targets=settings.targets)
    managed_key = wire.CustomerManagedKey(
        key_url=key.key_url,
        identity_reference=wire.PoolIdentityReference(resource_id=key.identity),
        rotation_to_latest_key_version_enabled=key.rotation,
    )
    return wire.DiskEncryption(targets=settings.targets, customer_managed_key=managed_key)


def security(profile: types.SecurityProfile) -> wire.SecurityProfile:
    """Trusted launch, confidential VMs, the metadata security protocol."""
    firmware = wire.UefiSettings(secure_boot_enabled=profile.secure_boot, vtpm_enabled=profile.vtpm)
    proxy_agent = None
    if (agent := profile.proxy_agent) is not None:
        imds, wire_server = _endpoint(agent.imds), _endpoint(agent.wire_server)
        proxy_agent = wire.ProxyAgent(enabled=agent.enabled, imds=imds, wire_server=wire_server)
    return wire.SecurityProfile(
        security_type=profile.security_type,
        encryption_at_host=profile.encryption_at_host,
        uefi_settings=wire.unless_empty(firmware),
        proxy_agent_settings=proxy_agent,
    )


def _endpoint(endpoint: types.HostEndpoint | None) -> wire.HostEndpoint | None:
    if endpoint is None:
        return None
    return wire.HostEndpoint(
        mode=endpoint.mode, in_vm_access_control_profile_reference_id=endpoint.access_control_profile
    )


def extension(vm_extension: types.Extension) -> wire.Extension:
    """One VM extension."""
    return wire.Extension(
        name=vm_extension.name,
        publisher=vm_extension.publisher,
        type=vm_extension.type,
        type_handler_version=vm_extension.type_handler_version,
        auto_upgrade_minor_version=vm_extension.auto_upgrade_minor_version,
        enable_automatic_upgrade=vm_extension.enable_automatic_upgrade,
        settings=vm_extension.settings,
        provision_after_extensions=vm_extension.provision_after,
    )
