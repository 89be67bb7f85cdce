"""What a run keeps if results are not on this machine: its jobs, and for half an hour the nodes that have the files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from batchtrain.client.idling import emptying
from batchtrain.config.types import Recipe
from batchtrain.errors import ServiceError
from batchtrain.plan.types import Plan
from batchtrain.records.events import Leftover
from batchtrain.service import read
from batchtrain.service.register import Thing

if TYPE_CHECKING:
    from batchtrain.client.ending import Ending

KEPT = "30 min"
IDLE = "25m"
"""After this time without a task the formula requests no nodes. Azure evaluates it every 5 minutes."""


def keep_nodes(ending: Ending, recipe: Recipe) -> None:
    """Give the pools that the run created no nodes half an hour after their last task at the latest."""
    pools = [thing.id for thing in ending.register.things("ours", "pending") if thing.kind == "pool"]
    for job in recipe.jobs if recipe.pool is not None and "job" not in ending.kept_kinds else ():
        if job.auto_pool is not None and Thing("job", job.id) in ending.register.things():
            pools += [pool] if (pool := _pool_of(ending, job.id)) else []
    if "pool" in ending.kept_kinds or not pools:
        return
    for pool in pools:
        if error := ending.error_of(partial(_empty_later, ending, recipe, pool)):
            text = f"pool {pool} keeps its nodes until you delete it, because its formula could not be set ({error})"
            ending.tell(Leftover(pool, text))
            return
    ending.bound = f", for {KEPT} at most after the last task: then its nodes leave, and the files on them are lost"


def _empty_later(ending: Ending, recipe: Recipe, pool: str) -> None:
    steps = emptying(recipe, IDLE).steps
    ending.client.carry_out(Plan(tuple(step._replace(subject=pool) for step in steps)), recipe, ending.tell)


def _pool_of(ending: Ending, job_id: str) -> str:
    try:
        return read.job(ending.client.batch, job_id).pool
    except ServiceError:
        return ""
