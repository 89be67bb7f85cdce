"""The frameworks' training scripts: one file where two recipes share it, and readable by the Python they run on."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests import recipe_copies

RECIPES = Path(__file__).parents[3] / "recipes"
OLD = {"CNTK": (3, 6), "MXNet": (3, 7), "TensorFlow-Benchmarks": (3, 7)}
"""The Python of frameworks that ended: a part of a recipe's name, and MAJOR, MINOR."""
SCRIPTS = sorted(path for path in RECIPES.glob("*/src/*.py"))


@pytest.mark.parametrize(
    ("copy", "source"), list(recipe_copies.copies()), ids=lambda path: f"{path.parts[-3]}-{path.name}"
)
def test_a_copy_in_another_recipe_is_its_source(copy: Path, source: Path) -> None:
    assert copy.read_bytes() == source.read_bytes(), "run `python -m tests.recipe_copies`"


def test_every_source_that_two_recipes_have_is_in_the_table_of_copies() -> None:
    copies = {copy for copy, _ in recipe_copies.copies()}
    contents = Counter(path.read_bytes() for path in SCRIPTS if path not in copies)
    assert [count for count in contents.values() if count > 1] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_a_script_is_readable_by_the_python_it_runs_on(path: Path) -> None:
    version = next((found for part, found in OLD.items() if part in path.parts[-3]), (3, 10))
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=version)
    assert ast.get_docstring(tree)
    if version == (3, 6):
        names = [name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
        assert "annotations" not in names
