"""`batchtrain recipe`: the recipes that come with batchtrain, to look at and to copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common
from batchtrain.cli.output import show, show_rows
from batchtrain.errors import NotFound, UsageError


class Listed(NamedTuple):
    """A recipe in the list."""

    name: str
    about: str


@click.group(cls=Group)
def command() -> None:
    """Recipes that come with batchtrain."""


@command.command("list", cls=Command)
@common
def list_() -> None:
    """List the recipes."""
    show_rows([Listed(place.name, _about(place)) for place in _all()])


@command.command("show", cls=Command)
@click.argument("name")
@common
def show_(name: str) -> None:
    """Print a recipe's README."""
    place = _find(name)
    text = (place / "README.md").read_text(encoding="utf-8")
    files = [str(file.relative_to(place)) for file in sorted(place.rglob("*")) if file.is_file()]
    show({"name": name, "readme": text, "files": files}, text.rstrip("\n"))


@command.command(cls=Command)
@click.argument("name")
@click.argument("directory")
@common
def new(name: str, directory: str) -> None:
    """Copy a recipe to a new directory, to be edited."""
    place, target = _find(name), Path(directory)
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is there already and not empty; name a new directory")
    shutil.copytree(place, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(_data() / "schemas", target / ".schemas", dirs_exist_ok=True)
    for file in (target / "config").glob("*.yaml"):  # editors must still find the schemas from there
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("../../../schemas", "../.schemas"), encoding="utf-8")
    show({"recipe": name, "directory": str(target)}, f"{name} is in {target}; run it: batchtrain run {target} --local")


def _all() -> list[Path]:
    return sorted(place for place in (_data() / "recipes").iterdir() if (place / "config").is_dir())


def _data() -> Path:
    """Where `recipes` and `schemas` are: the wheel carries them, a checkout has them beside the package."""
    package = Path(__file__).resolve().parent.parent
    return package / "_data" if (package / "_data").is_dir() else package.parent


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
    for line in (place / "README.md").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "<")):
            return line if len(line) <= 80 else line[:77] + "..."
    return ""
