"""Shell text: the only place that makes words and quotes of it.

Text of the user (commands, options) is never quoted: the primary's shell expands it, as Batch Shipyard's did.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

WIDTH = 116


def word(value: str) -> str:
    """A value as one word that no shell changes."""
    return shlex.quote(value)


@lru_cache(maxsize=256)
def comment(text: str) -> str:
    """A sentence as comment lines; a line break in it cannot end the comment."""
    import textwrap  # `config validate` reads words here, and writes nothing

    return "\n".join(f"# {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH))


def block(title: str, *lines: str) -> str:
    """A part of a script: what it is for, then its lines; empty ones are left out."""
    return "\n".join((comment(title), *(line for line in lines if line)))


def script(*blocks: str) -> str:
    """The parts, a blank line between two; empty ones are left out."""
    return "\n\n".join(part for part in blocks if part) + "\n"


def exports(values: dict[str, str]) -> str:
    """One `export` of several variables."""
    return "export " + " ".join(f"{name}={word(value)}" for name, value in values.items())


def continued(*lines: str) -> str:
    """One command over several lines; empty ones are left out."""
    first, *rest = (line for line in lines if line)
    return " \\\n".join((first, *(f"  {line}" for line in rest)))


def verbatim(text: str) -> str:
    """The user's text as lines of a script; a last line that asks for more gets an empty one."""
    text = text.strip("\n")
    return f"{text}\n" if text.endswith("\\") else text


_WORD = re.compile(r"""(?:[^\s'"\\;&|<>()#]+|\\.|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*")+""", re.DOTALL)
"""Runs of characters, not one after the other: each alternative that is taken costs memory until the word ends."""
_BLANK = re.compile(r"[ \t]+")


def first_words(text: str) -> Iterator[tuple[str, int]]:
    """The simple words that a command starts with, each with the place where it ends; raw, as written."""
    position = len(text) - len(text.lstrip())
    while match := _WORD.match(text, position):
        yield match.group(), match.end()
        blank = _BLANK.match(text, match.end())
        if blank is None:
            break
        position = blank.end()


def is_simple(text: str) -> bool:
    """Whether a command is simple words alone, with nothing that only a shell understands between or before them."""
    words = first_words(text)
    first = next(words, None)
    if first is None or re.match(r"\w+=", first[0]):
        return False
    last = deque(words, maxlen=1) or (first,)
    return last[0][1] == len(text.rstrip())
