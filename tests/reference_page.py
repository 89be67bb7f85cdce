"""`docs/reference/config.md`, made of the types of the language: `python -m tests.generated_files`.

A test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from batchtrain.config import schema, types
from batchtrain.config.reference import (
    BlockOf,
    Property,
    PropertyPath,
    anchor,
    blocks,
    gone,
    pattern,
    plain,
    written,
)
from tests.left_out import LEFT_OUT
from tests.property_examples import EXAMPLES

_HEAD = """\
<!-- Written by `python -m tests.generated_files` from the types; do not edit. -->

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
    lines += [_row(block, item, [(*path, item.name) for path in block.paths]) for item in block.properties]
    return "\n".join(lines) + "\n"


def _row(block: BlockOf, item: Property, paths: list[PropertyPath]) -> str:
    anchors = "".join(f'<a id="{name}"></a>' for name in dict.fromkeys(anchor(path) for path in paths))
    instead = gone(paths[0])
    name = f"~~`{item.name}`~~" if instead else f"`{item.name}`"
    kind = "; ".join((_linked(type_of(item.kind)), *constraints(item)))
    default = "**required**" if item.required else f"`{item.default}`" if item.default else ""
    cells = (
        f"{anchors}{name}",
        kind,
        default,
        " ".join(_meaning(item, example(block, item), paths, instead)),
        _code(item.wire),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _meaning(item: Property, example: Any, paths: Iterable[PropertyPath], instead: str) -> Iterator[str]:
    yield item.description
    if instead:
        yield f"No effect: {instead}."
    if example is not None:
        yield f"Example: `{_shown(example)}`."
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


def example(block: BlockOf, item: Property) -> Any:
    """The example of a property of a block. None if there is none."""
    declared = (item.kind.extra_json_schema or {}).get("examples")
    return declared[0] if declared else EXAMPLES.get(f"{block.name}.{item.name}", EXAMPLES.get(item.name))


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


def _new_path(rule: types.Renamed) -> types.Pattern:
    home = rule.path[:-2] if rule.new.startswith("../") else rule.path[:-1]
    return (*home, *rule.steps)


def constraints(item: Property) -> Iterable[str]:
    """The bounds of a property in words, each once."""
    return dict.fromkeys(_constraints(item.kind))


_WORDS = {"StrType": "text", "CustomType": "text", "IntType": "whole number", "FloatType": "number",
          "BoolType": "true or false", "AnyType": "anything"}  # fmt: skip


def type_of(kind: Any) -> str:
    """A type in words; the name of a block is in square brackets."""
    kind = plain(kind)
    match type(kind).__name__:
        case "StructType":
            return f"[{kind.cls.__name__}]"
        case "UnionType":
            return " or ".join(type_of(option) for option in kind.types if type(option).__name__ != "NoneType")
        case "VarTupleType":
            return f"list of {type_of(kind.item_type)}"
        case "TupleType":
            return "list of " + " and ".join(type_of(item) for item in kind.item_types)
        case "DictType":
            return f"mapping of names to {type_of(kind.value_type)}"
        case "LiteralType":
            return "one of " + ", ".join(f"`{value}`" for value in kind.values)
        case name:
            return _WORDS[name]


def _constraints(kind: Any) -> Iterator[str]:
    kind = plain(kind)
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
        of_each = _constraints(kind.item_type if name == "VarTupleType" else kind.value_type)
        yield from (f"each {constraint}" for constraint in of_each)


def _range(least: float | None, most: float | None, unit: str) -> Iterator[str]:
    if least is not None and most is not None:
        yield f"{least:,} to {most:,}{unit}"
    elif most is not None:
        yield f"at most {most:,}{unit}"
    elif least == 1 and unit:
        yield "not empty"
    elif least is not None:
        yield f"{least:,} or more{unit}"
