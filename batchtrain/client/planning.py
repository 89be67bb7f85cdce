"""The complete plan of a recipe, computed before the first request that creates anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from batchtrain.client.local import blob_store, refuse
from batchtrain.config import travel
from batchtrain.config.custom_factories import read_made
from batchtrain.config.masking import secrets_in
from batchtrain.config.projects import has_former, project_of
from batchtrain.config.source_directory import GIT_IGNORE, IGNORE_FILE, read_sources
from batchtrain.config.types import Recipe
from batchtrain.config.unfilled import require_filled
from batchtrain.errors import PlanError, UsageError
from batchtrain.plan import plan_jobs, plan_pool, planned_facts
from batchtrain.plan.types import Facts, Plan, PoolFacts, Sources
from batchtrain.records.events import SourceLeftOut
from batchtrain.service.connect import Account
from batchtrain.storage.blob import Connect
from batchtrain.storage.source import blobs_of, read_listings


class Foreseen(NamedTuple):
    """The inputs of a plan, and its requests."""

    facts: Facts
    sources: Sources
    pool: Plan
    jobs: Plan
    blobs: Callable[[str], Iterable[Any]]
    """Lists the blobs of `LINK/CONTAINER/PREFIX`, when the iteration begins."""


def left_out_by_git(sources: Sources) -> Iterator[SourceLeftOut]:
    """What a .gitignore leaves out of each source: unlike .batchtrainignore, it was not written for this."""
    for name, source in sources.items():
        if by_git := [left_out for left_out in source.left_out if left_out.rule == GIT_IGNORE]:
            text = f"source {name}: not sent: {travel.listed(by_git)}; `!NAME` in its {IGNORE_FILE} sends one"
            yield SourceLeftOut("", text)


def gathered(
    recipe: Recipe,
    account: Account,
    connect: Connect,
    *,
    pool: PoolFacts | None = None,
    listed: bool = True,
    results: str = "",
) -> tuple[Facts, Sources]:
    """Read everything that a recipe's tasks need from outside. listed: also list storage, for tasks made from files.
    results: where the service uploads what the tasks leave behind."""
    facts = Facts(
        pool=pool,
        listings=read_listings(recipe, connect) if listed else {},
        made=read_made(recipe),
        blob_store=results or blob_store(account),
        results=results,
        project=project_of(recipe.directory).id,
        former=has_former(recipe.directory),
    )
    return facts, read_sources(recipe)


def foresee(recipe: Recipe, account: Account, connect: Connect, *, listed: bool = True, results: str = "") -> Foreseen:
    """Plan a whole recipe with its pool as in the pool file. Creates nothing. Raises PlanError and UsageError for a
    recipe that can never run, ConfigError for its placeholders."""
    require_filled(recipe, emulated=account.emulated)
    refuse(recipe, account)
    pool = planned_facts(recipe) if listed and recipe.needs_pool else None
    facts, sources = gathered(recipe, account, connect, pool=pool, listed=listed, results=results)
    of_pool = plan_pool(recipe)._replace(hidden=secrets_in(recipe)) if recipe.needs_pool else Plan()
    of_jobs = plan_jobs(recipe, facts, sources) if recipe.jobs else Plan()
    return Foreseen(facts, sources, of_pool, of_jobs, partial(blobs_of, connect=connect))


def pool_id_of(recipe: Recipe) -> str:
    """The id of the recipe's pool. Raises UsageError if it has none."""
    if recipe.pool is None:
        raise UsageError(f"{recipe.directory} has no pool.yaml")
    return recipe.pool.id


def refuse_unattended(recipe: Recipe) -> None:
    """Raise PlanError for a pool whose faulty or lost nodes are to be replaced, where no client follows the job."""
    candidates = recipe.pool.candidates if recipe.pool is not None else None
    if recipe.pool is not None and candidates is not None and candidates.recover:
        raise PlanError(
            f"pool {recipe.pool.id} has `candidates.recover`, which needs a client that follows the job: do"
            " not detach it, add a controller (`--controller`, in Python `controller=True`), or set"
            " `pool_specification.candidates.recover` to false"
        )
    if recipe.pool is not None and recipe.pool.on_bad_node == "replace":
        raise PlanError(
            f"pool {recipe.pool.id} has `on_bad_node: replace`, and no client would replace a node;"
            " use `batchtrain run` or `batchtrain jobs add --follow`, or set `pool_specification.on_bad_node` to fail"
        )
