"""The tasks that are part of a job itself: its preparation and release on every node, and its manager."""

from __future__ import annotations

from batchtrain.config.types import JobPreparation, Task
from batchtrain.errors import PlanError
from batchtrain.launchers import preparation as placing
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import command, container, inputs, outputs, wire, wire_times
from batchtrain.plan.frame import Frame
from batchtrain.plan.task import INPUT, constraints


def preparation(frame: Frame) -> tuple[wire.JobPreparationTask | None, tuple[Implicit, ...]]:
    """What every node does before the job's first task there: its data, then its command."""
    downloads = inputs.fetched(frame.recipe, frame.job.input_data.azure_storage, INPUT)
    job_preparation = frame.job.job_preparation
    if job_preparation is None and not downloads:
        return None, ()
    task = job_preparation or JobPreparation()
    staged_moves = inputs.moves(downloads)
    if frame.windows and staged_moves:
        raise PlanError(
            f"{frame.path}.input_data: on Windows nodes, data goes below the working directory, all of a prefix; give"
            " a relative `local_path`, and no patterns but those that end with `*`"
        )
    lines = (placing.moves(staged_moves), (task.command or "").strip())
    text = "\n".join(filter(None, lines)) or ("ver" if frame.windows else ":")
    line, command_variables = command.carried(text, on_windows=frame.windows)
    where = f"{frame.path}.job_preparation" if job_preparation else f"{frame.path}.input_data"
    because = "what prepares a node installs and mounts"
    identity, by_identity = container.identity_or_default(task.user_identity, because, is_admin=True, where=where)
    preparation_task = wire.JobPreparationTask(
        command_line=line,
        container_settings=container.of_a_job(task),
        resource_files=inputs.resource_files(task.resource_files)
        + tuple(file for blobs in downloads for file in blobs.files),
        environment_settings=inputs.environment(task.environment_variables, command_variables),
        constraints=constraints(task, task.retention_time),
        wait_for_success=task.wait_for_success,
        user_identity=identity,
        rerun_on_node_reboot_after_success=task.rerun_on_node_reboot,
    )
    because = "the job has `input_data`, which every node needs before its first task"
    by_input = () if job_preparation else (Implicit("job_preparation", "made", because, "prep-for-input", where),)
    return preparation_task, (*by_input, *by_identity)


def release(frame: Frame) -> tuple[wire.JobReleaseTask | None, tuple[Implicit, ...]]:
    """What every node that was prepared does when the job ends. The service wants a preparation task with it."""
    if (job_release := frame.job.job_release) is None:
        return None, ()
    line, command_variables = command.carried(job_release.command, on_windows=frame.windows)
    because, path = "what cleans up a node undoes what root did", f"{frame.path}.job_release"
    identity, by_identity = container.identity_or_default(job_release.user_identity, because, is_admin=True, where=path)
    release_task = wire.JobReleaseTask(
        command_line=line,
        container_settings=container.of_a_job(job_release),
        resource_files=inputs.resource_files(job_release.resource_files),
        environment_settings=inputs.environment(job_release.environment_variables, command_variables),
        max_wall_clock_time=wire_times.optional_duration(job_release.max_wall_time),
        retention_time=wire_times.optional_duration(job_release.retention_time),
        user_identity=identity,
    )
    return release_task, by_identity


def manager(frame: Frame) -> tuple[wire.JobManagerTask | None, tuple[Implicit, ...]]:
    """The task that leads the job."""
    if (job_manager := frame.job.job_manager) is None:
        return None, ()
    line, command_variables = command.carried(job_manager.command, on_windows=frame.windows)
    in_container = bool(job_manager.docker_image)  # as tasks: the administrator only in a container
    because = "a container's processes are root" if in_container else "it adds tasks, and asks for nothing more"
    identity, by_identity = container.identity_or_default(
        job_manager.user_identity, because, is_admin=in_container, where=f"{frame.path}.job_manager"
    )
    as_task = Task(command=job_manager.command, resource_files=job_manager.resource_files)
    manager_task = wire.JobManagerTask(
        id=job_manager.id,
        display_name=job_manager.display_name,
        command_line=line,
        container_settings=container.of_a_job(job_manager),
        resource_files=inputs.resource_files(job_manager.resource_files),
        environment_settings=inputs.environment(job_manager.environment_variables, command_variables),
        constraints=constraints(job_manager, job_manager.retention_time),
        kill_job_on_completion=job_manager.kill_job_on_completion,
        output_files=outputs.outputs(frame.recipe, job_manager.output_data.azure_storage)
        + outputs.left(frame.recipe, frame.facts.results, as_task, job_manager.id, len(frame.job.tasks)),
        required_slots=job_manager.required_slots,
        user_identity=identity,
        run_exclusive=job_manager.run_exclusive,
        allow_low_priority_node=job_manager.allow_low_priority_node,
    )
    return manager_task, by_identity
