"""A recipe's `source` directory read into memory: small, ordered, and the same bytes on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from batchtrain.config.types import Recipe
from batchtrain.errors import PlanError
from batchtrain.launchers.types import File

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
