"""What the tasks of one job share: looked up once per job, not once per task."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from batchtrain.catalog.meaning import MIX
from batchtrain.catalog.sizes import VmSize
from batchtrain.config import travel
from batchtrain.config.ids import project_id
from batchtrain.config.types import Job, Recipe
from batchtrain.plan.image import seems_windows
from batchtrain.plan.types import Facts, PoolFacts, Sources

Value = TypeVar("Value")


class Frame(NamedTuple):
    """A job and the nodes it will find."""

    recipe: Recipe
    job: Job
    path: str
    """The job's path in the configuration."""
    pool: PoolFacts | None
    """The living pool; None offline, and for a pool that is made with the job."""
    size: VmSize | None
    inter_node: bool
    link: str | None
    """The storage account through which files travel; None: inside the request."""
    sources: Sources
    facts: Facts
    project: str
    """The id of the recipe's project."""
    windows: bool
    acting: bool = False
    filling: bool = False
    """What the job does with `exit_conditions`, as `exits.conditions` takes it."""
    swept: bool = False
    """Whether a factory makes the task, and all its tasks share their files."""


def frame(recipe: Recipe, job: Job, path: str, facts: Facts, sources: Sources) -> Frame:
    """The frame of a job; a pool of its own is known from the pool file alone."""
    pool = None if job.auto_pool is not None else facts.pool
    vm_size = pool.vm_size if pool else MIX
    if vm_size.upper() == MIX.upper():  # the sizes of a mix have the same hardware
        vm_size = recipe.pool.vm_size if recipe.pool else ""
    return Frame(
        recipe,
        job,
        path,
        pool,
        recipe.catalog.size(vm_size),
        pool.inter_node if pool else bool(recipe.pool and recipe.pool.inter_node_communication_enabled),
        recipe.settings.storage_account_settings if travel.through_storage(recipe) else None,
        sources,
        facts,
        facts.project or project_id(recipe.directory),
        seems_windows(recipe),
    )


def either(mine: Value | None, jobs: Value | None) -> Value | None:
    """The value of a task, otherwise that of its job."""
    return mine if mine is not None else jobs
