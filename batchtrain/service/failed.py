"""A failed task as one message: the failed rank, its exception or exit code, and the meaning. Pure."""

from __future__ import annotations

from batchtrain.errors import TaskFailed, shortened
from batchtrain.service.causes import Cause, cause
from batchtrain.service.seen import TaskSeen

MEANINGS = {
    126: "a command could not be executed",
    127: "a command was not found",
    137: "for example by the kernel if memory runs out",
}
"""The meaning of exit codes in shells, used if there is no better message."""
SHOWN_LINES, SEARCHED_LINES = 20, 2000
"""The last lines of a failed task's stderr: how many are shown, and how many are searched for the cause."""


def failed(job_id: str, task: TaskSeen, lines: tuple[str, ...]) -> TaskFailed:
    """The error of a task that failed. lines: the end of its stderr."""
    found = cause(lines, task.exit_code)
    how = _rank_end(found) if found.who else _task_end(task, found.exception, lines)
    return TaskFailed(
        shortened(f"task {job_id}/{task.id} failed{how}{_meaning(task, found, lines)}"),
        task=f"{job_id}/{task.id}",
        rank=found.rank,
        node=found.node or task.node,
        code=task.exit_code,
        cause=found.exception,
        raised=found.raised,
        lines=lines[-SHOWN_LINES:],
    )


def _rank_end(found: Cause) -> str:
    """The failed rank and its node, then the exception or the exit of the rank."""
    text = f": {found.who} on node {found.node}"
    if not found.exception:
        return f"{text} {found.ending}"
    return f"{text}: {found.exception} ({f'then killed by signal {found.signal}' if found.signal else found.ending})"


def _task_end(task: TaskSeen, exception: str, lines: tuple[str, ...]) -> str:
    text = f" on node {task.node or '(none)'}"
    how = f"exit code {task.exit_code}" if task.exit_code is not None else task.failure or "no exit code"
    if exception:
        return f"{text}: {exception} ({how})"
    ours = _ours(lines)
    return f"{text} with {how}" + (f": {ours[-1]}" if ours else "")


def _meaning(task: TaskSeen, found: Cause, lines: tuple[str, ...]) -> str:
    """The meaning of an exit code, unless a rank's exception or a message of batchtrain explains it."""
    said = []
    if task.exit_code in MEANINGS and not found.exception and (found.who or not _ours(lines)):
        said.append(MEANINGS[task.exit_code])
    if task.exit_code is not None and not lines and task.failure:
        said.append(task.failure)
    return "".join(f" ({text})" for text in said)


def _ours(lines: tuple[str, ...]) -> list[str]:
    return [line.removeprefix("batchtrain: ") for line in lines if line.startswith("batchtrain: ")]
