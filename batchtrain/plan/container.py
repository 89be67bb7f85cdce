"""How a task's container is run by Batch: the image, the engine's options, what of the node it sees."""

from __future__ import annotations

import shlex

from batchtrain.config.types import Task, whole
from batchtrain.launchers.types import Fabric, Implicit, Shape
from batchtrain.plan import image, wire
from batchtrain.plan.frame import Frame, either
from batchtrain.plan.volumes import binds

LEAST_MIB = 256
RANK_MIB = 64
GPU_MIB = 1024
_OWN_SHM = ("--shm-size", "--ipc")


def settings(frame: Frame, task: Task, shape: Shape) -> tuple[wire.ContainerSettings, tuple[Implicit, ...]]:
    """The container of one task, and what was decided without being asked."""
    shm, by_size = _shared_memory(frame, task)
    devices, by_device = _devices(frame, task, shape)
    where, by_default = _working_directory(frame, task)
    options = (
        *((f"--shm-size={shm}",) if shm else ()),
        *(f"--publish={shlex.quote(port)}" for port in task.ports),
        *(f"--label={shlex.quote(label)}" for label in task.labels),
        *((f"--entrypoint={shlex.quote(task.entrypoint)}",) if task.entrypoint is not None else ()),
        *_user(frame, task),
        *(f"-v {bind}" for bind in binds(frame, task)),
        *devices,
        *task.additional_docker_run_options,
    )
    built = wire.ContainerSettings(
        image_name=task.docker_image or "",
        container_run_options=" ".join(options) or None,
        registry=image.registry(frame.recipe, task.container_registry) if task.container_registry else None,
        working_directory=where,
        container_host_batch_bind_mounts=_mounts(frame, task),
    )
    return built, by_size + by_device + by_default


def plain(name: str) -> wire.ContainerSettings:
    """The container of a task that has an image and nothing more to say."""
    return wire.ContainerSettings(image_name=name, working_directory="taskWorkingDirectory")


# --- what of the engine's options -----------------------------------------------------------------------------------


def _shared_memory(frame: Frame, task: Task) -> tuple[str | None, tuple[Implicit, ...]]:
    said = either(task.shm_size, frame.job.shm_size)
    if frame.windows:  # its engine has no such option
        return None, ()
    if said is not None or any(option.startswith(_OWN_SHM) for option in task.additional_docker_run_options):
        return said, ()
    needed, because = _needed(frame, task)
    if not needed:
        return None, ()
    value = f"{needed // 1024}g" if needed % 1024 == 0 else f"{needed}m"
    return value, (Implicit("--shm-size", value, because, "shm-size"),)


def _needed(frame: Frame, task: Task) -> tuple[int, str]:
    """MiB of shared memory; 0 where the engine's own 64 will do."""
    size, gang = frame.size, task.multi_instance
    if size is not None and size.gpus and either(task.gpus, frame.job.gpus) != "disable":
        return GPU_MIB * size.gpus, f"{size.name} has {size.gpus} GPUs, and NCCL's processes share memory"
    if gang is None:
        return 0, ""
    ranks = gang.mpi.processes_per_node if gang.mpi else None
    number = whole(ranks) if ranks is not None else 1
    if number is None:
        number = size.cores if size is not None else 1
    return max(LEAST_MIB, RANK_MIB * number), "ranks on a node share memory, and 64 MB end in a bus error"


def _devices(frame: Frame, task: Task, shape: Shape) -> tuple[tuple[str, ...], tuple[Implicit, ...]]:
    found: list[tuple[tuple[str, ...], Implicit]] = []
    flags: tuple[str, ...]
    if shape.fabric is not Fabric.ETHERNET:
        flags = ("--ulimit", "memlock=-1:-1", "--device=/dev/infiniband")
        because = "the task uses InfiniBand, which pins memory"
        found.append((flags, Implicit("containerRunOptions", " ".join(flags), because, "infiniband-container")))
    size = frame.size
    if size is not None and size.gpus and size.gpu_vendor == "amd" and either(task.gpus, frame.job.gpus) != "disable":
        flags = ("--device=/dev/kfd", "--device=/dev/dri")
        because = f"{size.name} has AMD GPUs, which the service adds to no container"
        found.append((flags, Implicit("containerRunOptions", " ".join(flags), because, "rocm-devices")))
    return tuple(flag for flags, _ in found for flag in flags), tuple(entry for _, entry in found)


def _user(frame: Frame, task: Task) -> tuple[str, ...]:
    identity = either(task.user_identity, frame.job.user_identity)
    if identity is None or identity.specific_user is None:
        return ()
    return (f"--user={identity.specific_user.uid}:{identity.specific_user.gid}",)


# --- what of the node -----------------------------------------------------------------------------------------------


def _working_directory(frame: Frame, task: Task) -> tuple[str, tuple[Implicit, ...]]:
    said = either(task.default_working_dir, frame.job.default_working_dir)
    if said is not None:
        return ("containerImageDefault" if said == "container" else "taskWorkingDirectory"), ()
    because = "the task's files are there"
    return "taskWorkingDirectory", (Implicit("default_working_dir", "batch", because, "working-directory"),)


def _mounts(frame: Frame, task: Task) -> tuple[wire.BindMount, ...]:
    if task.bind_mounts:
        return tuple(wire.BindMount(source=one.source, is_read_only=one.read_only) for one in task.bind_mounts)
    restricted = either(task.restrict_default_bind_mounts, frame.job.restrict_default_bind_mounts)
    return (wire.BindMount(source="Task"),) if restricted else ()
