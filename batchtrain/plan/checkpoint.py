"""Where the checkpoints of a task are: on its volume, in a directory that is named by what the task trains."""

from __future__ import annotations

import hashlib

import msgspec

from batchtrain.config import travel
from batchtrain.config.travel import AnySource
from batchtrain.config.types import Task
from batchtrain.errors import PlanError
from batchtrain.frameworks.base import Shape
from batchtrain.launchers import checkpoint
from batchtrain.launchers.launch import Launch
from batchtrain.plan import mounts
from batchtrain.plan.frame import Frame

_DIGITS = 16


def around(frame: Frame, task: Task, shape: Shape, source: AnySource, launch: Launch) -> Launch:
    """The launch with a directory for checkpoints; as it is for a task without. Raises PlanError for no such volume."""
    if task.checkpoint is None:
        return launch
    alias = task.checkpoint.volume
    volume = frame.recipe.resources.volumes.shared_data_volumes.get(alias)
    if volume is None or not mounts.host_path(alias, volume):
        raise PlanError(f"`checkpoint.volume` is `{alias}`, which is no volume that the pool mounts")
    settings = task.checkpoint
    return checkpoint.around(launch, alias, digest(frame, task, shape, source), settings.keep, settings.signal or "")


def digest(frame: Frame, task: Task, shape: Shape, source: AnySource) -> str:
    """The same for the same training. Limits, names and the number of checkpoints do not change what is trained."""
    training = msgspec.structs.replace(
        task, id=None, display_name=None, checkpoint=None, max_task_retries=None, max_wall_time=None,
        retention_time=None, depends_on=(), depends_on_range=None, task_factory=None,
    )  # fmt: skip
    identity = msgspec.json.encode(
        (
            training,
            frame.job.environment_variables,
            shape.instances,
            travel.digests(source),
        ),
        enc_hook=repr,
        order="deterministic",
    )
    return hashlib.sha256(identity).hexdigest()[:_DIGITS]
