"""Disks, their encryption, the security of the machine and its extensions."""

from __future__ import annotations

from batchtrain.config import types
from batchtrain.plan import wire


def os_disk(disk: types.OsDisk) -> wire.OsDisk:
    """The disk of the operating system; an ephemeral one is in the cache of the host."""
    return wire.OsDisk(
        ephemeral_os_disk_settings=wire.EphemeralDisk(placement="cachedisk") if disk.ephemeral else None,
        caching=disk.caching,
        disk_size_gb=disk.size_gb,
        managed_disk=_managed(disk),
        write_accelerator_enabled=disk.write_accelerator,
    )


def _managed(disk: types.OsDisk) -> wire.ManagedDisk | None:
    if not (disk.storage_account_type or disk.security_encryption or disk.disk_encryption_set):
        return None
    return wire.ManagedDisk(
        storage_account_type=disk.storage_account_type,
        security_profile=(
            wire.DiskSecurityProfile(security_encryption_type=disk.security_encryption)
            if disk.security_encryption
            else None
        ),
        disk_encryption_set=_encryption_set(disk.disk_encryption_set),
    )


def _encryption_set(resource_id: str | None) -> wire.DiskEncryptionSet | None:
    return wire.DiskEncryptionSet(id=resource_id) if resource_id else None


def data_disk(disk: types.DataDisk) -> wire.DataDisk:
    """One empty disk."""
    return wire.DataDisk(
        lun=disk.lun,
        disk_size_gb=disk.size_gb,
        caching=disk.caching,
        managed_disk=(
            wire.ManagedDisk(
                storage_account_type=disk.storage_account_type,
                disk_encryption_set=_encryption_set(disk.disk_encryption_set),
            )
            if disk.storage_account_type or disk.disk_encryption_set
            else None
        ),
    )


def encryption(settings: types.DiskEncryption) -> wire.DiskEncryption:
    """The encrypted disks, and the key."""
    key = settings.customer_managed_key
    return wire.DiskEncryption(
        targets=settings.targets,
        customer_managed_key=(
            wire.CustomerManagedKey(
                key_url=key.key_url,
                identity_reference=wire.PoolIdentityReference(resource_id=key.identity),
                rotation_to_latest_key_version_enabled=key.rotation,
            )
            if key
            else None
        ),
    )


def security(profile: types.SecurityProfile) -> wire.SecurityProfile:
    """Trusted launch, confidential VMs, the metadata security protocol."""
    firmware = profile.secure_boot is not None or profile.vtpm is not None
    return wire.SecurityProfile(
        security_type=profile.security_type,
        encryption_at_host=profile.encryption_at_host,
        uefi_settings=(
            wire.UefiSettings(secure_boot_enabled=profile.secure_boot, vtpm_enabled=profile.vtpm) if firmware else None
        ),
        proxy_agent_settings=_proxy_agent(profile.proxy_agent) if profile.proxy_agent else None,
    )


def _proxy_agent(agent: types.ProxyAgent) -> wire.ProxyAgent:
    return wire.ProxyAgent(
        enabled=agent.enabled,
        imds=_endpoint(agent.imds) if agent.imds else None,
        wire_server=_endpoint(agent.wire_server) if agent.wire_server else None,
    )


def _endpoint(endpoint: types.HostEndpoint) -> wire.HostEndpoint:
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
