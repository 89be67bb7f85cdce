"""Azure Batch's request bodies as frozen types: what pools and jobs share.

Field names and enum values are the service's (API 2025-06-01); a test holds each type against the SDK's own models.
What is None or empty by default does not travel.
"""

import sys
from typing import Any, TypeVar

import msgspec

from batchtrain.plan.wire.later import Template, VaultSettings, shown

API_VERSION, NEWER_API_VERSION = "2025-06-01", "2026-10-01"
"""The version of every request, and of the pools that need what it does not have."""
Text = str | Template
"""A text, or one with parts that are filled in when the request is sent."""

_SPECIAL = {
    "automatic_os_upgrade_policy": "automaticOSUpgradePolicy",
    "disk_size_gb": "diskSizeGB",
    "dynamic_vnet_assignment_scope": "dynamicVNetAssignmentScope",
    "enable_automatic_os_upgrade": "enableAutomaticOSUpgrade",
    "ephemeral_os_disk_settings": "ephemeralOSDiskSettings",
    "in_vm_access_control_profile_reference_id": "inVMAccessControlProfileReferenceId",
    "inbound_nat_pools": "inboundNATPools",
    "node_agent_sku_id": "nodeAgentSKUId",
    "public_ip_address_configuration": "publicIPAddressConfiguration",
    "skip_withdraw_from_vnet": "skipWithdrawFromVNet",
    "vcpus_per_core": "vCPUsPerCore",
    "vtpm_enabled": "vTpmEnabled",
}
"""Names with letters in a case of their own."""


def _spelt(name: str) -> str:
    if name in _SPECIAL:
        return _SPECIAL[name]
    head, *words = name.split("_")
    return head + "".join(word.capitalize() for word in words)


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_spelt):
    """A JSON object of the service."""

    if sys.version_info < (3, 11):  # there `tuple(...)` may be empty and yet not `()`, which alone does not travel

        def __post_init__(self) -> None:
            for name in self.__struct_fields__:
                if getattr(self, name) == ():
                    msgspec.structs.force_setattr(self, name, ())


Created = TypeVar("Created", bound=Wire)


def created(kind: type[Created], id_: str, specification: Wire) -> Created:
    """The request that creates what a specification describes; `kind` adds only the id."""
    return kind(id=id_, **msgspec.structs.asdict(specification))


def unless_empty(body: Created) -> Created | None:
    """A body, or None if nothing in it is set."""
    return None if body == type(body)() else body


class AutoUser(Wire, frozen=True, kw_only=True):
    scope: str | None = None
    elevation_level: str | None = None


class UserIdentity(Wire, frozen=True, kw_only=True):
    username: str | None = None
    auto_user: AutoUser | None = None


class Environment(Wire, frozen=True, kw_only=True):
    name: str
    value: Text | None = None


Settings = tuple[Environment, ...] | VaultSettings


class Metadata(Wire, frozen=True, kw_only=True):
    name: str
    value: str


class IdentityReference(Wire, frozen=True, kw_only=True):
    resource_id: str | None = None


class ResourceFile(Wire, frozen=True, kw_only=True):
    auto_storage_container_name: str | None = None
    storage_container_url: Text | None = None
    http_url: Text | None = None
    blob_prefix: str | None = None
    file_path: str | None = None
    file_mode: str | None = None
    identity_reference: IdentityReference | None = None


class Registry(Wire, frozen=True, kw_only=True):
    username: str | None = None
    password: Text | None = None
    registry_server: str | None = None
    identity_reference: IdentityReference | None = None


class BindMount(Wire, frozen=True, kw_only=True):
    source: str | None = None
    is_read_only: bool | None = None


class ContainerSettings(Wire, frozen=True, kw_only=True):
    image_name: str
    container_run_options: str | None = None
    registry: Registry | None = None
    working_directory: str | None = None
    container_host_batch_bind_mounts: tuple[BindMount, ...] = ()


class ApplicationPackage(Wire, frozen=True, kw_only=True):
    application_id: str
    version: str | None = None


class TaskConstraints(Wire, frozen=True, kw_only=True):
    max_wall_clock_time: str | None = None
    retention_time: str | None = None
    max_task_retry_count: int | None = None


POOL_ADMIN = UserIdentity(auto_user=AutoUser(scope="pool", elevation_level="admin"))
POOL_NONADMIN = UserIdentity(auto_user=AutoUser(scope="pool", elevation_level="nonadmin"))


def document(body: Wire | dict[str, Any]) -> dict[str, Any]:
    """The JSON document of a body, as a plan shows it."""
    content: dict[str, Any] = msgspec.to_builtins(body, enc_hook=shown)
    return content


def encoded(body: Wire) -> bytes:
    """The same as JSON."""
    return msgspec.json.encode(body, enc_hook=shown)
