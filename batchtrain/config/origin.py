"""The merged view of a configuration: every value with its origin; secrets are masked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from batchtrain.config import yaml_text
from batchtrain.config.load import Examined, Reading
from batchtrain.config.masking import masked_document, secrets_in
from batchtrain.config.schema import FIELDS
from batchtrain.config.types import masked

At = tuple[str | int, ...]
DEFAULT = "default"


class View(NamedTuple):
    """Values, and the origin of each value in the same shape."""

    values: Any
    origins: Any


def view(review: Examined, *, defaults: bool = True, environment: Collection[str] = ()) -> View:
    """The effective configuration.

    defaults: include default values. environment: settings from an environment variable, by their text.
    """
    secrets = secrets_in(review.recipe)
    sections = {
        section: masked_document(msgspec.to_builtins(value, enc_hook=masked), secrets)
        for section, attribute in FIELDS.items()
        if (value := getattr(review.recipe, attribute)) is not None and (defaults or section in review.reading.sections)
    }
    leaves = dict(_leaves(sections, ()))
    origins = _origins(review.reading, leaves, environment)
    values = {path: value for path, value in leaves.items() if defaults or origins[path] != DEFAULT}
    return View(_like(sections, values) or {}, _like(sections, {path: origins[path] for path in values}) or {})


def as_yaml(view: View, *, origins: bool) -> str:
    """The view as YAML; with `origins`, each value has its origin as a comment."""
    return "\n".join(yaml_text.lines(view.values, view.origins if origins else None)) or "{}"


def _leaves(value: Any, path: At) -> Iterator[tuple[At, Any]]:
    """Scalars with their paths; absent and empty values are omitted."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, number))
    elif value is not None:
        yield path, value


def _origins(reading: Reading, leaves: Collection[At], environment: Collection[str]) -> dict[At, str]:
    origins: dict[At, str] = {}
    by_file: dict[str, list[At]] = {}
    for path in leaves:
        words = reading.setting(path)
        if words:
            origins[path] = "BATCHTRAIN_SET" if words in environment else "--set"
            continue
        section = reading.sections.get(str(path[0]))
        if section is None or not section.document.readable:
            origins[path] = DEFAULT
        else:
            by_file.setdefault(section.document.file, []).append(path)
    for file, paths in by_file.items():
        positions = reading.documents[file].positions((reading.written(path), False) for path in paths)
        for path in paths:
            position = positions[reading.written(path), False]
            origins[path] = f"{Path(file).name}:{position.line}" if position.exact else DEFAULT
    return origins


def _like(shape: Any, leaves: Mapping[At, Any], path: At = ()) -> Any:
    """Leaves by path, as mappings and lists in the given shape. Returns None for a part without leaves."""
    if isinstance(shape, dict):
        items = ((str(key), _like(item, leaves, (*path, str(key)))) for key, item in shape.items())
        return {key: item for key, item in items if item is not None} or None
    if isinstance(shape, (list, tuple)):
        parts = (_like(item, leaves, (*path, number)) for number, item in enumerate(shape))
        return [part for part in parts if part is not None] or None
    return leaves.get(path)
