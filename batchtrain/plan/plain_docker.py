"""A task's container where the node's own Docker Engine runs it (`plain_docker`): the words for `docker run`.

They are those of a native container pool and what Batch would have added there: the node's directories, the GPUs.
"""

from __future__ import annotations

import shlex

from batchtrain.config import task_resources
from batchtrain.config.types import Task
from batchtrain.errors import PlanError
from batchtrain.frameworks.base import Shape
from batchtrain.launchers import plain_docker, shell
from batchtrain.launchers.launch import Implicit, Launch
from batchtrain.launchers.plain_docker import Container
from batchtrain.plan import command, container, start_task, wire
from batchtrain.plan.frame import Frame

PLACES = {
    "Shared": "$AZ_BATCH_NODE_SHARED_DIR",
    "Startup": "$AZ_BATCH_NODE_STARTUP_DIR",
    "VfsMounts": "$AZ_BATCH_NODE_MOUNTS_DIR",
    "Task": "$AZ_BATCH_TASK_DIR",
    "JobPrep": "$AZ_BATCH_JOB_PREP_DIR",
    "Applications": "$AZ_BATCH_NODE_ROOT_DIR/applications",
}
"""Where the directories are that `bind_mounts` names."""


def container_of(frame: Frame, task: Task, shape: Shape) -> tuple[Container, tuple[Implicit, ...]]:
    """How a task's container is run, and what was decided. Raises PlanError for options that are the plan's own."""
    _refuse_reserved(task)
    settings, decided = container.settings(frame, task, shape)
    gang = task.multi_instance is not None
    added = (*_network(task), *_root(task), *_mounts(settings), *_gpus(frame, task))
    made = Container(
        image=settings.image_name,
        copy=start_task.copy_of(frame.recipe, settings.image_name),
        options=(*(option for option, _ in added), *_without_entrypoint(settings.container_run_options, task, gang)),
        directory="" if settings.working_directory == "containerImageDefault" else "$AZ_BATCH_TASK_WORKING_DIR",
        own=tuple(sorted({*frame.job.environment_variables, *task.environment_variables})),
    )
    return made, (*_decided(gang), *(item for _, item in added), *map(_renamed, decided))


def launch(made: Container, task: Task, inside: Launch | None) -> Launch:
    """What the host runs. inside: a gang's launch, as its containers have it; None for a task on one node."""
    if inside is not None:
        return plain_docker.gang(made, inside)
    text = (task.command or "").strip()
    if not command.speaks_for_itself(text, entrypoint=task.entrypoint is not None):
        return plain_docker.alone(made, text, as_it_is=False)
    return plain_docker.alone(made, " ".join(map(shell.word, _words(text))), as_it_is=True)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise PlanError(f"`command` cannot be cut into words: {error}; close its quotes") from None


def _refuse_reserved(task: Task) -> None:
    for option in task.additional_docker_run_options:
        if task_resources.PLANS_OPTIONS.intersection(task_resources.option_names(option)):
            raise PlanError(f"`additional_docker_run_options` has `{option}`, which batchtrain sets; remove it")


def refuse_parts(frame: Frame) -> None:
    """A job's own tasks run on the host. Raises PlanError for one in a container."""
    job = frame.job
    if not frame.plain_docker:
        return
    for name, part in job.parts:
        if part.docker_image:
            raise PlanError(
                f"{frame.path}.{name}: `docker_image` needs a pool whose containers Batch runs; take `plain_docker`"
                " away from the pool, or call `docker run` in the command, which runs on the host"
            )


# --- what Batch would add -------------------------------------------------------------------------------------------


def _network(task: Task) -> tuple[tuple[str, Implicit], ...]:
    if task.multi_instance is None or any(option.startswith("--net") for option in task.additional_docker_run_options):
        return ()
    because = "the ranks are reached at the addresses of their nodes"
    return (("--network host", Implicit("docker run", "--network host", because, "docker-network")),)


def _root(task: Task) -> tuple[tuple[str, Implicit], ...]:
    """Placed before the user's options, because the engine uses the last one."""
    if task.multi_instance is None:
        return ()
    because = "the container's sshd needs root, and the image may name another user"
    return (("--user 0", Implicit("docker run", "--user 0", because, "docker-root")),)


def _mounts(settings: wire.ContainerSettings) -> tuple[tuple[str, Implicit], ...]:
    chosen = settings.container_host_batch_bind_mounts
    because = "the container sees the directories of the node at the same paths, as a container of Batch does"
    if not chosen:
        option = '-v "$AZ_BATCH_NODE_ROOT_DIR:$AZ_BATCH_NODE_ROOT_DIR"'
        return ((option, Implicit("docker run", option, because, "docker-mounts")),)
    mounts = []
    for mount in chosen:
        directory = PLACES[str(mount.source)]
        option = f'-v "{directory}:{directory}{":ro" if mount.is_read_only else ""}"'
        mounts.append((option, Implicit("docker run", option, because, "docker-mounts")))
    return tuple(mounts)


def _gpus(frame: Frame, task: Task) -> tuple[tuple[str, Implicit], ...]:
    """NVIDIA's alone; the devices of AMD's are among the options already."""
    size = frame.size
    if size is None or size.gpu_vendor != "nvidia" or not task_resources.gpus(frame.job, task, size):
        return ()
    if any(option.startswith("--gpus") for option in task.additional_docker_run_options):
        return ()
    seen = task_resources.gpus_seen(task_resources.gpus_word(frame.job, task))
    option = "--gpus=all" if seen is None else f"--gpus={shell.word(_devices(seen))}"
    because = f"{size.name} has {size.gpus} {size.gpu_model}, which the engine adds only on request"
    return ((option, Implicit("docker run", option, because, "docker-gpus")),)


def _devices(seen: tuple[str, ...]) -> str:
    """In quotes of its own: the engine reads the option as a line of comma-separated values."""
    return '"device=' + ",".join(seen) + '"'


def _without_entrypoint(options: str | None, task: Task, gang: bool) -> tuple[str, ...]:
    """A gang's container only waits, so an entry point has no part in it."""
    if not options:
        return ()
    if gang and task.entrypoint is not None:
        options = options.replace(f"--entrypoint={shlex.quote(task.entrypoint)}", "").strip()
    return (options,) if options else ()


# --- what was decided -----------------------------------------------------------------------------------------------


def _decided(gang: bool) -> tuple[Implicit, ...]:
    name = Implicit(
        "docker run",
        "--name batchtrain.NODE.JOB.TASK, --label batchtrain.node, --label batchtrain.lock",
        "these identify the container of a task, which is removed with the task, however it ends",
        "docker-name",
    )
    environment = Implicit(
        "docker run",
        "-e NAME for each variable of the task",
        "the container has the task's environment; no value is on a command line, and values may have several lines",
        "docker-environment",
    )
    if not gang:
        return name, environment
    waits = Implicit(
        "docker run",
        "--detach --entrypoint /bin/sh",
        "a gang's container waits, and sshd and the launch are executed in it",
        "docker-waits",
    )
    return name, environment, waits


def _renamed(item: Implicit) -> Implicit:
    return item._replace(what="docker run") if item.what == "containerRunOptions" else item
