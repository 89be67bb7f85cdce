"""`batchtrain run DIR`: a recipe from nothing to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchtrain.cli.help import Command
from batchtrain.cli.options import common, say, seconds, settings, tell
from batchtrain.cli.output import show_rows
from batchtrain.service.deadlines import JOB_SECONDS

if TYPE_CHECKING:
    from batchtrain.config.types import Recipe
    from batchtrain.run import Outcome
    from batchtrain.service.seen import TaskSeen


@click.command("run", cls=Command)
@click.argument("directory")
@click.option(
    "--timeout",
    type=float,
    callback=seconds,
    default=JOB_SECONDS,
    show_default=True,
    help="Seconds for each wait at most.",
)
@click.option("--keep", is_flag=True, help="Leave the pool and the jobs, with their files, standing.")
@common
def command(directory: str, timeout: float, keep: bool) -> None:
    """Add the pool and the jobs, show what they print, exit with their result, delete what was made."""
    from batchtrain.run import run

    chosen = settings()
    loaded = chosen.load(directory, needs=("pool_specification", "job_specifications"))
    client = chosen.connect(loaded, changes=f"running {directory}", ends_it=True)
    try:
        outcome = run(client, loaded.recipe, tell=tell, timeout=timeout, keep=keep)
        _report(outcome)
        if keep:
            _say_what_stands(loaded.recipe, client.account.option)
        if outcome.failure is not None:
            raise outcome.failure
    finally:
        if client.account.started and not keep:
            _stop_emulator()


def _say_what_stands(recipe: Recipe, option: str) -> None:
    for job in recipe.jobs:
        say(f"kept: batchtrain jobs logs {job.id}{option} --file wd/FILE · batchtrain jobs del {job.id}{option}")
    if recipe.pool is not None:
        say(f"kept: batchtrain pool show {recipe.pool.id}{option} · batchtrain pool del {recipe.pool.id}{option}")


def _report(outcome: Outcome) -> None:
    if settings().output != "table":
        show_rows(outcome.tasks)
        return
    for task in outcome.tasks:
        say(_ended(task))


def _ended(task: TaskSeen) -> str:
    took = f" in {task.seconds:.1f} s" if task.seconds is not None else ""
    how = "without an exit code" if task.exit_code is None else f"with exit code {task.exit_code}"
    return f"task {task.id} ended {how}{took}"


def _stop_emulator() -> None:
    """The embedded service that this run started has nothing more to do, unless somebody else has pools on it."""
    from batchtrain import client as page
    from batchtrain.emulator import server

    home = page.emulator_directory()
    if server.status(home) is not None and not page.connect(local=True).pools.list():
        server.stop(home)
