"""Secret: a text that no output shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from batchtrain.errors import UsageError

MASK = "***"
"""Replaces a secret in an output."""


class Secret:
    """A password or key. Only `service` and `storage` reveal its text; str, repr, JSON and pickle do not contain it.
    Not a struct, so that msgspec passes it to a hook.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | None) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Raises UsageError for a secret that was pickled."""
        if self._text is None:
            raise UsageError("a pickled recipe has no secrets; load the recipe again where its credentials are needed")
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __bool__(self) -> bool:
        return self._text != ""

    def __len__(self) -> int:
        return len(self._text or "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[None]]:
        return Secret, (None,)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Secret:
        return self

    def like(self, pattern: re.Pattern[str]) -> bool:
        """Whether the whole text matches a pattern."""
        return pattern.fullmatch(self._text or "") is not None

    def masked_in(self, text: str) -> str:
        """Mask this secret in another text."""
        for form in self._forms():
            text = text.replace(form, MASK)
        return text

    def places_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Where this secret begins and ends in another text."""
        for form in self._forms():
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + len(form))

    def _forms(self) -> tuple[str, ...]:
        """The text, and how JSON, a shell and a link write it; they write most texts as they are."""
        text = self._text or ""
        if text.replace("=", "").isalnum():  # `=` ends base64, and links quote it
            return (text, text.replace("=", "%3D")) if "=" in text else (text,) if text else ()
        forms = text, msgspec.json.encode(text).decode()[1:-1], text.replace("'", "'\"'\"'"), quote(text, safe="")
        return tuple(dict.fromkeys(filter(None, forms)))


def convert(data: Any, kind: Any) -> Any:
    """Converts data of YAML or JSON to a type of the language. Raises msgspec.ValidationError."""
    return msgspec.convert(data, kind, strict=False, dec_hook=_decoded)


def _decoded(kind: type, value: Any) -> Any:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def masked(value: Any) -> str:
    """msgspec's `enc_hook` for a document that is shown."""
    return MASK if value else ""
