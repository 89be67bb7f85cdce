"""Where a file that is not there belongs: on a volume of the task, or in the working directory of its image."""

from __future__ import annotations

import re
from collections.abc import Iterable

from batchtrain.config import task_paths, travel
from batchtrain.config.source_directory import IGNORE_FILE, LINKS
from batchtrain.config.travel import LeftOut
from batchtrain.diagnosis import next_steps
from batchtrain.errors import Finding
from batchtrain.records import Task, TaskRequest

RULE = "missing-file"
OF_COMMANDS = "missing-command"
_FOR_EVERY_NODE = (
    "`resource_files` and `input_data` of a task reach the first node of its gang only: bring the file to every node"
    " with `source`, with `input_data` of the job (the file is then `{job_input}/LOCAL_PATH/NAME`, and NAME its whole"
    " name in the container), or with `multi_instance.resource_files` (the command then names it `{shared}`), or use"
    " the path of a volume"
)
_ON_NODE = re.compile(r"/fsmounts/([^/]+)/")
"""A path below AZ_BATCH_NODE_MOUNTS_DIR."""
_TASK_DIRECTORY = re.compile(r".*/workitems/.*/wd/")
"""The working directory of a task, as Python and shells expand a relative path."""


def refined(finding: Finding, name: str, task: Task, node: str, left_out: Iterable[LeftOut] = ()) -> Finding:
    """The finding with the place where the file belongs, if the task tells it. node: where it is missing, if known.
    left_out: the files of its sources that were not sent."""
    if volume := _volume(name, task.request):
        return finding._replace(
            cause=f"the file {name} is not on the volume `{volume}`",
            next_step=f"copy it to the storage of the volume `{volume}` (`shared_data_volumes` or `data_volumes` of"
            " config.yaml), or correct the path",
        )
    relative = _TASK_DIRECTORY.sub("", name).removeprefix("./")
    for rule, names in left_out:
        if entry := travel.left_out_of(relative, names):
            return finding._replace(
                cause=f"the file {relative} was not sent: {rule} leaves {entry} out of the `source`",
                next_step=next_steps.literal(_sent_again(rule, entry)),
            )
    in_gang = task.request.instances is not None and not relative.startswith("/")
    if in_gang or node not in ("", task.node):
        below = next_steps.literal(relative.rsplit("/", 1)[-1] if relative.startswith("/") else relative)
        step = _FOR_EVERY_NODE.format(job_input=task_paths.JOB_INPUT, shared=f"{task_paths.SHARED}/{below}")
        finding = finding._replace(next_step=step)
    if task.request.starts_in_task_directory and relative and not relative.startswith("/"):
        step = f"if {next_steps.literal(relative)} is a file of the image, set `default_working_dir: container`"
        return finding._replace(next_step=f"{step}; otherwise, {finding.next_step}")
    return finding


def _sent_again(rule: str, entry: str) -> str:
    """The step that sends what a rule leaves out of a source."""
    if rule == LINKS:
        return f"copy the directory to {entry} in place of the link, or bring it with `input_data`"
    where = f"the {IGNORE_FILE} of the source directory"
    return f"write the line `!{entry}` into {where}, which sends it, or bring the file with `input_data`"


def _volume(name: str, request: TaskRequest) -> str:
    """The volume that a path is on; empty if it is on none."""
    inside = [volume for volume, path in request.volumes if name == path or name.startswith(f"{path.rstrip('/')}/")]
    on_node = _ON_NODE.search(name)
    return inside[0] if inside else on_node[1] if on_node else ""
