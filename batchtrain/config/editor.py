"""JSON Schemas as editors need them, which underline nothing that loads."""

from __future__ import annotations

from typing import Any

_QUOTED: dict[str, tuple[str, str]] = {
    "integer": (r"^[+-]?[0-9]+$", "a whole number"),
    "number": (r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$", "a number"),
    "boolean": (r"^([Tt]rue|TRUE|[Ff]alse|FALSE|[01])$", "true or false"),
}
"""Quoted texts in place of a number or a boolean, and the message of an editor about other texts."""


def as_loaded(value: Any) -> Any:
    """The same schema for a loader that reads text: numbers may be quoted, and texts may look like numbers."""
    if isinstance(value, list):
        return [as_loaded(item) for item in value]
    if not isinstance(value, dict):
        return value
    loaded_schema = {
        key: {name: as_loaded(below) for name, below in item.items()}  # a property may be called `type` or `default`
        if key == "properties"
        else item
        if key in ("default", "examples")
        else as_loaded(item)
        for key, item in value.items()
    }
    kind = value.get("type")
    if kind == "string":
        loaded_schema["type"] = ["string", "number", "boolean"]
    elif kind in _QUOTED:
        loaded_schema["type"] = [kind, "string"]
        loaded_schema["pattern"], loaded_schema["patternErrorMessage"] = _QUOTED[kind]
    return loaded_schema
