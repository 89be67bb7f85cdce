"""Completes the commands inside messages so that they can be pasted: the program as it was called, and the target."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import TextIO

COMMAND = re.compile(
    r"`batchtrain (?P<quoted>[a-z][^`]*)`|\bbatchtrain (?P<bare>[a-z]+ [^`\n·;,()]*[^`\n·;,() ])(?= ·|[;,)\n]|$)"
)
"""A command between backticks, or up to the end of the clause."""
WHOLE = re.compile(r"(?P<before>  (?:[a-z ]+: )?)batchtrain (?P<words>[a-z]+ .*)")
"""An indented line that is a command, optionally after its purpose."""
ONE_COMMAND = re.compile(r"  (?:[a-z ]+: )?(?=\S*batchtrain )")
"""The text before a command that fills the rest of a line."""
SHELL_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
ASKING = re.compile(r"(?:pool (?!autoscale)|jobs )[a-z]|(?:run|doctor)\b|config plan\b.* --diff\b")
"""Commands that contact a service and need its target options."""
READING = re.compile(r"(?:data|images (?!env|build|list|save|load)) ?[a-z]")
"""Commands that read credentials.yaml."""
OF_FILES = re.compile(r"(?:run|doctor|pool (?!list)[a-z]+|jobs (?:add|wait|del|term))(?: -\S+)*")
"""Commands without a name or a directory, which read the files of the command that is running."""
WORDS_LAST = re.compile(r"(?P<verb>pool ssh|jobs exec)\b")
"""Commands whose last words belong to the user's command, so that options stand before them."""
DOING = frozenset(
    {"pool", "jobs", "run", "doctor", "config", "data", "images", "recipe", "catalog", "emulator", "help"}
)


def pasted(text: str, target: str, directory: str) -> str:
    """A message whose commands name the target of the command that is running, and the program by its path.

    target: the options that reach the same account (` --local`). directory: the options that read the same credentials.
    """
    if "batchtrain " not in text:
        return text
    name = program()

    def completed(words: str) -> str:
        if ASKING.match(words):
            of_files = OF_FILES.fullmatch(words) is not None
            words = _with(words, target or directory)
            words = _with(words, directory) if of_files else words
        elif READING.match(words):
            words = _with(words, directory)
        return f"{name} {words}"

    def replaced(match: re.Match[str]) -> str:
        words = match["quoted"] or match["bare"]
        if words.split()[0] not in DOING:
            return match[0]
        return f"`{completed(words)}`" if match["quoted"] else completed(words)

    def line(text: str) -> str:
        command = WHOLE.fullmatch(text)
        if command and command["words"].split()[0] in DOING:
            return command["before"] + completed(command["words"])
        return COMMAND.sub(replaced, text)

    return "\n".join(map(line, text.split("\n")))


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
    parts = [line[: command.end()], line[command.end() :]] if command else re.split(r"(`[^`]+`\S*)", line)
    for part in parts:
        if (part is parts[-1] and command) or (part.startswith("`") and len(part) > width):
            for number, word in enumerate(SHELL_WORD.findall(part)):
                yield word, True, number == 0
        elif part.startswith("`"):
            yield part, False, True
        else:
            yield from ((word, False, True) for word in part.split())


def terminal_width(stream: TextIO | None) -> int:
    """The number of columns of the terminal behind a stream; unlimited without a terminal."""
    if stream is None or not stream.isatty():
        return sys.maxsize
    try:
        return os.get_terminal_size(stream.fileno()).columns or sys.maxsize  # a terminal may not report its width
    except OSError:
        return sys.maxsize


def _with(words: str, option: str) -> str:
    parts = words.split()
    if not option or option.split()[0] in parts or "--help" in parts:
        return words
    verb = WORDS_LAST.match(words)
    return f"{verb['verb']}{option}{words[verb.end() :]}" if verb else f"{words}{option}"


def program() -> str:
    """The command that starts this program: `batchtrain` if it is on PATH, otherwise the path that was used."""
    import shutil
    from pathlib import Path

    path = Path(sys.argv[0])
    if path.parts[-3:] == ("batchtrain", "cli", "__main__.py"):
        return f"{shlex.quote(sys.executable)} -m batchtrain.cli"
    if path.name != "batchtrain" or "/" not in sys.argv[0]:
        return "batchtrain"
    program = shutil.which("batchtrain")
    if program and Path(program).resolve() == path.resolve():
        return "batchtrain"
    return shlex.quote(sys.argv[0])
