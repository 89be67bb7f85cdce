"""Events of a run as lines of progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from batchtrain.cli import log_lines
from batchtrain.cli.log_lines import of_event
from batchtrain.cli.messages import Tone, narrate, say
from batchtrain.cli.options import STARTED, Settings, settings
from batchtrain.display.terminal import terminal_text
from batchtrain.errors import shortened
from batchtrain.markup import TONES
from batchtrain.records import events
from batchtrain.records.events import Detail, Event, Observed, Output, Results, Stdout


def tell(event: Event) -> None:
    """Print an event as progress. The output of a task goes to the same stream it came from, unless stdout is for a
    document."""
    verbose = settings().verbose
    if (isinstance(event, Observed) and not event.text) or (isinstance(event, Detail) and not verbose):
        return
    if isinstance(event, Output) and settings().ranks and not shows_rank(of_event(event).rank):
        return
    if isinstance(event, Stdout) and settings().output == "table":
        narrate(_for(sys.stdout, event.text), sys.stdout)
    elif isinstance(event, Output):
        narrate(_for(sys.stderr, own_shortened(event.text)), sys.stderr)
    elif settings().progress != "none":
        text = f"[{time.monotonic() - STARTED:6.2f} s] {event.kind}: {event.text}" if verbose else event.text
        say(text, _tone(event))


def shows_rank(rank: int | None) -> bool:
    """Whether the lines of a rank are printed; those of no rank always are."""
    return rank is None or not settings().ranks or rank in settings().ranks


def _tone(event: Event) -> Tone:
    failures = (events.TaskFailure, events.JobFailed, events.ResultsFailed, events.Leftover, events.MetricsSeen)
    if isinstance(event, failures):
        return "failure"
    if isinstance(event, events.Results):
        tone = TONES.get(event.state)
        return "failure" if tone == "bad" else "warning" if tone == "warn" else "success"
    warnings = (events.AttemptEnded, events.ServiceUnreachable, events.QuotaWaits, events.TasksLeft)
    return "warning" if isinstance(event, warnings) else "tool"


def _for(stream: TextIO | None, line: str) -> str:
    """A line of a task for a stream: a pipe gets it as it is."""
    return terminal_text(line) if stream is not None and stream.isatty() else line


def own_shortened(line: str) -> str:
    """A line of a task. Node ids are shortened in the lines of batchtrain; the program's lines are unchanged."""
    return shortened(line) if "batchtrain: " in line and settings().output == "table" else line


@contextmanager
def results_last(tell: Callable[[Event], None] = tell) -> Iterator[Callable[[Event], None]]:
    """Prints the events, and where the results are as the last of all."""
    held: list[Event] = []
    try:
        yield lambda event: held.append(event) if isinstance(event, Results) else tell(event)
    finally:
        for event in held:
            say(event.text, _tone(event))


def numbers(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> frozenset[int]:
    """Numbers such as 0,3 or 0-7."""
    try:
        return log_lines.numbers(value) if value is not None else frozenset()
    except ValueError:
        raise click.BadParameter(f"`{value}` is no list of numbers; write it as 0,3 or 0-7") from None


def choose_ranks(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Stores the ranks whose output is printed."""
    ctx.find_root().ensure_object(Settings).ranks = numbers(ctx, parameter, value)
