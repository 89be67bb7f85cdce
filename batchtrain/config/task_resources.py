"""The resources of a task: its nodes, its time, the GPUs that it sees, the shared memory of its container. No rules.

The rules and the planner ask the same functions, so that a warning never contradicts the plan.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from batchtrain.catalog.sizes import VmSize
from batchtrain.config.types.base import seconds_of, whole_number
from batchtrain.config.types.jobs import Job, JobManager, Task
from batchtrain.config.types.pool import Pool

LEAST_MIB = 256
RANK_MIB = 64
GPU_MIB = 8192
ANY_MIB = 1024
"""MiB of shared memory: the minimum for processes that use it (the value of Batch Shipyard's recipes), the defaults per
rank and per GPU (the workers of a data loader pass batches through it), and the minimum per container. It is a limit
and uses no memory until it is filled. The maximum is half of the memory of the node, as on a host."""

SIZE = r"(?i)([0-9]+(?:\.[0-9]+)?)\s*([bkmgt]?)(?:i?b)?"
UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
MOST_GPUS = 64
"""Above every node's."""


# --- nodes ----------------------------------------------------------------------------------------------------------


def kind_of(symbol: str) -> str:
    """The nodes that a symbol counts: dedicated or low_priority."""
    return "low_priority" if symbol.endswith("low_priority") else "dedicated"


def instances(count_or_symbol: str, pool: Pool | None) -> int | None:
    """The nodes of a multi-instance task according to the files: a number, or the count of the pool file for a symbol.

    For an autoscale pool, `pool_current_*` is at least one node, because the job waits for one. None without a pool
    file.
    """
    number = whole_number(count_or_symbol)
    if number is not None or pool is None:
        return number
    count: int = getattr(pool.vm_count, kind_of(count_or_symbol))
    return max(count, 1) if count_or_symbol.startswith("pool_current_") and pool.autoscale is not None else count


def longest_seconds(job: Job, task: Task | JobManager) -> float | None:
    """The time that a task may run, with all its retries; None if nothing limits it."""
    retries = task.max_task_retries if task.max_task_retries is not None else job.max_task_retries or 0
    return None if task.max_wall_time is None or retries < 0 else seconds_of(task.max_wall_time) * (1.0 + retries)


# --- GPUs -----------------------------------------------------------------------------------------------------------


def gpus_word(job: Job, task: Task) -> str | None:
    """The effective value: the task's, otherwise its job's."""
    return task.gpus if task.gpus is not None else job.gpus


def gpus_seen(word: str | None) -> tuple[str, ...] | None:
    """The GPUs that a value selects, by number or id: None for all GPUs of the node, empty for `disable` and 0."""
    if word is None or word == "all":
        return None
    if word == "disable":
        return ()
    number = whole_number(word)
    if number is not None:
        return tuple(str(gpu) for gpu in range(min(number, MOST_GPUS)))
    devices = word.removeprefix('"').removesuffix('"').removeprefix("device=")
    return tuple(gpu for gpu in devices.split(",") if gpu)


def gpus(job: Job, task: Task, size: VmSize | None) -> int:
    """GPUs of a node that a task may use; 0 without GPUs, or if the number is unknown.

    `gpus` chooses some of them for containers that Batch runs only; for any other task it means all or none.
    """
    if size is None:
        return 0
    indices = gpus_seen(gpus_word(job, task))
    number = size.gpus if indices is None or (indices and task.docker_image is None) else len(indices)
    visible = (job.environment_variables | task.environment_variables).get("CUDA_VISIBLE_DEVICES", "")
    devices = [word for word in visible.split(",") if word.strip()]
    return min(number, size.gpus, len(devices) or number)


# --- options of the engine ------------------------------------------------------------------------------------------


def option_names(item: str) -> tuple[str, ...]:
    """The option names in an item of `additional_docker_run_options`, which may hold several options with or without
    values; finds `-d` among other letters too, as in `-itd`."""
    return tuple("-d" if _DETACHED.match(word) else word.partition("=")[0] for word in item.split())


_DETACHED = re.compile("-[iPqt]*d")


# --- shared memory --------------------------------------------------------------------------------------------------


class SharedMemory(NamedTuple):
    """MiB that a container's processes need at least (0: the engine's default of 64), MiB that it gets by default, and
    the reason."""

    least: int
    chosen: int
    because: str


def shared_memory(job: Job, task: Task, size: VmSize | None) -> SharedMemory:
    """The shared memory that a task's container needs. Sources: NCCL, Shared memory; Batch Shipyard issue 8; measured
    with MPICH."""
    task_gpus = gpus(job, task, size)
    ranks = 0
    if task.multi_instance is not None:  # those that are written as a number; all cores for a command
        processes = next((block.processes_per_node for _, block in task.multi_instance.launches), None)
        number = whole_number(processes) if processes not in (None, "auto") else 1
        ranks = number if number is not None else size.cores if size is not None else 1
    least = LEAST_MIB if max(task_gpus, ranks) > 1 else 0
    size_mib = max(ANY_MIB, RANK_MIB * ranks, GPU_MIB * task_gpus)
    if size is not None:
        size_mib = min(size_mib, int(size.memory_gib * 1024) // 2)
    if size is not None and task_gpus:
        because = f"{task_gpus} of {size.name}'s GPUs, whose processes share memory (NCCL, data loaders)"
    elif ranks:
        because = "ranks on a node share memory, and 64 MB end in a bus error"
    else:
        because = "workers of a data loader share memory, and 64 MB end in a bus error"
    return SharedMemory(least, size_mib, because)


def bytes_of(size: str) -> int | None:
    """A size as container engines write it (`256m`), in bytes. Returns None if the text is not a size."""
    match = re.fullmatch(SIZE, size.strip())
    return int(float(match[1]) * UNITS[match[2].lower()]) if match else None


def plain_size(size: str) -> str:
    """The same size in one word, `8 GiB` as `8g`; other texts are returned unchanged."""
    match = re.fullmatch(SIZE, size.strip())
    return f"{match[1]}{match[2].lower()}" if match else size


def mib(amount: int) -> str:
    """MiB as container engines write them: `8g`, `512m`."""
    return f"{amount // 1024}g" if amount % 1024 == 0 else f"{amount}m"
