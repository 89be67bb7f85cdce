"""Types in, requests out: pure functions from a recipe and what was seen of the service to a Plan."""

from batchtrain.plan.job import plan as plan_jobs
from batchtrain.plan.pool import plan as plan_pool
from batchtrain.plan.recipe import plan as plan_recipe
from batchtrain.plan.step import Step
from batchtrain.plan.types import Facts, Plan, PoolFacts, Sources

__all__ = ["Facts", "Plan", "PoolFacts", "Sources", "Step", "plan_jobs", "plan_pool", "plan_recipe"]
