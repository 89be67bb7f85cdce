"""Pools that stand: their nodes leave when nothing runs, and come back with the next task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from batchtrain.config.scaling import IDLE_LEAST
from batchtrain.config.times import duration
from batchtrain.config.types import Pool, Recipe, VmCount
from batchtrain.errors import UsageError
from batchtrain.plan import plan_pool
from batchtrain.plan.autoscale import idle_to_zero, then_idle_to_zero
from batchtrain.plan.step import AUTOSCALE_FIELDS, Step
from batchtrain.plan.types import Plan

SHORTEST = "5m"
DEFAULT = "30m"
"""The idle timeout of a pool that `run --reuse` creates."""


def with_idle_timeout(recipe: Recipe, timeout: str | None = None) -> Recipe:
    """The recipe whose pool has this idle timeout; without one, the default unless the pool file sizes the pool.

    Raises UsageError for a time that is too short, and for a pool with `autoscale`.
    """
    pool = recipe.pool
    if pool is None or (timeout is None and (pool.scales or pool.on_bad_node == "replace")):
        return recipe
    if pool.autoscale is not None:
        raise UsageError(f"pool {pool.id} has `autoscale`, which decides when it has nodes; leave out --idle")
    if timeout is not None and (duration(timeout) or 0) < IDLE_LEAST:
        raise UsageError("--idle takes at least 5m, because Azure evaluates a formula every 5 minutes")
    return replace(recipe, pool=replace(pool, idle_timeout=timeout or DEFAULT))


def costs_while_idle(pool: Pool | None) -> str:
    """What to know about a pool that keeps its nodes when nothing runs; empty for any other."""
    if pool is None or pool.scales or not pool.vm_count.total:
        return ""
    return (
        f"pool {pool.id} has no `idle_timeout`: it keeps its nodes when nothing runs; `--idle {DEFAULT}` or"
        f" `idle_timeout: {DEFAULT}` in pool.yaml removes them after this time without a task"
    )


def idles(recipe: Recipe) -> bool:
    """Whether the recipe has a pool that has all its nodes or none."""
    return recipe.pool is not None and recipe.pool.idles


def enabling(plan: Plan) -> Step:
    """The formula of a pool's plan as a request to a pool that exists."""
    [step] = [step for step in plan.steps if step.action == "pool.add"]
    fields = {name: step.document[name] for name in AUTOSCALE_FIELDS if name in step.document}
    return Step("pool.autoscale", step.subject, fields)


def emptying(pool: Mapping[str, Any], seconds: float) -> Step | None:
    """The request that gives a pool no nodes after a time without a task, whatever sizes it while tasks wait or run;
    None if the pool has this formula. pool: its document, or the request that adds it."""
    name, interval = AUTOSCALE_FIELDS
    before = str(pool.get(name) or "") if pool.get("enableAutoScale") else ""
    count = VmCount(dedicated=pool.get("targetDedicatedNodes", 0), low_priority=pool.get("targetLowPriorityNodes", 0))
    formula = then_idle_to_zero(before, seconds) if before else idle_to_zero(count, seconds)
    if formula.rstrip() == before.rstrip():
        return None
    return Step("pool.autoscale", pool["id"], {name: formula, interval: "PT5M"})


def emptying_of(recipe: Recipe, timeout: str) -> Step | None:
    """The same for the pool of a recipe."""
    [step] = [step for step in plan_pool(recipe).steps if step.action == "pool.add"]
    return emptying(step.document, duration(timeout) or 0)
