"""The global options, valid before and after the verb, and the settings that they make.

`--help` imports this module, so what it does not need is imported in functions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

import click

from batchtrain.errors import UsageError, printable_lines, shortened

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from batchtrain.catalog.prices import Hour
    from batchtrain.client.client import Client
    from batchtrain.client.ending import Ending
    from batchtrain.config.load import Examined, Loaded
    from batchtrain.config.types import Recipe
    from batchtrain.records.events import Event
    from batchtrain.runs.recording import Origin
    from batchtrain.service.register import Kind

_Function = TypeVar("_Function", bound=Callable[..., Any])
STARTED = time.monotonic()
PARTS = ("credentials", "config", "pool", "jobs")
PROGRESS = ("auto", "live", "plain", "none")
FORMATS = ("table", "json", "jsonl", "yaml", "csv")


@dataclass
class Settings:
    """The values of the global options; the only mutable state of the command line."""

    configdir: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Files used in place of those of the directory, by part."""
    local: bool | None = None
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
        return (" --local" if self.local else self.credentials_options) + account

    @property
    def credentials_options(self) -> str:
        """The options with which another command reads the same credentials."""
        import shlex

        directory = self.directory or self.configdir or ""
        words = ["--configdir", directory] if directory not in ("", ".") else []
        if "credentials" in self.files:
            words += ["--credentials", self.files["credentials"]]
        return "".join(f" {shlex.quote(word)}" for word in words)

    def pasted(self, text: str) -> str:
        """A message whose commands use the same account and the same script as this command."""
        from batchtrain.hints import pasted

        return pasted(text, self.target, self.credentials_options, script=self.script, values=self.value_options)

    @property
    def value_options(self) -> str:
        """The options with which another command sets the same values; secrets are masked."""
        if not self.values:
            return ""
        import shlex

        from batchtrain.config.masking import masked_word, secrets_in

        secrets = secrets_in(self.recipe, self.values)
        words = (masked_word(f"{path}={value}", secrets) for path, value in self.values.items())
        return "".join(f" --set {shlex.quote(word)}" for word in words)

    @property
    def most(self) -> int:
        """The number of problems to show: the first ones on a terminal, all in a document."""
        from batchtrain.config.load import MOST

        return MOST if self.output == "table" else sys.maxsize

    def load(self, directory: str | None = None, *, needs: tuple[str, ...] = ()) -> Loaded:
        """The configuration of `directory`, else of --configdir, else of the working directory."""
        from batchtrain.config.load import Loaded

        examination = self.examined(directory, needs=needs)
        config = Loaded(examination.recipe, examination.problems)
        for warning in config.warnings:
            say(str(warning))
        return config

    def examined(self, directory: str | None = None, *, needs: tuple[str, ...] = ()) -> Examined:
        """As `recipe`, with the origin of each value; warnings are not printed yet."""
        from msgspec.structs import replace

        from batchtrain.config import load
        from batchtrain.config.candidates import selected

        source = directory or self.configdir or "."
        self.directory = directory or ""
        examination = load.examined(
            source,
            settings=self.values,
            needs=needs,
            ignore=self.ignore,
            files=self.files,
            local=bool(self.local),
            most=self.most,
        )
        recipe = examination.recipe
        self.recipe = replace(recipe, credentials=selected(recipe.credentials, self.batch_account))
        return examination._replace(recipe=self.recipe)

    def quietly(self, directory: str | Path) -> Recipe:
        """The configuration of `directory` for a command that sends none of it: the checks do not apply."""
        from batchtrain.config import check, load

        checks = [rule.name for rule in check.RULES]
        return load.load(directory, settings=self.values, ignore=(*self.ignore, *checks)).recipe

    def hour_of(self, recipe: Recipe) -> Hour | None:
        """An hour of the recipe's pool, with its price where this command would run. Sends no request."""
        from batchtrain.plan import cost

        region = None if self.local else cost.region_for(recipe.credentials, os.environ)
        return cost.hour_of(recipe, region)

    def connect(
        self, config: Loaded | None = None, *, changes: str = "", question: str = "", ends_it: bool = False
    ) -> Client:
        """A client for the target. `changes` is printed first, after the answer to a `question`.

        `ends_it`: the caller stops an emulator that this call started. The credentials are those beside the files of
        the pool and the jobs, otherwise those of the working directory.
        """
        from batchtrain.client import client
        from batchtrain.config.load import load_credentials
        from batchtrain.records.events import ServiceUnreachable
        from batchtrain.service import retry

        credentials = config.recipe.credentials if config else load_credentials(self.configdir or ".", self.files)
        connection = client.connect(
            local=self.local, credentials=credentials, display=False, account=self.batch_account
        )
        connection.say = say
        unlisten = retry.listen(lambda text: tell(ServiceUnreachable("", text)))
        click.get_current_context().find_root().call_on_close(unlisten)
        if connection.account.started and not ends_it:
            say("started the embedded Azure Batch; `batchtrain emulator stop` ends it")
        if connection.account.started and connection.account.data_loss:
            say(connection.account.data_loss)
        if question:
            self.confirm(f"{question} on {service_of(connection)}?")
        if changes:
            say(f"{changes} on {service_of(connection)}")
        return connection

    @property
    def runs_root(self) -> Path:
        """The directory of the runs: that of --runs-dir, of the environment, or the usual one."""
        from batchtrain.runs.directory import root_of

        return root_of(self.runs_dir, os.environ)

    def origin(self, directory: str | None = None) -> Origin:
        """The location of the run directory, and the facts about the start of the run that it stores."""
        from batchtrain.config import load
        from batchtrain.runs.recording import Origin

        files = load.read(load.find(directory, self.files), self.files) if directory else {}
        command = ("batchtrain", *sys.argv[1:])
        return Origin(self.runs_root, command, dict(self.values), files)

    def settle_copy(self, recipe: Recipe) -> None:
        """Ask once whether a copied recipe continues the checkpoints of the original. Without a terminal it is another
        project, which the command says when it adds the jobs."""
        from batchtrain.config import projects
        from batchtrain.runs.beginnings import copied_from

        original = copied_from(recipe)
        if original is None or sys.stdin is None or not sys.stdin.isatty():
            return
        question = f"This recipe was copied from {original.path}. Continue the checkpoints of that project?"
        own_id = projects.project_of(recipe.directory).id  # of trainings that it began without a terminal
        try:
            projects.write(recipe.directory, original.id if click.confirm(question, err=True) else own_id)
        except OSError as error:
            say(f"{recipe.directory} cannot be written ({error.strerror}), so it is taken as a project of its own")

    def confirm(self, question: str) -> None:
        """Ask before something is destroyed. Without a terminal, this is an error."""
        if self.yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(f"{question} There is no terminal to ask; add -y.")
        if not click.confirm(printable_lines(question), err=True):
            say("nothing was done")
            raise click.exceptions.Exit(2)


def service_of(client: Client) -> str:
    """The account of a client, as a question names it."""
    account = client.account
    return "the embedded Azure Batch" if account.emulated else f"account {account.name} at {account.endpoint}"


Tone = Literal["success", "failure", "warning", "tool"]
TONES: Mapping[Tone, int] = {"success": 32, "failure": 31, "warning": 33, "tool": 2}
"""The colours of messages on a terminal, as SGR codes. The output of programs keeps its own."""


def say(text: str, tone: Tone = "tool") -> None:
    """Print progress to stderr, so that results can be piped. Commands in it can be pasted; node ids are short; nothing
    in it controls a terminal."""
    from batchtrain.cli.wrapping import terminal_width, wrapped

    message = wrapped(shortened(completed(printable_lines(text))), terminal_width(sys.stderr))
    _narrate(f"\x1b[{TONES[tone]}m{message}\x1b[0m" if colored(sys.stderr) else message, sys.stderr)


def colored(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that accepts colours."""
    if stream is None or not stream.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def completed(text: str) -> str:
    """A message whose commands use the same account and the same script as this command."""
    return settings().pasted(text)


def _narrate(text: str, stream: TextIO | None) -> None:
    """Print a line at once. A reader that has ended, such as `head -1` or a closed terminal, does not end the command.
    A full disk behind the stream does."""
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        silence(stream)


def silence(stream: TextIO | None) -> None:
    """Discard further output to a stream without a reader, also when Python ends."""
    if stream is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def tell(event: Event) -> None:
    """Print an event as progress. The output of a task goes to the same stream it came from, unless stdout is for a
    document."""
    from batchtrain.cli.log_lines import of_event
    from batchtrain.records.events import Detail, Observed, Output, Stdout  # `--help` has no events

    verbose = settings().verbose
    if (isinstance(event, Observed) and not event.text) or (isinstance(event, Detail) and not verbose):
        return
    if isinstance(event, Output) and settings().ranks and not shows_rank(of_event(event).rank):
        return
    if isinstance(event, Stdout) and settings().output == "table":
        _narrate(_for(sys.stdout, event.text), sys.stdout)
    elif isinstance(event, Output):
        _narrate(_for(sys.stderr, own_shortened(event.text)), sys.stderr)
    elif settings().progress != "none":
        text = f"[{time.monotonic() - STARTED:6.2f} s] {event.kind}: {event.text}" if verbose else event.text
        say(text, _tone(event))


def shows_rank(rank: int | None) -> bool:
    """Whether the lines of a rank are printed; those of no rank always are."""
    return rank is None or not settings().ranks or rank in settings().ranks


def _tone(event: Event) -> Tone:
    from batchtrain.records import events

    failures = (events.TaskFailure, events.JobFailed, events.ResultsFailed, events.Leftover, events.MetricsSeen)
    if isinstance(event, failures) or (isinstance(event, events.Results) and event.diverged):
        return "failure"
    warnings = (events.AttemptEnded, events.ServiceUnreachable, events.QuotaWaits, events.TasksLeft)
    return "warning" if isinstance(event, warnings) else "success" if isinstance(event, events.Results) else "tool"


def _for(stream: TextIO | None, line: str) -> str:
    """A line of a task for a stream: a pipe gets it as it is."""
    from batchtrain.display.terminal import terminal_text

    return terminal_text(line) if stream is not None and stream.isatty() else line


def own_shortened(line: str) -> str:
    """A line of a task. Node ids are shortened in the lines of batchtrain; the program's lines are unchanged."""
    return shortened(line) if "batchtrain: " in line and settings().output == "table" else line


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


@contextmanager
def results_last(tell: Callable[[Event], None] = tell) -> Iterator[Callable[[Event], None]]:
    """Prints the events, and where the results are as the last of all."""
    from batchtrain.records.events import Results

    held: list[Event] = []
    try:
        yield lambda event: held.append(event) if isinstance(event, Results) else tell(event)
    finally:
        for event in held:
            say(event.text, "success")


def registered(client: Client, recipe: Recipe, tell: Callable[[Event], None] = tell) -> AbstractContextManager[Ending]:
    """The ending of an `add` command: if that fails, it reports what was created, and the next commands."""
    from batchtrain.client import ending
    from batchtrain.service.register import KINDS

    return ending.registered(client, client.register(recipe), tell, KINDS)


@contextmanager
def waiting(kind: Kind, name: str, client: Client) -> Iterator[None]:
    """If a deadline passes or the service cannot be reached, report that nothing was changed and how to wait again. Of
    a job whose pool is gone, report how to delete it."""
    from batchtrain.client.ending import left
    from batchtrain.errors import NotFound, TimedOut, Unreachable
    from batchtrain.service.faults import NO_CONNECTION
    from batchtrain.service.register import Thing

    try:
        yield
    except (TimedOut, Unreachable) as error:
        if not isinstance(error, Unreachable) or error.code != NO_CONNECTION:
            thing = Thing(kind, name)
            say(left((thing,), client.account.option, waits=(thing,)))
        raise
    except NotFound as error:
        if kind == "job" and error.code == "PoolNotFound":
            say(left((Thing(kind, name),), client.account.option))
        raise


def directories(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes names of directories itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


directory = click.argument("directory", metavar="[DIR]", required=False, shell_complete=directories)
"""The recipe or its configuration directory. Default: --configdir, otherwise the working directory."""


class Number(click.types.FloatParamType):
    """A number of an option: neither nan nor infinite, and above `above`."""

    def __init__(self, above: float = float("-inf")) -> None:
        self._above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not self._above < number < float("inf"):
            self.fail("write a finite number" + (f" above {self._above:g}" if self._above == 0 else ""), param, ctx)
        return number


FINITE, POSITIVE = Number(), Number(above=0)


def seconds(_ctx: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """The deadline of a wait: a finite number of seconds."""
    if value is not None and not 0 <= value < float("inf"):
        raise click.BadParameter("write a number of seconds, 0 or more")
    return value


def timeout(default: float, text: str = "Maximum seconds to wait.") -> Callable[[_Function], _Function]:
    """The option for the deadline of a wait, in seconds."""
    return click.option("--timeout", type=float, callback=seconds, default=default, show_default=True, help=text)


def numbers(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> frozenset[int]:
    """Numbers such as 0,3 or 0-7."""
    from batchtrain.cli.log_lines import numbers

    try:
        return numbers(value) if value is not None else frozenset()
    except ValueError:
        raise click.BadParameter(f"`{value}` is no list of numbers; write it as 0,3 or 0-7") from None


def _choose_ranks(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    ctx.find_root().ensure_object(Settings).ranks = numbers(ctx, parameter, value)


ranks = click.option(
    "--rank", "--ranks", metavar="N,N", callback=_choose_ranks, expose_value=False,
    help="Print only the output of these ranks, such as 0,3 or 0-7. All is recorded.",
)  # fmt: skip


def duration(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """A time such as 90s, 30m, 1h30m or 2d, in seconds."""
    if value is None:
        return None
    from batchtrain.config.times import duration

    length = duration(value)
    if not length or not 0 < length < float("inf"):
        raise click.BadParameter(f"`{value}` is not a time; write it as 90s, 30m, 1h30m or 2d")
    return length


def _idle_time(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    duration(ctx, parameter, value)
    return value


idle = click.option(
    "--idle", callback=_idle_time, metavar="TIME", help="No nodes after this time without a task, such as 30m."
)


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is None or value == () or value is False:
            return
        settings_ = ctx.find_root().ensure_object(Settings)
        if name == "values":
            settings_.values.update(_assignments(value))
        elif name == "ignore":
            settings_.ignore.extend(value)
        elif name in PARTS:
            settings_.files[name] = value
        else:
            setattr(settings_, name, value)

    return callback


def _assignments(values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"`{value}` is not of the form a.b=c")
        pairs[name.strip()] = text
    return pairs


def values_of_variable() -> dict[str, str]:
    """The values of BATCHTRAIN_SET, one per line."""
    lines = os.environ.get("BATCHTRAIN_SET", "").splitlines()
    return _assignments(tuple(line for line in lines if line.strip()))


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
