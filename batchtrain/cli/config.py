"""`batchtrain config`: check and plan without touching any service."""

from __future__ import annotations

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, say, settings
from batchtrain.cli.output import show, show_rows
from batchtrain.errors import ConfigError, UsageError

PARTS = ("pool_specification", "job_specifications")


@click.group(cls=Group)
def command() -> None:
    """Check, plan and explain configuration files; offline, and without credentials."""


@command.command(cls=Command)
@click.argument("directory", required=False)
@common
def validate(directory: str | None) -> int:
    """Report every problem of every file, with its place."""
    from batchtrain.config.load import load

    chosen = settings()
    try:
        loaded = load(directory or chosen.configdir or ".", settings=chosen.values, needs=PARTS, ignore=chosen.ignore)
    except ConfigError as error:
        if chosen.output == "table":
            raise
        show({"valid": False, "problems": [problem.document for problem in error.problems]})
        return error.exit_code
    text = "\n".join(str(warning) for warning in loaded.warnings)
    valid = f"{loaded.recipe.directory} is valid"
    show(
        {"valid": True, "problems": [problem.document for problem in loaded.warnings]},
        f"{text}\n{valid}" if text else valid,
    )
    return 0


@command.command(cls=Command)
@click.argument("directory", required=False)
@common
def plan(directory: str | None) -> None:
    """Print the exact requests for the pool and the jobs; nothing is sent."""
    from batchtrain.config.load import load
    from batchtrain.plan import plan_recipe, render
    from batchtrain.storage.source import read_sources

    chosen = settings()
    loaded = load(directory or chosen.configdir or ".", settings=chosen.values, ignore=chosen.ignore)
    recipe = loaded.recipe
    if recipe.pool is None and not recipe.jobs:
        raise UsageError(f"{recipe.directory} has neither a pool nor jobs to plan")
    whole = plan_recipe(recipe, sources=read_sources(recipe))
    if chosen.output == "table":
        for warning in whole.warnings:
            say(str(warning))
    show(render.as_document(whole), render.as_text(whole))


@command.command(cls=Command)
@common
def checks() -> None:
    """List the checks by name; `--ignore NAME` silences one."""
    from typing import NamedTuple

    from batchtrain.config.check import RULES

    class Check(NamedTuple):
        name: str
        level: str
        about: str

    show_rows([Check(rule.name, rule.level, rule.sentence) for rule in RULES])


@command.command(cls=Command)
@click.argument("name", type=click.Choice(["credentials", "config", "pool", "jobs"]))
@common
def schema(name: str) -> None:
    """Print the JSON Schema of one file."""
    from batchtrain.config.schema import rendered

    click.echo(rendered(name).decode(), nl=False)
