"""`batchtrain run DIR --detach`, and the commands that read such a run from any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchtrain.cli.options import say, settings, tell
from batchtrain.cli.output import show_rows
from batchtrain.errors import UsageError

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
        say(f"  batchtrain jobs term {made.job}")


def refuse_others(**options: object) -> None:
    """Raise UsageError for options of a run that a client follows."""
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name} is for a run that this command follows; leave it or --detach out")
