"""Finds the place for `-m mpi4py` in the text of a Python command, without changing the rest."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from batchtrain.launchers import shell

HOOK = '"${bt_mpi4py[@]}"'

_INTERPRETER = re.compile(r"(?:^|.*/)(?:python|pypy)[\d.]*", re.DOTALL)
_VALUE_OPTIONS = ("-W", "-X", "--check-hash-based-pycs")
_ENDS_OPTIONS = ("-c", "-m")
LONGEST_SHOWN = 200
MOST_OPTIONS = 100
"""Maximum number of words before a script; a command may have a million after it."""


class Payload(NamedTuple):
    """The command of the ranks."""

    text: str
    interpreter: str = ""
    """The Python that may get `-m mpi4py`, as written; empty for any other command."""
    note: str = ""
    """Why `-m mpi4py` cannot be inserted, if the command seems to run Python."""

    @property
    def hooked(self) -> bool:
        return HOOK in self.text


def with_mpi4py(command: str) -> Payload:
    """The command with a place for `-m mpi4py` before its script, `-m` or `-c`, if it starts with Python.

    mpi4py.run aborts the other ranks with the exception or exit code of a rank.
    """
    words = _python_words(command)
    if not words:
        is_hidden = "mpi4py" not in command and re.search(r"(?:^|[\s/'\"])python[\d.]*\s", command)
        note = f"`-m mpi4py` is put in only where the command starts with Python: {_CONSEQUENCE}"
        return Payload(command, note=note if is_hidden else "")
    script = _script(words)
    hooked_command = before_script(command, HOOK)
    if script is None or hooked_command is None:
        return Payload(command, note=f"`-m mpi4py` has no place in `{command[:LONGEST_SHOWN]}`: {_CONSEQUENCE}")
    if words[script][0] == "-m" and len(words) > script + 1 and words[script + 1][0].split(".")[0] == "mpi4py":
        return Payload(command)
    return Payload(hooked_command, interpreter=words[0][0])


def before_script(command: str, text: str) -> str | None:
    """The command with a text before its script, `-m` or `-c`; None if it does not start with Python or has no place
    for it."""
    words = _python_words(command)
    script = _script(words)
    if script is None:
        return None
    word, end = words[script]
    start = end - len(word)
    return f"{command[:start]}{text} {command[start:]}"


def interpreter(command: str) -> str:
    """The Python that a command starts with, as written; empty for any other command."""
    words = _python_words(command)
    return words[0][0] if words else ""


def script(command: str) -> str:
    """The script that a command starts with Python, as written but without quotes; empty for any other command."""
    words = _python_words(command)
    index = _script(words)
    word = words[index][0].strip("\"'") if index is not None and index < len(words) else ""
    return "" if word in _ENDS_OPTIONS else word


_CONSEQUENCE = "a rank with an exception may leave the others waiting for ever"


def _python_words(command: str) -> tuple[tuple[str, int], ...]:
    """The first words of a command that starts with Python; none for any other command."""
    words = tuple(islice(shell.first_words(command), MOST_OPTIONS))
    return words if words and _INTERPRETER.fullmatch(words[0][0].strip("\"'")) else ()


def _script(words: tuple[tuple[str, int], ...]) -> int | None:
    """The index of the script, `-m` or `-c`; None for a Python that reads stdin or has joined options."""
    index = 1
    while index < len(words):
        word = words[index][0]
        if word in _ENDS_OPTIONS or not word.startswith("-"):
            return index
        if word == "-" or (re.fullmatch(r"-[a-zA-Z]+[cm].*", word) and not word.startswith(("-W", "-X"))):
            return None
        index += 2 if word in _VALUE_OPTIONS else 1
    return None
