"""`batchtrain config plan` and `config explain`: what would be asked of the service, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchtrain.cli.help import Command
from batchtrain.cli.options import common, from_environment, say, settings
from batchtrain.cli.output import show
from batchtrain.errors import UsageError

if TYPE_CHECKING:
    from batchtrain.config.load import Examined
    from batchtrain.config.types import Recipe
    from batchtrain.plan import Plan

DIFFERS = 11
"""How `config plan --diff --exit-code` ends when something is not as planned; no other command ends so."""


@click.command("plan", cls=Command)
@click.argument("directory", required=False)
@click.option("--diff", is_flag=True, help="Hold the plan against what stands; nothing is changed.")
@click.option("--exit-code", is_flag=True, help=f"With --diff: end with {DIFFERS} when something is not as planned.")
@common
def plan(directory: str | None, diff: bool, exit_code: bool) -> int:
    """Print the exact requests for the pool and the jobs; nothing is sent."""
    from batchtrain.plan import render

    found = _examined(directory)
    if diff:
        return _diff(found.recipe, exit_code)
    if exit_code:
        raise UsageError("--exit-code says how --diff ends; add --diff")
    whole = _planned(found.recipe)
    if settings().output == "table":
        for warning in whole.warnings:
            say(str(warning))
        print(render.as_text(whole))
    else:
        show(render.as_document(whole))
    return 0


@click.command("explain", cls=Command)
@click.argument("path", required=False)
@click.argument("directory", required=False)
@common
def explain(path: str | None, directory: str | None) -> None:
    """Say why the plan is as it is: what was decided that nobody wrote, and what a property becomes.

    PATH is a property or a block (job_specifications[0].tasks[0], vm_size), or the name of a decision (infiniband);
    without one every decision is told. The directory may come first, as in the other commands.
    """
    from batchtrain.config import origin
    from batchtrain.plan import explain as explaining

    if path is not None and Path(path).is_dir() and (directory is None or not Path(directory).is_dir()):
        path, directory = directory, path
    found = _examined(directory)
    whole = _planned(found.recipe)
    view = origin.view(found, environment=from_environment(settings().values))
    told = explaining.explain(whole, found.recipe, view.values, view.origins, path or "")
    if path and not told.decisions and not told.settings:
        hint = explaining.hint(whole, path, view.values)
        raise UsageError(f"nothing in this plan is called `{path}`. {hint}".rstrip())
    show(told, str(told) or "nothing was decided that is not written")


def _examined(directory: str | None) -> Examined:
    found = settings().examined(directory)
    if found.recipe.pool is None and not found.recipe.jobs:
        raise UsageError(f"{found.recipe.directory} has neither a pool nor jobs to plan")
    return found


def _planned(recipe: Recipe) -> Plan:
    from batchtrain.plan import Facts, plan_recipe
    from batchtrain.storage.source import read_made, read_sources

    return plan_recipe(recipe, Facts(made=read_made(recipe)), read_sources(recipe))


# --- against what stands --------------------------------------------------------------------------------------------


def _diff(recipe: Recipe, exit_code: bool) -> int:
    from batchtrain.client import connect
    from batchtrain.plan import diff

    connected = connect(local=settings().local, credentials=recipe.credentials)
    compared = connected.compare(recipe)
    differs = any(item.state != "same" for item in compared)
    if settings().output == "table":
        say(f"compared with {connected.account.endpoint}")
    show({"differs": differs, "resources": list(compared)}, diff.as_text(compared))
    return DIFFERS if exit_code and differs else 0
