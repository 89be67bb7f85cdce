"""What to write in place of a command with a launcher: each of its options has its place in the advice."""

from __future__ import annotations

import re

from batchtrain.config.schema import shortened
from batchtrain.frameworks import launcher_options
from batchtrain.launchers import shell

MOST_WORDS = 100
LONGEST = 200
_ATTACHED = r"(-[A-Za-z])(\d+)"
"""An option of one letter with its number, such as `-n4`."""


def advice(launcher: str, command: str, start: int, block: str) -> tuple[str, str]:
    """The line of the command without its launcher (empty if it cannot be read), and the replacement of each option.

    start: where the launcher begins in the command. block: the block that takes the launcher's place."""
    table, rest = launcher_options.launcher(launcher), command[start + len(launcher) :]
    block = block if block in table.blocks else next(iter(table.blocks), block)
    words = list(shell.first_words(rest))[:MOST_WORDS]
    places, module, plain, index = [], "", not table.starts_python, 0
    while index < len(words) and words[index][0].startswith("-"):
        word = words[index][0]
        name, value = _split(word)
        name = f"-{name.lstrip('-')}" if table.one_dash else name.replace("_", "-")
        option = next((each for each in table.options if name in each.names), None)
        following = words[index + 1][0] if index + 1 < len(words) else "-"
        takes_value = option.takes_value if option else not (following.startswith("-") or following.endswith(".py"))
        count = 2 if word in launcher_options.TWO_VALUES else int(takes_value and not value and "=" not in word)
        values = [each for each, _ in words[index + 1 : index + 1 + count]]
        value = value or " ".join(values)
        value = option.values.get(value, value) if option else value
        becomes = (option.becomes if option else table.others).format(value=value, block=block)
        places.append(f"`{shortened(' '.join((word, *values)))}`: {becomes}")
        module = " -m" if becomes == "`python -m`" else module
        plain = plain or name == "--no-python"
        index += 1 + count
    end = words[min(index, len(words)) - 1][1] if index else 0
    program = rest[end:].strip().split("\n")[0]
    if table.one_dash and " : " in program:
        places.append("`:`: no property has its place: an `mpi` block starts one program")
    before = re.sub(r"[\w./-]*/$", "", command[:start].rpartition("\n")[2])
    line = f"{before}{program if plain else f'python{module} {program}'}"
    return shortened(line, LONGEST) if program else "", "; ".join(places)


def _split(word: str) -> tuple[str, str]:
    """The name of an option and the value that is joined to it."""
    if attached := re.fullmatch(_ATTACHED, word):
        return attached[1], attached[2]
    name, _, value = word.partition("=")
    return name, value
