"""A recipe's `source` directory read into memory: small, ordered, and the same bytes on every machine."""

from __future__ import annotations

from pathlib import Path

from batchtrain.config.types import Recipe
from batchtrain.errors import PlanError
from batchtrain.launchers.types import File

LEFT_OUT = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".venv", ".mypy_cache", ".DS_Store"})
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
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory)
        if not path.is_file() or LEFT_OUT.intersection(relative.parts) or path.suffix == ".pyc":
            continue
        total += path.stat().st_size
        if total > MOST:
            raise PlanError(f"the source directory {directory} holds more than {MOST >> 20} MiB; bring data by URL")
        files.append(File(relative.as_posix(), path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644))
    if not files:
        raise PlanError(f"the source directory {directory} is empty")
    return tuple(files)
