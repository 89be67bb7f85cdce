"""A failed task as one message: the failed rank, its exception or exit code, and the meaning. Pure."""

from __future__ import annotations

from batchtrain.errors import TaskFailed, printable, shortened
from batchtrain.records import Task
from batchtrain.service.causes import Cause, cause, of_the_program

MEANINGS = {
    126: "a command could not be executed",
    127: "a command was not found",
    137: "for example by the kernel if memory runs out",
}
"""The meaning of exit codes in shells, used if there is no better message."""
SHOWN_LINES, SEARCHED_LINES = 20, 2000
"""The last lines of a failed task's stderr: how many are shown, and how many are searched for the cause."""


def failed(job_id: str, task: Task, lines: tuple[str, ...]) -> TaskFailed:
    """The error of a task that failed. lines: the end of its stderr."""
    reason = cause(lines, task.exit_code)
    how = _rank_end(reason) if reason.who else _task_end(task, reason.exception, lines)
    return TaskFailed(
        shortened(printable(f"task {job_id}/{task.id} failed{how}{_meaning(task, reason, lines)}")),
        task=f"{job_id}/{task.id}",
        rank=reason.rank,
        node=reason.node or task.node,
        code=task.exit_code,
        cause=reason.exception,
        raised=reason.raised,
        lines=(of_the_program(lines) or lines)[-SHOWN_LINES:],
    )


def _rank_end(reason: Cause) -> str:
    """The failed rank and its node, then the exception or the exit of the rank."""
    text = f": {reason.who} on node {reason.node}"
    if not reason.exception:
        return f"{text} {reason.ending}"
    ending = f"then killed by signal {reason.signal}" if reason.signal else reason.ending
    return f"{text}: {reason.exception} ({ending})"


def _task_end(task: Task, exception: str, lines: tuple[str, ...]) -> str:
    text = f" on node {task.node or '(none)'}"
    how = f"exit code {task.exit_code}" if task.exit_code is not None else str(task.failure) or "no exit code"
    if exception:
        return f"{text}: {exception} ({how})"
    ours = _ours(lines)
    return f"{text} with {how}" + (f": {ours[-1]}" if ours else "")


def _meaning(task: Task, reason: Cause, lines: tuple[str, ...]) -> str:
    """The meaning of an exit code, unless a rank's exception or a message of batchtrain explains it."""
    parts = []
    if task.exit_code in MEANINGS and not reason.exception and (reason.who or not _ours(lines)):
        parts.append(MEANINGS[task.exit_code])
    if task.exit_code is not None and not lines and task.failure:
        parts.append(str(task.failure))
    return "".join(f" ({text})" for text in parts)


def _ours(lines: tuple[str, ...]) -> list[str]:
    return [line.removeprefix("batchtrain: ") for line in lines if line.startswith("batchtrain: ")]
