"""Azure Batch's request bodies as frozen types: jobs, schedules and tasks.

Field names and enum values are the service's (API 2025-06-01); a test holds each type against the SDK's own models.
What is None or empty by default does not travel.
"""

from batchtrain.plan.wire.base import (
    ApplicationPackage,
    ContainerSettings,
    IdentityReference,
    Metadata,
    ResourceFile,
    Settings,
    TaskConstraints,
    Text,
    UserIdentity,
    Wire,
)
from batchtrain.plan.wire.pool import PoolSpecification


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
    pool: PoolSpecification | None = None


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
