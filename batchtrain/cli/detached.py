"""`batchtrain run DIR --detach`, and the commands that read such a run from any machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from batchtrain.cli.help import Command
from batchtrain.cli.options import say, settings, tell
from batchtrain.cli.output import show, show_rows
from batchtrain.errors import NotFound, UsageError

if TYPE_CHECKING:
    from batchtrain.client.client import Client
    from batchtrain.client.limits import Limits
    from batchtrain.config.types import Recipe
    from batchtrain.runs.recording import Origin


def run(client: Client, recipe: Recipe, origin: Origin, limits: Limits) -> None:
    """Add the jobs, and say how to come back to them."""
    from batchtrain.client.detach import detach

    runs = detach(client, recipe, tell=tell, origin=origin, limits=limits)
    rows = [{"run": made.run.name, "job": made.job, "ends_after": made.seconds} for made in runs]
    if settings().output != "table":
        show_rows(rows)
        return
    for made in runs:
        say(f"run {made.run.name} continues without this command; next:")
        say(f"  batchtrain jobs show {made.job}")
        say(f"  batchtrain runs fetch {made.run.name}")
        say(f"  batchtrain jobs term {made.job}")


@click.command(cls=Command)
@click.argument("run", default="latest")
@click.option("--link", help="Storage account of the run. Default: the one of credentials.yaml.")
def fetch(run: str, link: str | None) -> None:
    """Fetch what the tasks of a detached run have uploaded, on any machine; once its job has ended, write its end.

    RUN is a name, its beginning or end, or `latest`; in full for a run of another machine.
    """
    from batchtrain.cli.storage_accounts import accounts, credentials_here
    from batchtrain.client import detach, detached_results
    from batchtrain.runs.directory import find, root_of

    root = root_of(settings().runs_dir, os.environ)
    try:
        name = find(root, run).name
    except NotFound:
        name = run
    credentials = credentials_here()
    link = link or detach.link_of(None, tuple(credentials.storage), emulated=bool(settings().local))
    recording = detached_results.fetch(settings().connect(), accounts(credentials)(link), root, name)
    record = recording.run.record()
    if settings().output == "table":
        say(recording.conclusion())
        if record.state == detached_results.DETACHED:
            say(f"job {record.job} has not ended: results come with the end of each attempt; fetch again")
    else:
        show({"run": name, "state": record.state, "results": record.results})


def refuse_others(**options: object) -> None:
    """Raise UsageError for options of a run that a client follows."""
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name} is for a run that this command follows; leave it or --detach out")
