"""Rules across properties and files: one small function a rule, each with a name, in one table; no reading.

A rule reads a Recipe (and the catalogue) and yields findings with the path they are about. Every rule can be silenced
by its name, with `--ignore NAME` or `batchtrain.ignore_checks` in config.yaml.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from batchtrain.catalog import images, sizes
from batchtrain.config.types import ID, INSTANCES, Job, MultiInstance, Pool, Recipe, Task, whole

Path = tuple[str | int, ...]
POOL: Path = ("pool_specification",)
INTER_NODE_LIMIT = 100  # nodes of an inter-node pool in Batch-service accounts (batch-quota-limit.md)


class Finding(NamedTuple):
    """What a rule has to say about one place."""

    rule: str
    level: str
    path: Path
    message: str


Found = Iterator[tuple[Path, str]]


class Rule(NamedTuple):
    """A named check: its level, the sections it reads, what it is about in a sentence, and the function."""

    name: str
    level: str
    reads: tuple[str, ...]
    sentence: str
    find: Callable[[Recipe], Found]


def run(recipe: Recipe, broken: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Every finding of every rule, but of those that read a section which could not be read."""
    for rule in RULES:
        if broken.intersection(rule.reads):
            continue
        for path, message in rule.find(recipe):
            yield Finding(rule.name, rule.level, path, message)


# --- what rules walk over -------------------------------------------------------------------------------------------


def _jobs(recipe: Recipe) -> Iterator[tuple[Path, Job]]:
    for number, job in enumerate(recipe.jobs):
        yield ("job_specifications", number), job


def _tasks(recipe: Recipe) -> Iterator[tuple[Path, Job, Task]]:
    for path, job in _jobs(recipe):
        for number, task in enumerate(job.tasks):
            yield (*path, "tasks", number), job, task


def _gangs(recipe: Recipe) -> Iterator[tuple[Path, MultiInstance, Task]]:
    for path, _, task in _tasks(recipe):
        if task.multi_instance is not None:
            yield (*path, "multi_instance"), task.multi_instance, task


def native(pool: Pool) -> bool:
    """Whether the pool file asks for Batch's own container support."""
    image = pool.vm_configuration.platform_image or pool.vm_configuration.custom_image
    return image is not None and image.native


# --- the pool -------------------------------------------------------------------------------------------------------


def _one_image(recipe: Recipe) -> Found:
    if recipe.pool is None:
        return
    vm = recipe.pool.vm_configuration
    path = (*POOL, "vm_configuration")
    if vm.platform_image is None and vm.custom_image is None:
        yield path, "no image is named; give `platform_image` or `custom_image`"
    if vm.platform_image is not None and vm.custom_image is not None:
        yield path, "both `platform_image` and `custom_image` are given; keep one"


def _known_size(recipe: Recipe) -> Found:
    if recipe.pool is None or sizes.find(recipe.pool.vm_size):
        return
    near = sizes.nearest(recipe.pool.vm_size)
    hint = f"; did you mean {near[0]}?" if near else ""
    yield (
        (*POOL, "vm_size"),
        f"the VM size `{recipe.pool.vm_size}` is not in the catalogue{hint}"
        " (`--ignore vm-size-unknown` uses it all the same, without implicit GPUs and InfiniBand)",
    )


def _size_retired(recipe: Recipe) -> Found:
    size = sizes.find(recipe.pool.vm_size) if recipe.pool else None
    if size is None or size.retired is None:
        return
    yield (*POOL, "vm_size"), f"{size.name}: Azure's retirement date is {size.retired}. {sizes.today_for(size).reason}"


def _image_retired(recipe: Recipe) -> Found:
    wanted = recipe.pool.vm_configuration.platform_image if recipe.pool else None
    if wanted is None:
        return
    path = (*POOL, "vm_configuration", "platform_image")
    image = images.find(wanted.publisher, wanted.offer, wanted.sku)
    if image is None:
        yield path, f"the image {wanted.publisher}:{wanted.offer}:{wanted.sku} is not in the catalogue"
    elif image.retired is not None:
        today = f"; use {image.replacement}" if image.replacement else ""
        yield (
            path,
            f"{wanted.publisher}:{wanted.offer}:{wanted.sku}: its retirement date is {image.retired}{today}",
        )


def _mixed(recipe: Recipe) -> Found:
    pool = recipe.pool
    if pool and pool.inter_node_communication_enabled and pool.vm_count.dedicated and pool.vm_count.low_priority:
        yield (
            (*POOL, "vm_count"),
            ("a pool with inter-node communication cannot mix dedicated and spot nodes; set one of them to 0"),
        )


def _too_many_nodes(recipe: Recipe) -> Found:
    pool = recipe.pool
    if pool and pool.inter_node_communication_enabled:
        nodes = pool.vm_count.dedicated + pool.vm_count.low_priority
        if nodes > INTER_NODE_LIMIT:
            yield (
                (*POOL, "vm_count"),
                (f"{nodes} nodes are more than the {INTER_NODE_LIMIT} a pool with inter-node communication may have"),
            )


def _slots(recipe: Recipe) -> Found:
    size = sizes.find(recipe.pool.vm_size) if recipe.pool else None
    if recipe.pool is None or size is None or not size.cores:
        return
    most = min(4 * size.cores, 256)
    if recipe.pool.task_slots_per_node > most:
        yield (*POOL, "task_slots_per_node"), f"{size.name} takes at most {most} (4 a core)"


def _not_yet_pool(recipe: Recipe) -> Found:
    if recipe.pool is None:
        return
    if recipe.pool.ssh is not None:
        yield (*POOL, "ssh"), "no login is made yet; add one with `az batch node user create`"
    if recipe.pool.reboot_on_start_task_failed:
        yield (*POOL, "reboot_on_start_task_failed"), "nodes are not rebooted yet; a failed start task is reported"


def _containers_native(recipe: Recipe) -> Found:
    if recipe.pool is None or native(recipe.pool):
        return
    images_used = recipe.resources.docker_images or tuple(
        task.docker_image for _, _, task in _tasks(recipe) if task.docker_image
    )
    if images_used:
        yield (
            (*POOL, "vm_configuration"),
            (
                "containers are run by Batch itself here, so the pool is planned as if `native: true`;"
                " the image of the nodes must have a container engine"
            ),
        )


# --- jobs and tasks -------------------------------------------------------------------------------------------------


def _duplicate_ids(recipe: Recipe) -> Found:
    seen: set[str] = set()
    for path, job in _jobs(recipe):
        if job.id.lower() in seen:
            yield (*path, "id"), f"another job is called `{job.id}` (ids do not differ by case)"
        seen.add(job.id.lower())
        yield from _duplicate_tasks(path, job)


def _duplicate_tasks(path: Path, job: Job) -> Found:
    seen: set[str] = set()
    for number, task in enumerate(job.tasks):
        if task.id and task.id.lower() in seen:
            yield (*path, "tasks", number, "id"), f"another task of this job is called `{task.id}`"
        if task.id:
            seen.add(task.id.lower())


def _dependencies(recipe: Recipe) -> Found:
    for path, job, task in _tasks(recipe):
        known = {other.id for other in job.tasks}
        for number, wanted in enumerate(task.depends_on):
            if wanted not in known:
                yield (*path, "depends_on", number), f"no task of this job is called `{wanted}`"


def _circles(recipe: Recipe) -> Found:
    for path, job in _jobs(recipe):
        needs = {task.id: set(task.depends_on) for task in job.tasks if task.id}
        while ready := [name for name, wanted in needs.items() if not wanted & needs.keys()]:
            for name in ready:
                del needs[name]
        if needs:
            names = ", ".join(sorted(needs))
            yield (*path, "tasks"), f"these tasks wait for each other, so none would ever start: {names}"


def _made_ids(recipe: Recipe) -> Found:
    for path, job in _jobs(recipe):
        rule = job.autogenerated_task_id or recipe.settings.autogenerated_task_id
        example = rule.prefix + "0" * rule.zfill_width
        if any(task.id is None for task in job.tasks) and not re.search(ID, example):
            yield path, f"the ids made for tasks would be like `{example[:80]}`, which is no valid id"


def _gpus_carried_out(recipe: Recipe) -> Found:
    for path, wanted in _explicit(recipe, "gpus"):
        if wanted not in ("all", "disable"):
            yield path, f"`gpus: {wanted}` is taken as `all`: the service gives a container all GPUs of its node"


def _found_by_the_reader(_recipe: Recipe) -> Found:
    """Rules of the loader, listed here so that they have a name with the others."""
    return iter(())


def _has_command(recipe: Recipe) -> Found:
    for path, _, task in _tasks(recipe):
        if not task.command and (task.multi_instance or not task.docker_image):
            yield path, "the task has no `command`"


def _num_instances(recipe: Recipe) -> Found:
    for path, gang, _ in _gangs(recipe):
        wanted = str(gang.num_instances)
        if (whole(wanted) or 0) >= 1 or wanted in INSTANCES:
            continue
        near = difflib.get_close_matches(wanted, INSTANCES, n=1, cutoff=0.5)
        hint = f"; did you mean `{near[0]}`?" if near else f": a number from 1 up or one of {', '.join(INSTANCES)}"
        yield (*path, "num_instances"), f"`{wanted}` is not a number of instances{hint}"


def _processes(recipe: Recipe) -> Found:
    for path, gang, _ in _gangs(recipe):
        processes = gang.mpi.processes_per_node if gang.mpi else None
        if re.fullmatch(r"-[0-9]+|0+", str(processes)):
            yield (*path, "mpi", "processes_per_node"), f"{processes} processes a node is too few"


def _gang_inter_node(recipe: Recipe) -> Found:
    if recipe.pool and not recipe.pool.inter_node_communication_enabled:
        for path, _, _ in _gangs(recipe):
            yield (
                path,
                (
                    "a multi-instance task needs `inter_node_communication_enabled: true` in the pool;"
                    " without it the task would wait for ever"
                ),
            )


def _gang_slots(recipe: Recipe) -> Found:
    if recipe.pool and recipe.pool.task_slots_per_node > 1:
        for path, _, _ in _gangs(recipe):
            yield (
                path,
                (
                    "a multi-instance task needs `task_slots_per_node: 1`,"
                    f" the pool has {recipe.pool.task_slots_per_node}; the task would wait for ever"
                ),
            )


def _gang_nodes(recipe: Recipe) -> Found:
    if recipe.pool is None:
        return
    count = recipe.pool.vm_count
    for path, gang, _ in _gangs(recipe):
        wanted = str(gang.num_instances)
        if (whole(wanted) or 0) > count.dedicated + count.low_priority:
            yield (
                (*path, "num_instances"),
                (
                    f"{wanted} instances need {wanted} nodes, the pool has {count.dedicated + count.low_priority};"
                    " the task would wait for ever"
                ),
            )
        kind = "low_priority" if wanted.endswith("low_priority") else "dedicated"
        if wanted in INSTANCES and getattr(count, kind) == 0:
            yield (*path, "num_instances"), f"the pool file has no {kind} nodes, so `{wanted}` is 0"


def _image_listed(recipe: Recipe) -> Found:
    for path, job, task in _tasks(recipe):
        image = task.docker_image
        if image and image not in recipe.resources.docker_images and not job.allow_run_on_missing_image:
            yield (
                (*path, "docker_image"),
                (
                    f"the image `{image}` is not in `global_resources.docker_images`, so no node fetches it;"
                    " list it there or set `allow_run_on_missing_image: true` on the job"
                ),
            )


def _infiniband_possible(recipe: Recipe) -> Found:
    size = sizes.find(recipe.pool.vm_size) if recipe.pool else None
    if recipe.pool is None or size is None:
        return
    for path, wanted in _explicit(recipe, "infiniband"):
        if wanted and size.rdma is None:
            yield path, f"`infiniband: true`, but {size.name} has none"
        elif wanted and not recipe.pool.inter_node_communication_enabled:
            yield path, "`infiniband: true` needs `inter_node_communication_enabled: true` in the pool"


def _gpus_possible(recipe: Recipe) -> Found:
    size = sizes.find(recipe.pool.vm_size) if recipe.pool else None
    if size is None or size.gpus:
        return
    for path, wanted in _explicit(recipe, "gpus"):
        if wanted and wanted != "disable":
            yield path, f"`gpus: {wanted}`, but {size.name} has none"


def _explicit(recipe: Recipe, name: str) -> Iterator[tuple[Path, object]]:
    for path, job in _jobs(recipe):
        if getattr(job, name) is not None:
            yield (*path, name), getattr(job, name)
    for path, _, task in _tasks(recipe):
        if getattr(task, name) is not None:
            yield (*path, name), getattr(task, name)


def _storage_link(recipe: Recipe) -> Found:
    link = recipe.settings.storage_account_settings
    if link and link not in recipe.credentials.storage and any(task.source for _, _, task in _tasks(recipe)):
        yield (
            ("batchtrain", "storage_account_settings"),
            (f"credentials.yaml has no storage account `{link}`; the tasks' files travel inside the requests"),
        )


_POOL = ("pool_specification",)
_JOBS = ("job_specifications",)
_BOTH = _POOL + _JOBS
_IMAGES = ("global_resources", *_JOBS)
_ALL = (*_IMAGES, *_POOL)
_STORAGE = ("batchtrain", "credentials", *_JOBS)

RULES: tuple[Rule, ...] = (
    Rule("image-kind", "error", _POOL, "A pool names exactly one kind of image.", _one_image),
    Rule("vm-size-unknown", "error", _POOL, "The VM size is in the catalogue.", _known_size),
    Rule("size-retired", "warning", _POOL, "The VM size is still sold.", _size_retired),
    Rule("image-retired", "warning", _POOL, "The image of the nodes is known and still served.", _image_retired),
    Rule("inter-node-mixed", "error", _POOL, "An inter-node pool has one kind of nodes.", _mixed),
    Rule("inter-node-limit", "error", _POOL, "An inter-node pool has at most 100 nodes.", _too_many_nodes),
    Rule("slots-limit", "error", _POOL, "A node takes at most 4 tasks a core, 256 in all.", _slots),
    Rule("not-yet", "warning", _POOL, "A property that is read but not carried out yet.", _not_yet_pool),
    Rule("containers-native", "warning", _ALL, "Container tasks run on a native container pool.", _containers_native),
    Rule("duplicate-id", "error", _JOBS, "Ids are unique.", _duplicate_ids),
    Rule("unknown-dependency", "error", _JOBS, "A dependency is a task of the same job.", _dependencies),
    Rule("dependency-circle", "error", _JOBS, "No task waits for itself.", _circles),
    Rule("made-ids", "error", ("batchtrain", *_JOBS), "Ids made for tasks are valid.", _made_ids),
    Rule("command-missing", "error", _JOBS, "A task has a command.", _has_command),
    Rule("num-instances", "error", _JOBS, "The number of instances is a number or a known word.", _num_instances),
    Rule("processes-per-node", "error", _JOBS, "At least one process a node.", _processes),
    Rule("gang-inter-node", "error", _BOTH, "Multi-instance tasks need inter-node communication.", _gang_inter_node),
    Rule("gang-slots", "error", _BOTH, "Multi-instance tasks need one task slot a node.", _gang_slots),
    Rule("gang-nodes", "error", _BOTH, "A multi-instance task fits into its pool.", _gang_nodes),
    Rule("image-not-listed", "error", _IMAGES, "A task's image is fetched by the nodes.", _image_listed),
    Rule(
        "infiniband-impossible",
        "error",
        _BOTH,
        "InfiniBand is asked for only where there is some.",
        _infiniband_possible,
    ),
    Rule("gpus-impossible", "error", _BOTH, "GPUs are asked for only where there are some.", _gpus_possible),
    Rule("gpus-chosen", "warning", _JOBS, "GPUs are all or none.", _gpus_carried_out),
    Rule("source-missing", "error", _JOBS, "A task's source is a directory.", _found_by_the_reader),
    Rule("renamed", "warning", _POOL, "A property has today's name.", _found_by_the_reader),
    Rule("storage-link", "warning", _STORAGE, "The storage account of the settings has credentials.", _storage_link),
)
