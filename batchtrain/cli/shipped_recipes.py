"""The recipes that come with batchtrain, by name."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from batchtrain.config.types import Recipe
from batchtrain.errors import NotFound, UsageError
from batchtrain.shipped import shipped


def every() -> list[Path]:
    """Their directories."""
    return sorted(directory for directory in shipped("recipes").iterdir() if (directory / "config").is_dir())


def find(name: str) -> Path:
    """The directory of a recipe. Raises NotFound with the nearest name."""
    names = {recipe.name: recipe for recipe in every()}
    if name in names:
        return names[name]
    by_lower_name = {recipe_name.lower(): recipe_name for recipe_name in names}
    near = difflib.get_close_matches(name.lower(), by_lower_name, n=1, cutoff=0.6)
    hint = f"did you mean {by_lower_name[near[0]]}?" if near else "`batchtrain recipe list` shows them"
    raise NotFound(f"there is no recipe {name}; {hint}")


def directory_of(name: str) -> Path:
    """The user's recipe directory, otherwise the shipped recipe of that name. Raises NotFound."""
    return directory_or_none(name) or find(name)


def directory_or_none(name: str) -> Path | None:
    """As `resolved`, but returns None if there is neither."""
    path = Path(name)
    if path.is_dir() and any(map(tuple, (path.glob("*.yaml"), path.glob("config/*.yaml")))):
        return path
    return next((recipe for recipe in every() if recipe.name == name), None)


def image_of(directory: Path, recipe: Recipe) -> str:
    """The only image of a recipe. Raises UsageError if it names none or several."""
    images = recipe.resources.docker_images
    if len(images) != 1:
        listing = ", ".join(images) or "none, and `batchtrain init SCRIPT --local` writes a recipe with an environment"
        raise UsageError(f"{directory} must name one image in `docker_images` of config.yaml; it names {listing}")
    return images[0]


def offered(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names for shell completion."""
    return [recipe.name for recipe in every() if recipe.name.lower().startswith(incomplete.lower())]
