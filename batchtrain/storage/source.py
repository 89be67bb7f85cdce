"""What a recipe needs of the outside before it is planned: its `source` directories, small, ordered and the same
bytes on every machine; the tuples of its custom factories; the names of the blobs that tasks are made of.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from batchtrain.config.factories import MOST_TASKS
from batchtrain.config.types import CustomFactory, Recipe
from batchtrain.errors import PlanError, UsageError
from batchtrain.launchers.types import File
from batchtrain.plan.factory import place_of

if TYPE_CHECKING:
    from batchtrain.storage.blob import Connect

LEFT_OUT = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".venv", ".mypy_cache", ".DS_Store"})
SECRET = frozenset({"credentials.yaml", "credentials.yml", "credentials.json"})  # they must not reach a request
MOST = 64 * 1024 * 1024  # far above what travels with a task; stops a data directory from being read whole


def read_sources(recipe: Recipe) -> dict[str, tuple[File, ...]]:
    """The files of every `source` of the recipe, by its name as written."""
    wanted = {task.source for job in recipe.jobs for task in job.tasks if task.source}
    return {name: read_source(Path(recipe.directory) / name) for name in sorted(wanted)}


def read_source(directory: Path) -> tuple[File, ...]:
    """Every file below a directory. Raises PlanError when it is not there, empty, or far too large."""
    if not directory.is_dir():
        raise PlanError(f"the source directory {directory} is not there")
    files, total = [], 0
    for path in _walk(directory):
        status = path.stat()
        total += status.st_size
        if total > MOST:
            raise PlanError(f"the source directory {directory} holds more than {MOST >> 20} MiB; bring data by URL")
        name = path.relative_to(directory).as_posix()
        files.append(File(name, path.read_bytes(), 0o755 if status.st_mode & 0o100 else 0o644))
    if not files:
        raise PlanError(f"the source directory {directory} is empty")
    return tuple(sorted(files))


def _walk(directory: Path) -> Iterator[Path]:
    """Files below a directory, found one by one, so that a huge tree is given up early."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for name in sorted(set(names) - LEFT_OUT - SECRET):
            path = Path(folder, name)
            if path.is_file() and path.suffix != ".pyc":
                yield path


# --- what factories are made of -------------------------------------------------------------------------------------


def read_listings(recipe: Recipe, connect: Connect) -> dict[str, tuple[str, ...]]:
    """The blobs that the recipe's file factories are about, for `Facts.listings`. Raises ServiceError."""
    factories = (task.task_factory for job in recipe.jobs for task in job.tasks if task.task_factory)
    storages = [factory.file.azure_storage for factory in factories if factory.file is not None]
    wanted = {place_of(storage) for storage in storages if not storage.is_file_share}
    if not wanted:
        return {}
    from batchtrain.storage import blob  # 0.28 s, and only for tasks that are made of files

    listed = {}
    for place in sorted(wanted):
        link, container, path = blob.place_of(place)
        names = islice((found.name for found in blob.stored(connect(link), container, path)), MOST_TASKS + 1)
        listed[place] = tuple(names)
    return listed


def read_made(recipe: Recipe) -> dict[tuple[str, int], tuple[tuple[Any, ...], ...]]:
    """What the recipe's custom factories give, for `Facts.made`; this runs the user's own Python.

    Modules are found beside the configuration, in the directory above, and where Python looks.
    Raises UsageError for a module that cannot be imported, or whose `generate` fails.
    """
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
    """Where the user's code failed; empty when it was never entered."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None or step.tb_frame.f_code.co_filename == __file__:
        return ""
    return f" (line {step.tb_lineno} of {step.tb_frame.f_code.co_filename})"


@contextmanager
def _found_beside(directory: Path) -> Iterator[None]:
    """The configuration's directory and the one above, first where modules are looked for.

    What is imported from there is forgotten afterwards: another recipe may have a module of the same name, and a
    notebook reads the file again that was just changed.
    """
    places = [str(directory.absolute()), str(directory.absolute().parent)]
    before = set(sys.modules)
    sys.path[:0] = places
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for place in places:
            sys.path.remove(place)
        fresh = set(sys.modules) - before
        own = {name for name in fresh if _stands_in(sys.modules[name], places)}
        for name in fresh:
            if name.partition(".")[0] in own:
                del sys.modules[name]


def _stands_in(module: ModuleType, places: Collection[str]) -> bool:
    """Whether a module is a file, or a package, right in one of the directories."""
    if "." in module.__name__ or not getattr(module, "__file__", None):
        return False
    file = Path(str(module.__file__))
    return str((file.parent if file.name == "__init__.py" else file).parent) in places
