"""Types in, requests out: pure functions from a recipe and what was seen of the service to a Plan."""

from __future__ import annotations

from batchtrain.config import masking
from batchtrain.config.types import Recipe
from batchtrain.plan.job import needs_pool
from batchtrain.plan.job import plan as plan_jobs
from batchtrain.plan.pool import plan as plan_pool
from batchtrain.plan.step import Step
from batchtrain.plan.types import OFFLINE, Facts, Plan, PoolFacts, Sources

__all__ = ["Facts", "Plan", "PoolFacts", "Sources", "Step", "plan_jobs", "plan_pool", "plan_recipe"]


def plan_recipe(recipe: Recipe, facts: Facts = OFFLINE, sources: Sources | None = None) -> Plan:
    """A recipe's pool and jobs as exact requests; without facts, only the pool file is used.

    The plan creates no pool if every job has an automatic pool. Raises PlanError for what the service would refuse.
    """
    plan = Plan(warnings=recipe.warnings)
    if recipe.pool is not None and needs_pool(recipe):
        plan = plan.joined(plan_pool(recipe))
    if recipe.jobs:
        plan = plan.joined(plan_jobs(recipe, facts, sources))
    warnings = tuple(warning for warning in plan.warnings if warning.rule not in recipe.silent)
    return plan._replace(warnings=warnings, hidden=masking.secrets_in(recipe))
