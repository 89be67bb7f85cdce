"""Secrets from Azure Key Vault, by the secret ids in the files; raw REST. Source: the Key Vault REST reference, Get
Secret (7.4).

Untested on Azure (untested-on-azure.md).
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from azure.core.credentials import TokenCredential
from msgspec.structs import replace

from batchtrain.config import document as yaml
from batchtrain.config.types import Credentials, KeyVault, Secret
from batchtrain.errors import ConfigError, Problem, ServiceError, UsageError
from batchtrain.service import entra
from batchtrain.service.entra import CLOUDS, scope_of
from batchtrain.service.rest import Rest

VERSION = {"api-version": "7.4"}
LARGEST = 4 * 1024 * 1024
"""The largest credentials file in bytes; a secret has 25 KB at most, but compressed text can be of any length."""

LOGINS: Mapping[str, str] = {
    **dict.fromkeys(("batch_accounts", "storage"), "account_key"),
    **dict.fromkeys(("docker_registry", "singularity_registry", "user_accounts", "shares"), "password"),
}
"""The sections of credentials with several blocks, and the field of a block that may be in a vault."""

Read = Callable[[str], str]
"""Returns a secret's value by its id, or by its name in the vault of `keyvault.uri`."""

Block = TypeVar("Block", bound=Any)


def reader(credentials: Credentials, *, ca: str | None = None) -> Read:
    """Reads secrets with the sign-in of the files; signs in at the first one, and requests each only once."""
    keyvault = credentials.keyvault or KeyVault()
    cache: dict[str, str] = {}
    signed_in: list[TokenCredential] = []

    def read(name: str) -> str:
        secret_id = id_of(name, keyvault.uri)
        if secret_id not in cache:
            if not signed_in:
                sign_in = entra.sign_in_of(keyvault.aad, credentials.aad, endpoint=secret_id)
                signed_in.append(entra.credential(sign_in, ca=ca))
            cache[secret_id] = secret(signed_in[0], secret_id, ca=ca)
        return cache[secret_id]

    return read


def id_of(name: str, uri: str | None) -> str:
    """The id of a secret, given its id or its name in a vault. Raises UsageError for a name without a vault."""
    if "://" in name:
        return name
    if not uri:
        raise UsageError(f"`{name}` is the name of a secret; say in which vault: `keyvault.uri` in credentials.yaml")
    return f"{uri.rstrip('/')}/secrets/{name}"


def secret(credential: TokenCredential, secret_id: str, *, ca: str | None = None, domain: str = "") -> str:
    """The value of a secret (`https://NAME.vault.azure.net/secrets/KEY[/VERSION]`). `domain` allows a vault service
    outside the known clouds. Raises UsageError for any other URL, so that no token is sent elsewhere; NotFound,
    NotAllowed, Unreachable."""
    parts = urlsplit(secret_id)
    name = parts.path.strip("/").split("/")
    domains = filter(None, (*(cloud.vault for cloud in CLOUDS), domain))
    vault = next((item for item in domains if f".{parts.netloc}".endswith(f".{item}")), "")
    if parts.scheme != "https" or not vault or name[0] != "secrets" or len(name) not in (2, 3):
        raise UsageError(
            f"{secret_id} is not the id of a secret; an id looks like https://NAME.vault.azure.net/secrets/KEY"
        )
    with closing(Rest(f"https://{parts.netloc}", credential, scope_of(f"https://{vault}"), ca=ca)) as client:
        operation = f"read the secret {name[1]} of {parts.netloc}"
        value = client.get(parts.path, operation, VERSION, _value, secret=True)
    if value is None:
        raise ServiceError(f"the secret {name[1]} of {parts.netloc} has no value")
    return value


def _value(document: Mapping[str, Any]) -> str | None:
    return msgspec.convert(document.get("value"), str | None)


# --- credentials that stand in a vault ------------------------------------------------------------------------------


def resolved(credentials: Credentials, read: Read | None = None, *, ca: str | None = None) -> Credentials:
    """The credentials with the values of all referenced secrets; unchanged if there are none. A value in the file wins
    over the vault. ca: a file of certificates to trust instead of the usual ones. Raises UsageError, ConfigError,
    ServiceError."""
    if not needed(credentials):
        return credentials
    get = read or reader(credentials, ca=ca)
    secret_id = credentials.keyvault.credentials_secret_id if credentials.keyvault else None
    if secret_id:  # the values in the file override those of the vault
        vault = document(get(secret_id), secret_id)
        values: dict[str, Any] = {}
        for name in credentials.__struct_fields__:
            mine, other = getattr(credentials, name), getattr(vault, name)
            values[name] = {**other, **mine} if isinstance(mine, dict) else other if mine is None else mine
        credentials = replace(credentials, **values)
    logins: dict[str, Any] = {
        field: {key: _filled(block, name, get) for key, block in getattr(credentials, field).items()}
        for field, name in LOGINS.items()
    }
    return replace(credentials, batch=_filled(credentials.batch, "account_key", get), **logins)


def needed(credentials: Credentials) -> bool:
    """Whether any value refers to a secret."""
    if credentials.keyvault is not None and credentials.keyvault.credentials_secret_id:
        return True
    blocks: list[tuple[Any, str]] = [(credentials.batch, "account_key")] if credentials.batch else []
    blocks += [(block, name) for field, name in LOGINS.items() for block in getattr(credentials, field).values()]
    return any(_stands_for(block, name) for block, name in blocks)


def _stands_for(block: Any, name: str) -> str | None:
    """The secret that a missing value refers to."""
    return None if getattr(block, name) else getattr(block, f"{name}_keyvault_secret_id")


def _filled(block: Block, name: str, read: Read) -> Block:
    stands = _stands_for(block, name) if block is not None else None
    return replace(block, **{name: Secret(read(stands))}) if stands else block


# --- what a secret's text is ----------------------------------------------------------------------------------------


def document(text: str, secret_id: str) -> Credentials:
    """A whole credentials file from a secret: text, or the output of Batch Shipyard's `keyvault add` (zlib, base64).
    Raises ConfigError if it is neither; no message contains any of it."""
    from batchtrain.config.load import examine  # only for files that are kept in a vault

    source = Path(urlsplit(secret_id).path or secret_id)
    config = examine(source, {f"{source}/credentials.yaml": _unpacked(text).encode()})  # never opened
    if not config.valid:
        raise ConfigError(config.problems)
    return config.recipe.credentials


def mapping(read: Read, secret_id: str) -> dict[str, str]:
    """The environment in a secret, a YAML or JSON mapping (`environment_variables_keyvault_secret_id`); a name without
    a value is omitted. Raises ConfigError if it is not a mapping; no message contains any of it."""
    tree, problems = yaml.parse(f"{secret_id}/credentials.yaml", _unpacked(read(secret_id)).encode())
    data = tree.data if tree.readable else None
    if problems or not isinstance(data, dict) or any(isinstance(value, (dict, list)) for value in data.values()):
        message = f"the secret {secret_id} is no mapping of names to values, in YAML or JSON."
        raise ConfigError((Problem("keyvault", message),))
    return {str(name): str(value) for name, value in data.items()}


def _unpacked(text: str) -> str:
    """The text itself, or the text that was compressed with zlib and base64."""
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
        return zlib.decompressobj().decompress(content, LARGEST).decode()
    except (binascii.Error, ValueError, zlib.error):
        return text
