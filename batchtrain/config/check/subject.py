"""The input of the rules: a recipe, the catalogue, and facts that several rules need, computed once; no rules."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.vm_images import Image
from batchtrain.config import task_resources
from batchtrain.config.link_life import Need, needs
from batchtrain.config.scaling import MostNodes, most_nodes, scaling_of
from batchtrain.config.travel import Survey
from batchtrain.config.types import (
    Autoscale,
    InputData,
    Job,
    MultiInstance,
    Pool,
    Recipe,
    StorageInput,
    StorageOutput,
    Task,
    TaskSettings,
    VmConfiguration,
)
from batchtrain.frameworks.base import Nodes

Path = tuple[str | int, ...]
POOL = ("pool_specification",)
VM: Path = (*POOL, "vm_configuration")
IMAGE: Path = (*VM, "platform_image")
NO_POOL = Pool(id="", vm_size="", vm_configuration=VmConfiguration())
IMAGE_KINDS = ("platform_image", "custom_image", "shared_gallery_image", "community_gallery_image")
MOST_COMPARISONS = 50_000
"""The maximum number of comparisons of names, so that a file full of mistakes does not take minutes."""
LONGEST_READ = 20_000
"""The number of characters of a command in which rules search."""


class Placed(NamedTuple):
    """A task, its job, and the path it is written at."""

    path: Path
    job: Job
    task: Task


class Gang(NamedTuple):
    """A multi-instance task; `path` is that of its `multi_instance`."""

    path: Path
    job: Job
    task: Task
    options: MultiInstance

    @property
    def task_path(self) -> Path:
        return self.path[:-1]

    @property
    def framework(self) -> bool:
        """Whether the node launcher starts it (otherwise mpirun)."""
        return any(isinstance(block, Nodes) for _, block in self.options.launches)

    @property
    def variables(self) -> Iterator[tuple[Path, str, str]]:
        """The environment variables of the task, then those of its job: path, name and value."""
        for path, owner in ((self.task_path, self.task), (self.path[:2], self.job)):
            for name, value in owner.environment_variables.items():
                yield (*path, "environment_variables", name), name, value


class Subject:
    """A recipe for the rules. Each property is computed when it is first used."""

    def __init__(self, recipe: Recipe, sources: Mapping[str, Survey] | None = None) -> None:
        self.recipe = recipe
        self.sources = sources or {}
        self.catalog = recipe.catalog
        self.pool = recipe.pool or NO_POOL
        """The pool; an empty one if the recipe has none."""
        self.vm = self.pool.vm_configuration
        self.autoscale = scaling_of(self.pool)
        self._comparisons = MOST_COMPARISONS

    @cached_property
    def jobs(self) -> tuple[tuple[Path, Job], ...]:
        return tuple((("job_specifications", number), job) for number, job in enumerate(self.recipe.jobs))

    @cached_property
    def tasks(self) -> tuple[Placed, ...]:
        """Every task of every job, merge tasks too."""
        tasks: list[Placed] = []
        for path, job in self.jobs:
            tasks += (Placed((*path, "tasks", number), job, task) for number, task in enumerate(job.tasks))
            if job.merge_task is not None:
                tasks.append(Placed((*path, "merge_task"), job, job.merge_task))
        return tuple(tasks)

    @cached_property
    def commands(self) -> tuple[tuple[Path, str], ...]:
        """Every command of a task."""
        gangs = (
            ((*gang.path, name), getattr(gang.options, name))
            for gang in self.gangs
            for name in ("coordination_command", "pre_execution_command")
        )
        tasks = (((*path, "command"), task.command) for path, _, task in self.tasks)
        return tuple((path, text) for path, text in (*tasks, *gangs) if text)

    @cached_property
    def owners(self) -> tuple[tuple[Path, TaskSettings], ...]:
        """Every job and every task: the owners of properties that a task may inherit from its job."""
        return (*self.jobs, *((path, task) for path, _, task in self.tasks))

    @cached_property
    def input_data(self) -> tuple[tuple[Path, InputData], ...]:
        """The data that nodes download: of the pool, of jobs and of tasks."""
        owners: tuple[tuple[Path, Pool | Job | Task], ...] = (
            (POOL, self.pool), *self.jobs, *((path, task) for path, _, task in self.tasks),
        )  # fmt: skip
        inputs = (((*path, "input_data"), owner.input_data) for path, owner in owners)
        return tuple((path, data) for path, data in inputs if data.azure_storage or data.azure_batch)

    @cached_property
    def inputs(self) -> tuple[tuple[Path, StorageInput], ...]:
        """Every download from storage."""
        return tuple(
            ((*path, "azure_storage", number), blobs)
            for path, data in self.input_data
            for number, blobs in enumerate(data.azure_storage)
        )

    @cached_property
    def outputs(self) -> tuple[tuple[Path, StorageOutput], ...]:
        """Every upload of results: of tasks, and of jobs' managers."""
        owners = [(path, task.output_data) for path, _, task in self.tasks if task.output_data.azure_storage]
        owners += [((*path, "job_manager"), job.job_manager.output_data) for path, job in self.jobs if job.job_manager]
        return tuple(
            ((*path, "output_data", "azure_storage", number), output)
            for path, data in owners
            for number, output in enumerate(data.azure_storage)
        )

    @property
    def transfers(self) -> tuple[tuple[Path, StorageInput | StorageOutput], ...]:
        """Every transfer from or to storage."""
        return (*self.inputs, *self.outputs)

    @cached_property
    def links(self) -> tuple[Need, ...]:
        """The links to storage that pools and jobs need."""
        return tuple(needs(self.recipe))

    @cached_property
    def gangs(self) -> tuple[Gang, ...]:
        return tuple(
            Gang((*path, "multi_instance"), job, task, task.multi_instance)
            for path, job, task in self.tasks
            if task.multi_instance is not None
        )

    @cached_property
    def surveyed(self) -> tuple[tuple[Path, Task, Survey], ...]:
        """Every task with a `source`, and the survey of it."""
        tasks = ((path, task, self.sources.get(task.source or "")) for path, _, task in self.tasks)
        return tuple((path, task, survey) for path, task, survey in tasks if survey is not None)

    # --- the nodes ---

    @cached_property
    def size(self) -> VmSize | None:
        """The catalogue's entry of the pool's VM size."""
        return self.catalog.size(self.pool.vm_size)

    @cached_property
    def image(self) -> Image | None:
        """The catalogue's entry of the pool's marketplace image."""
        reference = self.vm.platform_image
        return self.catalog.image(reference.publisher, reference.offer, reference.sku) if reference else None

    @cached_property
    def node_agent(self) -> str:
        """The node agent of the pool's image; empty if it is unknown."""
        catalog_agent = self.image.node_agent if self.image else ""
        return next((image.node_agent for image in self.vm.images if image.node_agent), catalog_agent)

    @property
    def windows(self) -> bool:
        """Whether the nodes run Windows, as far as known."""
        return "windows" in self.node_agent.lower()

    @property
    def linux(self) -> bool:
        """Whether the nodes run Linux, as far as known."""
        return bool(self.node_agent) and not self.windows

    @cached_property
    def containers(self) -> bool:
        """Whether the pool runs containers: it has `native`, or there are container images."""
        has_images = self.vm.native or bool(self.recipe.resources.docker_images)
        has_images = has_images or any(task.docker_image is not None for _, _, task in self.tasks)
        return has_images and self.recipe.pool is not None

    @cached_property
    def scaling(self) -> Autoscale | None:
        """The autoscale scenario or formula of the pool; None without autoscale, or if neither is given."""
        scales = self.autoscale is not None and (self.autoscale.formula or self.autoscale.scenario is not None)
        return self.autoscale if scales else None

    @cached_property
    def most_nodes(self) -> MostNodes:
        """The maximum number of nodes of the pool file; unknown without one."""
        return most_nodes(self.pool) if self.recipe.pool is not None else MostNodes(None, None)

    @property
    def spot(self) -> bool:
        """Whether the pool may have spot nodes."""
        return self.most_nodes.low_priority != 0

    # --- one task's ---

    def instances(self, gang: Gang) -> int | None:
        """The nodes of a gang, as in the plan; None if unknown."""
        return task_resources.instances(str(gang.options.num_instances), self.recipe.pool)

    def gpus(self, job: Job, task: Task) -> int:
        """GPUs of one node that the task may use; 0 if there are none, they are disabled, or the number is unknown."""
        return task_resources.gpus(job, task, self.size)

    # --- what was meant ---

    def nearest(self, name: str, names: Collection[str]) -> str:
        """`; did you mean ...?` with the most similar known name. Empty if none is similar, or after too many
        comparisons."""
        if len(names) > self._comparisons:
            return ""
        self._comparisons -= len(names)
        plain = {candidate.lower(): candidate for candidate in names}
        near = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
        return f"; did you mean `{plain[near[0]]}`?" if near else ""


def command_of(task: Task) -> str:
    """The part of a task's command that rules read."""
    return (task.command or "")[:LONGEST_READ]
