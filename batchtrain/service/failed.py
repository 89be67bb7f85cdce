"""A failed task as one message: the failed rank, its exception or exit code, and the meaning. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from batchtrain.errors import Finding, JobExpired, JobStopped, TaskFailed, printable, shortened
from batchtrain.records import Failure, Job, Task
from batchtrain.records.failure import EXIT_CODE
from batchtrain.records.jobs import EXPIRED
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.causes import TAG, Cause, cause, lines_of, of_the_program

MEANINGS = {
    126: "a command could not be executed",
    127: "a command was not found",
    134: "it aborted itself",
    135: "a bus error: memory that it had mapped was gone",
    137: "for example by the kernel if memory runs out",
    139: "a segmentation fault: it accessed memory that is not its own",
}
"""The meaning of exit codes in shells, used if there is no better message."""
SHOWN_LINES, SEARCHED_LINES = 20, 2000
"""The last lines of a failed task's stderr: how many are shown, and how many are searched for the cause."""

EXPLAINED_TASKS = 20
"""The failed tasks of a list whose stderr is read."""


def failed(job_id: str, task: Task, lines: tuple[str, ...], end: RankEnd) -> TaskFailed:
    """The error of a task that failed. lines: the last ones of its stderr. end: that of the rank that failed first."""
    reason = cause(lines, end)
    verb = "was terminated" if task.is_cut_short else "failed"
    text = f"task {job_id}/{task.id} {verb}{_how(task, reason, lines)}{_meaning(task, reason, lines)}"
    return TaskFailed(
        shortened(printable(text)),
        task=f"{job_id}/{task.id}",
        rank=reason.end.rank,
        node=reason.end.node or task.node,
        code=task.exit_code,
        cause=reason.exception or reason.end.cause,
        raised=reason.raised,
        lines=(of_the_program(lines) or lines)[-SHOWN_LINES:],
    )


def unfinished(job_id: str, task: Task) -> TaskFailed:
    """The error of a task that has no end, although its job has."""
    name = f"{job_id}/{task.id}"
    return TaskFailed(f"task {name} did not finish: it is {task.state}, and its job was terminated", task=name)


def ended_early(job: Job) -> TaskFailed:
    """The error of a job that something else than the end of its tasks has ended: a user, or its limit of run time."""
    if job.reason != EXPIRED:
        return JobStopped(f"job {job.id} was terminated by a user before its tasks had ended")
    error = JobExpired(f"job {job.id} reached its limit of run time before its tasks had ended")
    error.finding = wall_clock(job)
    return error


def wall_clock(job: Job) -> Finding:
    """The cause of the end of a job at its limit of run time."""
    cause = "the job reached its limit of run time" + (f" ({job.wall_clock:g} s)" if job.wall_clock else "")
    step = "raise the job's `max_wall_time`, or the `--max-duration` (`max_duration`) of a detached run"
    return Finding("wall-clock", f"job {job.id}", cause, job.reason, step)


def explained(tasks: Iterable[Task], reason_of: Callable[[Task], str]) -> Iterator[Task]:
    """Tasks for a list. Of the first EXPLAINED_TASKS that failed by an exit code, the reason replaces the general one
    of the service; of the others it is the exit code. reason_of: reads the `summary` of a task."""
    explainable = EXPLAINED_TASKS
    for task in tasks:
        if task.failure.code == EXIT_CODE:
            reason = reason_of(task) if explainable else ""
            explainable -= bool(explainable)
            task = replace(task, failure=Failure(message=reason or f"exit code {task.exit_code}"))
        yield task


def summary(task: Task, lines: tuple[str, ...], end: RankEnd) -> str:
    """The cause of a failure for a cell of a list: the exception, a message of batchtrain, the last line of stderr, or
    the meaning of the exit code; empty if there is none of these."""
    reason, code = cause(lines, end), task.exit_code or 0
    how, meaning = _ours(reason, lines), MEANINGS.get(code, "")
    if code > 128 and meaning and not end.ending:
        how = f"{how or f'exit code {code}'} ({meaning})"
    last_line = next((line for line in reversed(of_the_program(lines_of(lines, end) or lines)) if line.strip()), "")
    return shortened(printable(reason.exception or how or last_line or meaning))


def _how(task: Task, reason: Cause, lines: tuple[str, ...]) -> str:
    """The failed rank and its node, or that of the task, then the exception or the exit."""
    end = reason.end
    if end.process:
        text = f": {end.process} on {f'node {end.node}' if end.node else 'an unknown node'}"
        if not reason.exception:
            return f"{text} {end.words}" + (f"; then {reason.consequence}" if reason.consequence else "")
        return f"{text}: {reason.exception} ({f'then killed by signal {end.signal}' if end.signal else end.words})"
    text = f" on node {task.node or '(none)'}"
    how = f"exit code {task.exit_code}" if task.exit_code is not None else str(task.failure) or "no exit code"
    if reason.exception:
        return f"{text}: {reason.exception} ({how})"
    ours = _ours(reason, lines)
    return f"{text} with {how}" + (f": {ours}" if ours else "")


def _meaning(task: Task, reason: Cause, lines: tuple[str, ...]) -> str:
    """The meaning of an exit code, unless a rank's exception or a message of batchtrain explains it."""
    parts = []
    is_told = reason.exception or reason.end.ending or (not reason.end.process and _ours(reason, lines))
    if task.exit_code in MEANINGS and not is_told:
        parts.append(MEANINGS[task.exit_code])
    if task.exit_code is not None and not lines and task.failure and task.failure.code != EXIT_CODE:
        parts.append(str(task.failure))
    return "".join(f" ({text})" for text in parts)


def _ours(reason: Cause, lines: tuple[str, ...]) -> str:
    """What batchtrain itself said last, if anything."""
    messages = (line.removeprefix(TAG) for line in reversed(lines) if line.startswith(TAG))
    messages = (message for message in messages if not message.startswith(" "))  # the last lines of a rank
    return f"{reason.end.process} {reason.end.ending}".strip() if reason.end.ending else next(messages, "")
