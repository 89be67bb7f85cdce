"""Builds the pool's start task: the user's lines, the lines of batchtrain between them, files and data."""

from __future__ import annotations

from batchtrain.catalog import fit
from batchtrain.config import node_preparation
from batchtrain.config.image_names import below
from batchtrain.config.types import Pool, Recipe
from batchtrain.errors import PlanError, Problem
from batchtrain.launchers import preparation
from batchtrain.launchers.launch import Implicit
from batchtrain.launchers.preparation import Fstab, Image, Login, Preparation, Sif
from batchtrain.launchers.variables import MULTI_NODE_NVLINK
from batchtrain.plan import inputs, wire

WHERE = "pool_specification"
INPUT = ".batchtrain/input"

_OF_DOCKER = "docker://"


def start_task(
    recipe: Recipe, pool: Pool, *, images: tuple[str, ...], mounts: tuple[Fstab, ...], windows: bool, native: bool
) -> tuple[wire.StartTask | None, tuple[Implicit, ...], tuple[Problem, ...]]:
    """What a node runs as root when it joins, with implicit settings and warnings. images: those that Batch does not
    fetch itself. native: Batch runs the tasks in containers.

    Raises PlanError if it is too long for one request.
    """
    prep = pool.additional_node_prep
    data = inputs.fetched(recipe, pool.input_data.azure_storage, INPUT)
    todo, variables = _own(recipe, pool, images, mounts, data) if not windows else (Preparation(), ())
    todo, by_size = (todo, ()) if windows else _fitting_size(recipe, pool, todo, native=native)
    ours = preparation.own(todo)
    files = inputs.resource_files(pool.resource_files) + tuple(file for item in data for file in item.files)
    commands = (*prep.commands.pre, *prep.commands.post)
    if not (commands or ours or files):
        return None, (), ()
    if reserved := next((name for name in prep.environment_variables if name.startswith("BATCHTRAIN_")), None):
        raise PlanError(f"`additional_node_prep` sets {reserved}; names with BATCHTRAIN_ are the product's own")
    text = _text(pool, has_preparation=bool(ours), windows=windows)
    more_than_images = todo._replace(docker_images=(), images=(), logins=(), fallback=False) != Preparation()
    waits, implicit = _waits(pool, has_preparation=bool(commands or files or more_than_images))
    task = wire.StartTask(
        command_line=preparation.WINDOWS if windows else preparation.LINUX,
        user_identity=wire.POOL_ADMIN,
        environment_settings=inputs.environment(
            prep.environment_variables,
            (
                *variables,
                *((wire.Environment(name=preparation.OWN, value=_fitting(ours)),) if ours else ()),
                wire.Environment(name=preparation.SCRIPT, value=text),
            ),
            vault_id=prep.environment_variables_keyvault_secret_id,
        ),
        resource_files=files,
        max_task_retry_count=prep.max_task_retries,
        wait_for_success=waits,
    )
    if (todo.images or todo.logins) and "singularity" not in todo.runtimes:
        because = "there are Apptainer images; it is installed where the node has neither it nor Singularity"
        name = "container_runtimes.install"
        implicit = (*implicit, Implicit(name, "singularity", because, "apptainer-installed", WHERE))
    return task, (*implicit, *by_size), _warnings(todo)


def _fitting_size(
    recipe: Recipe, pool: Pool, todo: Preparation, *, native: bool
) -> tuple[Preparation, tuple[Implicit, ...]]:
    """The preparation with what gangs need on nodes of the pool's size."""
    size = recipe.catalog.size(pool.vm_size)
    if size is None or not pool.inter_node_communication_enabled:
        return todo, ()
    implicit = []
    if locks_memory := size.rdma == "sr-iov" and not native:
        because = "InfiniBand needs it, and a task has the limit of the agent, which limits.conf leaves low"
        implicit.append(Implicit("start task", "raises the limit of locked memory", because, "locked-memory", WHERE))
    if joins_imex := size.family in MULTI_NODE_NVLINK:
        because = f"NVLink connects nodes of {size.family} only within an IMEX domain"
        implicit.append(Implicit("start task", "prepares IMEX", because, "imex-domain", WHERE))
    return todo._replace(locks_memory=locks_memory, joins_imex=joins_imex), tuple(implicit)


def _text(pool: Pool, *, has_preparation: bool, windows: bool) -> str:
    commands = pool.additional_node_prep.commands
    if message := node_preparation.overlong(commands):
        raise PlanError(f"{WHERE}.additional_node_prep.commands: {message}")
    if windows:
        return preparation.windows(commands.pre, commands.post)
    return preparation.linux(commands.pre, commands.post, prepares=has_preparation)


def _fitting(text: str) -> str:
    if len(text.encode()) > node_preparation.LARGEST:
        raise PlanError(
            f"the implicit preparation of a node (images to fetch, volumes to mount) has {len(text.encode()):,}"
            " bytes, and"
            f" {node_preparation.LARGEST:,} fit into a request; list fewer of them"
        )
    return text


def _own(
    recipe: Recipe, pool: Pool, images: tuple[str, ...], mounts: tuple[Fstab, ...], data: tuple[inputs.Fetched, ...]
) -> tuple[Preparation, tuple[wire.Environment, ...]]:
    logins, passwords = _logins(recipe)
    sifs, keys = _sifs(recipe)
    todo = Preparation(
        mounts=mounts,
        nvidia_driver=_driver(recipe, pool),
        runtimes=pool.container_runtimes.install,
        docker_user=pool.ssh.username if pool.ssh and pool.ssh.allow_docker_access else "",
        docker_images=tuple(Image(name, _copy_of(recipe, name)) for name in images),
        logins=logins if sifs or recipe.resources.additional_registries.singularity else (),
        images=sifs,
        moves=inputs.moves(data),
        fallback=bool(recipe.settings.fallback_registry),
    )
    return todo, (passwords if todo.logins else ()) + keys


def _driver(recipe: Recipe, pool: Pool) -> str:
    """The driver to install; empty without one, and on a size that cannot use it."""
    source = (pool.gpu.nvidia_driver.source or "") if pool.gpu else ""
    return source if fit.takes_nvidia_driver(recipe.catalog.size(pool.vm_size)) else ""


def _copy_of(recipe: Recipe, image: str) -> str:
    """An image's name in the fallback registry; empty without one."""
    registry = recipe.settings.fallback_registry
    return below(registry, image) if registry else ""


def _logins(recipe: Recipe) -> tuple[tuple[Login, ...], tuple[wire.Environment, ...]]:
    logins, passwords = [], []
    for number, (server, registry) in enumerate(recipe.credentials.singularity_registry.items()):
        name = f"{node_preparation.GIVEN}PASSWORD_{number}"
        logins.append(Login(server, registry.username or "", name))
        passwords.append(wire.Environment(name=name, value=wire.later("singularity", server)))
    return tuple(logins), tuple(passwords)


def _sifs(recipe: Recipe) -> tuple[tuple[Sif, ...], tuple[wire.Environment, ...]]:
    sifs, keys = [], list[wire.Environment]()
    for image in recipe.resources.singularity_images.unsigned:
        name = image.image.removeprefix(_OF_DOCKER)
        copy = _copy_of(recipe, name) if name != image.image else ""  # `apptainer pull` converts container images only
        sifs.append(Sif(image.image, copy=copy and f"{_OF_DOCKER}{copy}"))
    for image in recipe.resources.singularity_images.signed:
        if (key := image.signing_key) is None:
            raise PlanError(f"the signed image {image.image} has no `signing_key`; give its `fingerprint`")
        name = f"{node_preparation.GIVEN}KEY_{len(keys)}" if key.file else ""
        sifs.append(Sif(image.image, key.fingerprint, name))
        if key.file:
            keys.append(wire.Environment(name=name, value=wire.later("file", key.file)))
    return tuple(sifs), tuple(keys)


def _waits(pool: Pool, *, has_preparation: bool) -> tuple[bool, tuple[Implicit, ...]]:
    """Whether tasks wait for the start task. Only the fetching of images may run in the background: tasks need
    everything that the user prepares, downloads or mounts."""
    if pool.block_until_all_global_resources_loaded or not has_preparation:
        return pool.block_until_all_global_resources_loaded, ()
    name, because = "block_until_all_global_resources_loaded", "tasks need the pool's own preparation"
    return True, (Implicit(name, "true", because, "own-preparation-waits", WHERE),)


def _warnings(todo: Preparation) -> tuple[Problem, ...]:
    if not todo.logins:
        return ()
    servers = ", ".join(login.server for login in todo.logins)
    where, path = "in the environment of the start task", "global_resources.singularity_images"
    text = f"the password of {servers} is {where}; every user who can read the pool can read it"
    hint = "Use a token that can only pull, and that ends."
    return (Problem("password-on-nodes", text, level="warning", path=path, hint=hint),)
