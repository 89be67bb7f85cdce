"""The lines of a task with `checkpoint` before its command: the directory of its checkpoints, and their module."""

from __future__ import annotations

from batchtrain import runtime
from batchtrain.launchers import shell
from batchtrain.launchers.types import File, Launch

MODULE = File(".batchtrain/python/batchtrain_checkpoint.py", runtime.CHECKPOINT)


def around(launch: Launch, alias: str, digest: str, keep: int) -> Launch:
    """The launch with the variables of checkpoints set for every process of it."""
    return launch._replace(
        application=f"{_variables(alias, digest, keep)}\n\n{launch.application}", files=(*launch.files, MODULE)
    )


def _variables(alias: str, digest: str, keep: int) -> str:
    """The id of a job of a schedule contains a `:`, which Azure Files refuses."""
    return shell.block(
        "Checkpoints: one directory for all nodes, and for every retry of the task:",
        f'bt_volume="$AZ_BATCH_NODE_MOUNTS_DIR"/{shell.word(alias)}',
        f'[ -d "$bt_volume" ] || {{ {_say(_NOT_MOUNTED.format(alias))}; exit 1; }}',
        f'BATCHTRAIN_CHECKPOINT_DIR="$bt_volume/checkpoints/${{AZ_BATCH_JOB_ID//:/_}}/$AZ_BATCH_TASK_ID/{digest}"',
        f'mkdir -p "$BATCHTRAIN_CHECKPOINT_DIR" || {{ {_say(_NOT_WRITABLE.format(alias))}; exit 1; }}',
        f"export BATCHTRAIN_CHECKPOINT_DIR BATCHTRAIN_CHECKPOINT_KEEP={keep}",
        'export PYTHONPATH="$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/python${PYTHONPATH:+:$PYTHONPATH}"',
    )


def _say(text: str) -> str:
    return f"printf '%s\\n' {shell.word('batchtrain: ' + text)} >&2"


_NOT_MOUNTED = (
    "`checkpoint`: the volume `{}` is not mounted on this node; Batch mounts volumes when a pool is created: delete the"
    " pool and create it again"
)
_NOT_WRITABLE = (
    "`checkpoint`: the directory for checkpoints cannot be made on the volume `{}`; the reason is above. The user"
    " of the task must have the right to write there (`mount_options` of the volume)"
)
