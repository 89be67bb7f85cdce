"""A secret out of a vault over https, and that no token goes to what is no vault."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from batchtrain.errors import NotFound, UsageError
from batchtrain.service import vault
from tests import management
from tests.certificates import issue
from tests.management import FixedToken

pytestmark = pytest.mark.process


def test_a_secret_is_read_with_a_token_for_the_vault_service(tmp_path: Path) -> None:
    certificates, credential = issue(tmp_path), FixedToken()
    with management.serve({"/secrets/batch-key": {"value": "a2V5", "id": "…"}}, certificates) as served:
        domain = urlsplit(served.endpoint).netloc
        found = vault.secret(credential, f"{served.endpoint}/secrets/batch-key", ca=str(certificates.ca), domain=domain)
        with pytest.raises(NotFound, match="read the secret other of"):
            vault.secret(credential, f"{served.endpoint}/secrets/other", ca=str(certificates.ca), domain=domain)
    assert found == "a2V5"
    assert credential.scopes[0] == (f"https://{domain}/.default",)


@pytest.mark.parametrize(
    "secret_id",
    [
        "http://mine.vault.azure.net/secrets/key",
        "https://mine.vault.azure.net.example/secrets/key",
        "https://mine.vault.azure.net/keys/key",
        "https://mine.vault.azure.net/secrets",
        "key",
    ],
)
def test_what_is_no_secret_of_a_vault_gets_no_token(secret_id: str) -> None:
    credential = FixedToken()
    with pytest.raises(UsageError, match="is not the id of a secret"):
        vault.secret(credential, secret_id)
    assert credential.scopes == []
