"""Runs the user's own Python: the functions of custom task factories."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from batchtrain.config.factories import MOST_TASKS
from batchtrain.config.types import CustomFactory, Recipe
from batchtrain.errors import UsageError


def read_made(recipe: Recipe) -> dict[tuple[str, int], tuple[tuple[Any, ...], ...]]:
    """The tasks of the recipe's custom factories, for `Facts.made`; runs the user's own Python. Modules are
    searched beside the configuration, in the directory above, and on Python's path. Raises UsageError for a module that
    cannot be imported, or whose `generate` fails."""
    made = {}
    for job in recipe.jobs:
        for number, task in enumerate(job.tasks):
            custom = task.task_factory.custom if task.task_factory else None
            if custom is not None:
                made[job.id, number] = _generated(custom, Path(recipe.directory), f"{job.id}, task {number}")
    return made


def _generated(custom: CustomFactory, directory: Path, where: str) -> tuple[tuple[Any, ...], ...]:
    about = f"job {where}: the custom factory `{custom.module}`"
    with _found_beside(directory):
        try:
            generate = importlib.import_module(custom.module, custom.package).generate
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise UsageError(f"{about} cannot be used: {type(error).__name__}: {error}") from error
        try:
            rows = list(islice(generate(*custom.input_args, **custom.input_kwargs), MOST_TASKS + 1))
        except (Exception, SystemExit) as error:
            raise UsageError(f"{about} failed: {type(error).__name__}: {error}{_line_of(error)}") from error
    return tuple(tuple(row) if isinstance(row, (tuple, list)) else (row,) for row in rows)


def _line_of(error: BaseException) -> str:
    """The position of the failure in the user's code; empty if the code was never entered."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None or step.tb_frame.f_code.co_filename == __file__:
        return ""
    return f" (line {step.tb_lineno} of {step.tb_frame.f_code.co_filename})"


@contextmanager
def _found_beside(directory: Path) -> Iterator[None]:
    """The configuration's directory and its parent, first on the module path. Modules from there are unloaded
    afterwards: another recipe may have a module of the same name, and a notebook must read a changed file again."""
    directories = [str(directory.absolute()), str(directory.absolute().parent)]
    before = set(sys.modules)
    sys.path[:0] = directories
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for entry in directories:
            sys.path.remove(entry)
        fresh = set(sys.modules) - before
        own = {name for name in fresh if _stands_in(sys.modules[name], directories)}
        for name in fresh:
            if name.partition(".")[0] in own:
                del sys.modules[name]


def _stands_in(module: ModuleType, directories: Collection[str]) -> bool:
    """Whether a module is a file or a package directly in one of the directories."""
    if "." in module.__name__ or not getattr(module, "__file__", None):
        return False
    file = Path(str(module.__file__))
    return str((file.parent if file.name == "__init__.py" else file).parent) in directories
