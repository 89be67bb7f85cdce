"""Azure Batch's request bodies as frozen types: the vendor's names in our spelling, the vendor's spelling on the wire.

Only what we send. Field names and enum values are the service's (API 2025-06-01); a test holds each type against the
SDK's own models. What is None or empty by default does not travel.
"""

from __future__ import annotations

from typing import Any

import msgspec

_SPECIAL = {"node_agent_sku_id": "nodeAgentSKUId"}


def _spelt(name: str) -> str:
    if name in _SPECIAL:
        return _SPECIAL[name]
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_spelt):
    """A JSON object of the service."""


class AutoUser(Wire, frozen=True, kw_only=True):
    scope: str = ""
    elevation_level: str = ""


class UserIdentity(Wire, frozen=True, kw_only=True):
    auto_user: AutoUser


POOL_ADMIN = UserIdentity(auto_user=AutoUser(scope="pool", elevation_level="admin"))
POOL_NONADMIN = UserIdentity(auto_user=AutoUser(scope="pool", elevation_level="nonadmin"))


class Environment(Wire, frozen=True, kw_only=True):
    name: str
    value: str


class ResourceFile(Wire, frozen=True, kw_only=True):
    http_url: str
    file_path: str
    file_mode: str | None = None


class Metadata(Wire, frozen=True, kw_only=True):
    name: str
    value: str


class ImageReference(Wire, frozen=True, kw_only=True):
    publisher: str | None = None
    offer: str | None = None
    sku: str | None = None
    version: str | None = None
    virtual_machine_image_id: str | None = None


class Registry(Wire, frozen=True, kw_only=True):
    username: str
    password: str
    registry_server: str | None = None


class ContainerConfiguration(Wire, frozen=True, kw_only=True):
    type: str
    container_image_names: tuple[str, ...] = ()
    container_registries: tuple[Registry, ...] = ()


class VmConfiguration(Wire, frozen=True, kw_only=True):
    image_reference: ImageReference
    node_agent_sku_id: str
    license_type: str | None = None
    container_configuration: ContainerConfiguration | None = None


class StartTask(Wire, frozen=True, kw_only=True):
    command_line: str
    user_identity: UserIdentity
    environment_settings: tuple[Environment, ...] = ()
    resource_files: tuple[ResourceFile, ...] = ()
    max_task_retry_count: int | None = None
    wait_for_success: bool | None = None


class TaskSchedulingPolicy(Wire, frozen=True, kw_only=True):
    node_fill_type: str


class PoolCreate(Wire, frozen=True, kw_only=True):
    """POST /pools."""

    id: str
    vm_size: str
    virtual_machine_configuration: VmConfiguration
    target_dedicated_nodes: int | None = None
    target_low_priority_nodes: int | None = None
    resize_timeout: str | None = None
    enable_inter_node_communication: bool | None = None
    task_slots_per_node: int | None = None
    task_scheduling_policy: TaskSchedulingPolicy | None = None
    start_task: StartTask | None = None
    metadata: tuple[Metadata, ...] = ()


class PoolInfo(Wire, frozen=True, kw_only=True):
    pool_id: str


class JobConstraints(Wire, frozen=True, kw_only=True):
    max_wall_clock_time: str | None = None
    max_task_retry_count: int | None = None


class JobCreate(Wire, frozen=True, kw_only=True):
    """POST /jobs."""

    id: str
    pool_info: PoolInfo
    priority: int = 0
    constraints: JobConstraints | None = None
    common_environment_settings: tuple[Environment, ...] = ()
    uses_task_dependencies: bool = False
    metadata: tuple[Metadata, ...] = ()


class JobPatch(Wire, frozen=True, kw_only=True):
    """PATCH /jobs/{id}."""

    on_all_tasks_complete: str = ""


class ContainerSettings(Wire, frozen=True, kw_only=True):
    image_name: str
    container_run_options: str | None = None
    working_directory: str | None = None


class MultiInstance(Wire, frozen=True, kw_only=True):
    coordination_command_line: str
    number_of_instances: int
    common_resource_files: tuple[ResourceFile, ...] = ()


class TaskConstraints(Wire, frozen=True, kw_only=True):
    max_wall_clock_time: str | None = None
    retention_time: str | None = None
    max_task_retry_count: int | None = None


class Dependencies(Wire, frozen=True, kw_only=True):
    task_ids: tuple[str, ...] = ()


class TaskCreate(Wire, frozen=True, kw_only=True):
    """POST /jobs/{id}/tasks, and an element of addtaskcollection."""

    id: str
    command_line: str
    user_identity: UserIdentity
    container_settings: ContainerSettings | None = None
    resource_files: tuple[ResourceFile, ...] = ()
    environment_settings: tuple[Environment, ...] = ()
    constraints: TaskConstraints | None = None
    required_slots: int | None = None
    multi_instance_settings: MultiInstance | None = None
    depends_on: Dependencies | None = None


class TaskCollection(Wire, frozen=True, kw_only=True):
    """POST /jobs/{id}/addtaskcollection."""

    value: tuple[TaskCreate, ...]


def document(body: Wire) -> dict[str, Any]:
    """The JSON document of a body, as it goes over the wire."""
    built: dict[str, Any] = msgspec.to_builtins(body)
    return built
