"""From a task's configuration to its request: what it launches, how its files travel, what it may use."""

from __future__ import annotations

import shlex
from typing import TypeVar

from batchtrain.catalog import sizes
from batchtrain.config.types import Job, MultiInstance, Recipe, Task, whole
from batchtrain.errors import PlanError, Problem
from batchtrain.launchers import mpi, plain
from batchtrain.launchers.types import Fabric, File, Implicit, Launch, Mpi, Shape
from batchtrain.plan import names, payload, wire
from batchtrain.plan.pool import environment, resource_files, uses_containers
from batchtrain.plan.types import FILE_MARK, Built, Facts, Sources, Upload

Value = TypeVar("Value")

_FABRICS = {None: Fabric.ETHERNET, "sr-iov": Fabric.SR_IOV, "network-direct": Fabric.NETWORK_DIRECT}


def build(recipe: Recipe, job: Job, task: Task, task_id: str, facts: Facts, sources: Sources) -> Built:
    """One task's request. Raises PlanError for what could never run."""
    where = f"{job.id}/{task_id}"
    container = task.docker_image is not None and uses_containers(recipe)
    shape, implicit, warnings = _shape(recipe, job, task, facts, where, container=container)
    launch = _launch(task, shape)
    files = sources.get(task.source, ()) if task.source else ()
    payload.refuse_reserved(files, where)
    carrier, uploads = _carrier(recipe, task, launch, files, where)
    body = wire.TaskCreate(
        id=task_id,
        command_line=_command_line(task, launch, carrier),
        user_identity=wire.POOL_ADMIN if container else wire.POOL_NONADMIN,
        container_settings=_container(job, task, shape) if container else None,
        resource_files=resource_files(task.resource_files) + (() if task.multi_instance else carrier.resource_files),
        environment_settings=environment(task.environment_variables)
        + (NO_GPUS if container and _own(task.gpus, job.gpus) == "disable" else ())
        + carrier.environment,
        constraints=_constraints(job, task),
        required_slots=1 if task.multi_instance else None,
        multi_instance_settings=_multi_instance(task.multi_instance, shape, carrier) if task.multi_instance else None,
        depends_on=wire.Dependencies(task_ids=task.depends_on) if task.depends_on else None,
    )
    return Built(body, _text(task, launch), implicit + launch.implicit, warnings, uploads)


# --- what is known of the nodes -------------------------------------------------------------------------------------


def _shape(
    recipe: Recipe, job: Job, task: Task, facts: Facts, where: str, *, container: bool
) -> tuple[Shape, tuple[Implicit, ...], tuple[Problem, ...]]:
    instances, warnings = _instances(recipe, task, facts, where)
    vm_size = facts.pool.vm_size if facts.pool else recipe.pool.vm_size if recipe.pool else ""
    fabric, implicit = _fabric(recipe, job, task, facts, vm_size)
    more = _gpus(job, task, vm_size)
    return Shape(instances, fabric, container), implicit + more, warnings


def _instances(recipe: Recipe, task: Task, facts: Facts, where: str) -> tuple[int, tuple[Problem, ...]]:
    """How many nodes; symbols are resolved from the pool file, or for `pool_current_*` from the living pool."""
    if task.multi_instance is None:
        return 1, ()
    wanted = str(task.multi_instance.num_instances)
    number = whole(wanted)
    if number is not None:
        return _fitting(number, facts, where), ()
    kind = "low_priority" if wanted.endswith("low_priority") else "dedicated"
    if wanted.startswith("pool_current_") and facts.pool is not None:
        count = facts.pool.low_priority if kind == "low_priority" else facts.pool.dedicated
        if count == 0:
            raise PlanError(f"{where}: `{wanted}` is 0: pool {facts.pool.id} has no {kind} nodes now")
        return _fitting(count, facts, where), ()
    if recipe.pool is None:
        raise PlanError(f"{where}: `{wanted}` needs a pool.yaml, or a number instead")
    count = recipe.pool.vm_count.low_priority if kind == "low_priority" else recipe.pool.vm_count.dedicated
    if not wanted.startswith("pool_current_"):
        return _fitting(count, facts, where), ()
    note = Problem(
        "offline-count",
        f"{where}: `{wanted}` is taken as the pool file's {count};"
        " the living pool's count is used when the job is added",
        level="info",
    )
    return count, (note,)


def _fitting(count: int, facts: Facts, where: str) -> int:
    pool = facts.pool
    if pool is None:
        return count
    if not pool.inter_node:
        raise PlanError(f"{where}: pool {pool.id} has no inter-node communication; the task would wait for ever")
    if pool.slots > 1:
        raise PlanError(f"{where}: pool {pool.id} has {pool.slots} task slots a node; a multi-instance task needs 1")
    if count > pool.dedicated + pool.low_priority:
        raise PlanError(
            f"{where}: {count} instances need {count} nodes, pool {pool.id} has {pool.dedicated + pool.low_priority};"
            " the task would wait for ever"
        )
    return count


def _fabric(recipe: Recipe, job: Job, task: Task, facts: Facts, vm_size: str) -> tuple[Fabric, tuple[Implicit, ...]]:
    """RDMA size + inter-node + Linux switches InfiniBand on by itself; an explicit value wins."""
    size = sizes.find(vm_size)
    explicit = _own(task.infiniband, job.infiniband)
    inter_node = (
        facts.pool.inter_node if facts.pool else bool(recipe.pool and recipe.pool.inter_node_communication_enabled)
    )
    possible = size is not None and size.rdma is not None and inter_node
    if explicit is not None:
        return (_FABRICS[size.rdma] if explicit and size else Fabric.ETHERNET), ()
    if not possible or size is None or task.multi_instance is None:
        return Fabric.ETHERNET, ()
    kind = "Network Direct" if size.rdma == "network-direct" else "SR-IOV"
    because = f"{size.name} has InfiniBand ({kind}) and the pool has inter-node communication"
    return _FABRICS[size.rdma], (Implicit("infiniband", "true", because),)


def _gpus(job: Job, task: Task, vm_size: str) -> tuple[Implicit, ...]:
    """The service gives a container all GPUs of its node by itself; only their absence must be asked for."""
    size = sizes.find(vm_size)
    if size is None or not size.gpus or _own(task.gpus, job.gpus) is not None:
        return ()
    because = f"{size.name} has {size.gpus} {size.gpu_model}; the service adds them to containers itself"
    return (Implicit("gpus", "all", because),)


NO_GPUS = (wire.Environment(name="NVIDIA_VISIBLE_DEVICES", value="void"),)
"""Hides all GPUs from a container (NVIDIA Container Toolkit, `void`)."""


def _own(mine: Value | None, jobs: Value | None) -> Value | None:
    """A task's own word, else its job's."""
    return mine if mine is not None else jobs


# --- what runs ------------------------------------------------------------------------------------------------------


def _launch(task: Task, shape: Shape) -> Launch:
    command = (task.command or "").strip()
    gang = task.multi_instance
    if gang is None or gang.mpi is None:
        return plain.launch(
            command,
            shape,
            pre_execution_command=gang.pre_execution_command if gang else None,
            coordination_command=gang.coordination_command if gang else None,
        )
    options = Mpi(
        runtime=gang.mpi.runtime,
        executable_path=gang.mpi.executable_path,
        options=gang.mpi.options,
        processes_per_node=gang.mpi.processes_per_node,
        pre_execution_command=gang.pre_execution_command,
        coordination_command=gang.coordination_command,
    )
    return mpi.launch(options, command, shape)


def _bare(task: Task) -> bool:
    """A task that brings nothing along and whose command survives single quotes needs no files at all."""
    return not task.multi_instance and not task.source and "'" not in (task.command or "")


def _carrier(
    recipe: Recipe, task: Task, launch: Launch, files: tuple[File, ...], where: str
) -> tuple[payload.Carrier, tuple[Upload, ...]]:
    if _bare(task):
        return payload.Carrier(), ()
    ours = (
        File(f"{payload.OURS}/coordinate.sh", launch.coordination.encode()),
        File(f"{payload.OURS}/launch.sh", launch.application.encode()),
    )
    packed = payload.archive(files + ours + launch.files)
    link = recipe.settings.storage_account_settings
    if link is None or link not in recipe.credentials.storage:
        return payload.inside_request(packed, where), ()
    path = f"{link}/batchtrain-files/{payload.blob_name(packed)}"
    carrier = payload.through_storage(f"{{{{sas:{path}}}}}", everywhere=task.multi_instance is not None)
    return carrier, (Upload(path, packed),)


_SHARED = 'export AZ_BATCH_TASK_SHARED_DIR="${AZ_BATCH_TASK_SHARED_DIR:-$AZ_BATCH_TASK_DIR}"'


def _command_line(task: Task, launch: Launch, carrier: payload.Carrier) -> str:
    if _bare(task):
        return f"/bin/bash -c '{task.command}'" if task.command else ""
    run = f'exec /bin/bash "$AZ_BATCH_TASK_SHARED_DIR/{payload.OURS}/launch.sh"'
    if task.multi_instance:
        return _bash(carrier.forget, run)
    return _bash("set -e -o pipefail", _SHARED, carrier.unpack, carrier.forget, run)


def _multi_instance(gang: MultiInstance, shape: Shape, carrier: payload.Carrier) -> wire.MultiInstance:
    run = f'exec /bin/bash "$AZ_BATCH_TASK_SHARED_DIR/{payload.OURS}/coordinate.sh"'
    return wire.MultiInstance(
        number_of_instances=shape.instances,
        coordination_command_line=_bash("set -e -o pipefail", carrier.unpack, carrier.forget, run),
        common_resource_files=resource_files(gang.resource_files) + carrier.resource_files,
    )


def _bash(*commands: str) -> str:
    """One command line; its parts hold no single quote, so the service's own parsing cannot break it."""
    return f"/bin/bash -c '{'; '.join(commands)}'"


def _text(task: Task, launch: Launch) -> str:
    """The shell text as the nodes run it, for people."""
    if not task.multi_instance:
        return launch.application
    parts = [
        "# ---- every instance: the coordination command",
        launch.coordination,
        "# ---- the primary: the application command",
        launch.application,
    ]
    for file in launch.files:
        parts += [f"{FILE_MARK}{file.name.removeprefix('.batchtrain/')}", file.data.decode()]
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


# --- what it may use ------------------------------------------------------------------------------------------------


def _container(job: Job, task: Task, shape: Shape) -> wire.ContainerSettings:
    shm = _own(task.shm_size, job.shm_size)
    options = [f"--shm-size={shm}"] if shm else []
    if task.entrypoint is not None:
        options.append(f"--entrypoint={shlex.quote(task.entrypoint)}")
    if shape.fabric is not Fabric.ETHERNET:
        options += ["--ulimit", "memlock=-1:-1", "--device=/dev/infiniband"]
    options += task.additional_docker_run_options
    directory = _own(task.default_working_dir, job.default_working_dir)
    return wire.ContainerSettings(
        image_name=task.docker_image or "",
        container_run_options=" ".join(options) or None,
        working_directory="containerImageDefault" if directory == "container" else "taskWorkingDirectory",
    )


def _constraints(job: Job, task: Task) -> wire.TaskConstraints | None:
    """Retention is a task's matter, so the job's word is carried here; the service applies the job's other limits."""
    retention = _own(task.retention_time, job.retention_time)
    if task.max_wall_time is None and retention is None and task.max_task_retries is None:
        return None
    return wire.TaskConstraints(
        max_wall_clock_time=names.duration(task.max_wall_time) if task.max_wall_time else None,
        retention_time=names.duration(retention) if retention else None,
        max_task_retry_count=task.max_task_retries,
    )
