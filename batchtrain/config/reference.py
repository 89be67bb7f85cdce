"""Lists every property of the language, and writes `docs/reference/config.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from batchtrain.config import examples, schema, types
from batchtrain.config.left_out import LEFT_OUT

PropertyPath = tuple[str, ...]
"""A path from the top-level section down; `[]` stands for any item of a list, `{}` for any key of a map."""

ITEM, KEY = "[]", "{}"
PAGE = schema.REFERENCE


class Property(NamedTuple):
    """One property of a block."""

    name: str
    description: str
    type: str
    """The type in words; the name of a block is in square brackets."""
    constraint: str
    required: bool
    default: str
    """The default as in a file; empty if there is none."""
    example: Any
    """An example value. None if the type makes it obvious."""
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
    from msgspec import inspect  # a slow import (4 ms), needed only here

    paths: dict[type, list[PropertyPath]] = {}
    first: dict[type, tuple[str, Any]] = {}
    for file, kind in zip(schema.FILES, inspect.multi_type_info(schema.FILES.values()), strict=True):
        for block, path in _structs(kind, ()):
            first.setdefault(block.cls, (f"{file}.yaml", block.fields))
            paths.setdefault(block.cls, []).append(path)
    return tuple(
        BlockOf(
            cls.__name__, (cls.__dict__.get("__doc__") or "").strip(), file, tuple(paths[cls]),
            tuple(_property(field, cls.__name__) for field in fields),
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


def older(path: PropertyPath) -> tuple[str, ...]:
    """The deprecated names of a property."""
    return tuple(
        ".".join(rule.path[-2:]) if rule.new.startswith("../") else rule.path[-1]
        for rule in types.RENAMED
        if _new_path(rule) == pattern(path)
    )


def older_values(path: PropertyPath) -> tuple[tuple[str, str], ...]:
    """The deprecated values of a property: the old one and the current one."""
    return tuple((rule.old, rule.new) for rule in types.RENAMED_VALUES if rule.path == pattern(path))


def pattern(path: PropertyPath) -> types.Pattern:
    """The path as the tables of `types.history` have it."""
    return tuple("*" if step in (ITEM, KEY) else step for step in path)


def _new_path(rule: types.Renamed) -> types.Pattern:
    home = rule.path[:-2] if rule.new.startswith("../") else rule.path[:-1]
    return (*home, rule.new.removeprefix("../"))


# --- from types to properties ---------------------------------------------------------------------------------------


def _structs(kind: Any, path: PropertyPath) -> Iterator[tuple[Any, PropertyPath]]:
    """The descriptions of all blocks below a type, each with its path."""
    kind = _plain(kind)
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


def _plain(kind: Any) -> Any:
    while type(kind).__name__ == "Metadata":
        kind = kind.type
    return kind


def _property(field: Any, block: str) -> Property:
    json_schema: dict[str, Any] = field.type.extra_json_schema or {}
    extra: dict[str, Any] = field.type.extra or {}
    return Property(
        name=field.encode_name,
        description=json_schema.get("description", ""),
        type=_type(field.type),
        constraint="; ".join(dict.fromkeys(_constraints(field.type))),
        required=field.required,
        default=_default(field.default),
        example=json_schema["examples"][0] if "examples" in json_schema else examples.example(block, field.encode_name),
        wire=extra.get("wire", ""),
    )


_WORDS = {"StrType": "text", "CustomType": "text", "IntType": "whole number", "FloatType": "number",
          "BoolType": "true or false", "AnyType": "anything"}  # fmt: skip


def _type(kind: Any) -> str:
    kind = _plain(kind)
    match type(kind).__name__:
        case "StructType":
            return f"[{kind.cls.__name__}]"
        case "UnionType":
            return " or ".join(_type(option) for option in kind.types if type(option).__name__ != "NoneType")
        case "VarTupleType":
            return f"list of {_type(kind.item_type)}"
        case "TupleType":
            return "list of " + " and ".join(_type(item) for item in kind.item_types)
        case "DictType":
            return f"mapping of names to {_type(kind.value_type)}"
        case "LiteralType":
            return "one of " + ", ".join(f"`{value}`" for value in kind.values)
        case name:
            return _WORDS[name]


def _constraints(kind: Any) -> Iterator[str]:
    kind = _plain(kind)
    name = type(kind).__name__
    if name == "UnionType":
        for option in kind.types:
            yield from _constraints(option)
    elif name in ("IntType", "FloatType"):
        yield from _range(kind.ge, kind.le, "")
    elif name == "StrType":
        if kind.pattern is not None:
            yield schema.PATTERNS.get(kind.pattern, f"of the form `{kind.pattern}`")
        yield from _range(kind.min_length, kind.max_length, " characters")
    elif name in ("VarTupleType", "DictType"):
        yield from _range(kind.min_length, kind.max_length, " items")
        yield from _constraints(kind.item_type if name == "VarTupleType" else kind.value_type)


def _range(least: float | None, most: float | None, unit: str) -> Iterator[str]:
    if least is not None and most is not None:
        yield f"{least:,} to {most:,}{unit}"
    elif most is not None:
        yield f"at most {most:,}{unit}"
    elif least == 1 and unit:
        yield "not empty"
    elif least is not None:
        yield f"{least:,} or more{unit}"


def _default(value: Any) -> str:
    if value is None or value is msgspec.NODEFAULT or isinstance(value, (msgspec.Struct, tuple, dict)):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the page -------------------------------------------------------------------------------------------------------

_HEAD = """\
<!-- Written by `python -m batchtrain.config reference` from the types; do not edit. -->

# Configuration reference

This page lists every property of the four files `credentials.yaml`, `config.yaml`, `pool.yaml` and `jobs.yaml` (also
`.yml` and `.json`). In a path, `[]` stands for each item of a list, and `NAME` for a key that you choose.

* **Becomes** is the field of the Azure Batch request. The first word is the request (`pool`, `job`, `task`, `schedule`,
  `node user`, or `*` for several). After `batchtrain:`, it is what batchtrain itself does with the property.
* A property that is ~~struck through~~ has no effect. It is accepted so that older files work.
* `batchtrain config explain PATH` shows what a property becomes in your plan.
"""


def page() -> str:
    """The reference page, whole, as Markdown."""
    parts = [_HEAD]
    for file in dict.fromkeys(block.file for block in blocks()):
        of_file = [block for block in blocks() if block.file == file]
        parts += [f"## {file}\n", *(_section(block) for block in of_file)]
    return "\n".join([*parts, _left_out()])


def _left_out() -> str:
    """The fields of the service without a property."""
    rows = [f"| {', '.join(f'`{field}`' for field in entry.fields)} | {entry.reason} |" for entry in LEFT_OUT]
    head = (
        "## Fields of the service without a property\n\nEvery other field of the requests that create pools, jobs, job"
        " schedules and tasks (API 2025-06-01) has a property.\n"
    )
    return "\n".join([head, "| Field | Instead |", "|---|---|", *rows]) + "\n"


def _section(block: BlockOf) -> str:
    lines = []
    if block.paths != ((),):
        lines += [f"### `{written(block.paths[0])}`", ""]
        if block.about:
            lines += [block.about.replace("\n", " "), ""]
    others = [f"`{written(path)}`" for path in block.paths[1:]]
    if others:
        lines += [f"The same properties exist at {', '.join(others)}.", ""]
    lines += ["| Property | Type | Default | Meaning | Becomes |", "|---|---|---|---|---|"]
    lines += [_row(item, [(*path, item.name) for path in block.paths]) for item in block.properties]
    return "\n".join(lines) + "\n"


def _row(item: Property, paths: list[PropertyPath]) -> str:
    anchors = "".join(f'<a id="{name}"></a>' for name in dict.fromkeys(anchor(path) for path in paths))
    instead = gone(paths[0])
    name = f"~~`{item.name}`~~" if instead else f"`{item.name}`"
    kind = _linked(item.type) + (f"; {item.constraint}" if item.constraint else "")
    default = "**required**" if item.required else f"`{item.default}`" if item.default else ""
    cells = (f"{anchors}{name}", kind, default, " ".join(_meaning(item, paths, instead)), _code(item.wire))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _meaning(item: Property, paths: Iterable[PropertyPath], instead: str) -> Iterator[str]:
    yield item.description
    if instead:
        yield f"No effect: {instead}."
    if item.example is not None:
        yield f"Example: `{_shown(item.example)}`."
    for name in dict.fromkeys(name for path in paths for name in older(path)):
        yield f"Older name: `{name}`."
    for old, new in dict.fromkeys(pair for path in paths for pair in older_values(path)):
        yield f"`{new}` is `{old}` in older files."


def _shown(value: Any) -> str:
    """A value as YAML has it in one line."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _code(wire: str) -> str:
    """The field as code; an action of batchtrain as text."""
    if not wire or wire.startswith("batchtrain:"):
        return wire
    return ", ".join(f"`{field.strip()}`" for field in wire.split(","))


def _linked(words: str) -> str:
    for block in blocks():
        if block.paths != ((),):
            words = words.replace(f"[{block.name}]", f"[{block.name}](#{anchor(block.paths[0])})")
    return words
