"""The local environment of a bare script: made once for its content, and used in place of its image."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from batchtrain.client.local import emulator_directory
from batchtrain.config.source_packages import SourcePackages, digest
from batchtrain.config.types import Recipe
from batchtrain.containers import make_environment, recipe_images, resolution
from batchtrain.emulator import mapped_images


def make(recipe: Recipe, image: str, packages: tuple[SourcePackages, ...], say: Callable[[str], None]) -> Path:
    """Make the environment of an image of a recipe unless it exists, and map the image to it. say: receives what is
    downloaded before the download, and each step. Raises NotMade."""
    data = emulator_directory()
    name, spec = recipe_images.environment_of(image, recipe.directory, lists_packages=bool(digest(packages)))
    intended = make_environment.intend(name, spec, make_environment.home(data, os.environ), packages)
    plan = resolution.resolved(intended)
    for line in () if plan.ready else plan.summary:
        say(line)
    make_environment.make(plan, say)
    mapped_images.map_image(data, image, plan.prefix)
    return plan.prefix
