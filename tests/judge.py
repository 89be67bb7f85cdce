"""What the SDK's own models say of a request body: no unknown key at any depth, no value of a wrong type.

The models are read, not run: their annotations give the JSON names and the types.
"""

from __future__ import annotations

import datetime
import enum
import functools
import operator
import re
import types as python
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import azure.batch as sdk
from azure.batch import models
from azure.batch._utils.model_base import Model, _RestField

from batchtrain.catalog import api_versions

MODELS: dict[str, type[Model]] = {
    "pool.add": models.BatchPoolCreateOptions,
    "pool.resize": models.BatchPoolResizeOptions,
    "pool.autoscale": models.BatchPoolEnableAutoScaleOptions,
    "job.add": models.BatchJobCreateOptions,
    "job.complete": models.BatchJobUpdateOptions,
    "schedule.add": models.BatchJobScheduleCreateOptions,
    "task.add": models.BatchTaskCreateOptions,
    "node.user": models.BatchNodeUserCreateOptions,
}
"""The model of each action of a plan; a request with `value` holds many tasks."""

NEWER = frozenset(field.rpartition(".")[2] for field in api_versions.NEWER)
"""Properties of newer API versions, which this SDK does not have."""

NOT_OF_BATCH = frozenset({"blob.upload", "files.upload", "pool.identity"})
"""Actions that another service answers, so that no model of Batch fits."""

_SPAN = re.compile(r"P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_MOMENT = re.compile(r"\{\{expires:[^{}]+\}\}|\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)")


def flaws(action: str, body: Any) -> list[str]:
    """What the SDK's model of an action does not take of a body, each with its path."""
    if action == "task.add" and "value" in body:
        return list(_model(models.BatchTaskGroup, body, ""))
    return list(_model(MODELS[action], body, ""))


@cache
def fields(model: type[Model]) -> dict[str, Any]:
    """The JSON names of a model, and the type of each."""
    hints = hints_of(model, {"_models": models, "datetime": datetime, **vars(sdk)})
    found = {}
    for parent in reversed(model.__mro__):
        for name, value in vars(parent).items():
            if isinstance(value, _RestField):
                found[value._rest_name_input or name] = hints[name]
    return found


def hints_of(model: type[Model], names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a model as types."""
    hints = typing.get_type_hints(model, localns=dict(names))
    return {name: _resolved(hint, names) for name, hint in hints.items()}


def _resolved(hint: Any, names: Mapping[str, Any]) -> Any:
    """Python 3.10 leaves the text in `list["Name"]` as it is."""
    if isinstance(hint, str):
        return eval(hint, dict(names))
    origin = typing.get_origin(hint)
    if origin not in (list, dict, typing.Union, python.UnionType):
        return hint
    inner = tuple(_resolved(part, names) for part in typing.get_args(hint))
    return origin[inner] if origin in (list, dict) else functools.reduce(operator.or_, inner)


def is_class(hint: Any, of: type) -> bool:
    """Whether an annotation is a class of some kind; `list[int]` is an instance of `type` on Python 3.10."""
    return isinstance(hint, type) and typing.get_origin(hint) is None and issubclass(hint, of)


@cache
def required(model: type[Model]) -> frozenset[str]:
    """The JSON names that a model cannot do without."""
    return frozenset(name for name, hint in fields(model).items() if type(None) not in typing.get_args(hint))


def knows(model: type[Model], path: tuple[str, ...]) -> bool:
    """Whether a path of JSON names exists in a model; `*` stands for any one name."""
    if not path or path[0] in NEWER:
        return True
    known = fields(model)
    found = known.items() if path[0] == "*" else [(path[0], known[path[0]])] if path[0] in known else []
    return any(not path[1:] or any(knows(below, path[1:]) for below in models_in(hint)) for _, hint in found)


def below(model: type[Model], path: tuple[str, ...]) -> type[Model] | None:
    """The model at the end of a path of JSON names."""
    for name in path:
        inner = models_in(fields(model).get(name))
        if not inner:
            return None
        model = inner[0]
    return model


def reachable(model: type[Model]) -> set[type[Model]]:
    """A model and all it is made of."""
    found: set[type[Model]] = set()
    waiting = [model]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += [inner for hint in fields(one).values() for inner in models_in(hint)]
    return found


def models_in(hint: Any) -> list[type[Model]]:
    """The models that an annotation names."""
    if is_class(hint, Model):
        return [hint]
    return [found for part in typing.get_args(hint) for found in models_in(part)]


# --- a value against a type -----------------------------------------------------------------------------------------


def _model(model: type[Model], body: Any, path: str) -> Iterator[str]:
    if not isinstance(body, dict):
        yield f"{path}: {body!r} is not a {model.__name__}"
        return
    known = fields(model)
    for name, value in body.items():
        if name not in known and name not in NEWER:
            yield f"{path}.{name}: {model.__name__} knows no such key"
        elif name in known:
            yield from _value(known[name], value, f"{path}.{name}")
    for name in sorted(required(model) - set(body)):
        yield f"{path}.{name}: {model.__name__} cannot do without it"


def _value(hint: Any, value: Any, path: str) -> Iterator[str]:
    origin = typing.get_origin(hint)
    if origin is typing.Union or origin is python.UnionType:
        yield from _one_of([part for part in typing.get_args(hint) if part is not type(None)], value, path)
    elif origin is list:
        yield from _items(typing.get_args(hint)[0], value, path)
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is not a mapping"
    elif is_class(hint, Model):
        yield from _model(hint, value, path)
    elif not _is(hint, value):
        yield f"{path}: {value!r} is not {getattr(hint, '__name__', hint)}"


def _one_of(hints: list[Any], value: Any, path: str) -> Iterator[str]:
    enums = [hint for hint in hints if is_class(hint, enum.Enum)]
    if enums:  # the SDK takes any text beside the values it knows; a plan should hold none that it does not know
        known = [member.value for hint in enums for member in hint]
        if value not in known:
            yield f"{path}: {value!r} is not one of {known}"
        return
    if all(any(True for _ in _value(hint, value, path)) for hint in hints):
        yield from _value(hints[0], value, path)


def _items(hint: Any, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, (list, tuple)):
        yield f"{path}: {value!r} is not a list"
        return
    for number, item in enumerate(value):
        yield from _value(hint, item, f"{path}[{number}]")


def _is(hint: Any, value: Any) -> bool:
    if hint is datetime.timedelta:
        return isinstance(value, str) and _SPAN.fullmatch(value) is not None
    if hint is datetime.datetime:
        return isinstance(value, str) and _MOMENT.fullmatch(value) is not None
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    return hint is Any or (isinstance(hint, type) and isinstance(value, hint))
