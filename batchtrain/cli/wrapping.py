"""Messages as lines of a terminal, in which commands stay whole."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import TextIO

ONE_COMMAND = re.compile(r"  (?:[a-z ]+: )?(?=\S*batchtrain )")
"""The text before a command that fills the rest of a line."""
SHELL_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")


def wrapped(text: str, width: int) -> str:
    """A message as lines of a terminal, broken between words. A wider command is broken with backslashes."""
    if len(text) <= width:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> Iterator[str]:
    """Break one line into lines that fit."""
    if len(line) <= width:
        yield line
        return
    current = line[: len(line) - len(line.lstrip())]
    empty = True
    for word, command, first in _words(line, width):
        if not empty and len(current) + 1 + len(word) + (2 if command else 0) > width:
            yield current if first else f"{current} \\"
            current, empty = "" if first else "  ", True
        current, empty = f"{current}{'' if empty else ' '}{word}", False
    yield current


def _words(line: str, width: int) -> Iterator[tuple[str, bool, bool]]:
    """The words of a line; a command that fits counts as one word. Each has two flags: whether it belongs to a command
    that does not fit, and whether a line may end before it without a backslash.
    """
    command = ONE_COMMAND.match(line)
    parts = [line[: command.end()], line[command.end() :]] if command else re.split(r"([^\s`]*`[^`]+`\S*)", line)
    for at, part in enumerate(parts):
        is_command = at % 2 == 1
        if is_command and (command or len(part) > width):
            for number, word in enumerate(SHELL_WORD.findall(part)):
                yield word, True, number == 0
        elif is_command:
            yield part, False, True
        else:
            yield from ((word, False, True) for word in part.split())


def broken(text: str, stream: TextIO | None) -> str:
    """A text as lines of the terminal behind a stream, broken between words and indented below their first line;
    as it is without a terminal."""
    width = terminal_width(stream)
    return "\n".join(part for line in text.split("\n") for part in _indented(line, width))


def _indented(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())][: width // 2] + "  "
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def terminal_width(stream: TextIO | None) -> int:
    """The number of columns of the terminal behind a stream; unlimited without a terminal."""
    if stream is None or not stream.isatty():
        return sys.maxsize
    try:
        return os.get_terminal_size(stream.fileno()).columns or sys.maxsize  # a terminal may not report its width
    except OSError:
        return sys.maxsize
