"""The storage accounts that commands use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from batchtrain.cli.connecting import connect
from batchtrain.cli.options import settings
from batchtrain.config.load import Loaded, load_credentials
from batchtrain.config.types import Credentials, Recipe
from batchtrain.errors import NotFound, UsageError
from batchtrain.service import entra, vault
from batchtrain.service.connect import CA_VARIABLE
from batchtrain.storage import blob
from batchtrain.storage.blob import Connect
from batchtrain.storage.blob_requests import Storage


class Remote(NamedTuple):
    """A blob, or a directory of blobs: `link/container/path`."""

    storage: Storage
    link: str
    container: str
    path: str

    @property
    def box(self) -> str:
        """`link/container`."""
        return f"{self.link}/{self.container}"

    def not_there(self, address: str = "") -> NotFound:
        """The error for a path without a blob; `address` is how the user wrote it."""
        address = address or f"{self.box}/{self.path}".rstrip("/")
        return NotFound(f"{address} does not exist; `batchtrain data list {self.box}` lists its blobs")


def remote(address: str) -> Remote:
    """The account, container and path of `LINK/CONTAINER[/PATH]`."""
    link, container, path = blob.place_of(address)
    return Remote(accounts(credentials_here(), (link,))(link), link, container, path)


def accounts(credentials: Credentials, links: Iterable[str], config: Loaded | None = None) -> Connect:
    """Accounts by link; with --local, those that its links mean."""

    if settings().local:
        client = connect(config)
        recipe = client.with_storage(Recipe(directory=".", credentials=credentials))
        client.tell_storage(recipe, links)
        return client.storage(recipe)
    ca = os.environ.get(CA_VARIABLE)
    logins = vault.resolved(credentials, ca=ca)
    sign_in = partial(entra.credential, entra.storage_sign_in(logins), ca=ca)
    return blob.accounts(partial(blob.account_of, logins), sign_in)


def credentials_here() -> Credentials:
    """The credentials of the directory of the configuration."""
    directory = settings().configdir or "."
    credentials = load_credentials(directory, settings().files)
    if credentials is None and not settings().local:
        raise UsageError(f"{directory} has no credentials.yaml, so no storage account is known; see --configdir")
    return credentials or Credentials()
