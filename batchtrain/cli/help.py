"""The format of help: rich on a terminal; plain text in a pipe, where rich would cost 70 ms and draw boxes."""

from __future__ import annotations

import sys
from typing import Any

import click

from batchtrain.cli.options import global_options

if sys.stdout is not None and sys.stdout.isatty():
    from rich_click import RichCommand as _Command
    from rich_click import RichGroup as _Group
else:
    from click import Command as _Command  # type: ignore[assignment]  # the plain twins of the two above
    from click import Group as _Group  # type: ignore[assignment]


class Command(_Command):
    """A command with the global options behind its own."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += global_options()


class Group(_Group):
    """A group that suggests the nearest command for an unknown one."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not args[0].startswith("-") and (answer := _of_shipyard(ctx, args)):
                raise click.UsageError(f"No such command '{args[0]}'. {answer}", error.ctx or ctx) from None
            import difflib  # only for a misspelt word

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
            if not near or args[0].startswith("-"):
                raise
            raise click.UsageError(
                f"No such command '{args[0]}'. Did you mean `{ctx.command_path} {near[0]}`?", error.ctx or ctx
            ) from None


def _of_shipyard(ctx: click.Context, args: list[str]) -> str | None:
    """The answer to a command of Batch Shipyard."""
    from batchtrain.cli.shipyard import answer  # only for an unknown command

    groups: list[str] = []
    at = ctx
    while at.parent is not None:
        groups.insert(0, at.info_name or "")
        at = at.parent
    return answer(groups, args)


Group.group_class = Group
