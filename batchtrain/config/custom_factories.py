"""Runs the user's own Python: the functions of custom task factories."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from batchtrain.config.factories import FEW_TASKS, MOST_TASKS, Row
from batchtrain.config.types import CustomFactory, Recipe
from batchtrain.errors import UsageError

AT_ONCE = 1000
"""Tasks that are made at once: the module path is changed only meanwhile."""


def read_made(recipe: Recipe) -> dict[tuple[str, int], Iterable[Row]]:
    """The tasks of the recipe's custom factories, for `Facts.made`; this runs the user's own Python. Modules are
    searched beside the configuration, in the directory above, and on Python's path. More than a few tasks are read
    when they are iterated. Raises UsageError for a module that cannot be imported, or whose `generate` fails."""
    rows_by_task: dict[tuple[str, int], Iterable[Row]] = {}
    for job in recipe.jobs:
        for number, task in enumerate(job.tasks):
            custom = task.task_factory.custom if task.task_factory else None
            if custom is not None:
                rows = _Rows(custom, Path(recipe.directory), f"{job.id}, task {number}")
                head = tuple(islice(rows, FEW_TASKS + 1))
                rows_by_task[job.id, number] = rows if len(head) > FEW_TASKS else head
    return rows_by_task


class _Rows:
    """What the user's function yields. Each iteration calls it anew."""

    def __init__(self, custom: CustomFactory, directory: Path, where: str) -> None:
        self._custom, self._directory = custom, directory
        self._about = f"job {where}: the custom factory `{custom.module}`"

    def __iter__(self) -> Iterator[Row]:
        """Raises UsageError if the function fails, and after the highest number of tasks."""
        with _found_beside(self._directory):
            rows, count = self._called(), 0
        failure: UsageError | None = None
        while failure is None:
            some, failure = self._next(rows, count)
            yield from (tuple(row) if isinstance(row, (tuple, list)) else (row,) for row in some)
            count += len(some)
            if not some and failure is None:
                return
            if count > MOST_TASKS:
                raise UsageError(f"{self._about} yields more than {MOST_TASKS:,} tasks; split the job")
        raise failure

    def _next(self, rows: Iterator[Any], count: int) -> tuple[list[Any], UsageError | None]:
        """The next values, and the failure of the function after them."""
        some: list[Any] = []
        try:
            with _found_beside(self._directory):
                some.extend(islice(rows, AT_ONCE))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised after the tasks before it
            after = f" after {count + len(some):,} tasks" if count + len(some) else ""
            return some, UsageError(f"{self._about} failed{after}: {type(error).__name__}: {error}{_line_of(error)}")
        return some, None

    def _called(self) -> Iterator[Any]:
        custom = self._custom
        try:
            generate = importlib.import_module(custom.module, custom.package).generate
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self._about} cannot be used: {type(error).__name__}: {error}") from error
        try:
            return iter(generate(*custom.input_args, **custom.input_kwargs))
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self._about} failed: {type(error).__name__}: {error}{_line_of(error)}") from error


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
        recipe_modules = {name for name in fresh if _stands_in(sys.modules[name], directories)}
        for name in fresh:
            if name.partition(".")[0] in recipe_modules:
                del sys.modules[name]


def _stands_in(module: ModuleType, directories: Collection[str]) -> bool:
    """Whether a module is a file or a package directly in one of the directories."""
    if "." in module.__name__ or not getattr(module, "__file__", None):
        return False
    file = Path(str(module.__file__))
    return str((file.parent if file.name == "__init__.py" else file).parent) in directories
