"""`batchtrain config`: check and plan without touching any service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import click

from batchtrain import state_files
from batchtrain.cli import loading
from batchtrain.cli.messages import colored, say
from batchtrain.cli.options import from_environment, settings
from batchtrain.cli.output import show, show_rows
from batchtrain.config import fixes, importing, load, user_settings
from batchtrain.config import origin as origins
from batchtrain.config.check import RULES
from batchtrain.config.load import Examined, examine
from batchtrain.errors import Problem
from batchtrain.shipped import shipped


def fix(source: Path, files: dict[str, bytes]) -> list[fixes.Fix]:
    """Fix every problem that has exactly one solution, in the files and in `files`; report each edit."""
    result = fixes.fix(files, _judge(source))
    for file, content in result.files.items():
        state_files.replace(Path(file), content)
        files[file] = content
    for edit in result.applied:
        say(str(edit))
    return list(result.applied)


def _judge(source: Path) -> fixes.Judge:
    """A judge that reports every problem, so that all can be fixed."""
    options, catalog = settings(), loading.catalog_of(source)

    def judge(files: fixes.Files) -> Examined:
        most = sys.maxsize
        return examine(source, files, settings=options.values, ignore=options.ignore, catalog=catalog, most=most)

    return judge


def show_merged(directory: str | None, origin: bool, no_defaults: bool) -> None:
    """Print the effective configuration of all files and settings; secrets are masked."""
    options = settings()
    config = loading.examined(directory)
    view = origins.view(config, defaults=not no_defaults, environment=from_environment(options.values))
    if options.output in ("table", "yaml"):
        print(origins.as_yaml(view, origins=origin))
        return
    show({"values": view.values, "origins": view.origins} if origin else view.values)


def migrate(directory: str | None, write: bool) -> int:
    """Replace deprecated properties and retired VM sizes and images. Comments are kept."""
    source = loading.directory_of(directory)
    files = load.read(source, settings().files)
    result = fixes.migrate(files, _judge(source))
    if write:
        for file, content in result.files.items():
            state_files.replace(Path(file), content)
    remaining = [*result.notes, *(problem for problem in result.left.problems if problem.level != "info")]
    change = fixes.difference(files, result.files)
    if settings().output == "table":
        if change and not write:
            print(change)
        _tell_migrated(result, remaining, write)
    else:
        show({
            "written": write and bool(result.files), "mends": list(result.applied), "diff": change,
            "left": [problem.document for problem in remaining],
        })  # fmt: skip
    return 0


def _tell_migrated(result: fixes.Fixed, remaining: list[Problem], write: bool) -> None:
    for edit in result.applied:
        if write or edit.why:
            say(str(edit))
    if remaining:
        say("left for you:")
        for problem in remaining:
            say(problem.rendered(color=colored(sys.stderr)))
    if not result.files:
        say("nothing to change")
    elif not write:
        say("nothing was written; add --write to change the files")


def import_(files: tuple[str, ...], to: str) -> int:
    """Write a recipe of JSON documents of Azure Batch: those of `az batch pool|job|task create` with `--json-file` or
    `--template`, and pools of ARM and compiled Bicep templates, with their files of parameters.

    What a recipe cannot have is listed with its path. Secrets are never copied.
    """
    result = importing.recipe_of({file: Path(file).read_bytes() for file in files}, Path(to))
    recipe = result.recipe.save(to)
    names = [f"{name}.yaml" for name in recipe.files]
    if settings().output == "table":
        for left in result.left:
            say(str(left))
        show(names, f"wrote {', '.join(names)} to {to}")
    else:
        show({"written": names, "left": [left._asdict() for left in result.left]})
    return 0


def checks() -> None:
    """List the checks by name; `--ignore NAME` silences one."""

    class Check(NamedTuple):
        name: str
        level: str
        about: str
        reads: str
        source: str

    show_rows([Check(rule.name, rule.level, rule.sentence, ", ".join(rule.reads), rule.source) for rule in RULES])


def schema(name: str) -> None:
    """Print the JSON Schema of one file."""
    click.echo((shipped("schemas") / f"{name}.json").read_text(encoding="utf-8"), nl=False)


class Setting(NamedTuple):
    """A setting of the user."""

    name: str
    value: str


def set_(name: str, value: str) -> None:
    """Store a setting of this user. `set registry NAME`: recipes take their images from NAME instead of `example`.
    `set prices_url URL`: `catalog refresh --prices` reads URL instead of Azure's Retail Prices API.
    `set budget.month AMOUNT`: commands that create nodes warn if the runs of this month would cost more.

    An empty VALUE removes the setting.
    """
    file = user_settings.store(name, value)
    setting = Setting(name, user_settings.load().texts[name])
    show(setting, f"{name} is {setting.value or 'not set'} (in {file})")


def get(name: str | None) -> None:
    """Print the settings of this user, or the value of one."""
    values = user_settings.load().texts
    if name is None:
        show_rows([Setting(*pair) for pair in values.items()])
        return
    user_settings.checked(name, "")
    show(Setting(name, values[name]), values[name])
