"""The options of a bare script, and its recipe for `run` and `init`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from batchtrain.cli.options import say, settings
from batchtrain.errors import UsageError

if TYPE_CHECKING:
    from batchtrain.config.load import Loaded
    from batchtrain.config.types import Recipe
    from batchtrain.scripts.detection import Undecided
    from batchtrain.scripts.recipe import Prepared

FILE = "batchtrain.yaml"
_OPTIONS = (
    click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes of a script. Default: 1."),
    click.option("--processes-per-node", type=click.IntRange(min=1), help="Processes of a script on each node."),
    click.option("--gpus-per-node", type=click.IntRange(min=1), help="The same, with one process per GPU."),
    click.option("--size", metavar="SIZE", help="The VM size for a script, such as ND96isr_H100_v5."),
    click.option("--spot", is_flag=True, help="Run a script on spot nodes."),
    click.option("--framework", metavar="NAME", help="How a script is launched. Default: by what it imports."),
)
_ARGUMENTS = click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]", type=click.UNPROCESSED)


class Options(NamedTuple):
    """Their values."""

    nodes: int | None = None
    processes_per_node: int | None = None
    gpus_per_node: int | None = None
    size: str | None = None
    spot: bool = False
    framework: str | None = None
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The options as the user writes them, without the arguments of the script."""
        named = self._asdict()
        del named["arguments"]
        pairs = ((f"--{name.replace('_', '-')}", value) for name, value in named.items() if value)
        return tuple(word for name, value in pairs for word in ((name,) if value is True else (name, str(value))))

    def refuse(self, directory: str) -> None:
        """Raise UsageError if a recipe gets what only a script has."""
        if self.arguments:
            raise UsageError(
                f"{directory} is not a Python script, so it takes no arguments (`{self.arguments[0]}`);"
                " `--set command=...` changes the command of a recipe"
            )
        if self.words:
            raise UsageError(
                f"{directory} is not a Python script; `{self.words[0]}` is for one. `--set` changes a value of a"
                " recipe, such as `--set nodes=3`"
            )


def options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Adds the options of a script to a command, and its arguments as the last one; they are the parameter `wish`."""

    @functools.wraps(function)
    def command(**values: Any) -> int | None:
        wish = Options(**{name: values.pop(name) for name in Options._fields})
        return function(wish=wish, **values)

    for parameter in (_ARGUMENTS, *reversed(_OPTIONS)):
        command = parameter(command)
    return command


def is_script(path: str | None) -> bool:
    """Whether the user names a script, existing or not, and not a recipe."""
    return path is not None and (path.endswith(".py") or Path(path).is_file())


def load(path: str, wish: Options) -> Loaded:
    """The recipe of a script; says what was understood, and with --local makes the environment. Raises UsageError."""
    from batchtrain.config.load import Loaded
    from batchtrain.config.user_settings import is_for_emulator
    from batchtrain.scripts import local_environment

    prepared = prepare(path, wish)
    recipe = prepared.recipe
    for warning in recipe.warnings:
        say(str(warning))
    if not is_for_emulator(settings().local):
        if prepared.image:
            say(
                f"the image {prepared.image} must be in its registry: `batchtrain init {path}` writes the recipe, and"
                " `batchtrain images build DIR --push` builds and pushes the image"
            )
    else:
        local_environment.make(recipe, prepared.image, prepared.packages, say)
    return Loaded(recipe, recipe.warnings)


def prepare(path: str, wish: Options, *, in_image: bool | None = None) -> Prepared:
    """The recipe of a script; says what was understood. in_image: whether it runs in an image; by default as needed."""
    from batchtrain.scripts import recipe
    from batchtrain.scripts.detection import NONE

    options = settings()
    prepared = recipe.prepare(
        Path(path),
        recipe.Wish(
            wish.nodes or 1,
            recipe.processes_each(wish.processes_per_node, wish.gpus_per_node),
            wish.size or "",
            wish.spot,
            wish.framework or "",
            wish.arguments,
        ),
        settings=options.values,
        ignore=options.ignore,
        files=options.files,
        local=options.local,
        in_image=in_image,
        choose=_choose if has_terminal() else None,
    )
    choice = prepared.choice
    launch = "without a framework" if choice.name == NONE else f"with {choice.name}"
    say(f"{path} is launched {launch}: {choice.reason} (`--framework NAME` chooses another)")
    return prepared


def has_terminal() -> bool:
    """Whether the user can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def _choose(undecided: Undecided) -> str:
    """Ask the user which framework is meant."""
    say(str(undecided))
    answer: str = click.prompt("framework", type=click.Choice(undecided.names), err=True)
    return answer


def text_of(recipe: Recipe) -> str:
    """The text of batchtrain.yaml for a recipe."""
    from batchtrain.config import saving
    from batchtrain.config.source_directory import SCHEMAS

    return saving.whole(recipe.files, f"{SCHEMAS}/{FILE.removesuffix('.yaml')}.json")
