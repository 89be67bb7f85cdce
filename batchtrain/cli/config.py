"""`batchtrain config`: check and plan without touching any service."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from batchtrain.cli import options
from batchtrain.cli.help import Group
from batchtrain.cli.options import colored, say, settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.plan import explain, plan
from batchtrain.cli.wrapping import broken
from batchtrain.errors import ConfigError, Problem

if TYPE_CHECKING:
    from batchtrain.catalog.offer import Catalog
    from batchtrain.config import fixes
    from batchtrain.config.load import Examined


@click.group(cls=Group)
def command() -> None:
    """Check, plan and explain configuration files; offline, and without credentials."""


command.add_command(plan)
command.add_command(explain)


@command.command()
@options.directory
@click.option("--fix", is_flag=True, help="Fix problems that have exactly one solution. Comments are kept.")
def validate(directory: str | None, fix: bool) -> int:
    """Report every problem of every file, with its position."""
    from batchtrain.config import load, user_settings

    source = _directory(directory)
    files = load.read(source, settings().files)
    mends = _fix(source, files) if fix else []
    options = settings()
    config = load.examine(
        source,
        files,
        settings=options.values,
        ignore=options.ignore,
        catalog=_catalog(source),
        local=bool(options.local),
        most=options.most,
        registry=user_settings.load().registry,
    )
    if options.output == "table":
        _report(source, files, config)
        return 0
    problems = [problem.document for problem in config.problems]
    answer = {"valid": config.valid, "problems": problems}
    show({**answer, "mends": mends} if fix else answer)
    return 0 if config.valid else ConfigError.exit_code


def _directory(directory: str | None) -> Path:
    from batchtrain.config.load import find

    return find(directory or settings().configdir or ".", settings().files)


def _catalog(source: Path) -> Catalog:
    from batchtrain.config import catalog_file

    return catalog_file.load(source)


def _fix(source: Path, files: dict[str, bytes]) -> list[fixes.Fix]:
    """Fix every problem that has exactly one solution, in the files and in `files`; report each edit."""
    from batchtrain.config import fixes, load

    result = fixes.fix(files, _judge(source))
    for file, content in result.files.items():
        load.write(file, content)
        files[file] = content
    for edit in result.applied:
        say(str(edit))
    return list(result.applied)


def _judge(source: Path) -> fixes.Judge:
    """A judge that reports every problem, so that all can be fixed."""
    from batchtrain.config.load import examine

    options, catalog = settings(), _catalog(source)

    def judge(files: fixes.Files) -> Examined:
        most = sys.maxsize
        return examine(source, files, settings=options.values, ignore=options.ignore, catalog=catalog, most=most)

    return judge


def _report(source: Path, files: Collection[str], config: Examined) -> None:
    """Prints the problems: errors end the command; warnings come before the result."""
    if not config.valid:
        raise ConfigError(config.problems)
    for warning in config.problems:
        print(broken(warning.rendered(color=colored(sys.stdout)), sys.stdout))
    read = ", ".join(Path(file).name for file in files)
    print(broken(f"{source} is valid ({read})", sys.stdout))


@command.command("show")
@options.directory
@click.option("--origin", is_flag=True, help="Show the origin of each value.")
@click.option("--no-defaults", is_flag=True, help="Omit defaults.")
def show_merged(directory: str | None, origin: bool, no_defaults: bool) -> None:
    """Print the effective configuration of all files and settings; secrets are masked."""
    from batchtrain.cli.options import from_environment
    from batchtrain.config import origin as origins

    options = settings()
    config = options.examined(directory)
    view = origins.view(config, defaults=not no_defaults, environment=from_environment(options.values))
    if options.output in ("table", "yaml"):
        print(origins.as_yaml(view, origins=origin))
        return
    show({"values": view.values, "origins": view.origins} if origin else view.values)


@command.command()
@options.directory
@click.option("--write", is_flag=True, help="Change the files. Without it, the changes are only shown.")
def migrate(directory: str | None, write: bool) -> int:
    """Replace deprecated properties and retired VM sizes and images. Comments are kept."""
    from batchtrain.config import fixes, load

    source = _directory(directory)
    files = load.read(source, settings().files)
    result = fixes.migrate(files, _judge(source))
    if write:
        for file, content in result.files.items():
            load.write(file, content)
    still = (problem for problem in result.left.problems if problem.rule in fixes.ANSWERED or problem.level == "error")
    remaining = [*result.notes, *still]
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
    for edit in result.applied if write else ():
        say(str(edit))
    if remaining:
        say("left for you:")
        for problem in remaining:
            say(problem.rendered(color=colored(sys.stderr)))
    if not result.files:
        say("nothing to change")
    elif not write:
        say("nothing was written; add --write to change the files")


@command.command()
def checks() -> None:
    """List the checks by name; `--ignore NAME` silences one."""
    from batchtrain.config.check import RULES

    class Check(NamedTuple):
        name: str
        level: str
        about: str
        reads: str
        source: str

    show_rows([Check(rule.name, rule.level, rule.sentence, ", ".join(rule.reads), rule.source) for rule in RULES])


@command.command()
@click.argument("name", type=click.Choice(["credentials", "config", "pool", "jobs"]))
def schema(name: str) -> None:
    """Print the JSON Schema of one file."""
    from batchtrain.shipped import shipped

    click.echo((shipped("schemas") / f"{name}.json").read_text(encoding="utf-8"), nl=False)


class Setting(NamedTuple):
    """A setting of the user."""

    name: str
    value: str


@command.command("set")
@click.argument("name")
@click.argument("value")
def set_(name: str, value: str) -> None:
    """Store a setting of this user. `set registry NAME`: recipes take their images from NAME instead of `example`.
    `set prices_url URL`: `catalog refresh --prices` reads URL instead of Azure's Retail Prices API.

    An empty VALUE removes the setting.
    """
    from batchtrain.config import user_settings

    file = user_settings.store(name, value)
    setting = Setting(name, getattr(user_settings.load(), name))
    show(setting, f"{name} is {setting.value or 'not set'} (in {file})")


@command.command()
@click.argument("name", required=False)
def get(name: str | None) -> None:
    """Print the settings of this user, or the value of one."""
    import msgspec

    from batchtrain.config import user_settings

    values = msgspec.structs.asdict(user_settings.load())
    if name is None:
        show_rows([Setting(*pair) for pair in values.items()])
        return
    user_settings.checked(name, "")
    show(Setting(name, values[name]), values[name])
