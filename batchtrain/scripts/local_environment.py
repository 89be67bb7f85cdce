"""The local environment of a recipe's image: made once for its content, and used in place of the image."""

from __future__ import annotations

import os
from pathlib import Path

from batchtrain.config import source_packages
from batchtrain.config.types import Recipe
from batchtrain.containers import make_environment, recipe_images, resolution
from batchtrain.containers.make_environment import Intended, Say
from batchtrain.emulator import mapped_images
from batchtrain.emulator.local_service import emulator_directory


def make(recipe: Recipe, image: str, say: Say, *, data_dir: Path | None = None, dry_run: bool = False) -> Intended:
    """Make the environment of an image of a recipe unless it exists, and map the image to it. say: receives what is
    downloaded before the download, and each step. dry_run: only say what is downloaded. Raises NotMade."""
    data, packages = data_dir or emulator_directory(), source_packages.of_recipe(recipe, image)
    name, spec = recipe_images.environment_of(image, recipe.directory, packages)
    plan = resolution.resolved(make_environment.intend(name, spec, make_environment.home(data, os.environ), packages))
    for line in () if plan.ready else plan.summary:
        say(line)
    if not dry_run:
        make_environment.make(plan, say)
        mapped_images.map_image(data, image, plan.prefix)
    return plan
