"""The request field of each property, by the sentence of its type; pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from batchtrain.catalog import api_versions
from batchtrain.config.types import Block
from batchtrain.frameworks.block import default_of


class Field(NamedTuple):
    """The field of a request, from the request's name down (`pool.virtualMachineConfiguration.osDisk.caching`)."""

    name: str
    copied: bool
    """It has the value of the property as it is."""


@functools.cache
def fields_of(kind: type[Block]) -> Mapping[str, Field]:
    """The properties of a block with their fields."""
    extras = {name: get_args(hint)[-1].extra for name, hint in kind.__annotations__.items()}
    return {name: Field(extra["wire"], extra["copied"]) for name, extra in extras.items()}


def copied(block: Block) -> dict[str, Any]:
    """Field -> value of each property that a request has as it is, here and in the blocks below."""
    values: dict[str, Any] = {}
    for name, field in fields_of(type(block)).items():
        value = getattr(block, name)
        if isinstance(value, Block):
            values |= {**({field.name: {}} if field.copied else {}), **copied(value)}
        elif field.copied and isinstance(value, tuple) and value and isinstance(value[0], Block):
            values[field.name] = [at(nested(copied(item)), field.name) for item in value]
        elif field.copied and value not in (None, (), {}):
            values[field.name] = value
    return values


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a value at each field. None and empty lists are left out."""
    document: dict[str, Any] = {}
    for name, value in values.items():
        if value is None or value == ():
            continue
        *parents, last = name.split(".")
        inner = document
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return document


def at(document: dict[str, Any], name: str) -> Any:
    """What a document has at a field."""
    return functools.reduce(dict.__getitem__, name.split("."), document)


def newer(block: Block) -> Iterator[str]:
    """The path of each property that is set and needs a newer version of the API than the current one."""
    defaults = {field.name: default_of(field) for field in msgspec.structs.fields(type(block))}
    for name, field in fields_of(type(block)).items():
        value = getattr(block, name)
        if value == defaults[name]:
            continue
        if api_versions.newer(field.name):
            yield name
        else:
            blocks = [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Block)]
            yield from (f"{name}.{path}" for item in blocks for path in newer(item))
