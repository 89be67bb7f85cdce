"""What the README of a recipe tells its reader to run, and running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batchtrain.config.load import load
from batchtrain.containers import make_environment
from batchtrain.containers.environments import ENVIRONMENTS
from batchtrain.containers.recipe_images import behind
from batchtrain.shipped import shipped

HERE = re.compile(r"^## Run it here\n.*?^```sh\n(.*?)^```", flags=re.M | re.S)


def commands(recipe: str) -> list[list[str]]:
    """The words of the commands below "Run it here", each without `batchtrain`."""
    text = (shipped("recipes") / recipe / "README.md").read_text(encoding="utf-8")
    found = HERE.search(text)
    assert found is not None, recipe
    return [shlex.split(line)[1:] for line in found[1].splitlines()]


def environment_of(recipe: str) -> str:
    """The name of a recipe's local environment; empty if the recipe cannot run here."""
    (image,) = load(shipped("recipes") / recipe).recipe.resources.docker_images
    return behind(image).environment


def follow(batchtrain: Any, environment: Callable[[str], Path], recipe: str, *more: str) -> str:
    """Run the commands of a README as they stand, the last one with `more`; what the last one printed."""
    prepare(batchtrain, environment, recipe)
    *first, last = commands(recipe)
    for words in first:
        batchtrain(*words)
    return str(batchtrain(*last, *more).stdout)


def prepare(batchtrain: Any, environment: Callable[[str], Path], recipe: str) -> None:
    """Let `images env` of a recipe find the tests' own environment, so that it makes none."""
    if name := environment_of(recipe):
        made, folder = environment(name), batchtrain.cwd / "environments"
        batchtrain.environment[make_environment.HOME] = str(folder)
        intended = make_environment.intend(name, ENVIRONMENTS[name], folder)
        if not intended.ready:
            folder.mkdir()
            intended.prefix.symlink_to(made)
