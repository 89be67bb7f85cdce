"""Messages to the user on stderr, and questions."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

import click

from batchtrain import hints
from batchtrain.cli.options import Settings, settings
from batchtrain.cli.streams import silence
from batchtrain.cli.wrapping import terminal_width, wrapped
from batchtrain.errors import UsageError, printable_lines, shortened

Tone = Literal["success", "failure", "warning", "tool"]
TONES: Mapping[Tone, int] = {"success": 32, "failure": 31, "warning": 33, "tool": 2}
"""The colours of messages on a terminal, as SGR codes. The output of programs keeps its own."""


def say(text: str, tone: Tone = "tool") -> None:
    """Print progress to stderr, so that results can be piped. Commands in it can be pasted; node ids are short; nothing
    in it controls a terminal."""
    message = wrapped(shortened(completed(printable_lines(text))), terminal_width(sys.stderr))
    narrate(f"\x1b[{TONES[tone]}m{message}\x1b[0m" if colored(sys.stderr) else message, sys.stderr)


def confirm(question: str) -> None:
    """Ask before something is destroyed. Without a terminal, this is an error."""
    if settings().yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask; add -y.")
    if not click.confirm(printable_lines(question), err=True):
        say("nothing was done")
        raise click.exceptions.Exit(2)


def colored(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that accepts colours."""
    if stream is None or not stream.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def completed(text: str) -> str:
    """A message whose commands use the same account and the same script as this command."""
    return pasted(text, settings())


def pasted(text: str, flags: Settings) -> str:
    """The same for the command with these options."""
    return hints.pasted(text, flags.target, flags.credentials_options, script=flags.script, values=value_options(flags))


def value_options(flags: Settings) -> str:
    """The options with which another command sets the same values; secrets are masked."""
    if not flags.values:
        return ""
    from batchtrain.config.masking import masked_word, secrets_in  # every type of the configuration

    secrets = secrets_in(flags.recipe, flags.values)
    words = (masked_word(f"{path}={value}", secrets) for path, value in flags.values.items())
    return "".join(f" --set {shlex.quote(word)}" for word in words)


def narrate(text: str, stream: TextIO | None) -> None:
    """Print a line at once. A reader that has ended, such as `head -1` or a closed terminal, does not end the command.
    A full disk behind the stream does."""
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        silence(stream)
