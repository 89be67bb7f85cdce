"""Arguments and options that several commands have, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from batchtrain.cli.help import late_bound, late_callback
from batchtrain.config import times

_Function = TypeVar("_Function", bound=Callable[..., Any])


directories = click.Path(file_okay=False).shell_complete
"""The shell completes names of directories itself."""
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


def ids(kind: str) -> Callable[..., list[str]]:
    """Completes an id. kind: `pools` or `jobs`."""
    return partial(late_bound("completion.ids"), kind)


def data_dir(callback: Callable[..., Any] | None = None) -> Callable[[_Function], _Function]:
    """The option for the directory of the emulator."""
    variable, text = "BATCHTRAIN_EMULATOR_DIR", "The data directory of the emulator."
    return click.option("--data-dir", envvar=variable, metavar="DIR", callback=callback, help=text)


WORDS_LAST = {"allow_interspersed_args": False}
"""Everything after the first argument belongs to the command of the user."""
recipes = late_bound("shipped_recipes.offered")
idle = click.option(
    "--idle", callback=_idle_time, metavar="TIME", help="No nodes after this time without a task, such as 30m."
)
ranks = click.option(
    "--rank", "--ranks", metavar="N,N", callback=late_callback("event_lines.choose_ranks"), expose_value=False,
    help="Print only the output of these ranks, such as 0,3 or 0-7. All is recorded."
)  # fmt: skip
bundle = click.option(
    "--bundle",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write everything that was read to a zip file, without secrets, to attach it to a question.",
)
SCRIPT = (
    click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes. Default of a script: 1."),
    click.option("--processes-per-node", type=click.IntRange(min=1), help="Processes on each node."),
    click.option("--gpus-per-node", type=click.IntRange(min=1), help="The same, with one process per GPU."),
    click.option("--size", metavar="SIZE", help="The VM size, such as ND96isr_H100_v5."),
    click.option("--spot", is_flag=True, help="Use spot nodes."),
    click.option(
        "--checkpoints", metavar="NAME", help="Keep checkpoints of a script in a file share of this storage account."
    ),
    click.option("--sweep", metavar="NAME=A,B", multiple=True, help="A task for each value of an option --NAME."),
    click.option("--framework", metavar="NAME", help="How a script is launched. Default: by its imports."),
    click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]", type=click.UNPROCESSED),
)
"""The options of a bare script, and its arguments: the fields of `scripts.Options`."""
