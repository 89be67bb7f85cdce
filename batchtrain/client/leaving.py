"""A run that continues without its command, because its user left it or its terminal was closed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from batchtrain.client.idling import DEFAULT, SHORTEST, emptying_of
from batchtrain.config.times import duration
from batchtrain.config.types import Recipe
from batchtrain.errors import TerminalClosed, Terminated
from batchtrain.records.events import Leftover, RunContinues, Waiting
from batchtrain.runs.recording import now
from batchtrain.service import job_actions

if TYPE_CHECKING:
    from batchtrain.client.ending import Ending
    from batchtrain.client.limits import Guard
    from batchtrain.client.operations import Operations

Leaver = Literal["", "user", "terminal"]
"""Who left a run that continues; empty for a run that ends with its command."""
Ask = Callable[[str], bool]
"""Asks whether a run continues without its command; takes what an hour of it costs."""
WHY = {"user": "as you asked", "terminal": "because its terminal was closed"}


def stops(_cost: str) -> bool:
    """The answer without a terminal."""
    return False


def leaver_of(error: BaseException | None, recipe: Recipe, ending: Ending, ask: Ask) -> Leaver:
    """Who leaves a run that was interrupted; empty before all of its tasks were added, or after all have ended."""
    jobs = {job.id for job in recipe.jobs}
    if not isinstance(error, KeyboardInterrupt) or isinstance(error, Terminated):
        return ""
    if not ending.submitted or ending.ended >= jobs or "job" in ending.kept_kinds:
        return ""
    if isinstance(error, TerminalClosed):
        return "terminal" if has_storage(recipe) else ""
    return "user" if ask(ending.hour) else ""


def has_storage(recipe: Recipe) -> bool:
    """Whether every task keeps what it makes outside its node: checkpoints on a volume, or `output_data`."""
    tasks = [task for job in recipe.jobs for task in job.tasks]
    return bool(tasks) and all(task.checkpoint is not None or task.output_data.azure_storage for task in tasks)


def leave(client: Operations, recipe: Recipe, ending: Ending, guard: Guard, leaver: Leaver) -> bool:
    """Hand a run over to the service: its jobs end at its limits, and the pool that it created has no nodes after its
    last task, if the results are in storage or a limit is to be kept. Returns False if a limit leaves no time, and if
    that failed and the terminal is closed, where no user reads it."""
    pool = recipe.pool
    has_pool = recipe.needs_pool and "pool" not in ending.kept_kinds and pool is not None
    timeout = SHORTEST if guard.counts_price else (pool.idle_timeout if pool is not None else None) or DEFAULT
    seconds = guard.seconds_left((duration(timeout) or 0.0) if has_pool else 0.0)
    if seconds == 0:
        ending.tell(Waiting("", "the run cannot continue without this command: its limit leaves no time"))
        return False
    ends = has_storage(recipe) or seconds is not None
    steps = [
        partial(job_actions.limit, client.batch, job.id, seconds, now()) for job in recipe.jobs if seconds is not None
    ]
    steps += [partial(job_actions.complete, client.batch, job.id) for job in recipe.jobs if job.auto_pool and ends]
    if ends and has_pool:
        steps.append(partial(client.carry_out, emptying_of(recipe, timeout), recipe, ending.tell))
    error = next(filter(None, map(ending.error_of, steps)), None)
    if error is not None and leaver == "terminal":
        return False
    if error is not None:
        text = f"what ends the run later could not be set ({error}): its nodes cost money until you delete them"
        ending.tell(Leftover("", text))
    idle_note = f"; its pool has no nodes {timeout} after its last task" if ends and has_pool and error is None else ""
    ending.tell(RunContinues("", f"the run continues without this command, {WHY[leaver]}{idle_note}"))
    return True
