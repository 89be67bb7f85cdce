"""Azure Batch's request bodies as frozen types: what pools and jobs share, pools and their nodes, jobs and tasks.

Field names and enum values are the service's (API 2025-06-01); a test holds each type against the SDK's own models.
What is None or empty by default does not travel.
"""

import sys
from typing import Any, TypeVar

import msgspec

from batchtrain.catalog import api_versions
from batchtrain.plan.wire.later import Template, VaultSettings, shown

API_VERSION = api_versions.CURRENT.name
"""The version of every request; a pool may need a newer one."""
Text = str | Template
"""A text, or one with parts that are filled in when the request is sent."""

_SPECIAL = {
    "skip_withdraw_from_vnet": "skipWithdrawFromVNet",
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


# --- pools and their nodes -------------------------------------------------------------------------------------------


class ContainerConfiguration(Wire, frozen=True, kw_only=True):
    type: str
    container_image_names: tuple[str, ...] = ()
    container_registries: tuple[Registry, ...] = ()


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


class StartTask(Wire, frozen=True, kw_only=True):
    command_line: str
    container_settings: ContainerSettings | None = None
    resource_files: tuple[ResourceFile, ...] = ()
    environment_settings: Settings = ()
    user_identity: UserIdentity | None = None
    max_task_retry_count: int | None = None
    wait_for_success: bool | None = None


class NodeUserCreate(Wire, frozen=True, kw_only=True):
    """POST /pools/{id}/nodes/{id}/users."""

    name: str
    is_admin: bool | None = None
    expiry_time: Text | None = None
    password: Text | None = None
    ssh_public_key: Text | None = None


# --- jobs, schedules and tasks ---------------------------------------------------------------------------------------


class UploadHeader(Wire, frozen=True, kw_only=True):
    name: str
    value: str | None = None


class OutputContainer(Wire, frozen=True, kw_only=True):
    container_url: Text
    path: str | None = None
    identity_reference: IdentityReference | None = None
    upload_headers: tuple[UploadHeader, ...] = ()


class OutputDestination(Wire, frozen=True, kw_only=True):
    container: OutputContainer | None = None


class UploadOptions(Wire, frozen=True, kw_only=True):
    upload_condition: str


class OutputFile(Wire, frozen=True, kw_only=True):
    file_pattern: str
    destination: OutputDestination
    upload_options: UploadOptions


class ExitOptions(Wire, frozen=True, kw_only=True):
    job_action: str | None = None
    dependency_action: str | None = None


class ExitCode(Wire, frozen=True, kw_only=True):
    code: int
    exit_options: ExitOptions


class ExitCodeRange(Wire, frozen=True, kw_only=True):
    start: int
    end: int
    exit_options: ExitOptions


class ExitConditions(Wire, frozen=True, kw_only=True):
    exit_codes: tuple[ExitCode, ...] = ()
    exit_code_ranges: tuple[ExitCodeRange, ...] = ()
    pre_processing_error: ExitOptions | None = None
    file_upload_error: ExitOptions | None = None
    default: ExitOptions | None = None


class Affinity(Wire, frozen=True, kw_only=True):
    affinity_id: str


class MultiInstance(Wire, frozen=True, kw_only=True):
    coordination_command_line: str
    number_of_instances: int | None = None
    common_resource_files: tuple[ResourceFile, ...] = ()


class TaskIdRange(Wire, frozen=True, kw_only=True):
    start: int
    end: int


class Dependencies(Wire, frozen=True, kw_only=True):
    task_ids: tuple[str, ...] = ()
    task_id_ranges: tuple[TaskIdRange, ...] = ()


class TaskCreate(Wire, frozen=True, kw_only=True):
    """POST /jobs/{id}/tasks, and an element of addtaskcollection."""

    id: str
    command_line: str
    display_name: str | None = None
    exit_conditions: ExitConditions | None = None
    container_settings: ContainerSettings | None = None
    resource_files: tuple[ResourceFile, ...] = ()
    output_files: tuple[OutputFile, ...] = ()
    environment_settings: Settings = ()
    affinity_info: Affinity | None = None
    constraints: TaskConstraints | None = None
    required_slots: int | None = None
    user_identity: UserIdentity | None = None
    multi_instance_settings: MultiInstance | None = None
    depends_on: Dependencies | None = None
    application_package_references: tuple[ApplicationPackage, ...] = ()


class AutoPool(Wire, frozen=True, kw_only=True):
    pool_lifetime_option: str
    auto_pool_id_prefix: str | None = None
    keep_alive: bool | None = None
    pool: dict[str, Any] | None = None


class PoolInfo(Wire, frozen=True, kw_only=True):
    pool_id: str | None = None
    auto_pool_specification: AutoPool | None = None


class JobConstraints(Wire, frozen=True, kw_only=True):
    max_wall_clock_time: str | None = None
    max_task_retry_count: int | None = None


class JobManagerTask(Wire, frozen=True, kw_only=True):
    id: str
    command_line: str
    display_name: str | None = None
    container_settings: ContainerSettings | None = None
    resource_files: tuple[ResourceFile, ...] = ()
    output_files: tuple[OutputFile, ...] = ()
    environment_settings: Settings = ()
    constraints: TaskConstraints | None = None
    required_slots: int | None = None
    kill_job_on_completion: bool | None = None
    user_identity: UserIdentity | None = None
    run_exclusive: bool | None = None
    application_package_references: tuple[ApplicationPackage, ...] = ()
    allow_low_priority_node: bool | None = None


class JobPreparationTask(Wire, frozen=True, kw_only=True):
    command_line: str
    id: str | None = None
    container_settings: ContainerSettings | None = None
    resource_files: tuple[ResourceFile, ...] = ()
    environment_settings: Settings = ()
    constraints: TaskConstraints | None = None
    wait_for_success: bool | None = None
    user_identity: UserIdentity | None = None
    rerun_on_node_reboot_after_success: bool | None = None


class JobReleaseTask(Wire, frozen=True, kw_only=True):
    command_line: str
    id: str | None = None
    container_settings: ContainerSettings | None = None
    resource_files: tuple[ResourceFile, ...] = ()
    environment_settings: Settings = ()
    max_wall_clock_time: str | None = None
    retention_time: str | None = None
    user_identity: UserIdentity | None = None


class JobNetwork(Wire, frozen=True, kw_only=True):
    subnet_id: str
    skip_withdraw_from_vnet: bool | None = None


class JobSpecification(Wire, frozen=True, kw_only=True):
    """The jobs of a schedule."""

    pool_info: PoolInfo
    display_name: str | None = None
    uses_task_dependencies: bool | None = None
    priority: int | None = None
    allow_task_preemption: bool | None = None
    max_parallel_tasks: int | None = None
    constraints: JobConstraints | None = None
    job_manager_task: JobManagerTask | None = None
    job_preparation_task: JobPreparationTask | None = None
    job_release_task: JobReleaseTask | None = None
    common_environment_settings: Settings = ()
    on_all_tasks_complete: str | None = None
    on_task_failure: str | None = None
    network_configuration: JobNetwork | None = None
    metadata: tuple[Metadata, ...] = ()


class JobCreate(JobSpecification, frozen=True):
    """POST /jobs."""

    id: str


class JobPatch(Wire, frozen=True, kw_only=True):
    """PATCH /jobs/{id}."""

    priority: int | None = None
    allow_task_preemption: bool | None = None
    max_parallel_tasks: int | None = None
    constraints: JobConstraints | None = None
    pool_info: PoolInfo | None = None
    on_all_tasks_complete: str | None = None
    metadata: tuple[Metadata, ...] = ()
    network_configuration: JobNetwork | None = None


class Schedule(Wire, frozen=True, kw_only=True):
    do_not_run_until: str | None = None
    do_not_run_after: str | None = None
    start_window: str | None = None
    recurrence_interval: str | None = None


class JobScheduleCreate(Wire, frozen=True, kw_only=True):
    """POST /jobschedules."""

    id: str
    schedule: Schedule
    job_specification: JobSpecification
    display_name: str | None = None
    metadata: tuple[Metadata, ...] = ()


class TaskCollection(Wire, frozen=True, kw_only=True):
    """POST /jobs/{id}/addtaskcollection."""

    value: tuple[TaskCreate, ...]
