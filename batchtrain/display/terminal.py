"""Lines of programs on a terminal, which must not be able to move its cursor, set its title or fill its clipboard."""

from __future__ import annotations

import re

from batchtrain.errors import width_of

_ESCAPE = re.compile(r"\x1b(?:(?P<style>\[[0-9;:]*m)|\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\|$)|.?)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that change the writing direction of what follows."""


def terminal_text(line: str) -> str:
    """A line of a task's output that is safe on a terminal: of a redrawn line the last state, colours and nothing else
    of the escape sequences, no other control characters; those that change the writing direction as `\\u202e`."""
    if line.isprintable():
        return line
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    kept = _ESCAPE.sub(lambda match: f"\x1b{match['style']}" if match["style"] else "", line)
    plain = _DIRECTION.sub(lambda match: f"\\u{ord(match[0]):04x}", _CONTROL.sub("", kept))
    return f"{plain}\x1b[0m" if "\x1b" in plain else plain


def cut_to(text: str, width: int) -> str:
    """The beginning of a text that fits into so many columns."""
    text = text[: max(width, 0)]
    while text and width_of(text) > width:
        text = text[:-1]
    return text


def plain_text(line: str) -> str:
    """A line of a task's output without colours and control characters."""
    return _ESCAPE.sub("", terminal_text(line))
