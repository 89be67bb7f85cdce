"""What a task's end means for its job and for the tasks after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchtrain.config.types import ExitConditions, ExitDefault, ExitOptions, Job, Task
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import wire

ACTS = ("disable", "terminate")
"""Job actions that do something; `none` is what happens without any."""
UNTOUCHED = wire.ExitConditions(default=wire.ExitOptions(job_action="none"))
"""Where other tasks' ends act on the job, the service's own default for a failure would end it."""


def conditions(mine: ExitConditions | None, *, acting: bool, filling: bool) -> wire.ExitConditions | None:
    """The exit conditions of one task.

    acting: the job lets them act on it (without that, the service refuses any job action).
    filling: what says no job action says `none`, for the service's default is to end the job.
    """
    if mine is None:
        return UNTOUCHED if filling else None
    default = _options(mine.default, acting, filling)
    exit_conditions = wire.ExitConditions(
        exit_codes=tuple(
            wire.ExitCode(code=code.code, exit_options=_given(code.exit_options, acting, filling))
            for code in mine.exit_codes
        ),
        exit_code_ranges=tuple(
            wire.ExitCodeRange(start=span.start, end=span.end, exit_options=_given(span.exit_options, acting, filling))
            for span in mine.exit_code_ranges
        ),
        pre_processing_error=_options(mine.pre_processing_error, acting, filling),
        file_upload_error=_options(mine.file_upload_error, acting, filling),
        default=default or (UNTOUCHED.default if filling else None),
    )
    return wire.unless_empty(exit_conditions)


def mode(job: Job, tasks: Iterable[Task], path: str) -> tuple[str | None, tuple[Implicit, ...]]:
    """The job's `onTaskFailure`: as it was said, or switched on by a task whose end acts on the job."""
    if job.on_task_failure is not None:
        return job.on_task_failure, ()
    if not any(options.job_action in ACTS for options in _all(job, tasks)):
        return None, ()
    because = "an `exit_conditions` of the job or its tasks ends or disables the job"
    return "performexitoptionsjobaction", (
        Implicit("on_task_failure", "performexitoptionsjobaction", because, "job-action", path),
    )


def decide_on_dependents(job: Job, tasks: Iterable[Task]) -> bool:
    """Whether an exit condition says what happens to the tasks that depend on one."""
    return any(options.dependency_action for options in _all(job, tasks))


def _all(job: Job, tasks: Iterable[Task]) -> Iterator[ExitOptions]:
    for task in tasks:
        if (conditions := task.exit_conditions or job.exit_conditions) is not None:
            singles = (conditions.default, conditions.pre_processing_error, conditions.file_upload_error)
            yield from (single.exit_options for single in singles if single is not None)
            yield from (code.exit_options for code in conditions.exit_codes)
            yield from (span.exit_options for span in conditions.exit_code_ranges)


def _options(default: ExitDefault | None, acting: bool, filling: bool) -> wire.ExitOptions | None:
    return wire.unless_empty(_given(default.exit_options, acting, filling)) if default is not None else None


def _given(options: ExitOptions, acting: bool, filling: bool) -> wire.ExitOptions:
    action = options.job_action or ("none" if filling else None)
    if not acting and action not in ACTS:  # one that acts is sent, and refused: a check says so before
        action = None
    return wire.ExitOptions(job_action=action, dependency_action=options.dependency_action)
