"""A job schedule: one request, from which the service creates each job.

batchtrain does not run when a job of a schedule starts, so its only task is the job manager task of each job. Several
tasks could only be added by a program that signs in to Batch, which the user must run.
"""

from __future__ import annotations

from batchtrain.errors import PlanError, Problem
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import wire, wire_times
from batchtrain.plan.frame import Frame

INSTEAD = (
    "add such a job at its time from outside instead: run `batchtrain jobs add` from a CI job or an Automation runbook"
    " that has a clock, without `recurrence`; or give a `job_manager` of your own that adds the tasks"
)


def body(frame: Frame, specification: wire.JobSpecification) -> wire.JobScheduleCreate:
    """The schedule of a job. Raises PlanError for an invalid time."""
    assert frame.job.recurrence is not None
    schedule, where = frame.job.recurrence.schedule, f"{frame.path}.recurrence.schedule"
    return wire.JobScheduleCreate(
        id=frame.job.id,
        display_name=frame.job.display_name,
        schedule=wire.Schedule(
            do_not_run_until=wire_times.moment(schedule.do_not_run_until, f"{where}.do_not_run_until"),
            do_not_run_after=wire_times.moment(schedule.do_not_run_after, f"{where}.do_not_run_after"),
            start_window=wire_times.optional_duration(schedule.start_window),
            recurrence_interval=wire_times.optional_duration(schedule.recurrence_interval),
        ),
        job_specification=specification,
        metadata=specification.metadata,
    )


def only(frame: Frame, count: int) -> bool:
    """Whether the schedule's jobs have their one task; false if the user's own job manager adds the tasks.

    count: the tasks of a job. Raises PlanError (rule `recurrence-tasks`) for anything else.
    """
    job = frame.job
    if job.job_manager is not None:
        if count:
            raise _error(frame, "with a `job_manager`, the tasks of its jobs are added by that alone")
        return False
    if not job.tasks:
        raise _error(frame, "its jobs would have no task")
    if count > 1:
        raise _error(frame, f"its jobs would have {count} tasks, but a job of a schedule can only start with one")
    if job.tasks[0].multi_instance is not None:
        raise _error(frame, "a schedule carries a task of one node alone, and this one is multi-instance")
    return True


def manager(frame: Frame, task: wire.TaskCreate, path: str) -> tuple[wire.JobManagerTask, tuple[Implicit, ...]]:
    """The one task as each job's job manager task."""
    recurrence = frame.job.recurrence
    assert recurrence is not None
    stays, completes = recurrence.job_manager.monitor_task_completion, frame.job.auto_complete
    names = [name for name in wire.JobManagerTask.__struct_fields__ if name in wire.TaskCreate.__struct_fields__]
    manager_task = wire.JobManagerTask(
        **{name: getattr(task, name) for name in names},
        kill_job_on_completion=stays or not completes,
        run_exclusive=recurrence.job_manager.run_exclusive,
        allow_low_priority_node=recurrence.job_manager.allow_low_priority_node,
    )
    implicit = [Implicit("job_manager", task.id, "it is the schedule's one task", "schedule-task", path)]
    if not stays and not completes:
        because = "the schedule's next job waits for the end of this one"
        implicit.append(Implicit("kill_job_on_completion", "true", because, "schedule-job-ends", frame.path))
    return manager_task, tuple(implicit)


def remarks(frame: Frame, task: wire.TaskCreate, path: str) -> tuple[Problem, ...]:
    """Warnings about properties that a schedule drops."""
    return tuple(
        Problem("recurrence-tasks", f"a schedule's task has no `{name}`; it is left out", path=path, level="warning")
        for name in ("exit_conditions", "affinity_info")
        if getattr(task, name) is not None
    )


def _error(frame: Frame, reason: str) -> PlanError:
    return PlanError(f"{frame.path}: job schedule {frame.job.id} cannot be: {reason}; {INSTEAD} [recurrence-tasks]")
