"""An account of the emulator: connects to it, gives it files and images, and refuses what cannot run on it."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from azure.core.credentials import AccessToken

from batchtrain.catalog.vm_images import DOCKER, Image
from batchtrain.client.late_values import Placeholders
from batchtrain.config.travel import BLOB_STORE, LargeSource
from batchtrain.config.types import (
    Job,
    JobManager,
    JobPreparation,
    JobRelease,
    Recipe,
    Secret,
    StorageCredentials,
    Task,
)
from batchtrain.emulator import mapped_images, own_catalog, server, tokens, wire
from batchtrain.emulator.interface import SIMULATED
from batchtrain.emulator.local_service import account_dir, emulator_directory, emulator_faults, use
from batchtrain.emulator.machine import azurite
from batchtrain.emulator.server import Status
from batchtrain.errors import PlanError, Unreachable, UsageError
from batchtrain.frameworks.mpi import MPIS
from batchtrain.plan.wire import Placeholder
from batchtrain.service.connect import Account, OwnTokens
from batchtrain.storage import large_source

_BRINGS_PROGRAMS = re.compile(r"(?:^|[\s;&|(])(?:source|\.|eval|module|conda|spack)\s|(?<![A-Za-z_])PATH=")
"""Settings that may put a program on the PATH before a launch."""


def emulated(environment: Mapping[str, str], label: str = "") -> Account:
    """An account of the emulator, by default the first one; starts its emulator if it is not running."""
    home = account_dir(emulator_directory(environment), label)
    use(home)
    settings = server.Settings(home, port=0)
    with emulator_faults():
        status, has_started = server.ensure(settings._replace(account=label) if label else settings)
    return _account(home, status, has_started)._replace(label=label)


def running(home: str) -> Account | None:
    """The account of the emulator of a data directory; None if it is not running."""
    with emulator_faults():
        status = server.status(Path(home))
    return _account(Path(home), status, False) if status else None


def _account(home: Path, status: Status, started: bool) -> Account:
    return Account(
        status.endpoint,
        status.account,
        key := Secret(status.key),
        emulated=True,
        started=started,
        home=str(home),
        token=OwnTokens(status.account, key, issued),
        plain_nodes=status.plain_nodes,
        plain_nodes_remedy=status.plain_nodes_remedy,
        data_loss=status.data_loss,
        ca=status.certificate or None,
        lost=partial(server.lost, home, status.endpoint),
    )


def issued(key: str, account: str) -> AccessToken:
    """A token of the emulator for Batch. Some operations need one: for a pool with a subnet, for example, neither Azure
    nor the emulator accepts a shared key. It is short-lived, because it travels over http to any process that has the
    emulator's port."""
    now, life = server.clock(), tokens.OWN_LIFE_SECONDS
    return AccessToken(tokens.issue(key, account, wire.AUDIENCE, now, life), tokens.seconds(now) + life)


def storage(account: Account, say: Callable[[str], None]) -> StorageCredentials:
    """The storage account of the emulator: Azurite, installed and started at its first use. Raises UsageError, with the
    reason, if this machine cannot run it. say: receives the message about an installation."""
    with emulator_faults():
        azurite.install(azurite.find_node(), say)
        own = server.storage(server.at(Path(account.home)))
    return StorageCredentials(account=own.account, account_key=Secret(own.key), endpoint=own.endpoint)


def emulator_quotas(account: Account) -> dict[str, int]:
    """The quotas that an account of the emulator has."""
    if not account.home:
        return {}
    with emulator_faults():
        quotas: dict[str, int] = server.ask("GET", server.at(Path(account.home)), "status")["quotas"]
    return quotas


def login(account: Account, node_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How this machine runs commands on a node of the emulator: the words of `ssh`, and of the relay to a port."""
    if not account.home:
        raise UsageError("this emulator runs under another user or on another machine; log in there")
    with emulator_faults():
        answer = server.ask("GET", server.at(Path(account.home)), f"login/{node_id}")
    return tuple(answer["ssh"]), tuple(answer["relay"])


def blob_store(account: Account) -> str:
    """The storage link for task files that the emulator keeps. Empty for Azure."""
    return BLOB_STORE if account.emulated and account.home else ""


class Kept:
    """Fills placeholders and uploads files as `values` does, except for files that the emulator keeps."""

    def __init__(self, values: Placeholders, account: Account) -> None:
        self._values, self._account = values, account
        self._links: dict[str, str] = {}

    def upload(self, path: str, data: bytes | LargeSource) -> bool:
        """Put bytes at `link/container/name`, or at `_local/JOB/NAME`; returns whether they were sent. Raises
        Unreachable."""
        if not path.startswith(f"{BLOB_STORE}/"):
            return self._values.upload(path, data)
        try:
            with contextlib.ExitStack() as stack, emulator_faults():
                to = server.at(Path(self._account.home))
                blob = f"blob_store/{path.removeprefix(BLOB_STORE)[1:]}"
                if isinstance(data, LargeSource):
                    file = stack.enter_context(large_source.packed(data, Path(path).name))
                    content: bytes | BinaryIO = stack.enter_context(file.open("rb"))
                else:
                    content = data
                self._links[path] = server.ask("PUT", to, blob, content=content)["url"]
        except OSError as error:
            raise Unreachable(
                f"the emulator did not accept the file: {error}", operation="upload the task's files"
            ) from None
        return True

    def fill(self, placeholder: Placeholder) -> str | Secret:
        """The value of a placeholder, as Placeholders gives it."""
        link = self._links.get(placeholder.name.partition("?")[0]) if placeholder.kind == "sas" else None
        return link or self._values.fill(placeholder)


OWN_IMAGE = "batchtrain/this-python"
"""The name of the environment of this process on the emulator, where an image is expected."""


def own_environment(account: Account) -> str | None:
    """The image that stands for the Python environment of this process on the emulator; None for Azure."""
    if not account.emulated or not account.home:
        return None
    mapped_images.map_image(Path(account.home), OWN_IMAGE, Path(sys.prefix))
    return OWN_IMAGE


def add_catalog(recipe: Recipe, account: Account) -> None:
    """Give the emulator the VM sizes and images of a recipe that the tables lack: those of its catalog.yaml, and an
    image whose node agent the recipe names."""
    catalog = recipe.catalog
    images = (*catalog.own_images, *_vouched(recipe))
    if account.emulated and account.home and (catalog.own_sizes or images):
        own_catalog.add(Path(account.home), catalog.own_sizes, images)


def _vouched(recipe: Recipe) -> tuple[Image, ...]:
    """The marketplace image of the recipe, if only the recipe names its node agent."""
    choice = recipe.pool.vm_configuration.platform_image if recipe.pool else None
    if choice is None or not choice.node_agent or recipe.catalog.image(choice.publisher, choice.offer, choice.sku):
        return ()
    agents = {image.node_agent: image.os for image in recipe.catalog.images}
    reference = (choice.publisher.lower(), choice.offer.lower(), choice.sku.lower())
    return (Image(*reference, choice.node_agent, agents.get(choice.node_agent, "linux"), frozenset({DOCKER})),)


def refuse(recipe: Recipe, account: Account) -> None:
    """Raise PlanError for tasks that the emulator cannot run, before anything is created for them."""
    if account.emulated and account.home:
        for job in recipe.jobs:
            for number, task in enumerate(job.tasks):
                if reason := _refusal(task, recipe, account) or _without_mounts(task, job, recipe, account):
                    raise PlanError(f"job {job.id}, task {task.id or number}: {reason}")
        _refuse_unmapped(recipe, account)
        _refuse_old_environments(recipe, account)


def _refuse_old_environments(recipe: Recipe, account: Account) -> None:
    """Refuse environments made by batchtrain that are without the packages that the source of the recipe lists."""
    images = dict.fromkeys(task.docker_image for job in recipe.jobs for task in job.tasks if task.docker_image)
    prefixes = {image: prefix for image in images if (prefix := mapped_images.prefix_of(Path(account.home), image))}
    if not prefixes:
        return
    from batchtrain.config import source_packages  # packaging: 10 ms, and only for a mapped image

    for image, prefix in prefixes.items():
        package_lists = source_packages.of_recipe(recipe, image)
        if source_packages.lacks(Path(prefix), package_lists):
            files = " and ".join(str(packages.path) for packages in package_lists)
            raise PlanError(
                f"the local environment of {image} does not have the packages that {files} lists now:"
                f" `batchtrain images env {shlex.quote(recipe.directory)}` installs them"
            )


def _refuse_unmapped(recipe: Recipe, account: Account) -> None:
    """Refuse images without a local environment if there is no Docker Engine."""
    home = Path(account.home)
    first_image = next(
        (
            (f"job {job.id}, {where}", part.docker_image)
            for job in recipe.jobs
            for where, part in _parts(job)
            if part is not None and part.docker_image and mapped_images.prefix_of(home, part.docker_image) is None
        ),
        None,
    )
    if first_image is None:
        return
    if recipe.pool is not None and recipe.pool.metadata.get(SIMULATED) == "simulated":
        return  # its nodes only keep time
    with emulator_faults():
        missing = server.ask("GET", server.at(home), "engine")["missing"]
    if missing:
        raise PlanError(f"{first_image[0]}: {mapped_images.unserved(first_image[1], missing, recipe.directory)}")


def _parts(job: Job) -> Iterator[tuple[str, Task | JobManager | JobPreparation | JobRelease | None]]:
    """The parts of a job that may run in a container."""
    yield from ((f"task {task.id or number}", task) for number, task in enumerate(job.tasks))
    yield "merge task", job.merge_task
    yield "job manager", job.job_manager
    yield "preparation", job.job_preparation
    yield "release", job.job_release


def _refusal(task: Task, recipe: Recipe, account: Account) -> str:
    home, image = Path(account.home), task.docker_image
    prefix = mapped_images.prefix_of(home, image) if image else None
    if image and prefix and (problem := mapped_images.problem(Path(prefix))):
        return mapped_images.unusable(image, prefix, problem)
    launcher = mpi_launcher(task)
    if launcher is None or (image and not prefix):
        return ""  # no MPI, or one in a Docker container
    runtime, executable = launcher
    mpi = MPIS.get(runtime)
    if mpi is not None and mpi.by_host_name and account.plain_nodes and _spans_nodes(task, recipe):
        return (
            f"{mpi.library} cannot run across the nodes of this emulator, because they share one host name:"
            f" they are plain processes of this machine ({account.plain_nodes}; {account.plain_nodes_remedy})"
        )
    path = f"{prefix}/bin:{mapped_images.MACHINES_PATH}"
    if image and prefix and executable and shutil.which(executable, path=path) is None:
        return mapped_images.unusable(image, prefix, f"has no bin/{executable}, which the launch of the task needs")
    return ""


def _without_mounts(task: Task, job: Job, recipe: Recipe, account: Account) -> str:
    """Why plain process nodes cannot show the directories of a task's image; empty if they need not."""
    if not account.plain_nodes or not task.docker_image:
        return ""
    if (mapping := mapped_images.mapped(Path(account.home), task.docker_image)) is None:
        return ""
    volumes = recipe.resources.volumes
    volumes_of_task = (
        *(volumes.data_volumes.get(alias) for alias in (*job.data_volumes, *task.data_volumes)),
        *(volumes.shared_data_volumes.get(alias) for alias in (*job.shared_data_volumes, *task.shared_data_volumes)),
    )
    targets = [volume.container_path for volume in volumes_of_task if volume and volume.container_path]
    if not (directories := [*mapping.paths, *targets]):
        return ""
    return mapped_images.impossible(directories, account.plain_nodes, account.plain_nodes_remedy)


def _spans_nodes(task: Task, recipe: Recipe) -> bool:
    """Whether a gang has several nodes, as far as known from the recipe."""
    instances = task.multi_instance.num_instances if task.multi_instance else 1
    if isinstance(instances, int):
        return instances > 1
    count = recipe.pool.vm_count if recipe.pool else None
    return count is None or count.total > 1


def mpi_launcher(task: Task) -> tuple[str, str] | None:
    """The MPI dialect and the launcher of an MPI task; the launcher is empty if only a shell can find it."""
    gang = task.multi_instance
    if gang is None:
        return None
    block = gang.mpi or (gang.horovod if gang.horovod is not None and gang.horovod.over == "mpi" else None)
    if block is None:
        return None
    is_plain = not _BRINGS_PROGRAMS.search(gang.pre_execution_command or "") and "$" not in block.executable_path
    return block.runtime, block.executable_path if is_plain else ""
