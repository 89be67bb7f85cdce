"""Masks secrets in outputs: secrets of the credentials, environment variables with names of secrets, and secrets in
links (signatures, passwords)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from batchtrain.config.node_preparation import GIVEN
from batchtrain.config.types.credentials import Credentials
from batchtrain.config.types.jobs import Job
from batchtrain.config.types.pool import Pool
from batchtrain.config.types.secret import MASK, Secret
from batchtrain.config.types.settings import Settings

SHORTEST = 6
"""Minimum length of a secret that is searched in other texts; a shorter one would mask unrelated words."""

LIKELY = 12
"""Minimum length of a variable's value that is searched in other texts; short values such as `100` are not secrets."""

_NAMES = r"\w*(?:PASSWORD|SECRET)\w*|(?:\w*_)?(?:TOKEN|KEY)"
_NAMED = re.compile(_NAMES, re.IGNORECASE)
_LINE = re.compile(rf"""^(\s*(?:-\s*)?["']?(?:{_NAMES})["']?\s*:\s*)\S.*$""")
_SIGNATURE = re.compile(r"([?&]sig=)[^&\s\"'\\]+")
_LOGIN = re.compile(r"(://[^/\s:@\"']*:)[^@/\s\"']+(?=@)")


class Written(Protocol):
    """The parts of a recipe that may hold secrets."""

    @property
    def credentials(self) -> Credentials: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def pool(self) -> Pool | None: ...
    @property
    def jobs(self) -> tuple[Job, ...]: ...


def is_secret(variable: str) -> bool:
    """Whether the name of an environment variable marks its value as secret: `*_TOKEN`, `*_KEY`, PASSWORD, SECRET."""
    return _NAMED.fullmatch(variable) is not None


def secrets_in(recipe: Written) -> tuple[Secret, ...]:
    """Every secret that is written in a recipe, once each, longest first."""
    held = _secrets((recipe.credentials, recipe.pool, recipe.settings))
    named = (Secret(value) for name, value in _variables(recipe) if is_secret(name) and len(value) >= LIKELY)
    distinct = dict.fromkeys((*(secret for secret in held if len(secret) >= SHORTEST), *named))
    return tuple(sorted(distinct, key=len, reverse=True))


def secrets_of_settings(values: Mapping[str, str]) -> tuple[Secret, ...]:
    """The values of `--set` for the credentials."""
    return tuple(Secret(text) for path, text in values.items() if path.startswith("credentials") and text)


def _variables(recipe: Written) -> Iterator[tuple[str, str]]:
    """Every environment variable that is written."""
    if recipe.pool is not None:
        yield from recipe.pool.additional_node_prep.environment_variables.items()
    for job in recipe.jobs:
        parts = (job, job.job_manager, job.job_preparation, job.job_release, job.merge_task, *job.tasks)
        for part in parts:
            if part is not None and part.environment_variables:
                yield from part.environment_variables.items()


def _secrets(value: Any) -> Iterator[Secret]:
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _secrets(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _secrets(item)


VARIABLES = "environment_variables"
"""The property of the configuration whose values are environment variables."""


def masked_document(value: Any, secrets: Iterable[Secret] = ()) -> Any:
    """A document of mappings, lists and scalars with every secret masked, also in links."""
    if isinstance(value, str):
        return masked_text(value, secrets)
    if isinstance(value, dict):
        shown = {key: masked_document(item, secrets) for key, item in value.items()}
        if isinstance(variables := shown.get(VARIABLES), dict):
            shown[VARIABLES] = {key: variable(str(key), item) for key, item in variables.items()}
        name, given = value.get("name"), shown.get("value")
        if isinstance(name, str) and isinstance(given, str):  # a variable in the form of a request
            shown["value"] = variable(name, given)
        return shown
    if isinstance(value, (list, tuple)):
        return [masked_document(item, secrets) for item in value]
    return value


def masked_file(content: bytes, secrets: Iterable[Secret] = ()) -> str:
    """A YAML file with every secret masked: of secret variables the whole value, however it is written."""
    import yaml  # 20 ms, and only a run stores files

    text = content.decode("utf-8", "replace")
    spans = {span for node in yaml.compose_all(text, yaml.CSafeLoader) for span in _secret_values(node, set())}
    for start, end in sorted(spans, reverse=True):
        line_ends = text[start:end][len(text[start:end].rstrip("\r\n")) :]  # a block scalar ends with them
        text = f"{text[:start]}'{MASK}'{line_ends}{text[end:]}"
    return masked_lines(text, secrets)


def masked_lines(text: str, secrets: Iterable[Secret] = ()) -> str:
    """A text with secrets masked line by line, also those that have the name of a secret outside of variables."""
    lines = (line if MASK in line else masked_line(line) for line in text.splitlines(keepends=True))
    return "".join(masked_text(line, secrets) for line in lines)


def _secret_values(node: Any, visited: set[int]) -> Iterator[tuple[int, int]]:
    """Where the values of secret variables begin and end in the text of a YAML node."""
    if id(node) in visited or isinstance(node.value, str):
        return
    visited.add(id(node))
    for item in node.value:
        key, value = item if isinstance(item, tuple) else (None, item)
        if key is not None and key.value == VARIABLES and value.id == "mapping":
            named = (pair for pair in value.value if is_secret(str(pair[0].value)))
            yield from ((secret.start_mark.index, secret.end_mark.index) for _, secret in named)
        yield from _secret_values(value, visited)


def variable(name: str, value: str) -> str:
    """The value of a variable with secrets masked; placeholders of batchtrain's variables are kept."""
    return MASK if value and is_secret(name) and not name.startswith(GIVEN) else value


def masked_text(text: str, secrets: Iterable[Secret] = ()) -> str:
    """A text with every secret masked, also in links."""
    for secret in secrets:
        text = secret.masked_in(text)
    if "sig=" in text:
        text = _SIGNATURE.sub(rf"\1{MASK}", text)
    return _LOGIN.sub(rf"\1{MASK}", text) if "@" in text else text


def masked_line(line: str) -> str:
    """A line of a file with the values of secret variables and the secrets of links masked."""
    return masked_text(_LINE.sub(rf"\1{MASK}", line))
