"""`batchtrain doctor`: every check that is possible before costs arise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchtrain.cli import options
from batchtrain.cli.help import Command
from batchtrain.cli.options import settings
from batchtrain.cli.output import show_rows
from batchtrain.errors import ServiceError, Unreachable

if TYPE_CHECKING:
    from batchtrain.config.load import Loaded


@click.command("doctor", cls=Command)
@options.directory
def command(directory: str | None) -> int:
    """Check the account, and for a recipe its image, size and quota. Creates nothing and costs nothing.

    Exit code: 0 if no check failed, 4 if a check failed, 5 if the account does not answer.
    """
    import os
    from datetime import datetime, timezone

    from batchtrain.client import doctor
    from batchtrain.config import catalog_file, user_settings
    from batchtrain.errors import FAIL

    config = _loaded(directory)
    recipe = config.recipe if config else None
    catalog = catalog_file.load(recipe.directory if recipe else None)
    client = settings().connect(config)
    facts = doctor.examine(
        client.account, client.batch, recipe, catalog, lambda: datetime.now(timezone.utc), os.environ,
        user_settings.load().registry,
    )  # fmt: skip
    results = doctor.checks(facts)
    show_rows(results)
    if facts.unreachable:
        return Unreachable.exit_code
    return ServiceError.exit_code if any(check.result == FAIL for check in results) else 0


def _loaded(directory: str | None) -> Loaded | None:
    """The files of the recipe; None if none are named and the working directory has none."""
    from batchtrain.config.load import find
    from batchtrain.errors import UsageError

    if directory or settings().configdir:
        return settings().load(directory)
    try:
        find(".")
    except UsageError:
        return None
    return settings().load()
