"""What a run keeps if results are not on this machine: its jobs, and for half an hour the nodes that have the files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from batchtrain.client.idling import emptying
from batchtrain.config.types import Recipe
from batchtrain.errors import ServiceError
from batchtrain.plan.marks import marks_of
from batchtrain.records.events import Leftover
from batchtrain.service import read

if TYPE_CHECKING:
    from batchtrain.client.ending import Ending

KEPT = "30 min"
IDLE_SECONDS = 25 * 60
"""After this time without a task the formula requests no nodes. Azure evaluates it every 5 minutes."""


def keep_nodes(ending: Ending) -> None:
    """Give the pools that the run created no nodes half an hour after their last task at the latest."""
    pools = dict.fromkeys(thing.id for thing in ending.register.things("ours", "pending") if thing.kind == "pool")
    for thing in ending.register.things() if "job" not in ending.kept_kinds else ():
        if thing.kind == "job" and (pool := _own_pool_of(ending, thing.id)):
            pools[pool] = None
    if "pool" in ending.kept_kinds or not pools:
        return
    for pool in pools:
        if error := ending.error_of(partial(_empty_later, ending, pool)):
            text = f"pool {pool} keeps its nodes until you delete it, because its formula could not be set ({error})"
            ending.tell(Leftover(pool, text))
            return
    ending.bound = f", for {KEPT} at most after the last task: then its nodes leave, and the files on them are lost"


def _empty_later(ending: Ending, pool: str) -> None:
    plan = emptying(read.pool_document(ending.client.batch, pool), IDLE_SECONDS)
    ending.client.carry_out(plan, Recipe(directory="."), ending.tell, register=ending.register)


def _own_pool_of(ending: Ending, job_id: str) -> str:
    """The pool of a job if it came with the job (`auto_pool`), or if the run created it; empty for any other."""
    batch = ending.client.batch
    try:
        pool = read.pool_version(batch, read.job(batch, job_id).pool)
    except ServiceError:
        return ""
    return pool.id if marks_of(pool.metadata).run in ending.register.runs else ""
