"""The commands inside next steps. Each is a field of a rule's text, because some work only while the pool exists, and
others only while the output of the tasks is not on this machine."""

from __future__ import annotations

from collections.abc import Mapping

_OF_POOL = {
    "reboot": (
        "reboot the node (`batchtrain pool reboot {pool} {node}`) and run the task again",
        "run it again, which creates new nodes",
    ),
    "new_pool": ("run on a new pool (`batchtrain pool del {pool}`)", "run it again, which creates new nodes"),
    "resize": ("resize again later (`batchtrain pool resize {pool} --dedicated N`)", "run it again later"),
    "node_files": ("; `batchtrain pool files {pool} {node}` shows what is there", ""),
    "start_task": ("; `batchtrain pool diagnose {pool}` reads the start task's output", ""),
    "nodes": ("; `batchtrain pool diagnose {pool}` looks at the node", ""),
    "files_left": ("; the task's files are still on the node", ""),
}
"""What a field becomes, and what it becomes once the pool is deleted."""
_OF_JOB = {
    "output": (" (`batchtrain jobs logs {job} --task {task}`)", " ({logs}/{task})"),
    "whole_output": (": `batchtrain jobs logs {job} --task {task}`, and with `--file stderr.txt`", " in {logs}/{task}"),
    "job_state": ("; `batchtrain jobs show {job}` tells the job's state", ""),
}
"""What a field becomes, and what it becomes if this machine keeps the output of the tasks."""


def completed(step: str, names: Mapping[str, str], *, logs: str = "", pool_is_deleted: bool = False) -> str:
    """The next step of a rule. names: of the `job`, `task`, `pool` and `node` that it is about; a name that is not
    known stays in capitals. logs: the directory of this machine that keeps the output of the tasks."""
    all_names = {name: names.get(name) or name.upper() for name in ("job", "task", "pool", "node")} | {"logs": logs}
    words = {field: texts[pool_is_deleted] for field, texts in _OF_POOL.items()}
    words |= {field: texts[bool(logs)] for field, texts in _OF_JOB.items()}
    return step.format_map({field: text.format_map(all_names) for field, text in words.items()})


def literal(text: str) -> str:
    """A text of the user as a part of a next step."""
    return text.replace("{", "{{").replace("}", "}}")
