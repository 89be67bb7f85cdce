"""Rules about the containers tasks run in: images, registries, shared memory, GPUs and who they run as."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import CREDENTIALS, ERROR, GLOBAL, JOBS, POOL, WARNING, Found, Rule
from batchtrain.config.types import Job, Task, UserIdentity

SIZE = r"(?i)([0-9]+(?:\.[0-9]+)?)\s*([bkmgt]?)(?:i?b)?"
UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
ENOUGH = 256 * 2**20
DEFAULT = "64m"
OWN_OPTIONS = {
    "--gpus": "Batch itself gives containers their GPUs; use `gpus`",
    "--name": "Batch names containers itself",
    "--rm": "Batch removes containers itself",
    "--detach": "Batch waits for the container; a detached one ends the task at once",
    "-d": "Batch waits for the container; a detached one ends the task at once",
}
CONTAINER_ONLY = ("entrypoint", "ports", "labels", "additional_docker_run_options", "bind_mounts", "container_registry")


# --- images ---------------------------------------------------------------------------------------------------------


def _listed(subject: Subject) -> Found:
    known = frozenset(subject.recipe.resources.docker_images)
    for path, job, image in _docker_images(subject):
        if image not in known and not job.allow_run_on_missing_image:
            hint = subject.nearest(image, known)
            yield (
                path,
                f"the image `{image}` is not in `global_resources.docker_images`, so no node fetches it{hint};"
                " list it there or set `allow_run_on_missing_image: true` on the job",
            )


def _docker_images(subject: Subject) -> Iterator[tuple[Path, Job, str]]:
    for path, job in subject.jobs:
        for name in ("job_manager", "job_preparation", "job_release"):
            part = getattr(job, name)
            if part is not None and part.docker_image:
                yield (*path, name, "docker_image"), job, part.docker_image
    for path, job, task in subject.tasks:
        if task.docker_image:
            yield (*path, "docker_image"), job, task.docker_image


def _singularity_listed(subject: Subject) -> Found:
    images = subject.recipe.resources.singularity_images
    known = frozenset(one.image for one in (*images.unsigned, *images.signed))
    for path, job, task in subject.tasks:
        image = task.singularity_image
        if image and image not in known and not job.allow_run_on_missing_image:
            yield (
                (*path, "singularity_image"),
                f"the image `{image}` is not in `global_resources.singularity_images`, so no node fetches it"
                f"{subject.nearest(image, known)}; list it there or set `allow_run_on_missing_image: true` on the job",
            )


def _one_image(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        if task.docker_image and task.singularity_image:
            yield (*path, "singularity_image"), "`docker_image` is given too; a task runs in one container"


def _windows_singularity(subject: Subject) -> Found:
    if subject.windows:
        for path, _, task in subject.tasks:
            if task.singularity_image:
                yield (*path, "singularity_image"), "Apptainer runs on Linux, and the nodes run Windows"


def _host_tasks(subject: Subject) -> Found:
    if not subject.containers or subject.pool is None:
        return
    for path, _, task in subject.tasks:
        if not task.docker_image:
            what = "an Apptainer task" if task.singularity_image else "a task without `docker_image`"
            yield (
                path,
                f"{what} in a pool whose nodes run containers: Batch's reference wants a container image for every"
                " task there; give it one, or a pool of its own",
            )


def _container_only(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        if task.docker_image:
            continue
        for name in CONTAINER_ONLY:
            if getattr(task, name):
                yield (*path, name), "this is for tasks with a `docker_image`; this one has none, so it has no effect"


# --- registries -----------------------------------------------------------------------------------------------------


def _unknown_registry(subject: Subject) -> Found:
    known = subject.recipe.credentials.docker_registry
    for path, _, task in subject.tasks:
        server = task.container_registry
        if server and known and server not in known:
            yield (*path, "container_registry"), f"`docker_registry` has no `{server}`{subject.nearest(server, known)}"


def _registry_login(subject: Subject) -> Found:
    credentials, resources = subject.recipe.credentials, subject.recipe.resources
    for section, known in (
        ("docker", credentials.docker_registry),
        ("singularity", credentials.singularity_registry),
    ):
        for number, server in enumerate(getattr(resources.additional_registries, section)):
            if server not in known:
                yield (
                    ("global_resources", "additional_registries", section, number),
                    f"credentials.yaml has no login for `{server}` (`{section}_registry`)"
                    f"{subject.nearest(server, known)}",
                )
        for server, login in known.items():
            password = login.password or login.password_keyvault_secret_id
            if not login.identity and not (login.username and password):
                missing = "password" if login.username else "username" if password else "username and password"
                yield ("credentials", f"{section}_registry", server), f"the {missing} is missing, or an `identity`"
    if not credentials.docker_registry:
        for path, _, task in subject.tasks:
            if task.container_registry:
                yield (*path, "container_registry"), f"credentials.yaml has no login for `{task.container_registry}`"


# --- shared memory --------------------------------------------------------------------------------------------------


def _shm_format(subject: Subject) -> Found:
    for path, owner in subject.owners:
        if owner.shm_size is not None and bytes_of(owner.shm_size) is None:
            yield (*path, "shm_size"), f"`{owner.shm_size}` is no size; write a number and b, k, m or g, such as `256m`"


def _shm_small(subject: Subject) -> Found:
    for path, job, task in subject.tasks:
        if not task.docker_image or (task.multi_instance is None and subject.size is None):
            continue
        reason = _wants_memory(subject, job, task)
        if not reason:
            continue
        given, at = _shm(path, job, task)
        size = bytes_of(given)
        if size is not None and size < ENOUGH:
            yield at, f"{reason} through shared memory, and the container has {given}; set `shm_size: 256m` or more"


def _wants_memory(subject: Subject, job: Job, task: Task) -> str:
    """Why a task's processes talk through shared memory; empty where nothing says that they do."""
    gpus = subject.gpus(job, task)
    if gpus > 1:
        return f"{gpus} GPUs of a node exchange data (NCCL)"
    mpi = task.multi_instance.mpi if task.multi_instance else None
    if mpi is not None and mpi.runtime.startswith("intelmpi") and mpi.processes_per_node != 1:
        return "Intel MPI's ranks of a node exchange data"
    return ""


def _shm(path: Path, job: Job, task: Task) -> tuple[str, Path]:
    """The size in force, and where it is written; plenty where the host's memory is used."""
    options = " ".join(task.additional_docker_run_options).replace("=", " ").split()
    if "--ipc" in options and options[options.index("--ipc") + 1 : options.index("--ipc") + 2] == ["host"]:
        return "1g", path
    if "--shm-size" in options[:-1]:
        return options[options.index("--shm-size") + 1], (*path, "additional_docker_run_options")
    if task.shm_size is not None:
        return task.shm_size, (*path, "shm_size")
    if job.shm_size is not None:
        return job.shm_size, (path[0], path[1], "shm_size")
    return DEFAULT, path


def bytes_of(size: str) -> int | None:
    """A size as container engines write it (`256m`), in bytes; None for what is none."""
    match = re.fullmatch(SIZE, size.strip())
    return int(float(match[1]) * UNITS[match[2].lower()]) if match else None


# --- GPUs and options -----------------------------------------------------------------------------------------------


def _gpus_chosen(subject: Subject) -> Found:
    for path, owner in subject.owners:
        if owner.gpus is not None and owner.gpus not in ("all", "disable"):
            yield (
                (*path, "gpus"),
                f"`gpus: {owner.gpus}` is taken as `all`: the service gives a container all GPUs of its node",
            )


def _gpus_possible(subject: Subject) -> Found:
    size = subject.size
    if size is None or size.gpus:
        return
    for path, owner in subject.owners:
        if owner.gpus and owner.gpus != "disable":
            yield (*path, "gpus"), f"`gpus: {owner.gpus}`, but {size.name} has none"


def _own_options(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        for number, option in enumerate(task.additional_docker_run_options):
            reason = OWN_OPTIONS.get(re.split(r"[=\s]", option, maxsplit=1)[0])
            if reason:
                yield (*path, "additional_docker_run_options", number), f"`{option}`: {reason}; leave it out"


# --- users ----------------------------------------------------------------------------------------------------------


def _identities(subject: Subject) -> Iterator[tuple[Path, UserIdentity, Task | None]]:
    for path, job in subject.jobs:
        if job.user_identity is not None:
            yield (*path, "user_identity"), job.user_identity, None
    for path, _, task in subject.tasks:
        if task.user_identity is not None:
            yield (*path, "user_identity"), task.user_identity, task


def _one_identity(subject: Subject) -> Found:
    for path, who, _ in _identities(subject):
        named = {
            "default_pool_admin": who.default_pool_admin,
            "specific_user": who.specific_user is not None,
            "auto_user": who.auto_user is not None,
            "username": who.username is not None,
        }
        given = [name for name, there in named.items() if there]
        if len(given) > 1:
            yield path, f"{' and '.join(f'`{name}`' for name in given)} are given; a task runs as one user"


def _known_user(subject: Subject) -> Found:
    if subject.pool is None:
        return
    known = tuple(account.name for account in subject.pool.user_accounts)
    for path, who, _ in _identities(subject):
        if who.username is not None and who.username not in known:
            yield (
                (*path, "username"),
                f"the pool's `user_accounts` have no `{who.username}`{subject.nearest(who.username, known)}",
            )


def _user_in_container(subject: Subject) -> Found:
    for path, who, task in _identities(subject):
        if who.specific_user is not None and task is not None and not task.docker_image:
            yield (
                (*path, "specific_user"),
                "a user id is given to containers; this task runs without, so it has no effect",
            )


_SETTINGS = "azure-batch 15.1, BatchTaskContainerSettings"
_DOCKER = "docker run: --shm-size"

RULES = (
    Rule("image-not-listed", ERROR, (*GLOBAL, *JOBS), "A task's image is fetched by the nodes.",
         "Batch Shipyard: `global_resources.docker_images`", _listed),
    Rule("singularity-not-listed", ERROR, (*GLOBAL, *JOBS), "A task's Apptainer image is fetched by the nodes.",
         "Batch Shipyard: `global_resources.singularity_images`", _singularity_listed),
    Rule("image-both", ERROR, JOBS, "A task runs in one container.",
         "Batch Shipyard: docker_image xor singularity_image", _one_image),
    Rule("singularity-windows", ERROR, (*POOL, *JOBS), "Apptainer runs on Linux nodes.", "Apptainer: installation",
         _windows_singularity),
    Rule("host-task", WARNING, (*GLOBAL, *POOL, *JOBS), "Every task of a container pool runs in a container.",
         "azure-batch 15.1, VirtualMachineConfiguration.containerConfiguration", _host_tasks),
    Rule("container-only", WARNING, JOBS, "Settings of containers are given to tasks that run in one.", _SETTINGS,
         _container_only),
    Rule("registry-unknown", ERROR, (*CREDENTIALS, *JOBS), "A task's registry is one of the credentials'.",
         f"{_SETTINGS}.registry", _unknown_registry),
    Rule("registry-login", WARNING, (*CREDENTIALS, *GLOBAL, *JOBS), "Registries to log in to have a login.",
         "azure-batch 15.1, ContainerRegistryReference", _registry_login),
    Rule("shm-size", ERROR, JOBS, "The size of the shared memory is a size.", _DOCKER, _shm_format),
    Rule("shm-small", WARNING, (*POOL, *JOBS), "NCCL and Intel MPI have shared memory enough.",
         "Batch Shipyard issue 8; NCCL: Shared memory", _shm_small),
    Rule("gpus-chosen", WARNING, JOBS, "GPUs are all or none.",
         "Azure Batch node agent: GPUs are added to containers by the service", _gpus_chosen),
    Rule("gpus-impossible", ERROR, (*POOL, *JOBS), "GPUs are asked for only where there are some.",
         "Azure: Sizes for virtual machines", _gpus_possible),
    Rule("container-options", WARNING, JOBS, "Options of the container engine leave Batch's part to Batch.",
         f"{_SETTINGS}.containerRunOptions", _own_options),
    Rule("user-identity", ERROR, JOBS, "A task runs as one user.", "azure-batch 15.1, UserIdentity", _one_identity),
    Rule("user-unknown", ERROR, (*POOL, *JOBS), "A named user is one of the pool's.",
         "azure-batch 15.1, UserIdentity.username", _known_user),
    Rule("user-host", WARNING, JOBS, "A user id is given to a container.", "docker run: --user", _user_in_container),
)  # fmt: skip
