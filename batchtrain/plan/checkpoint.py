"""Where the checkpoints of a task are: on its volume, in a directory that is named by what is trained and for whom."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from batchtrain.config import travel
from batchtrain.config.task_results import NAMED, only_named
from batchtrain.config.travel import AnySource
from batchtrain.config.types import MultiInstance, Task, bytes_of
from batchtrain.errors import PlanError
from batchtrain.frameworks import counts
from batchtrain.frameworks.base import AUTO, Shape
from batchtrain.frameworks.mpi import MpiBlock
from batchtrain.launchers import checkpoint, mpi, node_launcher
from batchtrain.launchers.launch import MpiLaunch, Step
from batchtrain.plan import mounts
from batchtrain.plan.factory import RowCheckpoint
from batchtrain.plan.frame import Frame

_DIGITS, _FILE_DIGITS = 16, 8
MOST_FILES = 256
"""Files of a source with a digest each; the digest of a larger source is that of all."""


def step(frame: Frame, task: Task, shape: Shape, source: AnySource) -> Step:
    """Gives the launch a directory for checkpoints; empty for a task without. Raises PlanError for no such volume."""
    if (settings := task.checkpoint) is None:
        return Step()
    alias, digests = settings.volume, travel.digests(source)
    volume = frame.recipe.resources.volumes.shared_data_volumes.get(alias)
    if volume is None or not mounts.host_path(alias, volume):
        raise PlanError(f"`checkpoint.volume` is `{alias}`, which is no volume that the pool mounts")
    row = f".{settings.row}" if isinstance(settings, RowCheckpoint) else ""
    suffix = f"{row}@{settings.key}" if settings.key else row
    former = _former(frame, task, shape, digests) if frame.facts.former and not settings.key else ""
    directory = checkpoint.Place(alias, frame.project, suffix, former)
    return checkpoint.step(directory, _facts(frame, task, shape, digests), settings.keep)


def preemption(task: Task) -> str | None:
    """How an announced preemption reaches the task, as in `Setup`."""
    return None if task.checkpoint is None else task.checkpoint.signal or ""


def _facts(frame: Frame, task: Task, shape: Shape, digests: list[tuple[str, str]]) -> dict[str, Any]:
    """What a run trains, for the comparison with the run that it continues. Commands and variables are digests, because
    they may hold secrets."""
    files = {name: sha256[:_FILE_DIGITS] for name, sha256 in digests}
    if len(files) > MOST_FILES:
        files = {f"the {len(files):,} files of `{task.source}`": _digest(digests)[:_FILE_DIGITS]}
    results = only_named(task.results)
    return {
        "files": files,
        "settings": {
            "command": _digest(task.command),
            "image": task.docker_image or task.singularity_image or "",
            "environment": _digest((frame.job.environment_variables, task.environment_variables)),
        },
        "nodes": shape.instances,
        "ranks": _ranks(task, shape),
        "reshard": task.checkpoint is None or task.checkpoint.reshard,
        "results": bytes_of(results.max_size) if {*NAMED} <= {*(results.include or ())} else 0,
    }


def _ranks(task: Task, shape: Shape) -> int | None:
    """The processes of the launch; None if only the nodes can count them."""
    for _, block in task.multi_instance.launches if task.multi_instance else ():
        if isinstance(block, MpiBlock):
            return counts.number(mpi.ranks_of(MpiLaunch(block), shape.instances).total)
        each = node_launcher.processes(block, shape.instances)
        number = max(shape.gpus, 1) if each == AUTO and shape.size else counts.number(each)
        return None if number is None else number * shape.instances
    return None


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, enc_hook=repr, order="deterministic")).hexdigest()[:_DIGITS]


def _former(frame: Frame, task: Task, shape: Shape, digests: list[tuple[str, str]]) -> str:
    """The name of the directory of the same training in batchtrain before 2026-11: a digest of the training with its
    source, command and number of nodes."""
    gang = task.multi_instance
    former_gang = gang and _FormerGang(*(getattr(gang, name) for name in _FormerGang.__struct_fields__))
    former_task = _FormerTask(*(getattr(task, name, None) for name in _FormerTask.__struct_fields__))
    training = msgspec.structs.replace(
        former_task, multi_instance=former_gang, id=None, display_name=None, checkpoint=None, max_task_retries=None,
        max_wall_time=None,
        retention_time=None, depends_on=(), depends_on_range=None, task_factory=None,
    )  # fmt: skip
    return _digest((training, frame.job.environment_variables, shape.instances, digests))


_FormerGang = msgspec.defstruct(
    "_FormerGang", [(name, Any) for name in MultiInstance.__struct_fields__ if name != "framework"]
)
"""A multi-instance task with the properties of that time."""
_FormerTask = msgspec.defstruct(
    "_FormerTask",
    [(former, Any) for name in Task.__struct_fields__ for former in ((name, "gpu") if name == "gpus" else (name,))],
)
"""A task with the properties of that time, which had the older `gpu` too."""
