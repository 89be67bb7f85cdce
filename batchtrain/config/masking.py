"""Masks secrets in outputs, by their place and by their text: secret properties, environment variables with names of
secrets, and secrets in links (signatures, passwords)."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, get_args

import msgspec

from batchtrain.config.node_preparation import GIVEN
from batchtrain.config.types.base import Block, read_path
from batchtrain.config.types.credentials import Credentials
from batchtrain.config.types.jobs import Job
from batchtrain.config.types.pool import Pool
from batchtrain.config.types.secret import MASK, Secret
from batchtrain.config.types.settings import Settings


def _is_of_secret(hint: object) -> bool:
    return hint is Secret or any(map(_is_of_secret, get_args(hint)))


SECRETS = frozenset(
    name for block in Block.__subclasses__() for name, hint in block.__annotations__.items() if _is_of_secret(hint)
)
"""The names of the properties that hold a secret."""

SHORTEST = 6
"""Minimum length of a secret that is searched in other texts; a shorter one would mask unrelated words."""

LIKELY = 12
"""Minimum length of a variable's value that is searched in other texts; short values such as `100` are not secrets."""

VARIABLES = "environment_variables"
"""The property of the configuration whose values are environment variables."""

_NAMES = r"\w*(?:PASSWORD|SECRET)\w*|(?:\w*_)?(?:TOKEN|KEY)"
_NAMED = re.compile(_NAMES, re.IGNORECASE)
_CONSTANT = re.compile(_NAMES)
_LINE = re.compile(rf"""^(\s*(?:[-#]\s*)*["']?(?:{_NAMES})["']?\s*:\s*)\S.*$""")
_PROPERTY = re.compile(rf"""(?i)((?:{"|".join(sorted(SECRETS))})["']?\s*:\s*)(?:"[^"]*"?|'[^']*'?|[^\s,&}}\]]+)""")
_ANY = re.compile(rf"(?i)PASSWORD|SECRET|TOKEN|KEY|{'|'.join(sorted(SECRETS))}")
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


# --- places ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def is_secret(variable: str) -> bool:
    """Whether the name of an environment variable marks its value as secret: `*_TOKEN`, `*_KEY`, PASSWORD, SECRET."""
    return _NAMED.fullmatch(variable) is not None


@lru_cache(maxsize=1024)
def hides(within: str, key: str) -> bool:
    """Whether the value of a key is secret: of a secret property, or of a name in capitals or of a variable that marks
    its value as secret. within: the key of the mapping."""
    return key in SECRETS or (is_secret(key) if within == VARIABLES else _CONSTANT.fullmatch(key) is not None)


def is_hidden(path: Sequence[str | int]) -> bool:
    """Whether the value at a path of the configuration is secret; of the credentials, every value is."""
    return path[:1] == ("credentials",) or any(hides(*pair) for pair in pairwise(("", *map(str, path))))


def variable(name: str, value: str) -> str:
    """The value of a variable with secrets masked; placeholders of batchtrain's variables are kept."""
    return MASK if value and is_secret(name) and not name.startswith(GIVEN) else value


# --- secrets that are searched in texts -----------------------------------------------------------------------------


def secrets_in(recipe: Written | None, settings: Mapping[str, str] | None = None) -> tuple[Secret, ...]:
    """Every secret that is written in a recipe and in the values of `--set`, once each, longest first."""
    secrets = [(Secret(text), SHORTEST) for path, text in (settings or {}).items() if is_hidden(read_path(path))]
    if recipe is not None:
        secrets += ((secret, SHORTEST) for secret in _secrets((recipe.credentials, recipe.pool, recipe.settings)))
        owners: list[Any] = [recipe.pool.additional_node_prep] if recipe.pool is not None else []
        for job in recipe.jobs:
            owners += (job, job.job_manager, job.job_preparation, job.job_release, job.merge_task, *job.tasks)
        variables = (item for owner in owners if owner is not None for item in owner.environment_variables.items())
        secrets += ((Secret(value), LIKELY) for name, value in variables if is_secret(name))
    return _longest_first(secrets)


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
        if isinstance(request.get("name"), str) and isinstance(request.get("value"), str):
            yield request["name"], request["value"]
        request = list(request.values())
    for item in request if isinstance(request, list) else ():
        yield from _sent(item)


# --- outputs --------------------------------------------------------------------------------------------------------


def masked_text(text: str, secrets: Iterable[Secret] = ()) -> str:
    """A text with every secret masked, also in links."""
    for secret in secrets:
        text = secret.masked_in(text)
    if "sig=" in text:
        text = _SIGNATURE.sub(rf"\1{MASK}", text)
    return _LOGIN.sub(rf"\1{MASK}", text) if "@" in text else text


def masked_document(value: Any, secrets: Iterable[Secret] = (), within: str = "") -> Any:
    """A document of mappings, lists and scalars with every secret masked. Secret properties are masked already: in the
    configuration they are of type Secret, in a request they are placeholders. within: the key of the document."""
    if isinstance(value, str):
        return masked_text(value, secrets)
    if isinstance(value, dict):
        masked = {
            key: MASK
            if item and key not in SECRETS and hides(within, str(key))
            else masked_document(item, secrets, str(key))
            for key, item in value.items()
        }
        name, text = value.get("name"), masked.get("value")
        if isinstance(name, str) and isinstance(text, str):  # a variable in the form of a request
            masked["value"] = variable(name, text)
        return masked
    if isinstance(value, (list, tuple)):
        return [masked_document(item, secrets, within) for item in value]
    return value


def masked_request(request: Any) -> Any:
    """The document of a request with every secret masked; in all of its texts, the values of its secret variables."""
    return masked_document(request, secrets_sent(request))


def secrets_sent(*requests: Any) -> tuple[Secret, ...]:
    """The values of the secret variables in requests, or in the service's answers, once each, longest first."""
    variables = itertools.chain.from_iterable(map(_sent, requests))
    return _longest_first((Secret(value), LIKELY) for name, value in variables if is_secret(name))


def masked_yaml(text: str, secrets: Iterable[Secret] = (), within: str = "") -> str:
    """A text of YAML with every secret masked, however it is written. Raises YAMLError."""
    import yaml  # 20 ms, and only a run stores files

    if not _ANY.search(text):
        return masked_text(text, secrets)  # finding values takes a second per 100,000 lines
    spans = {span for node in yaml.compose_all(text, yaml.CSafeLoader) for span in _hidden(node, within, set())}
    for start, end in sorted(spans, reverse=True):
        line_ends = text[start:end][len(text[start:end].rstrip("\r\n")) :]  # a block scalar ends with them
        text = f'{text[:start]}"{MASK}"{line_ends}{text[end:]}'  # JSON, too
    lines = text.splitlines(keepends=True)
    return "".join(masked_text(line, secrets) if MASK in line else masked_line(line, secrets) for line in lines)


def _hidden(node: Any, within: str, earlier_nodes: set[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Where secret values begin and end in the text of a YAML node."""
    if (id(node), within) in earlier_nodes or isinstance(node.value, str):
        return
    earlier_nodes.add((id(node), within))
    for item in node.value:
        if not isinstance(item, tuple):
            yield from _hidden(item, within, earlier_nodes)
        elif hides(within, key := str(item[0].value)):
            yield item[1].start_mark.index, item[1].end_mark.index
        else:
            yield from _hidden(item[1], within if key == "<<" else key, earlier_nodes)


def masked_line(line: str, secrets: Iterable[Secret] = ()) -> str:
    """A line of a file, also of a comment, with the values of secret names and the secrets of links masked."""
    return masked_text(_PROPERTY.sub(rf"\1{MASK}", _LINE.sub(rf"\1{MASK}", line)), secrets)


def masked_setting(path: str, text: str, secrets: Iterable[Secret] = ()) -> str:
    """The value of `--set` for a path; one that begins as a list or a mapping is YAML."""
    import yaml  # as above

    if is_hidden(words := read_path(path)):
        return MASK
    if text[:1] in ("[", "{"):
        with contextlib.suppress(yaml.YAMLError):
            return masked_yaml(text, secrets, str(words[-1]) if words else "")
    return masked_text(text, secrets)


def masked_word(word: str, secrets: Iterable[Secret] = ()) -> str:
    """A word of a command line, which may be `PATH=VALUE` of `--set`."""
    option = "--set=" if word.startswith("--set=") else ""
    path, equals, value = word.removeprefix(option).partition("=")
    return f"{option}{path}={masked_setting(path, value, secrets)}" if equals else masked_text(word, secrets)
