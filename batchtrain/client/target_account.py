"""Which account a client uses: the emulator's, one of credentials.yaml, or that of AZURE_BATCH_*."""

from __future__ import annotations

from collections.abc import Mapping

from batchtrain.client.local import emulated
from batchtrain.config.candidates import require_account, selected
from batchtrain.config.types import Credentials
from batchtrain.config.unfilled import require_credentials
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.errors import NoAccount
from batchtrain.service import connect as signing
from batchtrain.service import vault
from batchtrain.service.connect import Account


def where(
    *, local: bool | None, credentials: Credentials | None, environment: Mapping[str, str], label: str = ""
) -> Account:
    """The account to use; starts the embedded service when it is asked for and not running. label: the name of one of
    `batch_accounts`."""
    if is_for_emulator(local, environment):
        return emulated(environment, label)
    if label:
        require_account(credentials or Credentials(), label)
        credentials = selected(credentials or Credentials(), label)
    if credentials is not None:
        credentials = require_credentials(vault.resolved(credentials, ca=environment.get(signing.CA_VARIABLE)))
    account = signing.account_of(credentials, environment)
    if account is None:
        raise NoAccount
    return account._replace(label=label)
