"""What continues without its command: a run that its user left, and nodes that have results which are not here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from batchtrain.config.times import duration
from batchtrain.config.types import Recipe
from batchtrain.errors import ServiceError
from batchtrain.life.endings import SeenEnd
from batchtrain.life.intents import Intent
from batchtrain.plan.idling import DEFAULT, SHORTEST, emptying, emptying_of
from batchtrain.plan.marks import marks_of
from batchtrain.plan.step import Step
from batchtrain.records.events import Event, Leftover, RunContinues, Waiting
from batchtrain.runs.recording import now
from batchtrain.service import job_actions, read, submit
from batchtrain.service.meant_version import of_runs
from batchtrain.service.register import Register

if TYPE_CHECKING:
    from batchtrain.client.limits import Guard
    from batchtrain.client.operations import Operations

Leaver = Literal["", "user", "terminal"]
"""Who left a run that continues; empty for a run that ends with its command."""
Ask = Callable[[str], bool]
"""Asks whether a run continues without its command; takes what an hour of it costs."""
WHY = {"user": "as you asked", "terminal": "because its terminal was closed"}
KEPT = "30 min"
IDLE_SECONDS = 25 * 60
"""After this time without a task the formula requests no nodes. Azure evaluates it every 5 minutes."""


class Steps(Protocol):
    """What a step of an ending works with (`client/ending.py`)."""

    client: Operations
    register: Register
    recipe: Recipe | None
    intent: Intent
    bound: str

    def tell(self, event: Event) -> None: ...

    def error_of(self, step: Callable[[], None]) -> BaseException | None: ...


def stops(_cost: str) -> bool:
    """The answer without a terminal."""
    return False


def has_storage(recipe: Recipe) -> bool:
    """Whether every task keeps what it makes outside its node: checkpoints on a volume, or `output_data`."""
    tasks = [task for job in recipe.jobs for task in job.tasks]
    return bool(tasks) and all(task.checkpoint is not None or task.output_data.azure_storage for task in tasks)


def leave(ending: Steps, guard: Guard, leaver: Leaver) -> bool:
    """Hand a run over to the service: its jobs end at its limits, and the pool that it created has no nodes after its
    last task, if the results are in storage or a limit is to be kept. Returns False if a limit leaves no time, and if
    that failed and the terminal is closed, where no user reads it."""
    client, recipe = ending.client, ending.recipe
    assert recipe is not None
    pool = recipe.pool
    has_pool = recipe.needs_pool and "pool" not in ending.intent.keeps and pool is not None
    timeout = SHORTEST if guard.counts_price else (pool.idle_timeout if pool is not None else None) or DEFAULT
    seconds = guard.seconds_left((duration(timeout) or 0.0) if has_pool else 0.0)
    if seconds == 0:
        ending.tell(Waiting("", "the run cannot continue without this command: its limit leaves no time"))
        return False
    ends = has_storage(recipe) or seconds is not None
    jobs, batch, runs = recipe.jobs, client.batch, ending.register.runs
    steps = [partial(job_actions.limit, batch, job.id, runs, seconds, now()) for job in jobs if seconds is not None]
    steps += [partial(job_actions.complete, batch, job.id, runs) for job in jobs if job.auto_pool and ends]
    if ends and has_pool:
        steps.append(partial(_scale, ending, emptying_of(recipe, timeout)))
    error = next(filter(None, map(ending.error_of, steps)), None)
    if error is not None and leaver == "terminal":
        return False
    if error is not None:
        text = f"what ends the run later could not be set ({error}): its nodes cost money until you delete them"
        ending.tell(Leftover("", text))
    idle_note = f"; its pool has no nodes {timeout} after its last task" if ends and has_pool and error is None else ""
    name = min(runs)
    follow = f"`batchtrain runs attach {name}` follows it, and `batchtrain runs stop {name}` ends it"
    ending.tell(RunContinues("", f"the run continues without this command, {WHY[leaver]}{idle_note}; {follow}"))
    return True


def empty_nodes(ending: Steps, seen: SeenEnd) -> None:
    """Give the pools that the run created no nodes half an hour after their last task at the latest."""
    if "pool" in seen.keeps:
        return
    ours = [item for item in seen.things if item.state in ("ours", "pending")]
    jobs = [item.thing[1] for item in ours if item.kind == "job" and "job" not in seen.keeps]
    pools = {item.thing[1] for item in ours if item.kind == "pool"}
    pools |= {pool for job_id in jobs if (pool := _own_pool_of(ending, job_id))}
    pools -= {item.thing[1] for item in seen.things if item.kind == "pool" and item not in ours}
    for pool in sorted(pools):
        if error := ending.error_of(partial(_empty_later, ending, pool)):
            text = f"pool {pool} keeps its nodes until you delete it, because its formula could not be set ({error})"
            ending.tell(Leftover(pool, text))
            return
    if pools:
        ending.bound = f", for {KEPT} at most after the last task: then its nodes leave, and the files on them are lost"


def _empty_later(ending: Steps, pool: str) -> None:
    _scale(ending, emptying(read.pool_document(ending.client.batch, pool), IDLE_SECONDS))


def _scale(ending: Steps, step: Step | None) -> None:
    if step is not None:
        ending.tell(submit.scale_pool(ending.client.batch, step, of_runs(ending.register.runs)))


def _own_pool_of(ending: Steps, job_id: str) -> str:
    """The pool of a job if it came with the job (`auto_pool`), or if the run created it; empty for any other."""
    batch = ending.client.batch
    try:
        pool = read.version(batch, "pool", "pools", read.job(batch, job_id).pool)
    except ServiceError:
        return ""
    return pool.id if marks_of(pool.metadata).run in ending.register.runs else ""
