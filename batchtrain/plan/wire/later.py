"""Parts of a request that a plan does not hold: secrets, links, keys and times, filled in when the request is sent."""

import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

import msgspec


class Placeholder(NamedTuple):
    """One value that is not known yet; a plan shows it as `{{kind:name}}`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{{{{{self.kind}:{self.name}}}}}"


Fill = Callable[[Placeholder], str]
"""Gives the value of a placeholder, such as (`registry`, `hub`) or (`sas`, `link/container/blob`)."""


class Template:
    """Text of which some parts are placeholders. Not a struct, so that msgspec hands it to `enc_hook`."""

    __slots__ = ("parts",)

    def __init__(self, *parts: str | Placeholder) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def __repr__(self) -> str:
        return f"Template({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    @property
    def kinds(self) -> set[str]:
        """The kinds of its placeholders."""
        return {part.kind for part in self.parts if isinstance(part, Placeholder)}

    def fits(self, text: str) -> bool:
        """Whether a text may be this one with its placeholders filled."""
        pattern = "".join(".*" if isinstance(part, Placeholder) else re.escape(part) for part in self.parts)
        return re.fullmatch(pattern, text, re.DOTALL) is not None

    def filled(self, fill: Fill) -> str:
        """The text with every placeholder filled."""
        return "".join(fill(part) if isinstance(part, Placeholder) else part for part in self.parts)


def later(kind: str, name: str) -> Template:
    """A text that is one placeholder as a whole."""
    return Template(Placeholder(kind, name))


class VaultSettings:
    """Environment settings, with more of them in a Key Vault secret; the settings of the file win."""

    __slots__ = ("secret", "settings")

    def __init__(self, secret_id: str, settings: tuple[Any, ...]) -> None:
        self.secret, self.settings = Placeholder("keyvault", secret_id), settings

    def __eq__(self, other: object) -> bool:
        mine = (self.secret, self.settings)
        return isinstance(other, VaultSettings) and mine == (other.secret, other.settings)

    def __hash__(self) -> int:
        return hash((self.secret, self.settings))

    def shown(self) -> list[Any]:
        """The settings as a plan shows them: one stands for all those of the secret."""
        return [{"name": str(self.secret)}, *self.settings]

    def filled(self, fill: Fill) -> list[Any]:
        """The settings of the secret, then those of the file."""
        names = {setting.name for setting in self.settings}
        more = msgspec.json.decode(fill(self.secret))
        return [*({"name": name, "value": value} for name, value in more.items() if name not in names), *self.settings]


def shown(value: Any) -> Any:
    """msgspec's `enc_hook` for a plan that is shown."""
    return value.shown() if isinstance(value, VaultSettings) else str(value)


def filled(body: Any, fill: Fill) -> dict[str, Any]:
    """The JSON document of a body as it is sent, with every placeholder filled."""
    content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body, enc_hook=lambda value: value.filled(fill)))
    return content


def templates(body: Any) -> dict[str, Template]:
    """Every text of a body that has placeholders, by the text that is shown."""
    by_text: dict[str, Template] = {}

    def note(value: Any) -> Any:
        if isinstance(value, Template):
            by_text[str(value)] = value
        return shown(value)

    msgspec.json.encode(body, enc_hook=note)
    return by_text


Piece = bytes | Template | VaultSettings
"""A part of a JSON document: text as it is, or a value that is filled in there."""


def pieces(body: Any) -> tuple[bytes, tuple[Piece, ...]]:
    """The JSON document of a body as it is shown, and in pieces around its placeholders; no pieces without any."""
    plain = msgspec.json.encode(body, enc_hook=shown)
    holes: list[Piece] = []
    mark = next(mark for number in count() if (mark := b"<%d|" % number) not in plain).decode()

    def hole(value: Piece) -> str:
        holes.append(value)
        return f"{mark}{len(holes) - 1}>"

    template = msgspec.json.encode(body, enc_hook=hole)
    around = re.split(re.escape(b'"' + mark.encode()) + rb'(\d+)>"', template)
    parts = tuple(holes[int(part)] if number % 2 else part for number, part in enumerate(around))
    return plain, parts if holes else ()


def filled_pieces(parts: Iterable[Piece], fill: Fill) -> bytes:
    """The document with every placeholder filled."""

    def text(value: Any) -> Any:
        return value.filled(fill)

    return b"".join(part if isinstance(part, bytes) else msgspec.json.encode(part, enc_hook=text) for part in parts)
