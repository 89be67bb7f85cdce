"""The options of a bare script, and its recipe for `run` and `init`."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from batchtrain.cli.messages import say
from batchtrain.cli.options import assignments, settings
from batchtrain.config import saving
from batchtrain.config.load import Loaded
from batchtrain.config.source_directory import SCHEMAS
from batchtrain.config.types import Recipe
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.emulator.machine import azurite
from batchtrain.errors import UsageError
from batchtrain.scripts import local_environment, recipe
from batchtrain.scripts.detection import NONE, Undecided
from batchtrain.scripts.recipe import Prepared

FILE = "batchtrain.yaml"


class Options(NamedTuple):
    """Their values."""

    nodes: int | None = None
    processes_per_node: int | None = None
    gpus_per_node: int | None = None
    size: str | None = None
    spot: bool = False
    framework: str | None = None
    checkpoints: str | None = None
    sweep: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The options as the user writes them, without the arguments of the script."""
        named = self._asdict()
        del named["arguments"]
        sweep = (("--sweep", text) for text in named.pop("sweep"))
        pairs = (*((f"--{name.replace('_', '-')}", value) for name, value in named.items() if value), *sweep)
        return tuple(word for name, value in pairs for word in ((name,) if value is True else (name, str(value))))

    @property
    def passed(self) -> tuple[str, ...]:
        """The arguments of the script, with those that `--sweep` adds."""
        return recipe.swept(self.arguments, assignments(self.sweep))

    @property
    def processes_each(self) -> int | None:
        """The processes of a node, by either name. Raises UsageError if both are given."""
        return recipe.processes_each(self.processes_per_node, self.gpus_per_node)

    @property
    def wish(self) -> recipe.Wish:
        """What they say about a script."""
        values = {name: value for name, value in self._asdict().items() if value and name in recipe.Wish._fields}
        others = {"processes_per_node": self.processes_each, "sweeps": bool(self.sweep), "arguments": self.passed}
        return recipe.Wish(**values | others)

    @property
    def grid(self) -> dict[str, str]:
        """The values of a recipe that make a task for each combination of `--sweep`."""
        return {recipe.of_factory("grid", name): f"[{text}]" for name, text in assignments(self.sweep).items()}

    def as_settings(self, directory: str) -> dict[str, str]:
        """The values of a recipe that mean the same. Raises UsageError for what only a script has."""
        for name, key in (("framework", "multi_instance"), ("checkpoints", "checkpoint")):
            if getattr(self, name):
                raise UsageError(
                    f"{directory} is not a Python script, and `--{name}` is for one; write `{key}` into the recipe"
                )
        texts = {
            "nodes": self.nodes,
            "processes_per_node": self.processes_each,
            "size": self.size,
            "spot": "true" if self.spot else None,
            "arguments": " ".join(map(recipe.quoted, self.passed)),
        }
        return {name: str(text) for name, text in texts.items() if text} | self.grid


def options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Collects the options and arguments of a script, which a command has as parameters, in its parameter `wish`."""

    @functools.wraps(function)
    def command(**values: Any) -> int | None:
        wish = Options(**{name: values.pop(name) for name in Options._fields})
        return function(wish=wish, **values)

    return command


def is_script(path: str | None) -> bool:
    """Whether the user names a script, existing or not, and not a recipe."""
    return path is not None and (path.endswith(".py") or Path(path).is_file())


def load(path: str, wish: Options, *, uploads: bool = False) -> Loaded:
    """The recipe of a script; says what was understood, and with --local makes the environment. uploads: the tasks send
    their results to storage. Raises UsageError."""
    prepared = prepare(path, wish)
    recipe = prepared.recipe
    for warning in recipe.warnings:
        say(str(warning))
    if (other := Path(path).with_name(FILE)).is_file():
        say(f"{other} is not used; `batchtrain run {shlex.quote(str(other.parent))}` runs what it says")
    if is_for_emulator(settings().local):
        if (uploads or wish.checkpoints) and (storage := azurite.needed()):
            say(f"it needs {storage}")
        local_environment.make(recipe, prepared.image, say)
    elif prepared.image:
        say(
            f"the image {prepared.image} must be in its registry: `batchtrain init {path}` writes the recipe, and"
            " `batchtrain images build DIR --push` builds and pushes the image"
        )
    return Loaded(recipe, recipe.warnings)


def prepare(path: str, wish: Options, *, in_image: bool | None = None, runs: bool = True) -> Prepared:
    """The recipe of a script; says what was understood. in_image: whether it runs in an image; by default as needed.
    runs: the recipe is for a run now."""
    options = settings()
    prepared = recipe.prepare(
        Path(path),
        wish.wish,
        settings=options.values | wish.grid,
        ignore=options.ignore,
        files=options.files,
        local=options.local,
        in_image=in_image,
        choose=_choose,
        runs=runs,
    )
    choice = prepared.choice
    launch, so = f"with {choice.name}", ""
    if choice.name == NONE:
        on_nodes = "on each node, with RANK and WORLD_SIZE if there are several"
        launch = "without a framework"
        so = f", so it runs once {'for each task of the sweep' if wish.sweep else on_nodes}"
    say(f"{path} is launched {launch}: {choice.reason}{so} (`--framework NAME` chooses another)")
    if prepared.above:
        modules, root = " and ".join(map(_shown, prepared.above)), _shown(prepared.recipe.directory)
        say(f"it imports from {modules}, so {root} is sent, and it starts there")
    for package_list in prepared.packages:
        if package_list.packages and package_list.directory != Path(path).parent.resolve():
            say(f"its packages are those of {os.path.relpath(package_list.path)}")
    return prepared


def _shown(directory: str | Path) -> str:
    """A directory as the user sees it from here."""
    path = os.path.relpath(directory)
    return "this directory" if path == os.curdir else path


def _choose(undecided: Undecided) -> str:
    """Ask the user which framework is meant. Raises Undecided without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise undecided
    say(str(undecided))
    answer: str = click.prompt("framework", type=click.Choice(undecided.names), err=True)
    return answer


def text_of(recipe: Recipe) -> str:
    """The text of batchtrain.yaml for a recipe."""
    comments = [f"# {warning}\n" for warning in recipe.warnings if warning.rule == "script-launcher"]
    return saving.whole(recipe.files, f"{SCHEMAS}/{FILE.removesuffix('.yaml')}.json") + "".join(comments)
