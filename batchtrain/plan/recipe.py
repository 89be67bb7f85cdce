"""From a whole recipe to its requests: the pool's, then the jobs'."""

from __future__ import annotations

from batchtrain.config import masking
from batchtrain.config.types import Recipe
from batchtrain.plan import job, pool
from batchtrain.plan.types import OFFLINE, Facts, Plan, Sources


def plan(recipe: Recipe, facts: Facts = OFFLINE, sources: Sources | None = None) -> Plan:
    """A recipe's pool and jobs as exact requests; without facts, only the pool file is used.

    The plan creates no pool if every job has an automatic pool.
    """
    plan = Plan(warnings=recipe.warnings)
    if recipe.pool is not None and job.needs_pool(recipe):
        plan = plan.joined(pool.plan(recipe))
    if recipe.jobs:
        plan = plan.joined(job.plan(recipe, facts, sources))
    warnings = tuple(warning for warning in plan.warnings if warning.rule not in recipe.silent)
    return plan._replace(warnings=warnings, hidden=masking.secrets_in(recipe))
