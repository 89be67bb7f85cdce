"""`batchtrain doctor`: every check that is possible before costs arise."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from functools import partial

from batchtrain.cli import loading
from batchtrain.cli.connecting import connect
from batchtrain.cli.options import settings
from batchtrain.cli.output import show_rows
from batchtrain.client.local import emulator_quotas
from batchtrain.client.placement import client_at
from batchtrain.client.session import Session
from batchtrain.config import catalog_file, user_settings
from batchtrain.config.candidates import ordered
from batchtrain.config.load import Loaded, find
from batchtrain.config.types import Recipe
from batchtrain.diagnosis import doctor
from batchtrain.errors import FAIL, ServiceError, Unreachable, UsageError


def command(directory: str | None) -> int:
    """Check the account, and for a recipe its image, size and quota. Creates nothing and costs nothing.

    Exit code: 0 if no check failed, 4 if a check failed, 5 if the account does not answer.
    """
    config = _loaded(directory)
    recipe = config.recipe if config else None
    catalog = catalog_file.load(recipe.directory if recipe else None)
    client = connect(config)

    def examined(session: Session, recipe: Recipe | None) -> doctor.Facts:
        return doctor.examine(
            session.account, session.batch, recipe, catalog, lambda: datetime.now(timezone.utc), os.environ,
            user_settings.load().registry, partial(emulator_quotas, session.account),
        )  # fmt: skip

    facts = examined(client, recipe)
    results = doctor.checks(facts)
    if recipe is not None and recipe.pool is not None and recipe.pool.candidates is not None:
        region = client.account.region or ""
        options = ordered(recipe, region)
        examinations = [examined(client_at(client, option), option.recipe) for option in options]
        results = (*results, *doctor.candidate_checks(recipe, region, examinations))
    show_rows(results)
    if facts.unreachable:
        return Unreachable.exit_code
    return ServiceError.exit_code if any(check.result == FAIL for check in results) else 0


def _loaded(directory: str | None) -> Loaded | None:
    """The files of the recipe; None if none are named and the working directory has none."""
    if directory or settings().configdir:
        return loading.load(directory)
    try:
        find(".")
    except UsageError:
        return None
    return loading.load()
