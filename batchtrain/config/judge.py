"""Finds every mistake in a section's data: jsonschema judges by `schemas/*.json`, and this file writes the messages.

jsonschema takes 60 ms to import and 0.1 ms for a task. So the loader imports this file only where msgspec refuses a
section, and jsonschema judges only the parts (the pool, each job, each task) that msgspec refuses.
"""

from __future__ import annotations

import gc
import operator
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from batchtrain.config import types
from batchtrain.config.editor import as_loaded
from batchtrain.config.masking import is_hidden
from batchtrain.config.schema import (
    PATTERNS,
    Flaw,
    Json,
    Path,
    Verdict,
    definitions,
    nearest,
    pointer,
    scalar,
    shortened,
    unknown_key,
)

_CYCLES = 1000
"""Number of parts between garbage collections: jsonschema leaves cycles, and the loader stops the collector for large
files."""


def judged(section: str, data: Any, most: int = sys.maxsize) -> Verdict:
    """The mistakes in a section's data; after `most` of them, the remaining parts are only counted."""
    flaws: list[Flaw] = []
    skipped_parts = 0
    for number, part in enumerate(_parts(section, data), 1):
        if number % _CYCLES == 0:
            gc.collect(0)
        if len(flaws) < most:
            flaws += mistakes(part)
        else:
            skipped_parts += 1
    return Verdict(tuple(flaws), skipped_parts)


# --- which parts have mistakes: msgspec -----------------------------------------------------------------------------


class Part(NamedTuple):
    """A section, or a part of it."""

    path: Path
    data: Any
    definition: str
    """The path of the part's schema, from the definitions down."""


def section_part(section: str, data: Any) -> Part:
    """A section as one part."""
    return Part((section,), data, pointer(section))


def _parts(section: str, data: Any) -> Iterator[Part]:
    """The section; of the jobs each without its tasks, and each task."""
    if section != "job_specifications" or not isinstance(data, list) or not data:
        yield section_part(section, data)
        return
    for number, job in enumerate(data):
        tasks = job.get("tasks") if isinstance(job, dict) else None
        alone = {**job, "tasks": []} if isinstance(tasks, list) else job
        if _converted(types.Job, alone) is None:
            yield Part((section, number), alone, "Job")
        for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
            if _converted(types.Task, task) is None:
                yield Part((section, number, "tasks", index), task, "Task")


def _converted(kind: type, data: Any) -> Any:
    """The typed value of data; None if msgspec refuses it."""
    try:
        return types.convert(data, kind)
    except msgspec.ValidationError:
        return None


# --- what is wrong with a part: jsonschema --------------------------------------------------------------------------


def mistakes(part: Part) -> Iterator[Flaw]:
    """Every mistake in a part."""
    for error in _judge(part.definition).iter_errors(part.data):
        yield from _worded(error, part.path)


@cache
def _judge(definition: str) -> Validator:
    judge: Validator = _Judge({"$ref": f"#/$defs/{definition}", "$defs": definitions()})
    return judge


def mistakes_of(kind: type, data: Any, path: Path) -> Iterator[Flaw]:
    """Every mistake in the data of a type that the schemas lack."""
    schema = as_loaded(msgspec.json.schema(kind))
    for error in _Judge(schema).iter_errors(data):
        yield from _worded(error, path)


def _type(validator: Validator, kinds: Any, data: Any, schema: Json) -> Iterator[ValidationError]:
    kind = scalar(schema)
    if kind is None or not isinstance(data, str):
        yield from Draft202012Validator.VALIDATORS["type"](validator, kinds, data, schema)
    elif _converted(kind, data) is None:
        yield ValidationError("")


def _pattern(validator: Validator, pattern: str, data: Any, schema: Json) -> Iterator[ValidationError]:
    if scalar(schema) is None:  # the pattern of a number in quotes is for editors
        yield from Draft202012Validator.VALIDATORS["pattern"](validator, pattern, data, schema)


def _bound(holds: Any, validator: Validator, bound: float, data: Any, schema: Json) -> Iterator[ValidationError]:
    value = _converted(scalar(schema) or float, data)
    if value is not None and not holds(value, bound):  # `nan` is neither less nor more
        yield ValidationError("")


def _required(validator: Validator, names: list[str], data: Any, schema: Json) -> Iterator[ValidationError]:
    if isinstance(data, dict):
        yield from (ValidationError("", path=(name,)) for name in names if name not in data)


def _others(validator: Validator, additional: Any, data: Any, schema: Json) -> Iterator[ValidationError]:
    if additional is not False:
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, additional, data, schema)
    elif isinstance(data, dict):
        yield from (ValidationError("", path=(name,)) for name in data if name not in schema["properties"])


_Judge: Any = extend(  # type: ignore[no-untyped-call]  # its stub has no types
    Draft202012Validator,
    {"type": _type, "pattern": _pattern, "minimum": partial(_bound, operator.ge),
     "maximum": partial(_bound, operator.le), "required": _required, "additionalProperties": _others},
)  # fmt: skip
"""The draft's validator, but a text may represent a number, and every missing or unknown name is a separate error."""


# --- the messages about it ------------------------------------------------------------------------------------------


def _worded(error: ValidationError, base: Path) -> Iterator[Flaw]:
    """The message about an error; never jsonschema's own message, which contains values."""
    path = (*base, *error.absolute_path)
    return WORDS[str(error.validator)](error, path, base)


def _missing(error: ValidationError, path: Path, base: Path) -> Iterator[Flaw]:
    schema: Any = error.schema
    data: Any = error.instance
    absent_names = tuple(name for name in schema["required"] if name not in data)
    misspelt = {nearest(key, absent_names)[0] for key in data if key not in schema["properties"]}
    if path[-1] not in misspelt:  # the unknown key's message names it
        yield Flaw(path[:-1], "missing", f"`{path[-1]}` is missing", at_key=True)


def _unknown(error: ValidationError, path: Path, base: Path) -> Iterator[Flaw]:
    schema: Any = error.schema
    yield unknown_key(path, tuple(schema["properties"]), error.instance)


def _wrong(error: ValidationError, path: Path, base: Path) -> Iterator[Flaw]:
    schema: Any = error.schema
    fix = "" if is_hidden(path) else _mended(schema, error.instance)
    yield Flaw(path, "type", f"{_shown(error.instance, path)} is not {_wanted(schema)}", fix=fix)


def _no_value(error: ValidationError, path: Path, base: Path) -> Iterator[Flaw]:
    schema: Any = error.schema
    flaw = Flaw(path, "value", f"{_shown(error.instance, path)} is not {_wanted(schema)}")
    if isinstance(error.instance, (dict, list)):
        yield flaw._replace(rule="type")
    else:
        yield flaw if is_hidden(path) else flaw._replace(word=str(error.instance), known=_values(schema))


def _beyond(words: Callable[[str, Any, Any], str], error: ValidationError, path: Path, base: Path) -> Iterator[Flaw]:
    schema: Any = error.schema
    if "prefixItems" in schema:
        yield from _wrong(error, path, base)
    else:
        yield Flaw(path, "value", words(_shown(error.instance, path), error.validator_value, error.instance))


def _too_many(what: str, _: str, most: int, data: Any) -> str:
    return f"{len(data)} {what} are more than {most}"


def _too_few(_: str, least: int, data: Any) -> str:
    return "this must not be empty" if least == 1 else f"at least {least} items are needed"


def _union(error: ValidationError, path: Path, base: Path) -> Iterator[Flaw]:
    """The mistakes of the intended shape, or of all shapes if none is intended."""
    shapes: Any = error.validator_value
    options = {number: shape for number, shape in enumerate(shapes) if shape.get("type") != "null"}
    data: Any = error.instance
    outer_shape = "object" if isinstance(data, dict) else "array" if isinstance(data, list) else "string"
    kinds = {number: "object" if "$ref" in shape else shape.get("type", "") for number, shape in options.items()}
    meant = [number for number, kind in kinds.items() if len(options) == 1 or outer_shape == _first(kind)]
    if len(meant) == 1:
        for below in error.context or ():
            if below.relative_schema_path[0] == meant[0]:
                yield from _worded(below, base)
        return
    shapes_text = " or ".join(_wanted(shape) for shape in options.values())
    flaw = Flaw(path, "type", f"{_shown(data, path)} is not {shapes_text}")
    if not is_hidden(path) and isinstance(data, str):
        fixes = {fix for shape in options.values() if (fix := _mended(shape, data))}
        words = tuple(word for shape in options.values() for word in _values(shape))
        flaw = flaw._replace(word=data, known=words, fix=fixes.pop() if len(fixes) == 1 else "")
    yield flaw


Words = Callable[[ValidationError, Path, Path], Iterator[Flaw]]
WORDS: dict[str, Words] = {
    "required": _missing,
    "additionalProperties": _unknown,
    "type": _wrong,
    "enum": _no_value,
    "anyOf": _union,
    "items": lambda error, path, base: iter(()),  # after `prefixItems`; `maxItems` reports it
    "pattern": partial(_beyond, lambda text, form, _: f"{text} is not {PATTERNS.get(form, f'of the form {form}')}"),
    "minimum": partial(_beyond, lambda text, least, _: f"{text} is less than the minimum of {least}"),
    "maximum": partial(_beyond, lambda text, most, _: f"{text} is more than the maximum of {most}"),
    "minLength": partial(_beyond, _too_few),
    "minItems": partial(_beyond, _too_few),
    "maxLength": partial(_beyond, partial(_too_many, "characters")),
    "maxItems": partial(_beyond, partial(_too_many, "items")),
}
"""The message for each keyword of the schema."""


def _shown(data: Any, path: Path) -> str:
    if isinstance(data, (dict, list)):
        return "a mapping" if isinstance(data, dict) else "a list"
    if is_hidden(path):
        return f"`{types.MASK}`"
    return "nothing" if data is None else "an empty text" if data == "" else f"`{shortened(str(data))}`"


_NOUNS = {"string": "text", "array": "a list", "object": "a mapping"}


def _wanted(schema: Json) -> str:
    if "enum" in schema:
        return f"one of {', '.join(_values(schema))}"
    if "prefixItems" in schema:
        example = ", ".join(str(1000 + 99 * number) for number in range(len(schema["prefixItems"])))
        return f"a list of {len(schema['prefixItems'])} numbers, such as [{example}]"
    return str(schema.get("patternErrorMessage") or _NOUNS[_first(schema.get("type", "object"))])


def _first(kind: Any) -> Any:
    return kind[0] if isinstance(kind, list) else kind


def _values(schema: Json) -> tuple[str, ...]:
    return tuple(str(value) for value in schema.get("enum", ()) if value is not None)


_YES = frozenset({"yes", "on", "y", "t", "true"})
_NO = frozenset({"no", "off", "n", "f", "false"})
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([_,' ][0-9]{3})+|[+-]?[0-9_]*[0-9]")


def _mended(schema: Json, data: Any) -> str:
    """The only number or boolean that a malformed text can mean."""
    kind = scalar(schema)
    if kind is None or not isinstance(data, str) or len(data) > 40:
        return ""
    text = data.strip().strip("'\"").strip()
    if kind is bool:
        return "true" if text.lower() in _YES else "false" if text.lower() in _NO else ""
    if _GROUPED.fullmatch(text):
        text = re.sub(r"[_,' ]", "", text)
    text = re.sub(r"^(-?)0+(?=[0-9])", r"\1", text.removeprefix("+"))
    if kind is float:
        text = re.sub(r"^(-?)\.", r"\g<1>0.", text).removesuffix("%").removesuffix(".")
    value = _converted(kind, text)
    if value is None or text == data or not re.match("-?[0-9]", text):
        return ""
    return text if schema.get("minimum", value) <= value <= schema.get("maximum", value) else ""
