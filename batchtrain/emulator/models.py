"""Reads request bodies and shows answers by the tables of `properties`; pure.

Input is lenient in form, because other clients need it: numbers and truth values may be strings (as the Azure CLI sends
them), enum values may have any case, and null stands for a missing property. It is strict in content: a property that
the request's service version does not have is refused. The result is canonical, in the form of the current service
version.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import msgspec

from batchtrain import foreign
from batchtrain.catalog import api_versions, meaning
from batchtrain.emulator import versions, wire
from batchtrain.emulator.faults import Fault, invalid_property, not_implemented
from batchtrain.emulator.properties import ARM_NAMES, ENTITIES, ENUMS, MODELS, RESOURCE_MANAGER
from batchtrain.emulator.records import Document
from batchtrain.emulator.versions import CURRENT, NEWEST


class Field(NamedTuple):
    """One line of a table of `properties`."""

    name: str
    kind: str
    many: bool
    required: bool
    since: int
    until: int
    into: tuple[str, ...]
    """Its name in the current version; empty if it is the same."""
    effect: str

    def has(self, revision: int) -> bool:
        """Whether a service version has the property."""
        return self.since <= revision <= self.until


def decode(body: bytes) -> Document:
    """A body as a JSON object; `{}` if it is empty. Raises Fault 400."""
    if not body.strip():
        return {}
    try:
        document = msgspec.json.decode(body)
    except foreign.UNREADABLE as error:
        raise Fault("InvalidRequestBody", Reason=str(error)) from error
    if not isinstance(document, dict):
        raise Fault("InvalidRequestBody", Reason="The body must be a JSON object.")
    return document


def read(model: str, document: object, path: str = "", revision: int = CURRENT) -> Document:
    """A document in canonical form: the same one if it has it. Raises Fault 400 that names the property."""
    if not isinstance(document, dict):
        raise Fault("InvalidRequestBody", PropertyName=path or model, Reason="An object was expected.")
    try:
        msgspec.convert(document, _canonical(model, revision))
        return document  # as most are
    except msgspec.ValidationError:
        shape, read_ = shapes(revision)[model], {}
    for name, value in document.items():
        reader = shape.readers.get(name)
        if reader is None:
            if name.startswith(ANNOTATION):
                continue
            raise _unknown(model, name, path, revision)
        if value is not None:
            read_[name] = reader(value, f"{path}/{name}" if path else name)
    if shape.moved:
        _move(shape, read_)
    for name in shape.required:
        if name not in read_:
            raise Fault("MissingRequiredProperty", PropertyName=f"{path}/{name}" if path else name)
    return read_


def _unknown(model: str, name: str, path: str, revision: int) -> Fault:
    """The refusal of a property that the request's service version does not have."""
    full = f"{path}/{name}" if path else name
    reason = f"The property '{full}' does not exist."
    namesakes = [field for field in fields()[model] if field.name == name]
    if namesakes and namesakes[0].since > revision:
        reason += f" It came with service version {versions.name(namesakes[0].since)}."
    elif name in RETIRED:
        reason += f" {RETIRED[name]}"
    elif namesakes:
        reason += f" Service version {versions.name(namesakes[0].until)} was the last with it."
        if namesakes[0].into:
            reason += f" Use {'/'.join(namesakes[0].into)}."
    elif near := difflib.get_close_matches(name, shapes(revision)[model].readers, 1):
        reason += f" Is '{near[0]}' meant?"
    text = f"The specified Request Body is not syntactically valid. {reason}"
    return Fault("InvalidRequestBody", text, PropertyName=full, Reason=reason)


def _move(shape: Shape, document: Document) -> None:
    """Move properties of older versions to their current names, and drop retired ones."""
    for name, path in shape.moved.items():
        if name in document:
            value = document.pop(name)
            if path:
                *parents, last = path
                inner = document
                for parent in parents:
                    inner = inner.setdefault(parent, {})
                inner.update({**IMPLIED.get(name, {}), last: value})


def shown(model: str, document: Document, revision: int) -> Document:
    """An answer in the form of a service version: only with the properties that it has, and by its names."""
    shape = shapes(revision)[model]
    content = {
        name: _shown(shape.kinds.get(name, ""), value, revision)
        for name, value in document.items()
        if (name in shape.kinds and name not in shape.moved) or name.startswith(ANNOTATION)
    }
    for name, path in shape.moved.items():
        value: Any = document
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if path and value is not None:
            content[name] = value
    return content


def _shown(kind: str, value: Any, revision: int) -> Any:
    if kind not in shapes(revision):
        return value
    if isinstance(value, list):
        return [shown(kind, item, revision) for item in value]
    return shown(kind, value, revision)


def hide(kind: str, value: Any, mask: str = "", spared: str = "") -> Any:
    """Remove or mask what no answer contains, in place; returns the value. spared: a model that keeps its secrets."""
    for document in value if isinstance(value, list) else [value]:
        for field in fields()[kind]:
            if field.name not in document or field.kind == spared:
                continue
            if field.effect != "unshown":
                if field.kind in fields():
                    hide(field.kind, document[field.name], mask, spared)
            elif mask:
                document[field.name] = mask
            else:
                del document[field.name]
    return value


def in_resource_manager(kind: str, value: Any, revision: int) -> Any:
    """A part of an answer with Resource Manager's names of properties and words of enums."""
    if isinstance(value, list):
        return [in_resource_manager(kind, item, revision) for item in value]
    if kind in enums():
        return enums()[kind][value]
    if kind not in fields():
        return value
    kinds, content = shapes(revision)[kind].kinds, {}
    for name, item in value.items():
        arm_name, since = ARM_NAMES.get((kind, name), (name, 0))
        content[arm_name if revision >= since else name] = in_resource_manager(kinds.get(name, ""), item, revision)
    return content


def from_resource_manager(kind: str, value: Any) -> Any:
    """A part of a request with the service's own names of properties."""
    if isinstance(value, list):
        return [from_resource_manager(kind, item) for item in value]
    if kind not in fields() or not isinstance(value, dict):
        return value
    content = {}
    kinds = {field.name: field.kind for field in fields()[kind]}
    names = {arm_name: name for (model, name), (arm_name, _) in ARM_NAMES.items() if model == kind}
    for arm_name, item in value.items():
        name = str(names.get(arm_name, arm_name))
        content[name] = from_resource_manager(kinds.get(name, ""), item)
    return content


@functools.cache
def differs(model: str, revision: int) -> bool:
    """Whether a service version shows other properties than a document in canonical form may have, at any depth."""
    return any(
        not field.has(revision) or bool(field.into) or (field.kind in fields() and differs(field.kind, revision))
        for field in fields()[model]
        if field.kind != "retired"  # no document has it
    )


def links(model: str, document: Document) -> Iterator[str]:
    """The kind (`Network`, `Compute`) of each Azure resource outside Batch that a body in canonical form refers to."""
    for field in _linking(model):
        value = document.get(field.name)
        if value and field.kind in LINKS:
            yield LINKS[field.kind][0]
        elif value:
            for item in value if field.many else [value]:
                yield from links(field.kind, item)


@functools.cache
def _linking(model: str) -> tuple[Field, ...]:
    """The properties that refer to such a resource, or contain one that does."""
    return tuple(field for field in fields().get(model, ()) if field.kind in LINKS or _linking(field.kind))


def field_at(model: str, path: str) -> Field | None:
    """The property of an answer under a nested name such as `executionInfo/exitCode`."""
    name, _, subpath = path.partition("/")
    field = next((field for field in fields().get(model, ()) if field.name == name), None)
    return field_at(field.kind, subpath) if field and subpath else field


ANNOTATION = "odata."
"""The prefix of annotations. The SDK sends them back as it received them, and they have no meaning."""
RETIRED = {
    "blobSource": "Older service versions had it: use httpUrl.",
    "runElevated": "Older service versions had it: use userIdentity.",
    "applicationLicenses": "Application licenses were retired in February 2024.",
    "authenticationTokenSettings": "Authentication tokens of tasks were retired in September 2024.",
    "certificateReferences": "Certificates were retired in February 2024.",
    "certificates": "Certificates were retired in February 2024.",
    "cloudServiceConfiguration": "Cloud Services were retired in February 2024: use virtualMachineConfiguration.",
}
"""Retired or renamed properties of older versions. Empty values are accepted."""
UNAVAILABLE = {"BatchNodeIdentityReference": "managed identities (identityReference): use a URL with a signature"}
"""Type of refused properties -> what the emulator does not have."""
IMPLIED: Mapping[str, Document] = {"publicIPs": {"provision": "usermanaged"}}
"""Information that an older version's property carries besides its value."""

ROOTS = {"pool": "BatchPoolCreateOptions", "job": "BatchJobCreateOptions", "task": "BatchTaskCreateOptions"}
"""The first step of a place in the table of versions -> the model of the request."""
LINKS = {
    "subnet": ("Network", meaning.SUBNET),
    "address": ("Network", meaning.ADDRESS),
    "image": ("Compute", meaning.GALLERY_IMAGE),
    "gallery": ("Compute", ""),
}
"""Type of a property that refers to an Azure resource outside Batch -> the service's name for such resources in its
refusals, and the form of the id, if it has one."""
NO_SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000000/"
"""No account is in it. Three suites of Azure's SDKs expect 400 for a subnet of it, with a key and with a token."""


# Readers: one a type --------------------------------------------------------------------------------------------------

Reader = Callable[[Any, str], Any]

MOST = 2**31 - 1
"""The service's integers have 32 bits; longer ones could not be stored."""


def _mistyped(path: str, kind: str) -> Fault:
    """The refusal of a value of the wrong type, in the service's words."""
    reason = f"Cannot convert a primitive value to the expected type 'Edm.{kind}'."
    return Fault("InvalidRequestBody", PropertyName=path, Reason=f"{reason} See the inner exception for more details.")


def _str(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    raise _mistyped(path, "String")


def _int(value: Any, path: str) -> int:
    if isinstance(value, str):
        value = value.strip()
    try:
        if isinstance(value, bool) or int(value) != float(value):
            raise ValueError
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise _mistyped(path, "Int32") from None
    if not -MOST - 1 <= number <= MOST:
        raise _mistyped(path, "Int32")
    return number


def _bool(value: Any, path: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _mistyped(path, "Boolean")


def _ticks(value: Any, path: str, parse: Callable[[str], int], write: Callable[[int], str], kind: str) -> str:
    try:
        return write(parse(_str(value, path)))
    except ValueError:
        raise _mistyped(path, kind) from None


def _map(value: Any, path: str) -> dict[str, str]:
    if isinstance(value, dict):
        return {name: _str(text, f"{path}/{name}") for name, text in value.items()}
    raise Fault("InvalidRequestBody", PropertyName=path, Reason="An object with texts was expected.")


def _object(value: Any, path: str) -> Document:
    """The settings of an extension, in any form. Only numbers that cannot be stored are refused."""
    if not isinstance(value, dict):
        raise Fault("InvalidRequestBody", PropertyName=path, Reason="An object was expected.")
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        raise invalid_property(path, value, "A whole number has at most 64 bits.") from None
    return value


def _any(value: Any, path: str) -> Any:
    return value


def _retired(value: Any, path: str) -> None:
    if value:
        raise invalid_property(path, "", RETIRED[path.rpartition("/")[2]])


def _unavailable(value: Any, path: str, reader: Reader, what: str) -> NoReturn:
    reader(value, path)
    raise not_implemented(what)


def _enum(values: Iterable[str]) -> Reader:
    canonical = {value.lower(): value for value in values}

    def read_enum(value: Any, path: str) -> str:
        if spelling := canonical.get(_str(value, path).lower()):
            return spelling
        raise invalid_property(path, value, f"The value must be one of {', '.join(values)}.")

    return read_enum


def _link(value: Any, path: str, form: str) -> str:
    if _str(value, path).lower().startswith(NO_SUBSCRIPTION):
        raise invalid_property(path, value, "The resource is not in the subscription of the account.")
    if not value or (form and not meaning.has_form(value, form)):
        raise invalid_property(path, value, f"The id must be of the form {form or '...'}.")
    return str(value)


def _list(value: Any, path: str, reader: Reader) -> list[Any]:
    if not isinstance(value, list):
        raise Fault("InvalidRequestBody", PropertyName=path, Reason="A list was expected.")
    return [reader(item, f"{path}[{index}]") for index, item in enumerate(value)]


# The tables -----------------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """A model as one service version has it."""

    readers: Mapping[str, Reader]
    required: tuple[str, ...]
    kinds: Mapping[str, str]
    moved: Mapping[str, tuple[str, ...]]
    """Properties that have another name in the current version, or are gone."""


_SCALARS: Mapping[str, Reader] = {
    "str": _str,
    "int": _int,
    "float": _any,
    "bool": _bool,
    "duration": functools.partial(_ticks, parse=wire.parse_duration, write=wire.duration, kind="Time"),
    "time": functools.partial(_ticks, parse=wire.parse_timestamp, write=wire.timestamp, kind="DateTime"),
    "map": _map,
    "object": _object,
    "any": _any,
    "retired": _retired,
    **{kind: functools.partial(_link, form=form) for kind, (_, form) in LINKS.items()},
}


@functools.cache
def enums() -> Mapping[str, Mapping[str, str]]:
    """Enum -> value -> Resource Manager's word."""
    words = {}
    for name, text in _entries(ENUMS, ":"):
        pairs = (word.partition("=")[::2] for word in text.split())
        is_lower = name.endswith("*")
        words[name.rstrip("*")] = {word.lower() if is_lower else word: arm or word for word, arm in pairs}
    return words


@functools.cache
def fields() -> Mapping[str, tuple[Field, ...]]:
    """The properties of each model, of all service versions."""
    return {model: tuple(_in_versions(*item) for item in owned) for model, owned in _owned().items()}


def _in_versions(owner: str, field: Field) -> Field:
    span = _spans().get((owner, field.name))
    return field._replace(since=span[0], until=span[1]) if span else field


@functools.cache
def _owned() -> Mapping[str, tuple[tuple[str, Field], ...]]:
    """The properties of each model, each with the model whose text has it."""
    models = dict(_entries(MODELS + ENTITIES.lstrip() + RESOURCE_MANAGER.lstrip(), ""))

    def every_field(model: str) -> Iterator[tuple[str, Field]]:
        for text in models[model].split():
            if text.startswith("+"):
                yield from every_field(text[1:])
            else:
                yield model, _field(text)

    return {model: tuple(every_field(model)) for model in models}


@functools.cache
def _spans() -> Mapping[tuple[str, str], tuple[int, int]]:
    """Model and property, or enum and value -> the first and the last revision with it."""
    return {(_owner(parent, name), name): span for (parent, name), span in api_versions.spans()}


def _owner(parent: str, name: str) -> str:
    """The model whose text has a property of a field of the table of versions; an enum as it is."""
    root, *steps = parent.split(".")
    model = ROOTS.get(root, root)
    for step in steps:
        model = next(field.kind for _, field in _owned()[model] if field.name == step)
    return next((owner for owner, field in _owned().get(model, ()) if field.name == name), model)


def _entries(table: str, separator: str) -> list[tuple[str, str]]:
    """Name and text of each entry: an unindented line and the indented lines that continue it."""
    one_line_entries = table.strip().replace("\n    ", " ")
    lines = (line.partition(" ") for line in one_line_entries.splitlines())
    return [(name.removesuffix(separator), text) for name, _, text in lines]


def _field(text: str) -> Field:
    head, _, effect = text.partition("=")
    head, _, into = head.partition(">")
    name, _, kind = head.partition(":")
    path = tuple(into.split("/")) if into else ()
    return Field(name, kind.rstrip("*!"), "*" in kind, "!" in kind, 0, NEWEST, path, effect)


def values_of(enum: str, revision: int) -> tuple[str, ...]:
    """The values of an enum that a service version has."""
    return tuple(value for value in enums()[enum] if revision <= _spans().get((enum, value), (0, NEWEST))[1])


@functools.cache
def shapes(revision: int) -> Mapping[str, Shape]:
    """All models as a service version has them."""
    scalars = {**_SCALARS, **{name: _enum(values_of(name, revision)) for name in enums()}}
    models = {}
    for name, every in fields().items():
        current = [field for field in every if field.has(revision)]
        readers = {}
        for field in current:
            reader = scalars.get(field.kind) or functools.partial(read, field.kind, revision=revision)
            if field.effect == "refused" and field.kind in UNAVAILABLE:
                reader = functools.partial(_unavailable, reader=reader, what=UNAVAILABLE[field.kind])
            readers[field.name] = functools.partial(_list, reader=reader) if field.many else reader
        required = tuple(field.name for field in current if field.required)
        new_paths = {field.name: field.into for field in current if field.into or field.kind == "retired"}
        models[name] = Shape(readers, required, {field.name: field.kind for field in current}, new_paths)
    return models


_CANONICAL = {"str": str, "bool": bool, "int": Annotated[int, msgspec.Meta(ge=-MOST - 1, le=MOST)]}


@functools.cache
def _canonical(model: str, revision: int) -> type[msgspec.Struct]:
    """A type of only canonical documents of a model: those without a property whose values a reader has to judge."""
    types: list[Any] = []
    for field in fields()[model]:
        kind: Any = _CANONICAL.get(field.kind)
        if field.kind in enums():
            kind = Literal[values_of(field.kind, revision)]
        elif field.kind in fields():
            kind = _canonical(field.kind, revision)
        if kind and field.has(revision) and not field.into and field.effect != "refused":
            kind = list[kind] if field.many else kind
            types.append((field.name, kind) if field.required else (field.name, kind, msgspec.UNSET))
    return msgspec.defstruct(model, types, forbid_unknown_fields=True, kw_only=True, gc=False)
