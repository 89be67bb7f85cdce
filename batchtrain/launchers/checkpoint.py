"""The steps of a task with `checkpoint` before its command: the directory of its checkpoints, and their module."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from batchtrain import runtime
from batchtrain.launchers import shell, steps
from batchtrain.launchers.launch import File, Step

MODULE = File(".batchtrain/python/batchtrain_checkpoint.py", runtime.read("batchtrain_checkpoint.py"))
LINEAGE = File(".batchtrain/python/batchtrain_lineage.py", runtime.read("batchtrain_lineage.py"))
FACTS = ".batchtrain/python/batchtrain_lineage.json"
_LINEAGE = f'"$bt_python" -I -S "$AZ_BATCH_TASK_SHARED_DIR/{LINEAGE.name}"'
_FINISHED = f"{{ bt_python=$(type -P python3) && {_LINEAGE} finished >/dev/null; true; }}"
"""The command after a task that succeeded: the next run says that the training had finished, and the last checkpoint is
copied to empty results."""


class Place(NamedTuple):
    """Where the checkpoints of a task are."""

    alias: str
    """The volume."""
    project: str
    suffix: str
    """Follows the id of the task."""
    former: str
    """The name of the directory that earlier versions of batchtrain used; empty if they wrote none for the project."""


def step(directory: Place, facts: dict[str, Any], keep: int) -> Step:
    """Sets the variables of checkpoints for every process of the launch. facts: what is trained."""
    about = File(FACTS, msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    return Step(_variables(directory, keep), (MODULE, LINEAGE, about), after=f" && {_FINISHED}")


def _variables(directory: Place, keep: int) -> str:
    """The id of a job of a schedule contains a `:`, which Azure Files refuses."""
    alias, job = directory.alias, "${AZ_BATCH_JOB_ID//:/_}"
    former = f"$bt_volume/checkpoints/{job}/$AZ_BATCH_TASK_ID/{directory.former}" if directory.former else ""
    not_writable = f"{{ {_say(_NOT_WRITABLE.format(alias))}; exit 1; }}"
    return shell.block(
        "Checkpoints: one directory for all nodes, for every retry of the task, and for the next run of the project:",
        f'bt_volume="$AZ_BATCH_NODE_MOUNTS_DIR"/{shell.word(alias)}',
        f'[ -d "$bt_volume" ] || {{ {_say(_NOT_MOUNTED.format(alias))}; exit 1; }}',
        f'bt_training="$bt_volume/checkpoints/{directory.project}/{job}/${{AZ_BATCH_TASK_ID}}{directory.suffix}"',
        f'bt_former="{former}"',
        f'mkdir -p "$bt_training" || {not_writable}',
        "if bt_python=$(type -P python3); then",
        f'  BATCHTRAIN_CHECKPOINT_DIR=$({_LINEAGE} begin "$bt_training" "$bt_former") || exit 1',
        "else",
        f"  case ${{BATCHTRAIN_LINEAGE-}} in *'\"fresh\"'* | *'\"resume\"'*) {_say(_NO_PYTHON)}; exit 1 ;; esac",
        '  bt_line=$(ls "$bt_training" | grep -x "[0-9]*" | sort -n | tail -n 1)',
        f'  [ -n "$bt_line" ] || [ ! -d "$bt_former" ] || mv "$bt_former" "$bt_training/1" || {not_writable}',
        '  BATCHTRAIN_CHECKPOINT_DIR="$bt_training/${bt_line:-1}"',
        f'  mkdir -p "$BATCHTRAIN_CHECKPOINT_DIR" || {not_writable}',
        "fi",
        f"export BATCHTRAIN_CHECKPOINT_DIR BATCHTRAIN_CHECKPOINT_KEEP={keep}",
        'export BATCHTRAIN_PREEMPTION="$AZ_BATCH_TASK_DIR/.batchtrain-preemption.json"',
        'rm -f "$BATCHTRAIN_PREEMPTION"',
        steps.PYTHON_PATH,
    )


def _say(text: str) -> str:
    return f"printf '%s\\n' {shell.word('batchtrain: ' + text)} >&2"


_NO_PYTHON = "`checkpoint`: --fresh and --resume need python3 on the node, or in the image of the task"
_NOT_MOUNTED = (
    "`checkpoint`: the volume `{}` is not mounted on this node; Batch mounts volumes when a pool is created: delete the"
    " pool and create it again"
)
_NOT_WRITABLE = (
    "`checkpoint`: the directory for checkpoints cannot be made on the volume `{}`; the reason is above. The user"
    " of the task must have the right to write there (`mount_options` of the volume)"
)
