"""Imports a recipe that validates: values that the language refuses are left out, and named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.config import catalog_file
from batchtrain.config.import_converters import Document
from batchtrain.config.imported import Left, imported
from batchtrain.config.load import examine
from batchtrain.config.types import Recipe, read_path
from batchtrain.errors import ConfigError, Problem


class Result(NamedTuple):
    """A valid recipe, and what it lacks of the documents."""

    recipe: Recipe
    left: tuple[Left, ...]


def recipe_of(files: Mapping[str, bytes], directory: Path) -> Result:
    """The recipe of documents by the names of their files. Raises UsageError, and ConfigError if no recipe without the
    refused values is valid either."""
    sections, left = imported(files)
    refused: list[Left] = []
    catalog = catalog_file.load(directory)
    while True:
        content = {"recipe.json": json.dumps(sections).encode()}
        config = examine(directory, content, catalog=catalog)
        errors = [problem for problem in config.problems if problem.level == "error"]
        if not errors:
            return Result(config.recipe, (*left, *refused))
        causes = [problem for problem in errors if problem.rule != "missing" and _removed(sections, problem.path)]
        if not causes:
            lost = (Problem("not-imported", item.reason, item.file, path=item.path) for item in (*left, *refused))
            raise ConfigError((*lost, *errors))
        refused += (Left("recipe", problem.path, problem.message) for problem in causes)


def _removed(sections: Document, path: str) -> bool:
    """Remove the value at a path of a message; False if there is none."""
    *parents, last = read_path(path)
    holder: Any = sections
    try:
        for step in parents:
            holder = holder[step]
        del holder[last]
    except (KeyError, IndexError, TypeError):
        return False
    return True
