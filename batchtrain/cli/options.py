"""The global options, valid before and after the verb, and what they amount to."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchtrain.errors import UsageError

if TYPE_CHECKING:
    from batchtrain.client import Client
    from batchtrain.config.load import Loaded
    from batchtrain.service.submit import Event

Command = TypeVar("Command", bound=Callable[..., Any])
STARTED = time.monotonic()
FORMATS = ("table", "json", "jsonl", "yaml")


@dataclass
class Settings:
    """What the global options say; the one thing of the command line that is filled in step by step."""

    configdir: str | None = None
    local: bool | None = None
    values: dict[str, str] = field(default_factory=dict)
    ignore: list[str] = field(default_factory=list)
    output: str = "table"
    yes: bool = False
    verbose: bool = False
    color: bool | None = None

    def load(self, directory: str | None = None, *, needs: tuple[str, ...] = ()) -> Loaded:
        """The configuration of `directory`, else of --configdir, else of the working directory."""
        from batchtrain.config.load import load

        loaded = load(directory or self.configdir or ".", settings=self.values, needs=needs, ignore=self.ignore)
        for warning in loaded.warnings:
            say(str(warning))
        return loaded

    def connect(self, loaded: Loaded | None = None, *, changes: str = "") -> Client:
        """A client for where to run; `changes` is what will be changed there, said first."""
        from batchtrain import client

        loaded = loaded or self._own_files()
        connected = client.connect(local=self.local, credentials=loaded.recipe.credentials if loaded else None)
        if changes:
            account = connected.account
            place = "the embedded Azure Batch" if account.emulated else f"account {account.name}"
            say(f"{changes} on {place} at {account.endpoint}")
        return connected

    def _own_files(self) -> Loaded | None:
        if self.configdir is None:
            return None
        return self.load()

    def confirm(self, question: str) -> None:
        """Ask before something is destroyed; without a terminal that is an error at once."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(f"{question} Nobody can answer here; add -y.")
        click.confirm(question, abort=True, err=True)


def say(text: str) -> None:
    """Narration: to stderr, so that results can be piped."""
    print(text, file=sys.stderr, flush=True)


def tell(event: Event) -> None:
    """An event as narration; a task's own output goes where the task sent it."""
    if event.kind == "stdout":
        print(event.text, flush=True)
    elif settings().verbose and event.kind != "stderr":
        say(f"[{time.monotonic() - STARTED:6.2f} s] {event.kind}: {event.text}")
    else:
        say(event.text)


def settings() -> Settings:
    """The settings of the command that is running."""
    found = click.get_current_context().find_root().ensure_object(Settings)
    assert isinstance(found, Settings)
    return found


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is None or value == () or value is False:
            return
        found = ctx.find_root().ensure_object(Settings)
        if name == "values":
            found.values.update(_assignments(value))
        elif name == "ignore":
            found.ignore.extend(value)
        else:
            setattr(found, name, value)

    return callback


def _assignments(values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{value}` is not of the form a.b=c")
        pairs[name.strip()] = text
    return pairs


def _uncolored(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


def _debug(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["BATCHTRAIN_DEBUG"] = "1"


_OPTIONS = (
    click.option("--configdir", envvar="BATCHTRAIN_CONFIGDIR", metavar="DIR", help="Directory of the YAML files.",
                 expose_value=False, callback=_store("configdir")),
    click.option("--local", is_flag=True, default=None, envvar="BATCHTRAIN_LOCAL", expose_value=False,
                 help="Run on the embedded Azure Batch of this machine.", callback=_store("local")),
    click.option("--set", "values", multiple=True, envvar="BATCHTRAIN_SET", metavar="A.B=C", expose_value=False,
                 help="A value that wins over the files'.", callback=_store("values")),
    click.option("--ignore", multiple=True, envvar="BATCHTRAIN_IGNORE", metavar="CHECK", expose_value=False,
                 help="Silence a check by name.", callback=_store("ignore")),
    click.option("-o", "--output", type=click.Choice(FORMATS), envvar="BATCHTRAIN_OUTPUT", expose_value=False,
                 help="Form of the result.", callback=_store("output")),
    click.option("-y", "--yes", is_flag=True, envvar="BATCHTRAIN_YES", expose_value=False,
                 help="Do not ask.", callback=_store("yes")),
    click.option("-v", "--verbose", is_flag=True, envvar="BATCHTRAIN_VERBOSE", expose_value=False,
                 help="Say when each step was done.", callback=_store("verbose")),
    click.option("--no-color", is_flag=True, envvar="BATCHTRAIN_NO_COLOR", expose_value=False,
                 help="Plain text.", callback=_uncolored),
    click.option("--debug", is_flag=True, envvar="BATCHTRAIN_DEBUG", expose_value=False,
                 help="Show where an error comes from.", callback=_debug),
)  # fmt: skip


def common(command: Command) -> Command:
    """Give a command the global options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
