"""Placeholders such as `<job id>`: reported offline, refused where a service is needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from batchtrain.config.patterns import late
from batchtrain.config.schema import Flaw, dotted
from batchtrain.config.types import MASK, Credentials, Recipe, Secret
from batchtrain.config.types import credentials as blocks_of_credentials
from batchtrain.errors import ConfigError, Problem

Path = tuple[str | int, ...]
CREDENTIALS: Path = ("credentials",)
_BESIDES = frozenset({"resource_group", "application_insights"})
"""Properties that are not needed to sign in to Batch or storage."""


def is_unfilled(value: str | Secret) -> bool:
    """Whether a value is a placeholder that the user must replace."""
    return value.like(_UNFILLED) if isinstance(value, Secret) else _UNFILLED.fullmatch(value) is not None


def placeholders(data: Any, path: Path) -> Iterator[Flaw]:
    """Placeholders that were not replaced; not an error, because nothing that works offline needs them."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from placeholders(value, (*path, key))
    elif isinstance(data, str) and is_unfilled(data):
        hidden = path[-1] not in _names()
        message = f"{'this' if hidden else f'`{path[-1]}`'} is a placeholder; it is only needed to reach the service"
        yield Flaw(path, "placeholder", message, level="warning", hidden=hidden)


@cache
def _names() -> frozenset[str]:
    """The properties of the credentials; another key may be a secret that the user put there."""
    blocks = (block for block in vars(blocks_of_credentials).values() if isinstance(block, type(msgspec.Struct)))
    return frozenset(name for block in blocks for name in block.__struct_fields__)


def unfilled(data: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """The placeholders of a section of the pool or the jobs, each a whole value, with their paths. Variables and values
    of factories may have any text."""
    if isinstance(data, (dict, list)):
        for step, value in data.items() if isinstance(data, dict) else enumerate(data):
            if step not in _ANY_TEXT:
                yield from unfilled(value, (*path, step))
    elif isinstance(data, str) and _IN_BRACKETS.fullmatch(data):
        yield path, data


def stand_in(placeholder: str) -> str:
    """A name in place of a placeholder where its brackets are not valid: `job-id` for `<job id>`."""
    return "-".join(re.findall("[a-z0-9]+", placeholder.lower()))[:_LONGEST_ID]


def to_fill(path: Path) -> Flaw:
    """The warning about a placeholder of the pool or the jobs."""
    name = next(step for step in reversed(path) if isinstance(step, str))
    message = f"`{name}` is a placeholder; write your own value before anything is sent"
    return Flaw(path, "placeholder", message, level="warning")


def require_filled(recipe: Recipe, *, emulated: bool) -> None:
    """Raise ConfigError with every placeholder of the recipe's pool and jobs, and of the volumes that the emulator
    keeps in a directory of its own."""
    problems = [problem._replace(level="error") for problem in recipe.placeholders]
    for name, volume in {} if emulated else recipe.resources.volumes.shared_data_volumes.items():
        if (volume.source or "").startswith(EXAMPLE_HOST):
            path = f"global_resources.volumes.shared_data_volumes.{name}.source"
            message = (
                f"`{volume.source}` is the placeholder of a recipe; write the share or the container that you have"
            )
            problems.append(Problem("placeholder", message, "config.yaml", path=path))
    if problems:
        raise ConfigError(tuple(problems))


EXAMPLE_HOST = "example."
"""The beginning of the servers in recipes. They do not exist."""


def filled_in(data: Any) -> Any:
    """Without empty values, which count as absent."""
    if isinstance(data, dict):
        values = {key: filled_in(value) for key, value in data.items()}
        return {key: value for key, value in values.items() if not (isinstance(value, str) and not value.strip())}
    return data


_UNFILLED = late(
    r"\s*|<+[^<>]*>+|\[[^\[\]]*\]|\{+[^{}]*\}+|\.{3}|.*://[^/]*(<[^<>]+>|\[[a-z][^\[\]:]*\]|\*\*).*|.*your[-_ ][a-z].*"
    r"|your[a-z]{3,30}=*|([a-z]+_)+(name|key)|[a-z_ -]{3,40}==|x{4,}|change[-_ ]?me|redacted|todo",
    re.I | re.S,
)
KEY = late(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
"""The key of an account: base64."""
NO_KEY = "`account_key` is not base64, as keys are; copy the whole key from the account's Keys page"
_IN_BRACKETS = late(r"<[^<>]+>")
_ANY_TEXT = frozenset({"environment_variables", "task_factory"})
_LONGEST_ID = 64


def require_credentials(
    credentials: Credentials, warnings: Iterable[Problem] = (), *, part: tuple[str, ...] = ("batch",)
) -> Credentials:
    """The credentials, if they have no placeholder for a service.

    part: the path of the values, such as `batch` or `storage`, NAME. warnings: those of the recipe, which have the
    positions. Raises ConfigError with every placeholder of that part.
    """
    located = {problem.path: problem for problem in warnings if problem.rule == "placeholder"}
    values: Any = msgspec.to_builtins(credentials, enc_hook=lambda secret: "" if is_unfilled(secret) else MASK)
    for step in part:
        values = (values or {}).get(step)
    flaws = placeholders(values, (*CREDENTIALS, *part))
    placeholder_names = {dotted(flaw.path): flaw.path[-1] for flaw in flaws if not _BESIDES & set(flaw.path)}
    problems = tuple(
        located.get(at, Problem("placeholder", "", path=at))._replace(
            level="error", message=f"`{name}` is a placeholder, but it is needed to sign in."
        )
        for at, name in placeholder_names.items()
    )
    entry: Any = credentials
    for step in part:
        entry = entry.get(step) if isinstance(entry, dict) else getattr(entry, step, None)
    key = getattr(entry, "account_key", None)
    if key and not is_unfilled(key) and not key.like(KEY):
        at = dotted((*CREDENTIALS, *part, "account_key"))
        invalid = {problem.path: problem for problem in warnings if problem.rule == "account-key"}
        problems += (invalid.get(at, Problem("account-key", f"{NO_KEY}.", path=at))._replace(level="error"),)
    if problems:
        raise ConfigError(problems)
    return credentials
