"""`batchtrain recipe`: list, show and copy the recipes that come with batchtrain."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from batchtrain.cli import loading, shipped_recipes
from batchtrain.cli.messages import completed
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.config import projects
from batchtrain.config.source_directory import SCHEMAS
from batchtrain.containers.recipe_images import behind, environment_of
from batchtrain.errors import UsageError
from batchtrain.shipped import shipped


class RecipeRow(NamedTuple):
    """A recipe in the list."""

    name: str
    about: str
    environment: str
    """The environment that `images env` makes. Empty if the recipe needs GPUs or InfiniBand."""
    megabytes: int
    minutes: int
    """Minutes to make the environment and to train once."""


class New(NamedTuple):
    """A copied recipe, and the commands that run it."""

    recipe: str
    directory: str
    next: tuple[str, ...]


def list_() -> None:
    """List the recipes, and what each needs on this machine."""
    rows = [_listed(recipe) for recipe in shipped_recipes.every()]
    if settings().output == "table":
        print("\n".join(line for row in rows for line in _lines(row)))
    else:
        show_rows(rows)


def _listed(recipe: Path) -> RecipeRow:
    image = shipped_recipes.image_of(recipe, loading.quietly(recipe))
    if not behind(image).environment:
        return RecipeRow(recipe.name, _about(recipe), "", 0, 0)
    name, environment = environment_of(image)
    return RecipeRow(recipe.name, _about(recipe), name, environment.megabytes, environment.minutes)


WIDEST = 80


def _lines(row: RecipeRow) -> tuple[str, str]:
    """Two lines that fit a narrow terminal."""
    if not row.environment:
        return f"{row.name}: plan only, needs GPUs or InfiniBand", f" {row.about}"
    minutes = "1 minute" if row.minutes == 1 else f"{row.minutes} minutes"
    cost = f"{row.megabytes / 1000:.1f} GB, {minutes}"
    short = f"{row.name}: runs here in {row.environment} ({cost})"
    return short if len(short) <= WIDEST else f"{row.name}: runs here ({cost})", f" {row.about}"


def show_(name: str) -> None:
    """Print a recipe's README."""
    recipe = shipped_recipes.find(name)
    text = (recipe / "README.md").read_text(encoding="utf-8")
    files = [file.relative_to(recipe).as_posix() for file in sorted(recipe.rglob("*")) if file.is_file()]
    show({"name": name, "readme": text, "files": files}, text.rstrip("\n"))


def new(name: str, directory: str | None) -> None:
    """Copy a recipe to a new directory; by default one with its name."""
    recipe = shipped_recipes.find(name)
    target = Path(directory or name)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file; name a new directory")
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} exists and is not empty; name a new directory: `batchtrain recipe new {name} DIR`")
    was_there = target.exists()
    try:
        _copy(recipe, target)
        projects.write(target / "config")
    except OSError:  # such as a full disk: half a recipe is useless and would block the next attempt
        for path in target.iterdir() if was_there else [target]:
            shutil.rmtree(path, ignore_errors=True)
        raise
    runs_here = bool(_listed(recipe).environment)
    verbs = ("images env {}", "run {} --local") if runs_here else ("config validate {}", "config plan {}")
    following = tuple(f"batchtrain {verb.format(shlex.quote(str(target)))}" for verb in verbs)
    lines = (f"{name} is in {target}. Next:", *(completed(f"  {line}") for line in following))
    show(New(name, str(target), following), "\n".join(lines))


def _copy(recipe: Path, target: Path) -> None:
    shutil.copytree(recipe, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(shipped("schemas"), target / SCHEMAS, dirs_exist_ok=True)
    for file in (target / "config").glob("*.yaml"):  # so that editors find the schemas from the new directory
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("../../../schemas", "../.schemas"), encoding="utf-8")


def _about(recipe: Path) -> str:
    """The first sentence of a recipe's README below its heading."""
    paragraphs = (recipe / "README.md").read_text(encoding="utf-8").split("\n\n")
    about = next((text for text in paragraphs if not text.lstrip().startswith(("#", "<"))), "")
    return re.split(r"(?<=[.])\s", " ".join(about.split()))[0].rstrip(".")
