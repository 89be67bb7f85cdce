"""The base of every type of the configuration language, including types built in Python: `bt.PyTorch(...)`."""

import difflib
import inspect
from collections.abc import Collection
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo


class Spelled(msgspec.StructMeta):
    """Suggests the nearest property for a misspelt keyword, and makes `help()` of a block readable."""

    if not TYPE_CHECKING:  # type checkers read the properties of the block itself

        def __call__(cls, **properties: Any) -> Any:
            for name in properties:
                if name not in cls.__struct_fields__:
                    raise TypeError(misspelt(cls.__name__, name, cls.__struct_fields__))
            return super().__call__(**properties)

        @property
        def __doc__(cls) -> str:
            """The text of `help()`: the block's description, and each property with its sentence."""
            description = cls.__dict__.get("__doc__") or f"`{cls.__name__}`."
            return "\n".join((description, "", *map(_sentence, _hints(cls).items())))

        @property
        def __signature__(cls) -> inspect.Signature:
            parameters, fields = [], {field.name: field for field in msgspec.structs.fields(cls)}
            for name, hint in _hints(cls).items():
                default = inspect.Parameter.empty if fields[name].required else default_of(fields[name])
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters.append(inspect.Parameter(name, kind, default=default, annotation=_plain(hint)))
            return inspect.Signature(parameters)


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=Spelled):
    """A mapping of the language: immutable, and without unknown keys."""


def misspelt(what: str, name: str, keywords: Collection[str]) -> str:
    """The message about a keyword that does not exist."""
    near = difflib.get_close_matches(name, keywords, n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"Known: {', '.join(sorted(keywords))}."
    return f"{what} has no keyword `{name}`. {hint}"


def _hints(block: type[msgspec.Struct]) -> dict[str, Any]:
    """The properties of a block with their types, bounds and sentences."""
    hints = get_type_hints(block, include_extras=True)
    return {name: hints[name] for name in block.__struct_fields__}


def _sentence(item: tuple[str, Any]) -> str:
    name, hint = item
    notes = (note.description for note in get_args(hint)[1:] if isinstance(note, Meta))
    return f"{name}: {' '.join(filter(None, notes))}"


def default_of(field: FieldInfo) -> Any:
    """The default value of a property."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _plain(hint: Any) -> Any:
    """A type without the bounds and sentences of it and its parts."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _plain(parts[0])
    if origin in (Union, UnionType):
        return Union[tuple(map(_plain, parts))]  # noqa: UP007 - its members are not known here
    return origin[tuple(map(_plain, parts))] if parts else hint
