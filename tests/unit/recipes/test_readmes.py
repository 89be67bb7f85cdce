"""The READMEs of all recipes have one order, and their commands are those that run the recipe."""

from __future__ import annotations

import re

import pytest

from batchtrain.cli import shipped_recipes
from tests import recipe_copies, recipe_readmes, trained_models

ALL = [place.name for place in shipped_recipes.every()]
LOAD = "Load the model"
ORDER = ["Run it here", "What it prints", LOAD, "Run it on Azure", "The files", "What to change first"]
"""What it shows comes first of all and has no heading. Only a recipe that trains has a model."""
AS_ON_A_NODE = "CNTK-GPU-Infiniband-IntelMPI"
"""The recipe of an existing document, whose paths are put on this machine."""


def sections(recipe: str) -> list[str]:
    text = next(place for place in shipped_recipes.every() if place.name == recipe).joinpath("README.md").read_text()
    return re.findall(r"^## (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)


@pytest.mark.parametrize("recipe", ALL)
def test_a_readme_has_its_sections_in_the_one_order(recipe: str) -> None:
    order = [name for name in ORDER if name != LOAD or recipe in trained_models.EVALUATIONS]
    assert sections(recipe)[: len(order)] == order


@pytest.mark.parametrize("recipe", [name for name in ALL if name != AS_ON_A_NODE])
def test_three_commands_copy_the_recipe_and_run_it_or_plan_it(recipe: str) -> None:
    new, prepare, run = recipe_readmes.commands(recipe)
    assert new == ["recipe", "new", recipe]
    if recipe_readmes.environment_of(recipe):
        assert (prepare, run[:3]) == (["images", "env", recipe], ["run", recipe, "--local"])
    else:
        assert (prepare, run) == (["config", "validate", recipe], ["config", "plan", recipe])


@pytest.mark.parametrize("recipe", trained_models.EVALUATIONS)
def test_three_lines_load_the_model(recipe: str) -> None:
    assert len(trained_models.lines(recipe).splitlines()) == 3


def test_a_copy_of_a_program_has_the_lines_that_load_the_model_of_the_first() -> None:
    """Only the first recipe trains in the tests, and its model is loaded."""
    shared = {name.partition("/")[0]: copies for name, copies in recipe_copies.SHARED.items() if "src/train.py" in name}
    for first, copies in shared.items():
        lines = {trained_models.lines(recipe) for recipe in (first, *copies)}
        assert len(lines) == 1, first


def test_every_recipe_with_a_program_has_a_model_or_measures() -> None:
    programs = {place.name for place in shipped_recipes.every() if (place / "src").is_dir()}
    measuring = {name for name in programs if "Bench" in name or "Fabric" in name}
    assert programs - measuring == {*trained_models.EVALUATIONS}
