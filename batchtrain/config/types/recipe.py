"""The files as types, and all of them together."""

from __future__ import annotations

from typing import Annotated

import msgspec

from batchtrain.catalog.offer import Catalog
from batchtrain.config.types.base import Block, says
from batchtrain.config.types.credentials import Credentials
from batchtrain.config.types.jobs import Job
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

    def __repr__(self) -> str:
        pool = self.pool.id if self.pool else None
        return f"Recipe({self.directory!r}, pool={pool!r}, jobs={[job.id for job in self.jobs]!r})"
