"""The project of a recipe: an id in a file beside the recipe's files, or derived from their path. Checkpoints of one
project are never continued by another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from batchtrain import state_files
from batchtrain.config.ids import PROJECT_DIGITS, name_as_text, project_id

FILE = ".batchtrain-project.json"
"""The file of a project, in the directory of the YAML files."""


class ProjectFile(msgspec.Struct, frozen=True):
    """The file: a random id, and the directory in which it was written."""

    id: str
    path: str


class Project(NamedTuple):
    """The project of a recipe."""

    id: str
    copied: ProjectFile | None = None
    """The file of the project from which the directory was copied; its id is not that of this project."""


def project_of(directory: str) -> Project:
    """The project of the recipe in a directory. A copied directory is another project, until `write` says otherwise.

    Raises DamagedState for a file that cannot be read: as another project, its trainings would start anew.
    """
    home = os.path.realpath(directory)
    path, file = name_as_text(home), Path(home, FILE)
    project_file = state_files.read(file, ProjectFile, "the recipe is the project of its path then")
    if project_file is None:
        return Project(project_id(path))
    return Project(project_file.id) if project_file.path == path else Project(project_id(path), project_file)


def has_former(directory: str) -> bool:
    """Whether the checkpoints that batchtrain before 2026-11 wrote may be those of the recipe in a directory. A project
    with a file is newer: a copy, a restored run, or one that `recipe new` made."""
    return not Path(directory, FILE).exists()


def write(directory: str | Path, project: str = "") -> None:
    """Make a directory the one of a project, by default of a new one. Raises OSError."""
    home = os.path.realpath(directory)
    project_file = ProjectFile(project or os.urandom(PROJECT_DIGITS // 2).hex(), name_as_text(home))
    file = Path(home, FILE)
    fresh = file.with_name(f"{FILE}.new")
    fresh.write_bytes(msgspec.json.encode(project_file) + b"\n")
    fresh.replace(file)
