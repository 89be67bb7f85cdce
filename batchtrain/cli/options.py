"""The global options, valid before and after the verb, and the settings that they make.

`--help` imports this module, so what it does not need is imported in functions.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from batchtrain.config.types import Recipe

_Function = TypeVar("_Function", bound=Callable[..., Any])
STARTED = time.monotonic()
PARTS = ("credentials", "config", "pool", "jobs")
PROGRESS = ("auto", "live", "plain", "none")
OF_FILE = "."
"""In place of the id of a pool: the pool of pool.yaml."""
FORMATS = ("table", "json", "jsonl", "yaml", "csv")


@dataclass
class Settings:
    """The values of the global options; the only mutable state of the command line."""

    configdir: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Files used in place of those of the directory, by part."""
    local: bool | None = None
    real_storage: bool | None = None
    """Whether the emulator uses the storage accounts of credentials.yaml."""
    batch_account: str = ""
    """The name of one of `batch_accounts`."""
    values: dict[str, str] = field(default_factory=dict)
    ignore: list[str] = field(default_factory=list)
    output: str = "table"
    yes: bool = False
    verbose: bool = False
    directory: str = ""
    """The directory that the command names and that was read."""
    progress: str = "auto"
    """How progress is shown: one of PROGRESS."""
    drawing: bool = False
    """Whether a live block is on the terminal, so that nothing else may be drawn."""
    undrawn: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    """Removes the live block from the terminal, and holds the output of tasks back during a question."""
    strict_budget: bool = False
    """Whether a command that would exceed the budget of the month is refused."""
    runs_dir: str | None = None
    """The directory of the runs."""
    recipe: Recipe | None = None
    """The last recipe that was read; a failure shows none of its secrets."""
    ranks: frozenset[int] = frozenset()
    """The ranks whose output is printed; by default all."""
    script: tuple[str, str] = ("", "")
    """The script that is run, with its options, and its arguments."""
    rest: str = ""
    """Where to find the full output behind a failure message. Default: the log of the task."""

    @property
    def target(self) -> str:
        """The options with which another command reaches the same account."""
        account = f" --batch-account {self.batch_account}" if self.batch_account else ""
        local = " --local --real-storage" if self.real_storage else " --local"
        return (local if self.local else self.credentials_options) + account

    @property
    def credentials_options(self) -> str:
        """The options with which another command reads the same credentials."""
        directory = self.directory or self.configdir or ""
        words = ["--configdir", directory] if directory not in ("", ".") else []
        if "credentials" in self.files:
            words += ["--credentials", self.files["credentials"]]
        return "".join(f" {shlex.quote(word)}" for word in words)


_OF_COMMAND: ContextVar[Settings] = ContextVar("settings")


def settings() -> Settings:
    """The settings of the command that is running, also in its threads, of which click knows nothing."""
    context = click.get_current_context(silent=True)
    if context is None:
        return _OF_COMMAND.get()
    settings_ = context.find_root().ensure_object(Settings)
    assert isinstance(settings_, Settings)
    _OF_COMMAND.set(settings_)
    return settings_


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is None or value == () or value is False:
            return
        settings_ = ctx.find_root().ensure_object(Settings)
        if name == "values":
            settings_.values.update(assignments(value))
        elif name == "ignore":
            settings_.ignore.extend(value)
        elif name in PARTS:
            settings_.files[name] = value
        else:
            setattr(settings_, name, value)

    return callback


def assignments(values: tuple[str, ...]) -> dict[str, str]:
    """The values of `--set` or `--sweep`, by name."""
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"`{value}` is not of the form NAME=VALUE")
        pairs[name.strip()] = text
    return pairs


def values_of_variable() -> dict[str, str]:
    """The values of BATCHTRAIN_SET, one per line."""
    lines = os.environ.get("BATCHTRAIN_SET", "").splitlines()
    return assignments(tuple(line for line in lines if line.strip()))


def from_environment(values: Mapping[str, str]) -> frozenset[str]:
    """The values of BATCHTRAIN_SET that no option replaces."""
    return frozenset(name for name, text in values_of_variable().items() if values.get(name) == text)


def _uncolored(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["NO_COLOR"] = "1"


def _debug(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["BATCHTRAIN_DEBUG"] = "1"


def _check_names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from batchtrain.config.check import RULES

    return [rule.name for rule in RULES if rule.name.startswith(incomplete)]


_OPTIONS: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    ("CONFIGDIR", ("--configdir",), {
        "metavar": "DIR", "help": "Directory of the YAML files.", "callback": _store("configdir")}),
    *((f"{part.upper()}_FILE", (f"--{part}", f"{part}_file"), {
        "metavar": "FILE", "help": f"Use this file instead of {part}.yaml of the directory.", "callback": _store(part),
    }) for part in PARTS),
    ("LOCAL", ("--local",), {
        "is_flag": True, "default": None, "help": "Run on the embedded Azure Batch of this machine.",
        "callback": _store("local")}),
    ("REAL_STORAGE", ("--real-storage",), {
        "is_flag": True, "default": None, "help": "With --local: use the storage accounts of credentials.yaml, not the"
        " storage of this machine.", "callback": _store("real_storage")}),
    ("BATCH_ACCOUNT", ("--batch-account",), {
        "metavar": "NAME", "help": "Use this account of `batch_accounts` in credentials.yaml; with --local, of the"
        " emulator.", "callback": _store("batch_account")}),
    ("", ("--set", "values"), {
        "multiple": True, "metavar": "A.B=C",
        "help": "Override a value of the files, such as nodes=4 (BATCHTRAIN_SET: one per line).",
        "callback": _store("values")}),
    ("IGNORE", ("--ignore",), {
        "multiple": True, "metavar": "CHECK", "help": "Silence a check by name.", "callback": _store("ignore"),
        "shell_complete": _check_names}),
    ("OUTPUT", ("-o", "--output"), {
        "type": click.Choice(FORMATS), "help": "Output format.", "callback": _store("output")}),
    ("RUNS_DIR", ("--runs-dir",), {
        "metavar": "DIR", "help": "Directory of the runs. Default: runs.", "callback": _store("runs_dir")}),
    ("STRICT_BUDGET", ("--strict-budget",), {
        "is_flag": True, "default": None, "help": "Refuse what would exceed the budget of the month (`config set`).",
        "callback": _store("strict_budget")}),
    ("PROGRESS", ("--progress",), {
        "type": click.Choice(PROGRESS), "help": "Progress: a live block on a terminal, plain lines, or none.",
        "callback": _store("progress")}),
    ("YES", ("-y", "--yes"), {"is_flag": True, "help": "Do not ask for confirmation.", "callback": _store("yes")}),
    ("VERBOSE", ("-v", "--verbose"), {
        "is_flag": True, "help": "Print each step with its time.", "callback": _store("verbose")}),
    ("NO_COLOR", ("--no-color",), {"is_flag": True, "help": "Plain text.", "callback": _uncolored}),
    ("DEBUG", ("--debug",), {"is_flag": True, "help": "Show the traceback of an error.", "callback": _debug}),
)  # fmt: skip


def global_options(*, variables: bool = False) -> list[click.Option]:
    """The global options of a command. Only the root reads the variables, so that an option wins in every position."""
    return [
        click.Option(words, expose_value=False, envvar=f"BATCHTRAIN_{name}" if variables and name else None, **more)
        for name, words, more in _OPTIONS
    ]
