"""A command as the service takes it: one line for bash, its text in the line or in a variable.

The service runs no shell and parses the line itself, so no text of the user with a quote is put between its quotes.
"""

from __future__ import annotations

import re

from batchtrain.config import travel
from batchtrain.launchers import shell_functions
from batchtrain.plan import wire

_SHELL = re.compile(r"[$`;|&<>*?~\[\]{}#!()\n\\]|^\s*\w+=")
_BUILTINS = frozenset(
    (".", ":", "cd", "eval", "exec", "exit", "export", "read", "set", "shift", "source", "trap", "ulimit", "umask",
     "unset", "wait")
)  # fmt: skip
_SHELLS = re.compile(r"(/\S*/)?(bash|sh|dash|zsh)\s|(\S*\\\\)?(cmd|powershell|pwsh)(\.exe)?\s", re.IGNORECASE)

VARIABLE = "BATCHTRAIN_COMMAND"
"""Carries a text that has a single quote, or lines of ours before it."""


def bash(*commands: str) -> str:
    """One command line; its parts hold no single quote, so the service's own parsing cannot break it."""
    return f"/bin/bash -c '{'; '.join(commands)}'"


def speaks_for_itself(text: str, *, entrypoint: bool) -> bool:
    """Whether a container takes the text as it is, as Docker does: it names its own shell, its words are arguments of
    an entry point, or there is nothing in it that a shell would read. An image without bash runs it, too."""
    start = text.lstrip()
    if not entrypoint and shell_functions.called_in(text):
        return False
    if not start or entrypoint or start.startswith("-") or _SHELLS.match(start):
        return True
    return start.split(maxsplit=1)[0] not in _BUILTINS and not _SHELL.search(text)


def fits(text: str) -> bool:
    """Whether a text can stand between the quotes as it is: no argument of a program is longer than 128 KiB."""
    return "'" not in text and not travel.overlong(text) and not shell_functions.called_in(text)


def carried(text: str, *, on_windows: bool = False) -> tuple[str, tuple[wire.Environment, ...]]:
    """A command line for any text, and what it needs in the environment."""
    text = text.strip()
    if on_windows:  # the shell of Windows takes everything between its outer quotes as it is
        return f'cmd.exe /d /s /c "{" && ".join(filter(str.strip, text.splitlines()))}"', ()
    if fits(text) and "\n" not in text:
        return bash(text), ()
    return in_variable(text)


FROM_VARIABLE = f'exec /bin/bash -c "${VARIABLE}"'


def in_variable(text: str) -> tuple[str, tuple[wire.Environment, ...]]:
    """A command line that runs a text of the environment, and the text there."""
    return bash(FROM_VARIABLE), (wire.Environment(name=VARIABLE, value=shell_functions.loaded(text.strip())),)
