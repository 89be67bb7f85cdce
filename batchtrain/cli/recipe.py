"""`batchtrain recipe`: list, show and copy the recipes that come with batchtrain."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, directories
from batchtrain.cli.output import show, show_rows
from batchtrain.errors import NotFound, UsageError
from batchtrain.shipped import shipped


class Listed(NamedTuple):
    """A recipe in the list."""

    name: str
    about: str


def _names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [place.name for place in _all() if place.name.startswith(incomplete)]


recipe_name = click.argument("name", shell_complete=_names)


@click.group(cls=Group)
def command() -> None:
    """Recipes that come with batchtrain."""


@command.command("list", cls=Command)
@common
def list_() -> None:
    """List the recipes."""
    show_rows([Listed(place.name, _about(place)) for place in _all()])


@command.command("show", cls=Command)
@recipe_name
@common
def show_(name: str) -> None:
    """Print a recipe's README."""
    place = _find(name)
    text = (place / "README.md").read_text(encoding="utf-8")
    files = [str(file.relative_to(place)) for file in sorted(place.rglob("*")) if file.is_file()]
    show({"name": name, "readme": text, "files": files}, text.rstrip("\n"))


@command.command(cls=Command)
@recipe_name
@click.argument("directory", metavar="DIR", shell_complete=directories)
@common
def new(name: str, directory: str) -> None:
    """Copy a recipe to a new directory."""
    place, target = _find(name), Path(directory)
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} exists and is not empty; name a new directory")
    was_there = target.exists()
    try:
        _copy(place, target)
    except OSError:  # such as a full disk: half a recipe is of no use, and would be in the way of the next try
        for made in target.iterdir() if was_there else [target]:
            shutil.rmtree(made, ignore_errors=True)
        raise
    run = f"`batchtrain run {shlex.quote(directory)} --local`"
    show({"recipe": name, "directory": str(target)}, f"{name} is in {target}; run it: {run}")


def _copy(place: Path, target: Path) -> None:
    shutil.copytree(place, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(shipped("schemas"), target / ".schemas", dirs_exist_ok=True)
    for file in (target / "config").glob("*.yaml"):  # editors must still find the schemas from there
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("../../../schemas", "../.schemas"), encoding="utf-8")


def _all() -> list[Path]:
    return sorted(place for place in shipped("recipes").iterdir() if (place / "config").is_dir())


def _find(name: str) -> Path:
    import difflib

    names = {place.name: place for place in _all()}
    if name in names:
        return names[name]
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "`batchtrain recipe list` shows them"
    raise NotFound(f"there is no recipe {name}; {hint}")


def _about(place: Path) -> str:
    """The first sentence of a recipe's README below its heading."""
    paragraphs = (place / "README.md").read_text(encoding="utf-8").split("\n\n")
    about = next((text for text in paragraphs if not text.lstrip().startswith(("#", "<"))), "")
    return re.split(r"(?<=[.])\s", " ".join(about.split()))[0].rstrip(".")
