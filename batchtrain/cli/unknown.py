"""The answer to an unknown command: what it is here, what it was in Batch Shipyard, or the nearest name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from batchtrain.cli import shipyard
from batchtrain.config.schema import nearest

_STOP = "`batchtrain jobs term JOB` ends a job, `batchtrain emulator stop` the embedded Azure Batch."
_LIST = "`batchtrain jobs list` lists the jobs, `batchtrain pool list` the pools, `batchtrain runs list` past runs."
FIRST_WORDS = {
    "attach": "`batchtrain jobs watch JOB` shows a running job until it ends.",
    "cancel": _STOP,
    "exec": "`batchtrain jobs exec JOB COMMAND` runs a command in a running task.",
    "kill": _STOP,
    "launch": "`batchtrain run train.py` runs a script, `batchtrain run DIR` a recipe.",
    "list": _LIST,
    "logs": "`batchtrain jobs logs JOB` prints the output of a task, with --follow as it grows.",
    "ls": _LIST,
    "ps": _LIST,
    "py-spy": "`batchtrain jobs stacks JOB` shows in which function each rank of a running task stands.",
    "ssh": "`batchtrain pool ssh POOL` opens a shell on a node.",
    "status": "`batchtrain jobs show JOB` shows a job; `batchtrain jobs list` lists all.",
    "stop": _STOP,
    "submit": "`batchtrain run train.py` runs a script to its end; `batchtrain jobs add` adds the jobs of a recipe.",
    "train": "`batchtrain run train.py` runs a script, `batchtrain run DIR` a recipe.",
}
"""Commands that people type first, with the commands that do it here."""


def answer(groups: Sequence[str], words: Sequence[str], commands: Iterable[str], path: str) -> str | None:
    """What to write in place of a command; None for an option, and if nothing is near.

    groups: the groups that exist; words: the first one that does not, and what follows it; commands: those of the last
    group, which `path` calls.
    """
    if not groups and words[0] in FIRST_WORDS:
        return FIRST_WORDS[words[0]]
    if words[0].startswith("-"):
        return None
    if of_shipyard := shipyard.answer(groups, words):
        return of_shipyard
    names = tuple(commands)
    longer = [name for name in names if name.startswith(words[0])]
    guess = longer[0] if len(longer) == 1 else nearest(words[0], names)[0]
    return f"Did you mean `{path} {guess}`?" if guess else None
