"""Masks secrets in outputs: by the names of their places, by their shape, and wherever else their text occurs.

`secret_names.py` judges names, and `secret_shapes.py` finds shapes in a text. Every output uses these functions.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import msgspec
import yaml

from batchtrain.config.node_preparation import GIVEN, PACKED
from batchtrain.config.patterns import late
from batchtrain.config.secret_names import (
    PUBLIC,
    SECRETS,
    hides,
    is_ordinary,
    is_placeholder,
    is_secret,
    names_secret,
    stands_for,
)
from batchtrain.config.secret_shapes import is_option, may_have_secrets, replaced, spans
from batchtrain.config.types.base import read_path
from batchtrain.config.types.credentials import Credentials
from batchtrain.config.types.jobs import Job
from batchtrain.config.types.pool import Pool
from batchtrain.config.types.secret import MASK, Secret, masked
from batchtrain.config.types.settings import Settings

SHORTEST = 6
"""Minimum length of a secret that is searched in other texts; a shorter one would mask unrelated words."""

LIKELY = 12
"""Minimum length of a variable's value that is searched in other texts; short values such as `100` are not secrets."""

_LINE = late(r"""^([ \t]*(?:[-#][ \t]*)*["']?([\w.-]+)["']?[ \t]*:[ \t]+)(\S.*)$""", re.MULTILINE)
_PROPERTY = late(
    rf"""(?i)\b((?:{"|".join(sorted(SECRETS))})["']?\s*:\s*["']?)((?<=")[^"\n]+|(?<=')[^'\n]+|(?<!["'])[^\s,&}}\]]+)"""
)
_NAME = late(r"[\w.\]\[\"'+-]+")
"""A path of `--set`, or an option."""


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


# --- places ---------------------------------------------------------------------------------------------------------


def is_hidden(path: Sequence[str | int]) -> bool:
    """Whether the value at a path of the configuration is secret; of the credentials, every value is."""
    return path[:1] == ("credentials",) or any(hides(*pair) for pair in pairwise(("", *map(str, path))))


def variable(name: str, value: str) -> str:
    """The value of a variable with secrets masked; placeholders of batchtrain's variables are kept."""
    return MASK if value and is_secret(name) and not name.startswith(GIVEN) and not stands_for(value) else value


# --- secrets that are searched in texts -----------------------------------------------------------------------------


def secrets_in(recipe: Written | None, settings: Mapping[str, str] | None = None) -> tuple[Secret, ...]:
    """Every secret that is written in a recipe and in the values of `--set`, once each, longest first."""
    values = settings or {}
    secrets = [(Secret(text), SHORTEST) for path, text in values.items() if is_hidden(read_path(path))]
    texts = list(values.values())
    if recipe is not None:
        secrets += ((secret, SHORTEST) for secret in _secrets((recipe.credentials, recipe.pool, recipe.settings)))
        owners: list[Any] = [recipe.pool.additional_node_prep] if recipe.pool is not None else []
        for job in recipe.jobs:
            owners += (job, job.job_manager, job.job_preparation, job.job_release, job.merge_task, *job.tasks)
        owners = [owner for owner in owners if owner is not None]
        variables = [item for owner in owners for item in owner.environment_variables.items()]
        secrets += ((Secret(value), LIKELY) for name, value in variables if variable(name, value) == MASK)
        texts += _texts(recipe, owners, (value for _, value in variables))
    return _longest_first((*secrets, *_shaped("\n".join(texts))))


def _texts(recipe: Written, owners: Iterable[Any], values: Iterable[str]) -> Iterator[str]:
    """The texts of a recipe that may have secrets in them: few long ones, which are searched faster."""
    gangs = (gang for owner in owners if (gang := getattr(owner, "multi_instance", None)) is not None)
    commands = (command for owner in owners if (command := getattr(owner, "command", None)))
    yield "\n".join(itertools.chain(commands, values))
    jobs = [msgspec.structs.replace(job, tasks=()) for job in recipe.jobs]
    written = msgspec.to_builtins((recipe.pool, jobs, list(gangs)), enc_hook=masked)
    yield "\n".join(_leaves(written))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)


def _longest_first(secrets: Iterable[tuple[Secret, int]]) -> tuple[Secret, ...]:
    return tuple(sorted({secret for secret, least in secrets if len(secret) >= least}, key=len, reverse=True))


def _secrets(value: Any) -> Iterator[Secret]:
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _secrets(item)


def _sent(request: Any) -> Iterator[tuple[str, str]]:
    """Every variable in the document of a request."""
    if isinstance(request, dict):
        name, value = _pair_of(request)
        if name and isinstance(request[value], str):
            yield name, request[value]
        request = list(request.values())
    for item in request if isinstance(request, list) else ():
        yield from _sent(item)


def _pair_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """The name in a document that has a name and a value, and the key of the value; empty for any other."""
    for value in ("value", "Value"):
        for key in ("name", "key", "Name", "Key") if value in document else ():
            if isinstance(name := document.get(key), str):
                return name, value
    return "", ""


# --- outputs --------------------------------------------------------------------------------------------------------


def masked_text(text: str, secrets: Iterable[Secret] = ()) -> str:
    """A text with every secret masked: those that are given, and those of a known shape."""
    for secret in secrets:
        text = secret.masked_in(text)
    while places := spans(text):  # a mask may uncover the next secret
        text = replaced(text, places, MASK)
    return text


def masked_document(value: Any, secrets: Sequence[Secret] = (), within: str = "") -> Any:
    """A document of mappings, lists and scalars with every secret masked. In the configuration a secret property is of
    type Secret, in a request it is a placeholder. within: the key of the document."""
    if isinstance(value, str):
        return masked_text(value, secrets)
    if isinstance(value, dict):
        document = {
            key: _hidden_value(item) if _hides(within, key) else masked_document(item, secrets, str(key))
            for key, item in value.items()
        }
        name, key = _pair_of(value)
        if name and isinstance(text := document[key], str):  # a variable in the form of a request
            document[key] = variable(name, text)
        return document
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, str) for item in value):
            return masked_words(value, secrets)
        return [masked_document(item, secrets, within) for item in value]
    return value


def _hides(within: str, key: object) -> bool:
    """Whether a key of a document hides its value: one that a type decides, such as `url`, may be of something else."""
    return isinstance(key, str) and is_secret(key) and hides(within, key)


def _hidden_value(value: Any) -> Any:
    return value if not value or value is True or (isinstance(value, str) and _stands(value)) else MASK


def _stands(value: str) -> bool:
    return stands_for(value) or is_placeholder(value)


def masked_request(request: Any) -> Any:
    """The document of a request with every secret masked; in all of its texts, the values of its secret variables."""
    secrets = secrets_sent(request)
    return masked_document(without_files(request) if secrets else request, secrets)


def without_files(document: Any) -> Any:
    """The document of a request without the packed files of its tasks, in which every secret of a command is."""
    if isinstance(document, dict):
        name, text = document.get("name"), document.get("value")
        if isinstance(name, str) and isinstance(text, str) and name.startswith(PACKED):
            return {**document, "value": f"<{len(text)} characters of the task's files>"}
        return {key: without_files(item) for key, item in document.items()}
    return [without_files(item) for item in document] if isinstance(document, (list, tuple)) else document


def secrets_sent(*requests: Any) -> tuple[Secret, ...]:
    """The secrets in requests, or in the service's answers, once each, longest first: the values of secret variables,
    and what has the shape of a secret."""
    variables = itertools.chain.from_iterable(map(_sent, requests))
    secrets = ((Secret(value), LIKELY) for name, value in variables if variable(name, value) == MASK)
    return _longest_first((*secrets, *_shaped("\n".join(_leaves(requests)))))


def _shaped(text: str) -> Iterator[tuple[Secret, int]]:
    return ((Secret(text[start:end]), SHORTEST) for start, end in spans(text))


# --- command lines --------------------------------------------------------------------------------------------------


def masked_words(words: Iterable[str], secrets: Sequence[Secret] = ()) -> list[str]:
    """The words of a command line; the word after an option such as `--api-key` is its value. What has the shape of a
    secret together with the words before it, as after `docker login -p`, is masked, too."""
    line, option = [], ""
    for word in words:
        line.append(MASK if _is_value(option, word) else masked_word(word, secrets))
        option = word if is_option(word) else ""
    at, places = 0, deque(spans(" ".join(line)))
    for number, word in enumerate(line) if places else ():
        inside = []
        while places and places[0][0] < at + len(word):
            start, end = places.popleft()
            inside.append((max(start - at, 0), min(end - at, len(word))))
            if end > at + len(word) + 1:
                places.appendleft((at + len(word) + 1, end))
                break
        line[number] = replaced(word, inside, MASK)
        at += len(word) + 1
    return line


def _is_value(option: str, word: str) -> bool:
    """Whether a word is the secret value of the option before it; option: empty without one."""
    return bool(option and word) and word[0] != "-" and not is_ordinary(option, word)


def masked_word(word: str, secrets: Sequence[Secret] = ()) -> str:
    """A word of a command line, which may be `PATH=VALUE` of `--set`, or an option with its value."""
    option = "--set=" if word.startswith("--set=") else ""
    path, equals, value = word.removeprefix(option).partition("=")
    if not equals or not _NAME.fullmatch(path):
        return masked_text(word, secrets)
    return f"{option}{path}={masked_setting(path, value, secrets)}"


def masked_setting(path: str, text: str, secrets: Sequence[Secret] = ()) -> str:
    """The value of `--set` for a path; one that begins as a list or a mapping is YAML."""
    words = read_path(path)
    is_secret_name = bool(words) and names_secret(str(words[-1])) and not is_ordinary(str(words[-1]), text)
    if is_hidden(words) or (is_secret_name and str(words[-1]) not in PUBLIC):
        return text if _stands(text) else MASK
    if text[:1] in ("[", "{"):
        with contextlib.suppress(yaml.YAMLError):
            return masked_yaml(text, secrets, str(words[-1]) if words else "")
    return masked_text(text, secrets)


# --- YAML -----------------------------------------------------------------------------------------------------------


def masked_yaml(text: str, secrets: Sequence[Secret] = (), within: str = "") -> str:
    """A text of YAML with every secret masked, however it is written; it stays YAML. Raises YAMLError."""
    places = sorted(itertools.chain(spans(text), *(secret.places_in(text) for secret in secrets)))
    if not places and not may_have_secrets(text):
        return text  # finding values takes a second per 100,000 lines
    starts = {start for start, _ in places}
    nodes = yaml.compose_all(text, yaml.CSafeLoader)
    edits = list(itertools.chain.from_iterable(_edits(node, within, starts, set()) for node in nodes))
    edits += (_Edit(*span) for span in places)
    parts: list[str] = []
    at = 0
    for edit in sorted(set(edits), key=lambda edit: (edit.start, -edit.end, not edit.kind)):
        if edit.start >= at:
            parts += (text[at : edit.start], edit.new(text[edit.start : edit.end], secrets))
        at = max(at, edit.end)
    return masked_line("".join((*parts, text[at:])))


class _Edit(NamedTuple):
    """A part of a text that is replaced."""

    start: int
    end: int
    kind: str = ""
    """`value`: all of a value. `scalar`: one that begins with a mask, which YAML accepts in quotes only."""

    def new(self, text: str, secrets: Sequence[Secret]) -> str:
        if self.kind == "value":
            line_ends = text[len(text.rstrip("\r\n")) :]  # a block scalar ends with them
            return f'"{MASK}"{line_ends}'  # JSON, too
        return "'{}'".format(masked_text(text, secrets).replace("'", "''")) if self.kind else MASK


def _edits(node: Any, within: str, starts: Set[int], earlier_nodes: set[tuple[int, str]]) -> Iterator[_Edit]:
    """The secret values of a YAML node, and its plain scalars that begin with a secret."""
    if isinstance(node.value, str):
        if not node.style and node.start_mark.index in starts:
            yield _Edit(node.start_mark.index, node.end_mark.index, "scalar")
        return
    if (id(node), within) in earlier_nodes:
        return
    earlier_nodes.add((id(node), within))
    option, secret_key = "", _secret_key_of(node)
    for item in node.value:
        key, value = (str(item[0].value), item[1]) if isinstance(item, tuple) else ("", item)
        word = value.value if isinstance(value.value, str) else ""
        is_hidden_key = key == secret_key or (hides(within, key) and not stands_for(word))
        if is_hidden_key if key else _is_value(option, word):
            yield _Edit(value.start_mark.index, value.end_mark.index, "value")
        else:
            yield from _edits(value, key if key not in ("", "<<") else within, starts, earlier_nodes)
        option = word if not key and is_option(word) else ""


def _secret_key_of(node: Any) -> str:
    """The key of the secret value in a YAML mapping that has a name and a value; empty for any other node."""
    pairs = [item for item in node.value if isinstance(item, tuple)]
    scalars = {str(key.value): value.value for key, value in pairs if isinstance(value.value, str)}
    name, key = _pair_of(scalars)
    return key if name and variable(name, scalars[key]) == MASK else ""


def masked_line(text: str, secrets: Iterable[Secret] = ()) -> str:
    """A line of a file or several, also of comments, with the values of secret names and other secrets masked."""
    for pattern in (_LINE, _PROPERTY):
        text = pattern.sub(_masked_match, text)
    return masked_text(text, secrets)


def _masked_match(match: re.Match[str]) -> str:
    """A name with its value masked. Names of `_LINE` are of any kind."""
    start, value, *names = match[1], match[match.lastindex or 0], *match.groups()[1:-1]
    is_shown = (MASK in value and "#" not in start) or stands_for(value) or any(not hides("", name) for name in names)
    return match[0] if is_shown else f"{start}{MASK}"
