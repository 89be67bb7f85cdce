"""The global options, valid before and after the verb, and what they amount to."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchtrain.errors import UsageError

if TYPE_CHECKING:
    from batchtrain.client import Client
    from batchtrain.config.load import Examined, Loaded
    from batchtrain.service.submit import Event

Command = TypeVar("Command", bound=Callable[..., Any])
STARTED = time.monotonic()
PARTS = ("credentials", "config", "pool", "jobs")
FORMATS = ("table", "json", "jsonl", "yaml")


@dataclass
class Settings:
    """What the global options say; the one thing of the command line that is filled in step by step."""

    configdir: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Files that stand in for those of the directory, by part."""
    local: bool | None = None
    values: dict[str, str] = field(default_factory=lambda: _assignments(_lines("BATCHTRAIN_SET")))
    ignore: list[str] = field(default_factory=list)
    output: str = "table"
    yes: bool = False
    verbose: bool = False

    def load(self, directory: str | None = None, *, needs: tuple[str, ...] = ()) -> Loaded:
        """The configuration of `directory`, else of --configdir, else of the working directory."""
        from batchtrain.config.load import Loaded

        found = self.examined(directory, needs=needs)
        loaded = Loaded(found.recipe, found.problems)
        for warning in loaded.warnings:
            say(str(warning))
        return loaded

    def examined(self, directory: str | None = None, *, needs: tuple[str, ...] = ()) -> Examined:
        """The same with where everything was read; its warnings are not said yet."""
        from batchtrain.config import load

        place = directory or self.configdir or "."
        return load.examined(place, settings=self.values, needs=needs, ignore=self.ignore, files=self.files)

    def connect(self, loaded: Loaded | None = None, *, changes: str = "", ends_it: bool = False) -> Client:
        """A client for where to run; `changes` is what will be changed there, said first; `ends_it`: the caller stops
        an embedded service that this started.

        The account is that of the same files that name the pool and the jobs, or of the working directory's.
        """
        from batchtrain import client
        from batchtrain.config.load import load_credentials

        credentials = loaded.recipe.credentials if loaded else load_credentials(self.configdir or ".", self.files)
        connected = client.connect(local=self.local, credentials=credentials)
        if connected.account.started and not ends_it:
            say("started the embedded Azure Batch; `batchtrain emulator stop` ends it")
        if changes:
            account = connected.account
            place = "the embedded Azure Batch" if account.emulated else f"account {account.name}"
            say(f"{changes} on {place} at {account.endpoint}")
        return connected

    def confirm(self, question: str) -> None:
        """Ask before something is destroyed; without a terminal that is an error at once."""
        if self.yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(f"{question} Nobody can answer here; add -y.")
        if not click.confirm(question, err=True):
            say("nothing was done")
            raise click.exceptions.Exit(2)


def _lines(variable: str) -> tuple[str, ...]:
    return tuple(line for line in os.environ.get(variable, "").splitlines() if line.strip())


def say(text: str) -> None:
    """Narration: to stderr, so that results can be piped."""
    print(text, file=sys.stderr, flush=True)


def tell(event: Event) -> None:
    """An event as narration; a task's own output goes where the task sent it, unless stdout is for a document."""
    if event.kind.endswith(".adding") and not settings().verbose:
        return
    if event.kind == "stdout" and settings().output == "table":
        print(event.text, flush=True)
    elif settings().verbose and event.kind not in ("stdout", "stderr"):
        say(f"[{time.monotonic() - STARTED:6.2f} s] {event.kind}: {event.text}")
    else:
        say(event.text)


def settings() -> Settings:
    """The settings of the command that is running."""
    found = click.get_current_context().find_root().ensure_object(Settings)
    assert isinstance(found, Settings)
    return found


@contextmanager
def standing(kind: str, name: str, client: Client) -> Iterator[None]:
    """Say what stands, and how to delete it, when the rest of a command fails after something was made."""
    from batchtrain.errors import AlreadyExists, BatchtrainError, NotAllowed, NotFound, PlanError, Unreachable

    try:
        yield
    except (AlreadyExists, NotAllowed, NotFound, PlanError, Unreachable):
        raise
    except (BatchtrainError, KeyboardInterrupt):
        group = {"pool": "pool", "job": "jobs"}[kind]
        say(f"{kind} {name} may stand; delete it: batchtrain {group} del {name}" + client.account.option)
        raise


def seconds(_ctx: click.Context, _parameter: click.Parameter, value: float) -> float:
    """A wait's deadline: a number of seconds, and not without end."""
    if not 0 <= value < float("inf"):
        raise click.BadParameter("this must be a number of seconds, 0 or more")
    return value


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is None or value == () or value is False:
            return
        found = ctx.find_root().ensure_object(Settings)
        if name == "values":
            found.values.update(_assignments(value))
        elif name == "ignore":
            found.ignore.extend(value)
        elif name in PARTS:
            found.files[name] = value
        else:
            setattr(found, name, value)

    return callback


def _assignments(values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"`{value}` is not of the form a.b=c")
        pairs[name.strip()] = text
    return pairs


def from_environment(values: Mapping[str, str]) -> frozenset[str]:
    """Of the values that win over the files', those that BATCHTRAIN_SET gave and no option replaced."""
    given = _assignments(_lines("BATCHTRAIN_SET"))
    return frozenset(name for name, text in given.items() if values.get(name) == text)


def _uncolored(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


def _debug(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["BATCHTRAIN_DEBUG"] = "1"


def _options(*, variables: bool) -> list[Callable[[Command], Command]]:
    return [
        click.option(*words, expose_value=False, envvar=f"BATCHTRAIN_{name}" if variables and name else None, **more)
        for name, words, more in _OPTIONS
    ]


_OPTIONS: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    ("CONFIGDIR", ("--configdir",), {
        "metavar": "DIR", "help": "Directory of the YAML files.", "callback": _store("configdir")}),
    *((f"{part.upper()}_FILE", (f"--{part}", f"{part}_file"), {
        "metavar": "FILE", "help": f"This file in place of the directory's {part}.yaml.", "callback": _store(part),
    }) for part in PARTS),
    ("LOCAL", ("--local",), {
        "is_flag": True, "default": None, "help": "Run on the embedded Azure Batch of this machine.",
        "callback": _store("local")}),
    ("", ("--set", "values"), {
        "multiple": True, "metavar": "A.B=C", "help": "A value that wins over the files' (BATCHTRAIN_SET: one a line).",
        "callback": _store("values")}),
    ("IGNORE", ("--ignore",), {
        "multiple": True, "metavar": "CHECK", "help": "Silence a check by name.", "callback": _store("ignore")}),
    ("OUTPUT", ("-o", "--output"), {
        "type": click.Choice(FORMATS), "help": "Form of the result.", "callback": _store("output")}),
    ("YES", ("-y", "--yes"), {"is_flag": True, "help": "Do not ask.", "callback": _store("yes")}),
    ("VERBOSE", ("-v", "--verbose"), {
        "is_flag": True, "help": "Say when each step was done.", "callback": _store("verbose")}),
    ("NO_COLOR", ("--no-color",), {"is_flag": True, "help": "Plain text.", "callback": _uncolored}),
    ("DEBUG", ("--debug",), {"is_flag": True, "help": "Show where an error comes from.", "callback": _debug}),
)  # fmt: skip


def common(command: Command) -> Command:
    """Give a command the global options."""
    for option in reversed(_options(variables=False)):
        command = option(command)
    return command


def common_with_variables(command: Command) -> Command:
    """Give the root the global options; it alone reads the variables, so that an option wins wherever it stands."""
    for option in reversed(_options(variables=True)):
        command = option(command)
    return command
