"""Arguments and options that several commands have, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from batchtrain.config import times

_Function = TypeVar("_Function", bound=Callable[..., Any])


def directories(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes names of directories itself."""
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


def duration(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """A time such as 90s, 30m, 1h30m or 2d, in seconds."""
    if value is None:
        return None
    length = times.duration(value)
    if not length or not 0 < length < float("inf"):
        raise click.BadParameter(f"`{value}` is not a time; write it as 90s, 30m, 1h30m or 2d")
    return length


def since(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    """A time such as 2027-01-31T09:00Z, or how long ago, such as 2h or 30d."""
    if value is None:
        return None
    start, ago = times.moment(value), times.duration(value.removesuffix("ago"))
    if start is None and ago is not None and ago < 10 * 365 * 86400:
        start = datetime.now(timezone.utc) - timedelta(seconds=ago)
    if start is None:
        raise click.BadParameter(f"`{value}` is no time; write it as 10m, 2h or 2027-01-31T09:00Z")
    return start


def _idle_time(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    duration(ctx, parameter, value)
    return value


idle = click.option(
    "--idle", callback=_idle_time, metavar="TIME", help="No nodes after this time without a task, such as 30m."
)
