"""The files as types, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def save(self, directory: str | Path) -> Recipe:
        """Write config.yaml, pool.yaml and jobs.yaml, and return the recipe as it is in that directory.

        `load` reads them to an equal recipe. `source` is rewritten, so that it still names the same directory.
        Accounts and secrets (credentials.yaml) are not written. Raises UsageError if another file would be replaced.
        """
        from batchtrain.config import saving  # most commands write no recipe

        target = str(directory)
        saved_recipe = msgspec.structs.replace(
            self, directory=target, credentials=Credentials(), jobs=tuple(self._moved(job, target) for job in self.jobs)
        )
        saving.write(target, saved_recipe.files)
        return saved_recipe

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

    def _moved(self, job: Job, directory: str) -> Job:
        """The job with each `source` relative to another directory."""
        tasks = tuple(self._moved_task(task, directory) for task in job.tasks)
        merge = self._moved_task(job.merge_task, directory) if job.merge_task else None
        return msgspec.structs.replace(job, tasks=tasks, merge_task=merge)

    def _moved_task(self, task: Task, directory: str) -> Task:
        if task.source is None:
            return task
        from batchtrain.config import saving

        return msgspec.structs.replace(task, source=saving.moved(task.source, self.directory, directory))

    def __repr__(self) -> str:
        pool = self.pool.id if self.pool else None
        return f"Recipe({self.directory!r}, pool={pool!r}, jobs={[job.id for job in self.jobs]!r})"

    def _repr_html_(self) -> str:
        from batchtrain import markup  # not needed at every start

        warnings = "\n".join(map(str, self.warnings))
        heads = ("job", "task", "nodes", "launch", "image", "command")
        return markup.card(
            markup.head(f"recipe {self.directory.removesuffix('/config')}", note=_nodes(self.pool)),
            markup.table(heads, self._rows()),
            markup.fold(f"{len(self.warnings)} warnings", markup.pre(warnings)) if warnings else "",
        )

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """Each task in a line, without secrets."""
        from batchtrain.config.masking import masked_text, secrets_in  # imports this package
        from batchtrain.config.task_resources import instances

        secrets = secrets_in(self)
        for job in self.jobs:
            for task in job.tasks[:SHOWN]:
                gang = task.multi_instance
                nodes = str(instances(str(gang.num_instances), self.pool) or gang.num_instances) if gang else ""
                default_id = "factory" if task.task_factory is not None else ""
                command = masked_text(task.command or "", secrets)
                yield (
                    job.id, task.id or default_id, nodes, next((name for name, _ in gang.launches), "") if gang else "",
                    task.docker_image or task.singularity_image or "",
                    command if len(command) <= LONGEST else f"{command[:LONGEST]}…",
                )  # fmt: skip
            if len(job.tasks) > SHOWN:
                yield (job.id, f"and {len(job.tasks) - SHOWN:,} more tasks", "", "", "", "")


SHOWN, LONGEST = 10, 160
"""Tasks of a job, and characters of a command, that a notebook shows."""


def _nodes(pool: Pool | None) -> str:
    """A pool in a sentence."""
    if pool is None:
        return "no pool"
    count = pool.vm_count
    spot = f", {count.low_priority} of them spot" if count.low_priority else ""
    return f"pool {pool.id}: {count.total} × {pool.vm_size}{spot}"
