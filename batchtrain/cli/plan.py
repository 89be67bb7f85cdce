"""`batchtrain config plan` and `config explain`: the requests that would be sent, and the reasons."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from batchtrain.cli import loading
from batchtrain.cli.hourly_cost import hour_of
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, write
from batchtrain.config.custom_factories import read_made
from batchtrain.config.load import Examined
from batchtrain.config.projects import has_former, project_of
from batchtrain.config.source_directory import read_sources
from batchtrain.config.travel import BLOB_STORE
from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError
from batchtrain.plan import Facts, Plan, plan_recipe, render
from batchtrain.plan.candidate_rows import rows
from batchtrain.plan.cost import region_for, unpriced
from batchtrain.plan.marks import SHOWN, marked_plan
from batchtrain.plan.pool_users import with_dates
from batchtrain.runs.beginnings import lineage_of
from batchtrain.runs.lease import marks_here


def plan(directory: str | None, diff: bool, exit_code: bool) -> int:
    """Print the exact requests for the pool and the jobs; nothing is sent."""
    config = examined(directory)
    if diff:
        from batchtrain.cli import plan_diff  # the SDK

        return plan_diff.compared(config.recipe, exit_code)
    if exit_code:
        raise UsageError("--exit-code needs --diff; add --diff")
    recipe = config.recipe
    plan = with_dates(planned(recipe), datetime.now(timezone.utc))
    plan = marked_plan(plan, marks_here(recipe.settings, SHOWN, lineage_of(recipe)))
    hour, region = hour_of(config.recipe), region_for(recipe.credentials, os.environ)
    candidates = rows(recipe, region)
    if settings().output == "table":
        for warning in plan.warnings:
            say(str(warning))
        write(render.as_text(plan))
        if hour is not None:
            say(str(hour))
            if hour.cost is None and not settings().local:
                say(unpriced(recipe, hour, region))
        for row in candidates:
            say(str(row))
    else:
        costs = {"cost": hour.document if hour else None, "candidates": [row._asdict() for row in candidates]}
        show({**render.as_document(plan), **costs})
    return 0


def examined(directory: str | None) -> Examined:
    """The recipe of a command that plans."""
    config = loading.examined(directory)
    if config.recipe.pool is None and not config.recipe.jobs:
        raise UsageError(f"{config.recipe.directory} has neither a pool nor jobs to plan")
    return config


def planned(recipe: Recipe) -> Plan:
    """The plan of a recipe, without any request."""
    facts = Facts(
        made=read_made(recipe),
        blob_store=BLOB_STORE if settings().local else "",
        project=project_of(recipe.directory).id,
        former=has_former(recipe.directory),
    )
    return plan_recipe(recipe, facts, read_sources(recipe))
