"""The files as types, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from batchtrain.catalog.offer import Catalog
from batchtrain.config.types.base import Block, says
from batchtrain.config.types.credentials import Credentials
from batchtrain.config.types.jobs import Job, Task
from batchtrain.config.types.pool import Pool
from batchtrain.config.types.settings import DataReplication, GlobalResources, Settings
from batchtrain.errors import Problem


class CredentialsFile(Block, frozen=True, kw_only=True):
    """credentials.yaml: the accounts and their secrets."""

    credentials: Annotated[Credentials, says("Accounts and secrets.")] = Credentials()


class ConfigFile(Block, frozen=True, kw_only=True):
    """config.yaml: what pools and jobs share."""

    batchtrain: Annotated[Settings, says("Settings of the tool (older spelling: batch_shipyard).")] = Settings()
    global_resources: Annotated[GlobalResources, says("What every node gets.")] = GlobalResources()
    data_replication: Annotated[DataReplication | None, says("How nodes share the fetching of images.")] = None


class PoolFile(Block, frozen=True, kw_only=True):
    """pool.yaml: the nodes."""

    pool_specification: Annotated[Pool, says("The pool.")]


class JobsFile(Block, frozen=True, kw_only=True):
    """jobs.yaml: the work."""

    job_specifications: Annotated[tuple[Job, ...], says("The jobs.", min_length=1)]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A whole configuration as types; absent sections are None or empty."""

    directory: str
    """Where the files are; `source` is relative to it."""
    credentials: Credentials = Credentials()
    settings: Settings = Settings()
    resources: GlobalResources = GlobalResources()
    replication: DataReplication | None = None
    pool: Pool | None = None
    jobs: tuple[Job, ...] = ()
    catalog: Catalog = Catalog()
    """The sizes and images for checks and plans."""
    silent: frozenset[str] = frozenset()
    """Names of silenced checks."""
    warnings: tuple[Problem, ...] = ()
    """Warnings and remarks."""
    placeholders: tuple[Problem, ...] = ()
    """The placeholders of pool and jobs, which no request may have."""
    replaced_accounts: Mapping[str, str] = {}
    """Storage link -> the account of credentials.yaml that the emulator's storage replaces."""

    for_target: Callable[[Recipe, str, Callable[[str], None] | None], Recipe] | None = None
    """Of a script: returns the recipe for an account; with the data directory of the emulator, that for the emulator.
    With a function that receives messages, it also makes the environment, or says what each node installs."""

    def save(self, directory: str | Path) -> Recipe:
        """Write config.yaml, pool.yaml and jobs.yaml, and return the recipe as it is in that directory.

        `load` reads them to an equal recipe. `source` is rewritten, so that it still names the same directory.
        Accounts and secrets (credentials.yaml) are not written. Raises UsageError if another file would be replaced.
        """
        from batchtrain.config import saving  # most commands write no recipe

        target = str(directory)
        move = partial(saving.moved, old=self.directory, new=target)
        jobs = tuple(_moved(job, move) for job in self.jobs)
        copy = msgspec.structs.replace(self, directory=target, credentials=Credentials(), jobs=jobs, for_target=None)
        saving.write(target, copy.files)
        return copy

    @property
    def needs_pool(self) -> bool:
        """Whether the recipe's pool must be created; False if each job has its own pool."""
        return not self.jobs or any(job.auto_pool is None for job in self.jobs)

    @property
    def pools_at_once(self) -> int:
        """The pools that a run has at once: that of the recipe, and one for each job with `auto_pool`."""
        return int(self.needs_pool) + sum(job.auto_pool is not None for job in self.jobs)

    @property
    def files(self) -> dict[str, Block]:
        """The files of the recipe, without credentials.yaml."""
        common = ConfigFile(
            batchtrain=self.settings, global_resources=self.resources, data_replication=self.replication
        )
        sections: dict[str, Block] = {} if common == ConfigFile() else {"config": common}
        if self.pool is not None:
            sections["pool"] = PoolFile(pool_specification=self.pool)
        if self.jobs:
            sections["jobs"] = JobsFile(job_specifications=self.jobs)
        return sections

    def __repr__(self) -> str:
        pool = self.pool.id if self.pool else None
        return f"Recipe({self.directory!r}, pool={pool!r}, jobs={[job.id for job in self.jobs]!r})"

    def _repr_html_(self) -> str:
        from batchtrain.config import recipe_card  # only for a notebook

        return recipe_card.card(self.directory, self, self.warnings)


def _moved(job: Job, move: Callable[[str], str]) -> Job:
    """The job with each `source` moved."""

    def moved(task: Task) -> Task:
        return msgspec.structs.replace(task, source=move(task.source)) if task.source is not None else task

    merge = moved(job.merge_task) if job.merge_task else None
    return msgspec.structs.replace(job, tasks=tuple(map(moved, job.tasks)), merge_task=merge)
