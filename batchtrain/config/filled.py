"""Values of the credentials that nobody has filled in yet: offline they are told, where a service is needed refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from batchtrain.config.schema import Flaw, dotted
from batchtrain.config.types import Credentials
from batchtrain.errors import ConfigError, Problem

Path = tuple[str | int, ...]
CREDENTIALS: Path = ("credentials",)
_BESIDES = frozenset({"resource_group", "application_insights"})
"""What nobody needs to sign in to Batch or storage."""


def is_unfilled(text: str) -> bool:
    """Whether a value only stands where one is to be written."""
    return _UNFILLED.fullmatch(text) is not None


def placeholders(data: Any, path: Path) -> Iterator[Flaw]:
    """Values that nobody filled in; not an error, since nothing that works offline needs them."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from placeholders(value, (*path, key))
    elif isinstance(data, str) and is_unfilled(data):
        message = f"`{path[-1]}` is not filled in; nothing that works offline needs it"
        yield Flaw(path, "placeholder", message, level="warning")


def filled_in(data: Any) -> Any:
    """Without what is empty, which is as good as absent."""
    if isinstance(data, dict):
        kept = {key: filled_in(value) for key, value in data.items()}
        return {key: value for key, value in kept.items() if not (isinstance(value, str) and not value.strip())}
    return data


_UNFILLED = re.compile(r"\s*|<[^<>]*>|.*://[^/]*<[^<>]+>.*|.*your[-_ ][a-z].*|x{4,}|change[-_ ]?me|todo", re.I | re.S)


def require_credentials(
    credentials: Credentials, warnings: Iterable[Problem] = (), *, part: tuple[str, ...] = ("batch",)
) -> Credentials:
    """Credentials in which what a service needs is filled in.

    part: the path of what is needed, such as `batch` or `storage`, NAME. warnings: the recipe's, which know the places.
    Raises ConfigError with every placeholder of that part.
    """
    placed = {problem.path: problem for problem in warnings if problem.rule == "placeholder"}
    whole: Any = msgspec.to_builtins(credentials)
    for step in part:
        whole = (whole or {}).get(step)
    found = placeholders(whole, (*CREDENTIALS, *part))
    unfilled = {dotted(flaw.path): flaw.path[-1] for flaw in found if not _BESIDES & set(flaw.path)}
    problems = tuple(
        placed.get(at, Problem("placeholder", "", path=at))._replace(
            level="error", message=f"`{name}` is not filled in, and it is needed to sign in."
        )
        for at, name in unfilled.items()
    )
    if problems:
        raise ConfigError(problems)
    return credentials
