"""Shell text: the only module that quotes words.

Text of the user (commands, options) is never quoted: the shell of the primary expands it, as with Batch Shipyard.
"""

from __future__ import annotations

import re
import shlex
import textwrap
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
    return "\n".join(f"# {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH))


def block(title: str, *lines: str) -> str:
    """A part of a script: its purpose, then its lines; empty lines are dropped."""
    return "\n".join((comment(title), *(line for line in lines if line)))


def script(*blocks: str) -> str:
    """The parts, separated by blank lines; empty parts are dropped."""
    return "\n\n".join(part for part in blocks if part) + "\n"


def continued(*lines: str) -> str:
    """One command over several lines; empty lines are dropped."""
    first, *others = (line for line in lines if line)
    return " \\\n".join((first, *(f"  {line}" for line in others)))


def verbatim(text: str) -> str:
    """The user's text as lines of a script. If its last line expects more, an empty line follows."""
    text = text.strip("\n")
    return f"{text}\n" if text.endswith("\\") else text


_WORD = re.compile(r"""(?:[^\s'"\\;&|<>()#]+|\\.|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*")+""", re.DOTALL)
"""Matches runs of characters, not single ones: each alternative costs memory until the word ends."""
_BLANK = re.compile(r"[ \t]+")


def first_words(text: str) -> Iterator[tuple[str, int]]:
    """The simple words at the start of a command, unchanged, each with the index of its end."""
    position = len(text) - len(text.lstrip())
    while match := _WORD.match(text, position):
        yield match.group(), match.end()
        blank = _BLANK.match(text, match.end())
        if blank is None:
            break
        position = blank.end()


_QUOTED = re.compile(r"""\\.|\$'(?:[^'\\]|\\.)*'|'[^']*'|"(?:[^"\\]|\\.)*"|(?<![^\s;&|()])\#[^\n]*|['"]""", re.DOTALL)
_HAS_OTHER_QUOTES = re.compile(r"<<|`|\$\(")
"""A here-document or a substitution, which have quotes of their own."""


def open_quote(text: str) -> str:
    """The rest of a command from a quote that is never closed, such as `'yes`. Empty if there is none, or if that is
    uncertain."""
    if ("'" not in text and '"' not in text) or _HAS_OTHER_QUOTES.search(text):
        return ""
    return next((text[match.start() :] for match in _QUOTED.finditer(text) if match[0] in ("'", '"')), "")


def is_simple(text: str) -> bool:
    """Whether a command consists of simple words, without shell syntax."""
    words = first_words(text)
    first = next(words, None)
    if first is None or re.match(r"\w+=", first[0]):
        return False
    last = deque(words, maxlen=1) or (first,)
    return last[0][1] == len(text.rstrip())
