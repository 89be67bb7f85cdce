"""What no output may show: values of the credentials that are secret, and the signatures of links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from batchtrain.config.types import SECRETS

MASK = "***"
SHORTEST = 6
"""Characters of a secret that is looked for in other texts; a shorter one would hide words that only look like it."""

_SIGNATURE = re.compile(r"([?&]sig=)[^&\s\"'\\]+")


def secrets_of(value: Any, *, inside: bool = False) -> tuple[str, ...]:
    """The texts of every secret property in a value of the types, once each, longest first."""
    return tuple(sorted(set(_secrets(value, inside)), key=lambda text: (-len(text), text)))


def _secrets(value: Any, inside: bool) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _secrets(getattr(value, name), inside or name in SECRETS)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _secrets(item, inside)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _secrets(item, inside)
    elif inside and isinstance(value, str) and len(value) >= SHORTEST:
        yield value


def veiled(value: Any, secrets: Iterable[str] = ()) -> Any:
    """A document of mappings, lists and scalars, in which each secret and each signature is masked."""
    if isinstance(value, str):
        return veiled_text(value, secrets)
    if isinstance(value, dict):
        return {key: veiled(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [veiled(item, secrets) for item in value]
    return value


def veiled_text(text: str, secrets: Iterable[str] = ()) -> str:
    """A text in which each secret and each signature is masked."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    return _SIGNATURE.sub(rf"\1{MASK}", text) if "sig=" in text else text
