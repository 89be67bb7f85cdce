"""`batchtrain config plan` and `config explain`: the requests that would be sent, and the reasons."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchtrain.cli import options
from batchtrain.cli.help import Command
from batchtrain.cli.options import from_environment, say, settings
from batchtrain.cli.output import show, write
from batchtrain.errors import Differs, UsageError

if TYPE_CHECKING:
    from batchtrain.config.load import Examined
    from batchtrain.config.types import Recipe
    from batchtrain.plan import Plan

DIFFERS = Differs.exit_code
"""Exit code of `config plan --diff --exit-code` if something differs from the plan."""


@click.command("plan", cls=Command)
@options.directory
@click.option("--diff", is_flag=True, help="Compare the plan with the existing pool and jobs. Nothing is changed.")
@click.option("--exit-code", is_flag=True, help=f"With --diff: exit with {DIFFERS} if something differs from the plan.")
def plan(directory: str | None, diff: bool, exit_code: bool) -> int:
    """Print the exact requests for the pool and the jobs; nothing is sent."""
    from batchtrain.plan import render
    from batchtrain.plan.candidate_rows import rows
    from batchtrain.plan.cost import region_for
    from batchtrain.plan.marks import SHOWN, marked_plan
    from batchtrain.plan.pool_users import with_dates
    from batchtrain.runs.beginnings import lineage_of
    from batchtrain.runs.lease import marks_here

    config = _examined(directory)
    if diff:
        return _diff(config.recipe, exit_code)
    if exit_code:
        raise UsageError("--exit-code needs --diff; add --diff")
    recipe = config.recipe
    plan = with_dates(_planned(recipe), datetime.now(timezone.utc))
    plan = marked_plan(plan, marks_here(recipe.settings, SHOWN, lineage_of(recipe)))
    hour, region = settings().hour_of(config.recipe), region_for(recipe.credentials, os.environ)
    candidates = rows(recipe, region)
    if settings().output == "table":
        for warning in plan.warnings:
            say(str(warning))
        write(render.as_text(plan))
        if hour is not None:
            say(str(hour))
        for row in candidates:
            say(str(row))
    else:
        costs = {"cost": hour.document if hour else None, "candidates": [row._asdict() for row in candidates]}
        show({**render.as_document(plan), **costs})
    return 0


@click.command("explain", cls=Command)
@click.argument("path", required=False)
@options.directory
def explain(path: str | None, directory: str | None) -> None:
    """Explain the plan: list its implicit settings with their reasons, or what a property becomes.

    PATH is a property or a block (job_specifications[0].tasks[0], vm_size), or the name of an implicit setting
    (infiniband). Without PATH, all implicit settings are listed. The directory may come first, as in the other
    commands.
    """
    from batchtrain.config import origin
    from batchtrain.plan import explain as explaining

    if path is not None and Path(path).is_dir() and (directory is None or not Path(directory).is_dir()):
        path, directory = directory, path
    config = _examined(directory)
    plan = _planned(config.recipe)
    view = origin.view(config, environment=from_environment(settings().values))
    explanation = explaining.explain(plan, config.recipe, view.values, view.origins, path or "")
    if path and not explanation.decisions and not explanation.settings:
        hint = explaining.hint(plan, path, view.values)
        raise UsageError(f"nothing in this plan is called `{path}`. {hint}".rstrip())
    show(explanation, str(explanation) or "the plan has no implicit settings")


def _examined(directory: str | None) -> Examined:
    config = settings().examined(directory)
    if config.recipe.pool is None and not config.recipe.jobs:
        raise UsageError(f"{config.recipe.directory} has neither a pool nor jobs to plan")
    return config


def _planned(recipe: Recipe) -> Plan:
    from batchtrain.client.custom_factories import read_made
    from batchtrain.config.projects import has_former, project_of
    from batchtrain.config.source_directory import read_sources
    from batchtrain.config.travel import BLOB_STORE
    from batchtrain.plan import Facts, plan_recipe

    facts = Facts(
        made=read_made(recipe),
        blob_store=BLOB_STORE if settings().local else "",
        project=project_of(recipe.directory).id,
        former=has_former(recipe.directory),
    )
    return plan_recipe(recipe, facts, read_sources(recipe))


# --- against what stands --------------------------------------------------------------------------------------------


def _diff(recipe: Recipe, exit_code: bool) -> int:
    from batchtrain.client.client import connect
    from batchtrain.plan import diff

    client = connect(local=settings().local, credentials=recipe.credentials)
    resources = client.compare(recipe)
    differs = any(item.state != "same" for item in resources)
    if settings().output == "table":
        say(f"compared with {client.account.endpoint}")
    show({"differs": differs, "resources": list(resources)}, diff.as_text(resources))
    return DIFFERS if exit_code and differs else 0
