"""Rules about the credentials: invalid accounts, keys and secret ids. No message repeats a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import CREDENTIALS, ERROR, GLOBAL, JOBS, POOL, SETTINGS, WARNING, Found, Rule
from batchtrain.config.patterns import late
from batchtrain.config.types import BatchCredentials, Secret
from batchtrain.config.unfilled import KEY, NO_KEY, is_unfilled

_NAME = late(r"[a-z0-9]{3,24}")
_HOST = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+(:\d{1,5})?"
_LOOPBACK = r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d{1,5})?"
_WEBHOOK = late(rf"(https://({_HOST}|{_LOOPBACK})|http://{_LOOPBACK})([/?][!-~]*)?")
VAULTS = (".vault.azure.net", ".vault.usgovcloudapi.net", ".vault.azure.cn", ".privatelink.vaultcore.azure.net")


def _urls(subject: Subject) -> Found:
    for path, batch in _batch(subject):
        url = batch.account_service_url
        if not url or is_unfilled(url):
            continue
        scheme, _, address = url.strip().rpartition("://")
        host = address.partition("/")[0]
        near = re.fullmatch(_LOOPBACK, host) is not None
        where = (*path, "account_service_url")
        if scheme not in ("", "http", "https") or not (near or re.fullmatch(_HOST, host)):
            yield where, "this is not the URL of a Batch account; it looks like https://NAME.REGION.batch.azure.com"
        elif scheme == "http" and not near:
            yield where, "this would send signatures unencrypted; write https (only loopback may be http)"


def _batch(subject: Subject) -> Iterator[tuple[Path, BatchCredentials]]:
    """Every Batch account, with its path."""
    credentials = subject.recipe.credentials
    if credentials.batch is not None:
        yield ("credentials", "batch"), credentials.batch
    for name, batch in credentials.batch_accounts.items():
        yield ("credentials", "batch_accounts", name), batch


def _webhook(subject: Subject) -> Found:
    notify = subject.recipe.settings.notify
    if notify is not None and not is_unfilled(notify.url) and not notify.url.like(_WEBHOOK):
        yield ("batchtrain", "notify", "url"), "this is not a https URL (only loopback may be http)"


def _keys(subject: Subject) -> Found:
    keys: dict[Path, Secret | None] = {path: batch.account_key for path, batch in _batch(subject)}
    for link, account in subject.recipe.credentials.storage.items():
        keys["credentials", "storage", link] = account.account_key
    for path, key in keys.items():
        if key and not is_unfilled(key) and not key.like(KEY):
            yield (*path, "account_key"), NO_KEY


def _storage(subject: Subject) -> Found:
    for link, account in subject.recipe.credentials.storage.items():
        path = ("credentials", "storage", link)
        if not is_unfilled(account.account) and not _NAME.fullmatch(account.account):
            yield (*path, "account"), "a storage account's name has 3 to 24 lower-case letters and digits"
        host = account.endpoint.rpartition("://")[2].partition("/")[0]
        if not is_unfilled(account.endpoint) and not (re.fullmatch(_HOST, host) or re.fullmatch(_LOOPBACK, host)):
            yield (*path, "endpoint"), "this is not a host name; write a suffix such as core.windows.net, or a URL"


def _secret_ids(subject: Subject) -> Found:
    secret_ids = [
        *_ids(subject.recipe.credentials, ("credentials",)),
        *_ids(subject.pool.additional_node_prep, (*POOL, "additional_node_prep")),
    ]
    variable = "environment_variables_keyvault_secret_id"
    secret_ids += (((*path, variable), getattr(owner, variable) or "") for path, owner in subject.owners)
    for path, text in secret_ids:
        if "://" not in text or is_unfilled(text):
            continue
        host = (urlsplit(text).hostname or "").lower()
        if not host.endswith(VAULTS) or not text.startswith("https://"):
            yield path, f"this is not the id of a Key Vault secret; it looks like https://NAME{VAULTS[0]}/secrets/KEY"


def _ids(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _ids(getattr(value, name), (*path, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _ids(item, (*path, key))
    elif isinstance(value, str) and str(path[-1]).endswith("secret_id"):
        yield path, value


def _mounts(subject: Subject) -> Found:
    accounts = subject.recipe.credentials.storage
    for name, volume in subject.recipe.resources.volumes.shared_data_volumes.items():
        account = accounts.get(volume.storage_account_settings or "")
        has_key = account is None or account.has_key or volume.identity
        if not has_key and volume.volume_driver in ("azureblob", "azurefile"):
            yield (
                ("global_resources", "volumes", "shared_data_volumes", name, "storage_account_settings"),
                "nodes mount with the account's key, but the credentials have none"
                + ("; give it, or an `identity` of the pool" if volume.volume_driver == "azureblob" else ""),
            )


_VAULT = "Key Vault: about keys, secrets and certificates (object identifiers)"

RULES = (
    Rule("account-url", ERROR, CREDENTIALS, "The URL of the account is an https URL of a Batch account.",
         "azure-batch 15.1, BatchClient", _urls),
    Rule("account-key", WARNING, CREDENTIALS, "The key of an account is base64.", "Azure Batch: shared key sign-in",
         _keys),
    Rule("webhook-url", ERROR, SETTINGS, "The URL of a webhook is an https URL.", "batchtrain: `run` sends to it",
         _webhook),
    Rule("storage-account", ERROR, CREDENTIALS, "A storage account has a valid name and endpoint.",
         "Azure naming rules: Microsoft.Storage", _storage),
    Rule("secret-id", ERROR, (*CREDENTIALS, *POOL, *JOBS), "A secret id names a secret of a key vault.", _VAULT,
         _secret_ids),
    Rule("mount-key", WARNING, (*CREDENTIALS, *GLOBAL), "A mounted storage account has a key or an identity.",
         "azure-batch 15.1, AzureBlobFileSystemConfiguration, AzureFileShareConfiguration", _mounts),
)  # fmt: skip
