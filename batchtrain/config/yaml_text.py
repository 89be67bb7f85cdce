"""Writes values as YAML with comments in their own order, and types of the language without their defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

from msgspec import Meta
from msgspec.structs import FieldInfo, fields

from batchtrain.config.types.base import Block
from batchtrain.frameworks.block import default_of

Json = Any  # mappings, lists and scalars

WIDEST = 100
"""Columns of a line with a comment, without its indentation."""
# Texts that certainly need no quotes:
_PLAIN = re.compile(r"(?:[A-Za-z0-9/$]|\.{1,2}/)(?:[^#:\n\t]|:(?=[^\s,\[\]{}]))*(?<! )")
_LOOKS_ELSE = re.compile(r"(?i)[-+.0-9_:ex]+|true|false|yes|no|on|off|y|n|null|~|[0-9].*")
_LITERAL = re.compile(r"\S[^\n]*(\n+\S[^\n]*)+")  # lines that begin with a letter, the last of them not empty


def lines(value: Json, comments: Json = None, depth: int = 0) -> Iterator[str]:
    """A mapping or a list as lines. comments: the same shape with a text for each scalar that has a comment."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        head = "  " * depth + (f"{_scalar(key)}:" if isinstance(value, dict) else "-")
        comment = comments[key] if comments else None
        if isinstance(item, str) and _LITERAL.fullmatch(item) and item.replace("\n", "").isprintable():
            yield f"{head} |-"
            yield from ("  " * (depth + 1) + line if line else "" for line in item.split("\n"))
            continue
        if not isinstance(item, (dict, list)) or not item:
            yield f"{head} {_scalar(item)}{f'  # {comment}' if comment else ''}"
            continue
        below = list(lines(item, comment, depth + 1))
        if isinstance(value, dict):
            yield head
            yield from below
        else:
            yield f"{head} {below[0].lstrip()}"
            yield from below[1:]


def _scalar(value: Json) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and not _LOOKS_ELSE.fullmatch(value) and value.isprintable():
        return value
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in text)


# --- types of the language ------------------------------------------------------------------------------------------


def document(block: Block) -> str:
    """A file of the language: the values that differ from the defaults, most scalars with the sentence of their
    property. The order is: `id`, other scalars, lists and mappings, `command`. Secrets are omitted.
    """
    return ("\n".join(lines(data_of(block), _comments(block))) or "{}") + "\n"


def data_of(value: Any) -> Json:
    """A value of the language as mappings, lists and scalars, without defaults."""
    if isinstance(value, Block):
        return {field.encode_name: _number(field, data_of(getattr(value, field.name))) for field in _differing(value)}
    if isinstance(value, Mapping):
        return {name: data_of(item) for name, item in value.items()}
    return [data_of(item) for item in value] if isinstance(value, (tuple, list)) else value


def _number(field: FieldInfo, value: Json) -> Json:
    """A number that was read as text, such as `num_instances`, needs no quotes."""
    plain = isinstance(value, str) and re.fullmatch(r"0|[1-9][0-9]{0,17}", value) and "int | str" in str(field.type)
    return int(value) if plain else value


def _comments(value: Any) -> Json:
    """The same shape, with a text or None in place of each scalar."""
    if isinstance(value, Block):
        hints = get_type_hints(type(value), include_extras=True)
        return {
            field.encode_name: _comments(item)
            if _has_parts(item)
            else _comment(field.encode_name, item, hints[field.name])
            for field, item in ((field, getattr(value, field.name)) for field in _differing(value))
        }
    if isinstance(value, Mapping):
        return {name: _comments(item) for name, item in value.items()}
    return [_comments(item) for item in value] if isinstance(value, (tuple, list)) else None


def _comment(name: str, value: Any, hint: Any) -> str | None:
    """The first sentence of the property, if its name does not say enough and the line has room."""
    sentence = next(note.description for note in get_args(hint)[1:] if isinstance(note, Meta) and note.description)
    first = re.split(r"(?<=[.;:])\s", sentence)[0].rstrip(".;:")
    return None if name in CLEAR or len(f"{name}: {value}  # {first}") > WIDEST else first


CLEAR = frozenset({"id", "command", "docker_image", "publisher", "offer", "sku", "display_name", "vm_size"})
"""Properties whose names say everything."""


def _differing(block: Block) -> list[FieldInfo]:
    """The properties that differ from their defaults, in the order of the file."""
    values = ((field, getattr(block, field.name)) for field in fields(block) if "Secret" not in str(field.type))
    ranks = {"id": 0, "command": 3}
    differing = [
        (ranks.get(field.encode_name, 2 if _has_parts(value) else 1), field)
        for field, value in values
        if value is not None and value != default_of(field)
    ]
    return [field for _, field in sorted(differing, key=lambda item: item[0])]


def _has_parts(value: Any) -> bool:
    return isinstance(value, (Block, Mapping, tuple, list))
