"""The Python packages that the source of a recipe lists for itself: requirements.txt, or pyproject.toml without one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.config.types import Recipe
from batchtrain.errors import PlanError

READY = ".ready"
"""The file that marks a finished local environment; it contains the digest of the packages of a source in it."""
REQUIREMENTS, PROJECT = "requirements.txt", "pyproject.toml"


class SourcePackages(NamedTuple):
    """The packages of one source directory."""

    directory: Path
    file: str
    """The name of the file that lists them."""
    lines: tuple[str, ...]
    """Requirements, as pip reads them in a file; without comments."""

    @property
    def path(self) -> Path:
        return self.directory / self.file

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `uv pip install`, run in the directory: paths of requirements.txt are relative to it."""
        return ("-r", REQUIREMENTS) if self.file == REQUIREMENTS else self.lines

    @property
    def shown(self) -> str:
        """The packages in one line, without options of pip."""
        return " ".join(line for line in self.lines if not line.startswith("-"))


def of_recipe(recipe: Recipe, image: str) -> tuple[SourcePackages, ...]:
    """The packages for the tasks of a recipe in an image. Raises PlanError for a file that cannot be read."""
    tasks = (task for job in recipe.jobs for task in (*job.tasks, job.merge_task) if task is not None)
    sources = {task.source: None for task in tasks if task.source and task.docker_image == image}
    package_lists = (_of_directory(Path(recipe.directory, source).resolve()) for source in sources)
    return tuple(packages for packages in package_lists if packages.lines)


def digest(package_lists: Iterable[SourcePackages]) -> str:
    """Eight hex digits that depend on the packages; empty if there are none."""
    texts = ["\n".join(packages.lines) for packages in package_lists]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8] if texts else ""


def lacks(prefix: Path, package_lists: tuple[SourcePackages, ...]) -> bool:
    """Whether a local environment that batchtrain has made is without these packages."""
    ready = prefix / READY
    return bool(package_lists) and ready.exists() and ready.read_text(encoding="utf-8") != digest(package_lists)


def _of_directory(directory: Path) -> SourcePackages:
    name = REQUIREMENTS if (directory / REQUIREMENTS).exists() else PROJECT
    try:
        text = (directory / name).read_text(encoding="utf-8")
        lines = _dependencies(text) if name == PROJECT else [line.partition(" #")[0] for line in text.splitlines()]
    except FileNotFoundError:
        return SourcePackages(directory, name, ())
    except (OSError, ValueError) as error:
        raise PlanError(f"{directory / name} cannot be read: {error}") from None
    stripped = (line.strip() for line in lines)
    return SourcePackages(directory, name, tuple(line for line in stripped if line and not line.startswith("#")))


def _dependencies(text: str) -> list[str]:
    import tomli  # Python has it as tomllib from 3.11 on; needed only for a source with this file

    dependencies: Any = tomli.loads(text).get("project", {}).get("dependencies", [])
    if not isinstance(dependencies, list):
        raise ValueError("`project.dependencies` is not a list")
    return [str(dependency) for dependency in dependencies]
