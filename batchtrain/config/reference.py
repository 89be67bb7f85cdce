"""Lists every property of the language."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from batchtrain.config import schema, types

PropertyPath = tuple[str, ...]
"""A path from the top-level section down; `[]` stands for any item of a list, `{}` for any key of a map."""

ITEM, KEY = "[]", "{}"
PAGE = schema.REFERENCE


class Property(NamedTuple):
    """One property of a block."""

    name: str
    description: str
    kind: Any
    """Its type, as `msgspec.inspect` describes it."""
    required: bool
    default: str
    """The default as in a file; empty if there is none."""
    wire: str
    """The request field (see `types.says`); empty for a block, whose properties have them."""


class BlockOf(NamedTuple):
    """One mapping of the language: its properties, and every path where it occurs."""

    name: str
    about: str
    file: str
    paths: tuple[PropertyPath, ...]
    properties: tuple[Property, ...]


@lru_cache(maxsize=1)
def blocks() -> tuple[BlockOf, ...]:
    """Every block, in the order of the files; the first of each file is the file itself."""
    paths: dict[type, list[PropertyPath]] = {}
    first: dict[type, tuple[str, Any]] = {}
    for file, kind in zip(schema.FILES, inspect.multi_type_info(schema.FILES.values()), strict=True):
        for block, path in _structs(kind, ()):
            first.setdefault(block.cls, (f"{file}.yaml", block.fields))
            paths.setdefault(block.cls, []).append(path)
    return tuple(
        BlockOf(
            cls.__name__, (cls.__dict__.get("__doc__") or "").strip(), file, tuple(paths[cls]),
            tuple(map(_property, fields)),
        )
        for cls, (file, fields) in first.items()
    )  # fmt: skip


@lru_cache(maxsize=1)
def properties() -> dict[PropertyPath, Property]:
    """Every property at every path where it may occur."""
    return {(*path, item.name): item for block in blocks() for path in block.paths for item in block.properties}


def path_of(path: tuple[str | int, ...]) -> PropertyPath:
    """The documented path of a value: without the numbers of items and user-defined keys."""
    steps = []
    kind: Any = None
    for number, step in enumerate(path):
        has_keys = number > 0 and kind is not None and schema.free_keys(kind) is not None
        kind = schema.shape_of(path[: number + 1])
        steps.append(ITEM if isinstance(step, int) else KEY if has_keys else step)
    return tuple(steps)


def written(path: PropertyPath) -> str:
    """A path as users write it: `job_specifications[].tasks[].command`, `credentials.storage.NAME.account`."""
    text = ""
    for step in path:
        text += ITEM if step == ITEM else f".{'NAME' if step == KEY else step}"
    return text.removeprefix(".")


def anchor(path: PropertyPath) -> str:
    """The anchor of a path on the reference page: its names alone."""
    return ".".join(step for step in path if step not in (ITEM, KEY))


def gone(path: PropertyPath) -> str:
    """Why the value at a path has no effect, and what to do instead; empty if it has one."""
    for rule in types.GONE:
        if rule.only is None and pattern(path[: len(rule.path)]) == rule.path:
            return rule.instead
    return ""


def pattern(path: PropertyPath) -> types.Pattern:
    """The path as the tables of `types.history` have it."""
    return tuple("*" if step in (ITEM, KEY) else step for step in path)


def plain(kind: Any) -> Any:
    """A type without the sentence and the bounds around it."""
    while type(kind).__name__ == "Metadata":
        kind = kind.type
    return kind


# --- from types to properties ---------------------------------------------------------------------------------------


def _structs(kind: Any, path: PropertyPath) -> Iterator[tuple[Any, PropertyPath]]:
    """The descriptions of all blocks below a type, each with its path."""
    kind = plain(kind)
    match type(kind).__name__:
        case "StructType":
            yield kind, path
            for field in kind.fields:
                yield from _structs(field.type, (*path, field.encode_name))
        case "UnionType":
            for option in kind.types:
                yield from _structs(option, path)
        case "VarTupleType":
            yield from _structs(kind.item_type, (*path, ITEM))
        case "DictType":
            yield from _structs(kind.value_type, (*path, KEY))


def _property(field: Any) -> Property:
    json_schema: dict[str, Any] = field.type.extra_json_schema or {}
    extra: dict[str, Any] = field.type.extra or {}
    default = field.default
    if default is None or default is msgspec.NODEFAULT or isinstance(default, (msgspec.Struct, tuple, dict)):
        default = ""
    return Property(
        name=field.encode_name,
        description=json_schema.get("description", ""),
        kind=field.type,
        required=field.required,
        default=str(default).lower() if isinstance(default, bool) else str(default),
        wire=extra.get("wire", ""),
    )
