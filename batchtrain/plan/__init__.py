"""Types in, requests out: pure functions from a recipe and what was seen of the service to a Plan.

What plans is imported with the first plan: a command that only asks the service needs a plan's types, and would wait
for 30 more modules.
"""

from __future__ import annotations

from batchtrain.config import masking
from batchtrain.config.types import Recipe
from batchtrain.plan import autoscale
from batchtrain.plan.step import Step
from batchtrain.plan.types import OFFLINE, Facts, Plan, PoolFacts, Sources

__all__ = ["Facts", "Plan", "PoolFacts", "Sources", "Step", "plan_jobs", "plan_pool", "plan_recipe", "planned_facts"]


def plan_pool(recipe: Recipe) -> Plan:
    """The requests that create the recipe's pool. Raises PlanError."""
    from batchtrain.plan import pool

    return pool.plan(recipe)


def plan_jobs(recipe: Recipe, facts: Facts = OFFLINE, sources: Sources | None = None) -> Plan:
    """Every job of the recipe, in order. Raises PlanError for what could never run."""
    from batchtrain.plan import job

    return job.plan(recipe, facts, sources)


def planned_facts(recipe: Recipe) -> PoolFacts | None:
    """The pool after its creation. Returns None without a pool, and for an autoscale pool, but not for an idle timeout:
    such a pool has all its nodes or none, and a waiting task brings them."""
    pool = recipe.pool
    if pool is None or (pool.autoscale is not None and autoscale.formula(pool, recipe.jobs) is not None):
        return None
    count, inter_node = pool.vm_count, pool.inter_node_communication_enabled
    size = pool.vm_size.upper()
    return PoolFacts(pool.id, size, count.dedicated, count.low_priority, inter_node, pool.task_slots_per_node)


def plan_recipe(recipe: Recipe, facts: Facts = OFFLINE, sources: Sources | None = None) -> Plan:
    """A recipe's pool and jobs as exact requests; without facts, only the pool file is used.

    The plan creates no pool if every job has an automatic pool. Raises PlanError for what the service would refuse.
    """
    plan = Plan(warnings=recipe.warnings)
    if recipe.pool is not None and recipe.needs_pool:
        plan = plan.joined(plan_pool(recipe))
    if recipe.jobs:
        plan = plan.joined(plan_jobs(recipe, facts, sources))
    warnings = tuple(warning for warning in plan.warnings if warning.rule not in recipe.silent)
    return plan._replace(warnings=warnings, hidden=masking.secrets_in(recipe))
