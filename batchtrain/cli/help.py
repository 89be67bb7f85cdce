"""The format of help: rich on a terminal; plain text in a pipe, where rich would cost 70 ms and draw boxes."""

from __future__ import annotations

import ast
import importlib
import linecache
import signal
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, cast

import click

from batchtrain.cli.options import global_options

IS_RICH = sys.stdout is not None and sys.stdout.isatty()
if IS_RICH:
    from rich_click import RichCommand as _Command
    from rich_click import RichGroup as _Group
else:
    from click import Command as _Command  # type: ignore[assignment]  # the plain twins of the two above
    from click import Group as _Group  # type: ignore[assignment]

SHARED = "The options of all commands, such as --local and --set: --help-all"
WIDEST_EXAMPLE = 76


class Command(_Command):
    """A command with the global options behind its own. Its help shows its own, and examples of the documentation."""

    def __init__(self, *arguments: Any, function: str, paragraphs: str = "", **settings: Any) -> None:
        """function: MODULE.NAME, whose docstring is the help. paragraphs: MODULE.NAME of more of it."""
        super().__init__(*arguments, **settings)
        self.function, self._paragraphs = function, paragraphs
        self._shared = global_options()
        self.params += self._shared
        self.params.append(
            click.Option(
                ("--help-all",), is_flag=True, is_eager=True, expose_value=False, callback=_help_all,
                help="Show this message with the options of all commands.",
            )
        )  # fmt: skip

    @property
    def valued(self) -> frozenset[str]:
        """The names of the options with a value."""
        options = (option for option in self.params if isinstance(option, click.Option))
        return frozenset(name for option in options if not (option.is_flag or option.count) for name in option.opts)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of Batch Shipyard are taken for their equals here, or answered."""
        words = list(args)
        try:
            return self._parsed(ctx, args)
        except click.NoSuchOption:
            from batchtrain.cli import shipyard  # only for an unknown option

            try:
                again = shipyard.renamed(
                    " ".join(_path(ctx)), words, interspersed=ctx.allow_interspersed_args, valued=self.valued
                )
            except shipyard.OtherOption as answer:
                raise click.UsageError(str(answer), ctx) from None
            if again is None:
                raise
            return self._parsed(ctx, again)

    def _parsed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Words after `--` are the arguments of the user's program, also if the directory before them is missing."""
        has_program = any(isinstance(item, click.Argument) and item.name == "arguments" for item in self.params)
        end = args.index("--") if has_program and "--" in args else len(args)
        rest = super().parse_args(ctx, args[:end])
        if has_program:
            ctx.params["arguments"] += tuple(args[end + 1 :])
        return rest

    def get_help(self, ctx: click.Context) -> str:
        """The help; while it is made, the shared options are hidden."""
        is_whole = ctx.meta.get(_WHOLE, False)
        for option in self._shared:
            option.hidden = not is_whole
        more = _member(self._paragraphs) if self._paragraphs else ()
        self.help = "\n\n".join((docstring(self.function) or "", *more))
        try:
            lines = [*_examples(ctx.command_path), *(() if is_whole else (SHARED,))]
            self.epilog = "\n\n".join(lines) if IS_RICH else "\b\n" + "\n".join(lines)
            return super().get_help(ctx)
        finally:
            for option in self._shared:
                option.hidden = False

    def get_short_help_str(self, limit: int = 45) -> str:
        """The whole first sentence."""
        return super().get_short_help_str(1000)


_WHOLE = "batchtrain.help_all"


def _help_all(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _examples(path: str) -> list[str]:
    """Commands of this name in the blocks of the documentation, which tests run: the shortest and the longest."""
    from batchtrain.shipped import shipped  # only for help

    words = " ".join(("batchtrain", *path.split()[1:]))
    lines: dict[str, None] = {}
    for page in sorted(shipped("docs").glob("*/*.md")):
        in_block = False
        for line in page.read_text(encoding="utf-8").splitlines():
            in_block = line == "```sh" or (in_block and line != "```")
            if (
                in_block
                and line.startswith(words)
                and line[len(words) : len(words) + 1] in ("", " ")
                and line[-1] != "\\"
            ):
                lines[line.partition("  #")[0].strip()] = None
    by_length = sorted((line for line in lines if line != words and len(line) < WIDEST_EXAMPLE), key=len) or list(lines)
    return [f"  {line}" for line in dict.fromkeys((*by_length[:1], *by_length[-1:]))]


class Group(_Group):
    """A group that answers an unknown command."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from batchtrain.cli import unknown  # only for an unknown command

            if not (answer := unknown.answer(_path(ctx), args, self.list_commands(ctx), ctx.command_path)):
                raise
            raise click.UsageError(f"No such command '{args[0]}'. {answer}", error.ctx or ctx) from None


def late_bound(path: str) -> Callable[..., Any]:
    """The function MODULE.NAME of this package, or .MODULE.NAME of the one above; a call imports it."""

    def function(*arguments: Any, **options: Any) -> Any:
        return _member(path)(*arguments, **options)

    return function


def late_callback(path: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """The same as the callback of a parameter. Completion, which needs no values, does not call it."""

    def callback(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        return value if ctx.resilient_parsing else _member(path)(ctx, parameter, value)

    return callback


def _member(path: str) -> Any:
    """What a path names. A signal waits for its import: later imports fail after one that a signal broke off."""
    module, _, name = path.rpartition(".")
    mask = getattr(signal, "pthread_sigmask", lambda *_: ())  # Windows has none
    before = mask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        return getattr(importlib.import_module(f".{module}", __package__), name)
    finally:
        mask(signal.SIG_SETMASK, before)


class Action:
    """A command: its parameters, and the function that it calls, whose docstring is its help."""

    def __init__(self, function: str, *parameters: Callable[[Any], Any], **settings: Any) -> None:
        """function: MODULE.NAME of this package; only a call imports the module. settings: those of click.Command."""
        self.function, self._parameters, self._settings = function, parameters, settings

    def command(self, name: str) -> Command:
        """The command as click has it."""
        callback = late_bound(self.function)
        for add in reversed(self._parameters):
            callback = add(callback)
        return click.command(name, cls=Command, function=self.function, **self._settings)(callback)


class Door(NamedTuple):
    """A command or a group with its sentence in the list of commands."""

    command: str | Doors
    """MODULE.NAME of an action of this package, or a group."""
    summary: str


Table = Mapping[str, "Action | Door | Doors"]


class Doors(Group):
    """A group whose commands, and what they call, are imported when they are needed."""

    def __init__(self, about: str, commands: Table | str, **settings: Any) -> None:
        """commands: in the order of their list; or MODULE.NAME of such a table."""
        super().__init__(help=about, **settings)
        self._table = commands

    @property
    def doors(self) -> Table:
        """The commands by name."""
        if isinstance(self._table, str):
            self._table = cast(Table, _member(self._table))
        return self._table

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.doors)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """The entry in a list of commands: name and summary."""
        match self.doors.get(name):
            case None:
                return None
            case Door(summary=summary):
                return _Entry(name, help=summary)
            case Action() as action:
                return _Entry(name, help=docstring(action.function))
            case group:
                return _Entry(name, help=group.help)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command itself, to run it or to complete its arguments."""
        name, *arguments = args
        return (name, self.member(name), arguments) if name in self.doors else super().resolve_command(ctx, args)

    def member(self, name: str) -> click.Command:
        """A command of the group."""
        door = self.doors[name]
        if isinstance(door, Door):
            door = door.command if isinstance(door.command, Doors) else cast(Action, _member(door.command))
        return door.command(name) if isinstance(door, Action) else door


class _Entry(click.Command):
    """A command in a list of commands."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """The whole first sentence."""
        return super().get_short_help_str(1000)


def docstring(function: str) -> str | None:
    """The docstring of MODULE.NAME, read from its source: to import each for a list would take half a second."""
    module, _, name = function.rpartition(".")
    definitions = (node for node in _source(module).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return next(map(ast.get_docstring, definitions), None)


@cache
def _source(module: str) -> ast.Module:
    path = f"{__file__.removesuffix('help.py')}{module}.py"  # pathlib would add 3 ms to every `--help`
    return ast.parse("".join(linecache.getlines(path)))


def _path(ctx: click.Context) -> list[str]:
    """The names of the groups and of the command, without that of the program."""
    return [*_path(ctx.parent), ctx.info_name or ""] if ctx.parent is not None else []


Group.group_class = Group
