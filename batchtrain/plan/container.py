"""How Batch runs a task's container: its image, the engine's options, and the directories of the node it sees."""

from __future__ import annotations

import shlex

from batchtrain.config import task_resources
from batchtrain.config.types import JobManager, JobPreparation, JobRelease, Task, UserIdentity
from batchtrain.frameworks.base import Fabric, Nodes, Shape, Variable
from batchtrain.launchers import variables
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import image, wire
from batchtrain.plan.frame import Frame, either
from batchtrain.plan.volumes import binds

LEAST_MIB = 256
RANK_MIB = 64
GPU_MIB = 1024
POOL_KEY = "/home/_azbatch/.ssh"
_OWN_SHM = ("--shm-size", "--ipc")


def settings(frame: Frame, task: Task, shape: Shape) -> tuple[wire.ContainerSettings, tuple[Implicit, ...]]:
    """The container of one task, and its implicit settings."""
    shm, by_size = _shared_memory(frame, task)
    devices, by_device = _devices(frame, task, shape)
    key, by_gang = _pool_key(frame, task)
    where, by_default = _working_directory(frame, task)
    task_only = either(task.restrict_default_bind_mounts, frame.job.restrict_default_bind_mounts)
    mounts = tuple(wire.BindMount(source=mount.source, is_read_only=mount.read_only) for mount in task.bind_mounts)
    options = (
        *((f"--shm-size={shm}",) if shm else ()),
        *(f"--publish={shlex.quote(port)}" for port in task.ports),
        *(f"--label={shlex.quote(label)}" for label in task.labels),
        *((f"--entrypoint={shlex.quote(task.entrypoint)}",) if task.entrypoint is not None else ()),
        *_user_in_container(either(task.user_identity, frame.job.user_identity)),
        *(f"-v {bind.quoted}" for bind in binds(frame, task)),
        *key,
        *devices,
        *task.additional_docker_run_options,
    )
    container = wire.ContainerSettings(
        image_name=task.docker_image or "",
        container_run_options=" ".join(options) or None,
        registry=image.registry(frame.recipe, task.container_registry) if task.container_registry else None,
        working_directory=where,
        container_host_batch_bind_mounts=mounts or ((wire.BindMount(source="Task"),) if task_only else ()),
    )
    return container, by_size + by_device + by_gang + by_default


def of_a_job(part: JobManager | JobPreparation | JobRelease) -> wire.ContainerSettings | None:
    """The container of a task that belongs to a job. Returns None if it runs on the host."""
    if part.docker_image is None:
        return None
    options = (*_user_in_container(part.user_identity), *part.additional_docker_run_options)
    return wire.ContainerSettings(
        image_name=part.docker_image,
        container_run_options=" ".join(options) or None,
        working_directory="taskWorkingDirectory",
    )


def _shared_memory(frame: Frame, task: Task) -> tuple[str | None, tuple[Implicit, ...]]:
    """The size to request; none if the task's own options set it, because the engine uses the last option."""
    size, options = either(task.shm_size, frame.job.shm_size), task.additional_docker_run_options
    has_size = any(option.startswith("--shm-size") for option in options)
    if frame.windows or has_size:  # a Windows engine has no such option
        return None, ()
    if size is not None:
        return shlex.quote(task_resources.plain_size(size)), ()
    memory = task_resources.shared_memory(frame.job, task, frame.size)
    if any(option.startswith(_OWN_SHM) for option in options):
        return None, ()
    value = task_resources.mib(memory.chosen)
    return value, (Implicit("--shm-size", value, memory.because, "shm-size"),)


def _devices(frame: Frame, task: Task, shape: Shape) -> tuple[tuple[str, ...], tuple[Implicit, ...]]:
    options: list[tuple[str, str, str]] = []
    if shape.fabric in (Fabric.SR_IOV, Fabric.NETWORK_DIRECT):
        flags = "--ulimit memlock=-1:-1 --device=/dev/infiniband"
        options.append((flags, "the task uses InfiniBand, which pins memory", "infiniband-container"))
    if variables.links_nodes(shape):
        because = f"NVLink connects the nodes of {shape.family} for processes that see an IMEX channel"
        options.append((f"--device={variables.IMEX_CHANNELS}", because, "imex-device"))
    if (topology := described_gpus(frame, task, shape)) is not None:
        folder = variables.TOPOLOGY_FOLDER
        options.append((f"-v {folder}:{folder}:ro", topology.because, topology.rule))
    size = frame.size
    if size is not None and size.gpus and size.gpu_vendor == "amd" and task_resources.gpus(frame.job, task, size):
        because = f"{size.name} has AMD GPUs, which the service adds to no container"
        options.append(("--device=/dev/kfd --device=/dev/dri", because, "rocm-devices"))
    implicit = tuple(Implicit("containerRunOptions", *option) for option in options)
    return tuple(flags for flags, _, _ in options), implicit


def described_gpus(frame: Frame, task: Task, shape: Shape) -> Variable | None:
    """The topology file that NCCL reads in a container. Returns None if the user mounts that folder, names another
    file or unsets the variable: an image's own folder of that name would be hidden for nothing."""
    user_options = (*(bind.inside for bind in binds(frame, task)), *task.additional_docker_run_options)
    if frame.windows or any(variables.TOPOLOGY_FOLDER in option for option in user_options):
        return None
    topology, launches = variables.topology(shape), task.multi_instance.launches if task.multi_instance else ()
    if topology is None or any(topology.name in block.leave_unset for _, block in launches if isinstance(block, Nodes)):
        return None
    value = {**frame.job.environment_variables, **task.environment_variables}.get(topology.name)
    return topology if value is None or value.startswith(variables.TOPOLOGY_FOLDER) else None


def _pool_key(frame: Frame, task: Task) -> tuple[tuple[str, ...], tuple[Implicit, ...]]:
    """Mounts the key with which a gang's containers log in to each other; Batch itself mounts it into no container."""
    user_options = (*binds(frame, task), *task.additional_docker_run_options)
    if frame.windows or task.multi_instance is None or any(POOL_KEY in option for option in user_options):
        return (), ()
    option = f"-v {POOL_KEY}:{POOL_KEY}:ro"
    because = "the containers of a gang log in to each other with the pool's own key"
    return (option,), (Implicit("containerRunOptions", option, because, "pool-key"),)


def _working_directory(frame: Frame, task: Task) -> tuple[str, tuple[Implicit, ...]]:
    choice = either(task.default_working_dir, frame.job.default_working_dir)
    if choice is not None:
        return ("containerImageDefault" if choice == "container" else "taskWorkingDirectory"), ()
    because = "the files of the task are in this directory"
    return "taskWorkingDirectory", (Implicit("default_working_dir", "batch", because, "working-directory"),)


def user_of(identity: UserIdentity | None) -> wire.UserIdentity | None:
    """A user of the pool by name, an automatic one, or the pool's administrator; None by default."""
    if identity is None:
        return None
    if identity.username is not None:
        return wire.UserIdentity(username=identity.username)
    if identity.auto_user is not None:
        automatic = wire.AutoUser(scope=identity.auto_user.scope, elevation_level=identity.auto_user.elevation_level)
        return wire.UserIdentity(auto_user=automatic)
    return wire.POOL_ADMIN if identity.default_pool_admin else None


def identity_or_default(
    identity: UserIdentity | None, because: str, *, is_admin: bool, where: str = ""
) -> tuple[wire.UserIdentity, tuple[Implicit, ...]]:
    """The user's choice, otherwise the administrator or the user of the pool, and why."""
    if (identity_choice := user_of(identity)) is not None:
        return identity_choice, ()
    value, default = ("pool, admin", wire.POOL_ADMIN) if is_admin else ("pool, nonadmin", wire.POOL_NONADMIN)
    return default, (Implicit("user_identity", value, because, "user-identity", where),)


def _user_in_container(identity: UserIdentity | None) -> tuple[str, ...]:
    if identity is None or identity.specific_user is None:
        return ()
    return (f"--user={identity.specific_user.uid}:{identity.specific_user.gid}",)
