"""Loads the recipe of a command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from batchtrain.catalog.offer import Catalog
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.config import catalog_file
from batchtrain.config import load as files
from batchtrain.config.candidates import selected
from batchtrain.config.check import RULES
from batchtrain.config.dialect import OLDER
from batchtrain.config.load import Examined, Loaded
from batchtrain.config.types import Recipe
from batchtrain.errors import Problem


def load(directory: str | None = None, *, needs: tuple[str, ...] = (), checks: bool = True) -> Loaded:
    """The configuration of `directory`, else of --configdir, else of the working directory. checks: False for a
    command that only needs names of it, such as that of the pool."""
    examination = examined(directory, needs=needs, checks=checks)
    config = Loaded(examination.recipe, examination.problems)
    for warning in config.warnings:
        say(str(warning))
    advise(config.warnings, config.recipe.directory)
    return config


def advise(warnings: Iterable[Problem], directory: str | Path) -> None:
    """Names the command that replaces what is older in the files."""
    if any(warning.rule in OLDER for warning in warnings):
        say(f"`batchtrain config migrate {shlex.quote(str(directory))} --write` replaces what is older in these files")


def examined(directory: str | None = None, *, needs: tuple[str, ...] = (), checks: bool = True) -> Examined:
    """The same, with the origin of each value; warnings are not printed yet."""
    options = settings()
    source = directory or options.configdir or "."
    options.directory = directory or ""
    examination = files.examined(
        source,
        settings=options.values,
        needs=needs,
        ignore=options.ignore if checks else _all_checks(),
        files=options.files,
        local=bool(options.local),
        real_storage=bool(options.real_storage),
        most=most(),
    )
    recipe = examination.recipe
    options.recipe = replace(recipe, credentials=selected(recipe.credentials, options.batch_account))
    return examination._replace(recipe=options.recipe)


def most() -> int:
    """The number of problems to show: the first ones on a terminal, all in a document."""
    return files.MOST if settings().output == "table" else sys.maxsize


def quietly(directory: str | Path) -> Recipe:
    """The configuration of `directory` for a command that sends none of it: the checks do not apply."""
    return files.load(directory, settings=settings().values, ignore=_all_checks()).recipe


def _all_checks() -> list[str]:
    """The silenced checks of a command to which none applies."""
    return [*settings().ignore, *(rule.name for rule in RULES)]


def directory_of(directory: str | None) -> Path:
    """The directory with the files of a command."""
    return files.find(directory or settings().configdir or ".", settings().files)


def catalog_of(source: Path) -> Catalog:
    """The sizes and images for a recipe."""
    return catalog_file.load(source)
