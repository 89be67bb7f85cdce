"""Rules about the containers tasks run in: images, registries, shared memory, GPUs and who they run as."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from batchtrain.catalog import arm_images
from batchtrain.catalog.likeness import mistakes
from batchtrain.config import schema, task_resources
from batchtrain.config.check.gangs import RUNNERS
from batchtrain.config.check.subject import Path, Subject, command_of
from batchtrain.config.check.table import BOTH, CREDENTIALS, ERROR, GLOBAL, JOBS, POOL, SETTINGS, WARNING, Found, Rule
from batchtrain.config.image_names import EXAMPLE, HUB, below, is_name, is_registry, placeholders, publishing, server_of
from batchtrain.config.patterns import late
from batchtrain.config.types import Job, JobManager, JobPreparation, JobRelease, Task, UserIdentity
from batchtrain.errors import counted

_CPU_BUILD = late(r"[:_-]cpu(?:-|$)")
_PORTS = r"[0-9]{1,5}(?:-[0-9]{1,5})?"
PUBLISHED = rf"(?:(?:[0-9]+(?:\.[0-9]+){{3}}|\[[0-9a-fA-F:]+\]):)?(?:(?:{_PORTS})?:)?{_PORTS}(?:/(?:tcp|udp|sctp))?"
"""[[ADDRESS:]PORT:]PORT[/PROTOCOL], as docker run --publish has it."""
LAST_PORT = 65535

OWN_OPTIONS = {
    "--gpus": "Batch itself gives containers their GPUs; use `gpus`",
    "--name": "Batch names containers itself",
    "--rm": "Batch removes containers itself",
    "--detach": "Batch waits for the container; a detached one ends the task at once",
    "-d": "Batch waits for the container; a detached one ends the task at once",
}
MOST_MISTAKES = 2
_FALLBACK = ("batchtrain", "fallback_registry")
CONTAINER_ONLY = ("entrypoint", "ports", "labels", "additional_docker_run_options", "bind_mounts", "container_registry")


# --- images ---------------------------------------------------------------------------------------------------------


def _listed(subject: Subject) -> Found:
    return _unlisted(subject, _docker_images(subject), "docker_images", subject.recipe.resources.docker_images)


def _singularity_listed(subject: Subject) -> Found:
    images = subject.recipe.resources.singularity_images
    uses = (
        ((*path, "singularity_image"), job, task.singularity_image)
        for path, job, task in subject.tasks
        if task.singularity_image
    )
    return _unlisted(subject, uses, "singularity_images", (image.image for image in (*images.unsigned, *images.signed)))


def _unlisted(subject: Subject, images: Iterable[tuple[Path, Job, str]], section: str, names: Iterable[str]) -> Found:
    listed_names = frozenset(names)
    for path, job, image in images:
        if image not in listed_names and not job.allow_run_on_missing_image:
            hint = subject.nearest(image, listed_names)
            yield (
                path,
                f"the image `{image}` is not in `global_resources.{section}`, so no node fetches it{hint}"
                f"{' If not,' if hint else ';'} list it there or set `allow_run_on_missing_image: true` on the job",
            )


def _processors(subject: Subject) -> Found:
    for path, _, image in _docker_images(subject):
        if image.startswith(EXAMPLE) and (reason := arm_images.misfit(image, subject.size)):
            yield path, reason


def _for_cpus(subject: Subject) -> Found:
    size = subject.size
    if size is None or not size.gpus:
        return
    for path, job, task in subject.tasks:
        if _CPU_BUILD.search(task.docker_image or "") and "disable" not in (task.gpus, job.gpus):
            yield (
                (*path, "docker_image"),
                f"`{task.docker_image}` is for CPUs, so the {counted(size.gpus, 'GPU')} of {size.name} would be idle;"
                " name an image for GPUs, or write the recipe again with `batchtrain init SCRIPT --size SIZE`",
            )


def _docker_images(subject: Subject) -> Iterator[tuple[Path, Job, str]]:
    for path, job in subject.jobs:
        for name, part in job.parts:
            if part.docker_image:
                yield (*path, name, "docker_image"), job, part.docker_image
    for path, job, task in subject.tasks:
        if task.docker_image:
            yield (*path, "docker_image"), job, task.docker_image


def _one_image(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        if task.docker_image and task.singularity_image:
            yield (*path, "singularity_image"), "`docker_image` is set too; a task runs in one container"


def _windows_singularity(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        if subject.windows and task.singularity_image:
            yield (*path, "singularity_image"), "Apptainer runs on Linux, but the nodes run Windows"


def _host_tasks(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        if subject.containers and not task.docker_image:
            what = "an Apptainer task" if task.singularity_image else "a task without `docker_image`"
            yield path, f"{what}, and Batch requires an image for every task of a pool with containers; add an image"


def _container_only(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        for name in CONTAINER_ONLY if not task.docker_image else ():
            if getattr(task, name):
                yield (*path, name), "this is for tasks with a `docker_image`; this one has none, so it has no effect"


def _gang_directory(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        is_gang = task.docker_image and task.multi_instance is not None and task.bind_mounts
        if is_gang and not any(mount.source == "Task" and not mount.read_only for mount in task.bind_mounts):
            message = "the launch needs the task's directory, which its containers do not have; add `source: Task`"
            yield (*path, "bind_mounts"), message


def _entrypoints(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        options = _ENTRYPOINT.search(" ".join(task.additional_docker_run_options))
        texts = {"entrypoint": task.entrypoint, "additional_docker_run_options": options and (options[2] or options[3])}
        for name, text in texts.items():
            text = (text or "").strip()
            words = re.findall(r"[^][,\s\"']+" if text.startswith("[") else r"\S+", text)
            if words and words != [text] and task.docker_image:
                rest = " ".join(words[1:])
                begin = f", and begin `command` with `{schema.shortened(rest)}`" if rest else ""
                quoted = ", with the program in quotes after it" if re.search(r"-\w*c$", rest) else ""
                yield (
                    (*path, name),
                    f"`--entrypoint` of an engine is one program without arguments; write `entrypoint: {words[0]}`"
                    f"{begin}{quoted}",
                )


_ENTRYPOINT = late(r"--entrypoint[=\s]+(?:([\"'])(.*?)\1|(\S+(?: +-c\b)?))")
"""The entry point in options: in quotes, or one word; `-c` behind it is meant as its argument."""


def _engine_inside(subject: Subject) -> Found:
    volumes = subject.recipe.resources.volumes.data_volumes
    for path, job, task in subject.tasks:
        mounts = (
            volumes[alias].host_path or "" for alias in (*job.data_volumes, *task.data_volumes) if alias in volumes
        )
        options = (*task.additional_docker_run_options, *mounts)
        socket = any(word in option for option in options for word in (".sock", "--privileged"))
        match = _ENGINE.search(command_of(task)) if task.docker_image and not socket else None
        if match:
            yield (
                (*path, "command"),
                f"`{match[1]}` starts a container inside the container of the task, which has no container engine;"
                " write that image as `docker_image` of the task, its options as `additional_docker_run_options`, and"
                " only the program as `command`",
            )


_ENGINE = late(
    rf"(?:^|[\n;&|(]|-\w*c[ \t]+[\"'])[ \t]*(?:{RUNNERS}[ \t]+)*"
    r"((?:(?:nvidia-)?docker|podman|nerdctl|(?:docker|podman)-compose)[ \t]+(?:container[ \t]+|compose[ \t]+)?"
    r"(?:run|exec|create|start|up)\b|(?:apptainer|singularity)[ \t]+(?:run|exec|shell|instance)\b)"
)


def _image_names(subject: Subject) -> Found:
    verdicts: dict[str, bool] = {}
    for path, image in _every_image(subject):
        if not verdicts.setdefault(image, is_name(image)):
            yield path, f"`{image}` is no name of an image: write [SERVER/]PATH[:TAG] in lower case, without spaces"


def _every_image(subject: Subject) -> Iterator[tuple[Path, str]]:
    for number, image in enumerate(subject.recipe.resources.docker_images):
        yield ("global_resources", "docker_images", number), image
    yield from ((path, image) for path, _, image in _docker_images(subject))


def _unpublished(subject: Subject) -> Found:
    commands = " and ".join(f"`{command}`" for command in publishing(subject.recipe.directory))
    for number, image in placeholders(subject.recipe.resources.docker_images):
        text = f"`{image}` is in no registry, so no node of an account can pull it; {commands} build and push it"
        yield ("global_resources", "docker_images", number), text


# --- registries -----------------------------------------------------------------------------------------------------


def _unknown_registry(subject: Subject) -> Found:
    logins = subject.recipe.credentials.docker_registry
    for path, _, task in subject.tasks:
        server = task.container_registry
        if server and logins and server not in logins:
            yield (*path, "container_registry"), f"`docker_registry` has no `{server}`{subject.nearest(server, logins)}"


def _registry_login(subject: Subject) -> Found:
    credentials, resources = subject.recipe.credentials, subject.recipe.resources
    for section, logins in (("docker", credentials.docker_registry), ("singularity", credentials.singularity_registry)):
        for number, server in enumerate(getattr(resources.additional_registries, section)):
            if server not in logins:
                yield (
                    ("global_resources", "additional_registries", section, number),
                    f"credentials.yaml has no login for `{server}` (`{section}_registry`), so it counts as public"
                    f"{subject.nearest(server, logins)}",
                )
        for server, login in logins.items():
            password = login.password or login.password_keyvault_secret_id
            if not login.identity and not (login.username and password):
                missing = "password" if login.username else "username" if password else "username and password"
                yield ("credentials", f"{section}_registry", server), f"the {missing} is missing, or an `identity`"
    for path, _, task in subject.tasks:
        if task.container_registry and not credentials.docker_registry:
            message = f"credentials.yaml has no login for `{task.container_registry}`, so it counts as public"
            yield (*path, "container_registry"), message


def _registry_misspelt(subject: Subject) -> Found:
    logins = subject.recipe.credentials.docker_registry
    servers: set[str] = {HUB, *logins}
    for path, image in _every_image(subject) if logins else ():
        server = server_of(image)
        if server in servers:
            continue
        servers.add(server)
        near = next((name for name in logins if mistakes(name.lower(), server.lower()) <= MOST_MISTAKES), None)
        if near is not None:
            yield path, f"credentials.yaml has no login for `{server}`, but one for `{near}`; is one of them misspelt?"


def _fallback_name(subject: Subject) -> Found:
    registry = subject.recipe.settings.fallback_registry
    if registry and not is_registry(registry):
        message = f"`{registry}` is not a registry: write SERVER or SERVER/PATH, the path in lower case, without a tag"
        yield _FALLBACK, message


def _fallback_unused(subject: Subject) -> Found:
    """Batch pulls the images of its container configuration, each from one registry."""
    recipe, registry = subject.recipe, subject.recipe.settings.fallback_registry
    images = recipe.resources.docker_images
    if not registry or subject.recipe.pool is None or not images:
        return
    servers = recipe.credentials.docker_registry
    if subject.windows or not recipe.settings.delay_docker_image_preload:
        linux = "" if subject.windows else "; it has one if the start task pulls: `delay_docker_image_preload: true`"
        yield _FALLBACK, f"this has no effect: Batch pulls the images of this pool, each from its own registry{linux}"
    elif server_of(below(registry, "x")) in servers:
        message = f"the start task does not sign in to `{registry}`; allow anonymous pulls from the pool's network"
        yield _FALLBACK, message


# --- shared memory --------------------------------------------------------------------------------------------------


def _shm_format(subject: Subject) -> Found:
    for path, owner in subject.owners:
        if owner.shm_size is not None and task_resources.bytes_of(owner.shm_size) is None:
            message = f"`{owner.shm_size}` is not a size; write a number and b, k, m or g, such as `256m`"
            yield (*path, "shm_size"), message


def _shm_small(subject: Subject) -> Found:
    """Checks only sizes that the user wrote; otherwise the plan chooses by the same numbers."""
    if subject.windows:
        return
    for path, job, task in subject.tasks:
        shm_size, at = _shm(path, job, task) if task.docker_image else (None, path)
        size = task_resources.bytes_of(shm_size) if shm_size is not None else None
        if size is None:
            continue
        minimum = task_resources.shared_memory(job, task, subject.size)
        if size < minimum.least * 2**20:
            yield (
                at,
                f"{minimum.because}: at least {task_resources.mib(minimum.least)} are needed, and this is {shm_size};"
                f" write more, or remove it for the default of {task_resources.mib(minimum.chosen)}",
            )


def _shm(path: Path, job: Job, task: Task) -> tuple[str | None, Path]:
    """The size that the user wrote, and its path. Returns None without a size, or if the host's memory is used."""
    by_option = _option(task, "--shm-size")
    if by_option is not None:
        return by_option, (*path, "additional_docker_run_options")
    if _option(task, "--ipc") == "host":
        return None, path
    if task.shm_size is not None:
        return task.shm_size, (*path, "shm_size")
    return job.shm_size, (*path[:2], "shm_size")


def _option(task: Task, name: str) -> str | None:
    """The value of a task's option, joined to the option or in the next word; the last one counts."""
    words = " ".join(task.additional_docker_run_options).replace("=", " ").split()
    values = [words[number + 1] for number, word in enumerate(words[:-1]) if word == name]
    return values[-1] if values else None


def _shm_twice(subject: Subject) -> Found:
    for path, job, task in subject.tasks:
        option = _option(task, "--shm-size") if task.additional_docker_run_options else None
        size = task.shm_size if task.shm_size is not None else job.shm_size
        if option is not None and size is not None:
            message = f"`--shm-size` is {option} here and overrides `shm_size: {size}`; keep one of them"
            yield (*path, "additional_docker_run_options"), message


# --- GPUs and options -----------------------------------------------------------------------------------------------


def _gpus_chosen(subject: Subject) -> Found:
    for path, owner in subject.owners:
        indices = task_resources.gpus_seen(owner.gpus)
        if indices is None or owner.gpus == "disable":
            continue
        if indices:
            yield (*path, "gpus"), f"a container gets all GPUs of its node, and uses {','.join(indices)} of them"
        else:
            yield (*path, "gpus"), f"`gpus: {owner.gpus}` means no GPU; write `disable`"


def _gpus_possible(subject: Subject) -> Found:
    size = subject.size
    for path, owner in subject.owners:
        if size is not None and not size.gpus and owner.gpus and owner.gpus != "disable":
            yield (*path, "gpus"), f"`gpus: {owner.gpus}`, but {size.name} has none"


def _gpus_too_many(subject: Subject) -> Found:
    size = subject.size
    for path, owner in subject.owners:
        if size is not None and 0 < size.gpus < len(task_resources.gpus_seen(owner.gpus) or ()):
            yield (*path, "gpus"), f"`gpus: {owner.gpus}` are more than the {size.gpus} of {size.name}"


def _own_options(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        for number, option in enumerate(task.additional_docker_run_options):
            if name := next(filter(OWN_OPTIONS.get, task_resources.option_names(option)), None):
                reason = OWN_OPTIONS[name]
                yield (*path, "additional_docker_run_options", number), f"`{option}`: {reason}; leave it out"


def _plain_docker(subject: Subject) -> Found:
    if subject.vm.plain_docker:
        yield (
            ("pool_specification", "vm_configuration", "plain_docker"),
            "this was removed, because Batch itself runs the containers of a pool: delete it, and use an image of the"
            " nodes with a container engine (`native: true`); on the emulator, a Docker Engine runs the images, or"
            " `batchtrain emulator images map` replaces them. Three uses end: images of the nodes without container"
            " support, options of `docker run` that the service does not accept, and pools in which only some tasks"
            " use containers",
        )


def _gang_network(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        for name in ("--net", "--network") if task.multi_instance is not None else ():
            value = _option(task, name)
            if value not in (None, "host"):
                yield (
                    (*path, "additional_docker_run_options"),
                    f"`{name} {value}`: the other nodes reach this container at the address of its node, which it"
                    " does not have in that network; remove it, or write `--net=host`",
                )


def _gang_user(subject: Subject) -> Found:
    for path, job, task in subject.tasks:
        gang = task.multi_instance
        if gang is None or gang.coordination_command or not task.docker_image:
            continue
        user = _option(task, "--user") or _option(task, "-u")
        where: Path = (*path, "additional_docker_run_options")
        owner_path, identity = (path, task.user_identity) if task.user_identity else (path[:2], job.user_identity)
        if user is None and identity is not None and identity.specific_user is not None:
            user, where = str(identity.specific_user.uid), (*owner_path, "user_identity", "specific_user")
        if user is not None and user.partition(":")[0] not in ("0", "root"):
            advice = "remove it, or start your own server in `coordination_command`"
            yield where, f"the sshd of the container needs root to start the ranks, and user {user} is not; {advice}"


def _ports(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        for number, mapping in enumerate(task.ports):
            fine = re.fullmatch(PUBLISHED, mapping) is not None
            if not fine or any(int(port) > LAST_PORT for port in re.findall(r"[0-9]{5,}", mapping)):
                message = "is not a port; write PORT, PORT:PORT (the node's, then the container's) or PORT/udp"
                yield (*path, "ports", number), f"`{mapping}` {message}"


# --- users ----------------------------------------------------------------------------------------------------------


Runs = Task | JobManager | JobPreparation | JobRelease


def _identities(subject: Subject) -> Iterator[tuple[Path, UserIdentity, Runs | None]]:
    for path, job in subject.jobs:
        if job.user_identity is not None:
            yield (*path, "user_identity"), job.user_identity, None
        for name, part in job.parts:
            if part.user_identity is not None:
                yield (*path, name, "user_identity"), part.user_identity, part
    for path, _, task in subject.tasks:
        if task.user_identity is not None:
            yield (*path, "user_identity"), task.user_identity, task


def _one_identity(subject: Subject) -> Found:
    for path, who, _ in _identities(subject):
        kinds = {
            "default_pool_admin": who.default_pool_admin,
            "specific_user": who.specific_user is not None,
            "auto_user": who.auto_user is not None,
            "username": who.username is not None,
        }
        present = [name for name, is_present in kinds.items() if is_present]
        if len(present) > 1:
            yield path, f"{' and '.join(f'`{name}`' for name in present)} are given; a task runs as one user"


def _known_user(subject: Subject) -> Found:
    names = tuple(account.name for account in subject.pool.user_accounts)
    for path, who, _ in _identities(subject) if subject.recipe.pool else ():
        if who.username is not None and who.username not in names:
            message = f"the pool's `user_accounts` have no `{who.username}`{subject.nearest(who.username, names)}"
            yield (*path, "username"), message


def _user_in_container(subject: Subject) -> Found:
    for path, who, task in _identities(subject):
        if who.specific_user is not None and task is not None and not task.docker_image:
            message = "a user id applies to containers; this task has no container, so it has no effect"
            yield (*path, "specific_user"), message


_SETTINGS = "azure-batch 15.1, BatchTaskContainerSettings"
_DOCKER = "docker run: --shm-size"

RULES = (
    Rule("container-processors", ERROR, BOTH, "A recipe's image is made for the nodes' processors.",
         "azure_batch: sizes; PyPI", _processors),
    Rule("image-for-cpus", WARNING, BOTH, "The image of a task on nodes with GPUs is no build for CPUs.",
         "docker/ of batchtrain: the tags of its images", _for_cpus),
    Rule("image-not-listed", ERROR, (*GLOBAL, *JOBS), "A task's image is fetched by the nodes.",
         "Batch Shipyard: `global_resources.docker_images`", _listed),
    Rule("image-name", ERROR, (*GLOBAL, *JOBS), "The name of a container image has the syntax of container engines.",
         "distribution/reference: grammar", _image_names),
    Rule("image-registry", WARNING, GLOBAL, "The image of a recipe is in a registry (not with --local).",
         "docker/README.md", _unpublished),
    Rule("singularity-not-listed", ERROR, (*GLOBAL, *JOBS), "A task's Apptainer image is fetched by the nodes.",
         "Batch Shipyard: `global_resources.singularity_images`", _singularity_listed),
    Rule("image-both", ERROR, JOBS, "A task runs in one container.",
         "Batch Shipyard: docker_image xor singularity_image", _one_image),
    Rule("singularity-windows", ERROR, BOTH, "Apptainer runs on Linux nodes.", "Apptainer: installation",
         _windows_singularity),
    Rule("host-task", WARNING, (*GLOBAL, *POOL, *JOBS), "Every task of a container pool runs in a container.",
         "azure-batch 15.1, VirtualMachineConfiguration.containerConfiguration", _host_tasks),
    Rule("container-only", WARNING, JOBS, "Settings of containers are given to tasks that run in one.", _SETTINGS,
         _container_only),
    Rule("entrypoint-arguments", ERROR, JOBS, "An entry point is a program without arguments.",
         "docker run: --entrypoint", _entrypoints),
    Rule("engine-inside", WARNING, JOBS, "A command in a container starts no container.",
         "Docker: Engine (a container has no daemon); Azure Batch: the service starts the container of a task",
         _engine_inside),
    Rule("gang-directory", WARNING, JOBS, "The containers of a gang have the task's directory.",
         f"{_SETTINGS}.containerHostBatchBindMounts", _gang_directory),
    Rule("registry-unknown", ERROR, (*CREDENTIALS, *JOBS), "The registry of a task is listed in the credentials.",
         f"{_SETTINGS}.registry", _unknown_registry),
    Rule("registry-misspelt", WARNING, (*CREDENTIALS, *GLOBAL, *JOBS),
         "The registry of an image does not differ by one letter from a registry with a login.",
         "azure-batch 15.1, ContainerRegistryReference.registryServer", _registry_misspelt),
    Rule("registry-login", WARNING, (*CREDENTIALS, *GLOBAL, *JOBS), "Registries to log in to have a login.",
         "azure-batch 15.1, ContainerRegistryReference", _registry_login),
    Rule("fallback-registry", ERROR, SETTINGS, "The fallback registry has the syntax SERVER[/PATH].",
         "distribution/reference: grammar", _fallback_name),
    Rule("fallback-registry-unused", WARNING, (*CREDENTIALS, *GLOBAL, *POOL, *SETTINGS),
         "The fallback registry is set only where it is used.",
         "azure-batch 15.1, ContainerConfiguration.containerImageNames", _fallback_unused),
    Rule("shm-size", ERROR, JOBS, "The shared memory is a number with a unit, such as `8g`.", _DOCKER, _shm_format),
    Rule("shm-small", WARNING, BOTH, "The shared memory is large enough for the processes of a node.",
         "Batch Shipyard issue 8; NCCL: Shared memory", _shm_small),
    Rule("shm-twice", WARNING, JOBS, "The size of the shared memory is set only once.", _DOCKER, _shm_twice),
    Rule("gpus-chosen", WARNING, JOBS, "Only containers that Batch runs can use some of the GPUs of a node.",
         "Azure Batch node agent: GPUs are added to containers by the service; NVIDIA Container Toolkit:"
         " NVIDIA_VISIBLE_DEVICES", _gpus_chosen),
    Rule("gpus-impossible", ERROR, BOTH, "GPUs are requested only for sizes that have them.",
         "Azure: Sizes for virtual machines", _gpus_possible),
    Rule("gpus-too-many", ERROR, BOTH, "At most the GPUs of a node are requested.",
         "Azure: Sizes for virtual machines", _gpus_too_many),
    Rule("container-options", WARNING, JOBS, "Options of the container engine that Batch sets are not set by the user.",
         f"{_SETTINGS}.containerRunOptions", _own_options),
    Rule("plain-docker", ERROR, POOL, "Batch itself runs the containers of a pool.", "ADR 35", _plain_docker),
    Rule("gang-network", WARNING, JOBS, "The containers of a gang have the network of their nodes.",
         "Azure Batch: Use multi-instance tasks (AZ_BATCH_HOST_LIST)", _gang_network),
    Rule("gang-user", ERROR, JOBS, "The containers of a gang run as root, because their sshd needs it.",
         "docker/README.md; sshd(8)", _gang_user),
    Rule("ports", ERROR, JOBS, "A port mapping has the syntax of `docker run --publish`.", "docker run: --publish",
         _ports),
    Rule("user-identity", ERROR, JOBS, "A task runs as one user.", "azure-batch 15.1, UserIdentity", _one_identity),
    Rule("user-unknown", ERROR, BOTH, "The named user of a task is a user of the pool.",
         "azure-batch 15.1, UserIdentity.username", _known_user),
    Rule("user-host", WARNING, JOBS, "A user id is set only for tasks in a container.", "docker run: --user",
         _user_in_container),
)  # fmt: skip
