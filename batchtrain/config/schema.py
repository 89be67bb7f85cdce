"""JSON Schemas generated from the types, and every problem of a document judged by them.

The types are the source; `schemas/*.json` is written from here and compared by a test. `msgspec.convert` is the fast
way in and stops at the first mistake; only when it stops is this slower way taken, which finds all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from batchtrain.config import types

FILES: dict[str, type] = {
    "credentials": types.CredentialsFile,
    "config": types.ConfigFile,
    "pool": types.PoolFile,
    "jobs": types.JobsFile,
}
"""The four files; each has a schema of its name."""

SECTIONS: dict[str, Any] = {
    "credentials": types.Credentials,
    "batchtrain": types.Settings,
    "global_resources": types.GlobalResources,
    "pool_specification": types.Pool,
    "job_specifications": tuple[types.Job, ...],
}
"""Top-level keys over all files, and what stands below each."""


class Flaw(NamedTuple):
    """What a schema finds: where (a path), why, and whether the place is a key's."""

    path: tuple[str | int, ...]
    rule: str
    message: str
    at_key: bool = False
    hint: str = ""


def file_schema(name: str) -> dict[str, Any]:
    """The schema of one file, as editors read it."""
    schema = msgspec.json.schema(FILES[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"batchtrain {name}.yaml", **schema}


def rendered(name: str) -> bytes:
    """The schema of one file as committed: sorted by nothing, indented by two, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(file_schema(name)), indent=2) + b"\n"


def flaws(section: str, data: Any) -> tuple[Flaw, ...]:
    """Everything wrong with one section's data, in the order of the schema's own walk."""
    from jsonschema import Draft202012Validator, validators  # 70 ms, and only needed when something is wrong

    checker = Draft202012Validator.TYPE_CHECKER.redefine_many(_TEXT_TYPES)
    extend: Callable[..., Any] = validators.extend
    judge = extend(Draft202012Validator, {"minimum": _minimum, "maximum": _maximum}, type_checker=checker)
    found: list[Flaw] = []
    shown = _masked(data) if section == "credentials" else data  # a secret must not reach a message
    for error in judge(msgspec.json.schema(SECTIONS[section])).iter_errors(shown):
        found.extend(_explain(error))
    return tuple(found)


def _masked(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _masked(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_masked(value) for value in data]
    return "***"


# --- scalars are text: what text may stand for ----------------------------------------------------------------------

_INTEGER = re.compile(r"[-+]?\d+")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_BOOLEANS = frozenset({"true", "false", "True", "False", "TRUE", "FALSE"})


def _is_integer(_: Any, value: Any) -> bool:
    return (isinstance(value, str) and _INTEGER.fullmatch(value) is not None) or type(value) is int


def _is_number(_: Any, value: Any) -> bool:
    return (isinstance(value, str) and _NUMBER.fullmatch(value) is not None) or type(value) in (int, float)


def _is_boolean(_: Any, value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value in _BOOLEANS)


_TEXT_TYPES: dict[str, Callable[[Any, Any], bool]] = {
    "integer": _is_integer,
    "number": _is_number,
    "boolean": _is_boolean,
}


def _minimum(_: Any, bound: float, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if _is_number(None, value) and float(value) < bound:
        yield ValidationError(f"{value} is less than {bound}")


def _maximum(_: Any, bound: float, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if _is_number(None, value) and float(value) > bound:
        yield ValidationError(f"{value} is more than {bound}")


# --- from a validator's error to a sentence -------------------------------------------------------------------------


def _explain(error: Any) -> Iterator[Flaw]:
    path = tuple(error.absolute_path)
    if error.validator == "anyOf":
        yield from _explain_any_of(error, path)
    elif error.validator == "additionalProperties" and isinstance(error.instance, dict):
        yield from _unknown_keys(error, path)
    elif error.validator == "required":
        missing = re.match(r"'([^']*)'", error.message)
        yield Flaw(path, "missing", f"`{missing[1] if missing else '?'}` is missing", at_key=True)
    else:
        rule, message, hint = _SENTENCES.get(error.validator, _other)(error)
        yield Flaw(path, rule, message, hint=hint)


def _explain_any_of(error: Any, path: tuple[str | int, ...]) -> Iterator[Flaw]:
    """Of several possible shapes only the one the writer meant is worth a complaint: the one that is not null."""
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    shapes = [inner for number, inner in branches.items() if error.validator_value[number].get("type") != "null"]
    if len(shapes) == 1:
        for inner in shapes[0]:
            yield from _explain(inner)
        return
    wanted = " or ".join(_kind(option) for option in error.validator_value if option.get("type") != "null")
    yield Flaw(path, "type", f"{_shown(error.instance)} is not {wanted}")


def _unknown_keys(error: Any, path: tuple[str | int, ...]) -> Iterator[Flaw]:
    known = tuple(error.schema.get("properties", {}))
    for key in error.instance:
        if key not in known:
            yield Flaw(
                (*path, key), "unknown-key", f"`{key}` is not known here", at_key=True, hint=did_you_mean(key, known)
            )


def did_you_mean(word: str, known: tuple[str, ...]) -> str:
    """The nearest valid name as a question, else the few valid names, else nothing."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean `{near[0]}`?"
    if 0 < len(known) <= 12:
        return f"Known: {', '.join(known)}."
    return ""


def _type(error: Any) -> tuple[str, str, str]:
    return "type", f"{_shown(error.instance)} is not {_kind(error.schema)}", ""


def _enum(error: Any) -> tuple[str, str, str]:
    values = tuple(str(value) for value in error.validator_value)
    near = did_you_mean(str(error.instance), values)
    return "value", f"{_shown(error.instance)} is not one of {', '.join(values)}", near if "mean" in near else ""


def _pattern(error: Any) -> tuple[str, str, str]:
    wanted = _PATTERNS.get(error.validator_value, f"of the form {error.validator_value}")
    return "value", f"{_shown(error.instance)} is not {wanted}", ""


def _bound(error: Any) -> tuple[str, str, str]:
    return "value", error.message, ""


def _short(error: Any) -> tuple[str, str, str]:
    return "value", "this must not be empty", ""


def _other(error: Any) -> tuple[str, str, str]:
    return "value", error.message, ""


_SENTENCES: dict[str, Callable[[Any], tuple[str, str, str]]] = {
    "type": _type,
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _bound,
    "maximum": _bound,
    "minLength": _short,
    "minItems": _short,
}
_PATTERNS = {
    types.ID: "a valid id: 1 to 64 letters, digits, `-` and `_`",
    types.SPAN: "a time span of the form [days.]HH:MM:SS",
}
_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
}


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(str(value) for value in schema['enum'])}"
    return _KINDS.get(schema.get("type", "object"), "valid")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"
