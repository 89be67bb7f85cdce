"""The volumes a task sees inside its container: directories of the node, and file systems that all nodes see."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from batchtrain.config.types import Task
from batchtrain.errors import PlanError
from batchtrain.plan import mounts
from batchtrain.plan.frame import Frame


class Bind(NamedTuple):
    """A path in the container and its source; without a host path, an empty directory of the task."""

    host: str
    inside: str
    options: str = ""

    def __str__(self) -> str:
        return ":".join(part for part in self if part)

    @property
    def quoted(self) -> str:
        """As one word of a command line; the variables that its places begin with stay variables."""
        if "$" not in str(self):
            return shlex.quote(str(self))
        return ":".join(_with_variable(part) for part in self if part)


def _with_variable(path: str) -> str:
    variable = re.match(r"\$\w+|\$\{\w+\}", path)
    first = variable[0] if variable else ""
    return first + (shlex.quote(path[len(first) :]) if path[len(first) :] else "")


def binds(frame: Frame, task: Task) -> tuple[Bind, ...]:
    """Those of the job, then those of the task. Raises PlanError for an alias that config.yaml does not have."""
    volumes = frame.recipe.resources.volumes
    if not (frame.job.data_volumes or frame.job.shared_data_volumes or task.data_volumes or task.shared_data_volumes):
        return ()
    bound = []
    for alias in dict.fromkeys((*frame.job.data_volumes, *task.data_volumes)):
        if (volume := volumes.data_volumes.get(alias)) is None:
            raise _unknown(frame, "data_volumes", alias, volumes.data_volumes)
        inside = volume.container_path or volume.host_path or ""
        bound.append(Bind(volume.host_path or "", inside, volume.bind_options or ""))
    for alias in dict.fromkeys((*frame.job.shared_data_volumes, *task.shared_data_volumes)):
        if (shared_volume := volumes.shared_data_volumes.get(alias)) is None:
            raise _unknown(frame, "shared_data_volumes", alias, volumes.shared_data_volumes)
        if host := mounts.host_path(alias, shared_volume):
            bound.append(Bind(host, shared_volume.container_path or host, shared_volume.bind_options or ""))
    return tuple(bind for bind in bound if bind.inside)


def _unknown(frame: Frame, kind: str, alias: str, names: Iterable[str]) -> PlanError:
    listing = ", ".join(names) or "none"
    path = f"global_resources.volumes.{kind}"
    return PlanError(f"job {frame.job.id}: `{alias}` is none of `{path}` ({listing}); add it there")
