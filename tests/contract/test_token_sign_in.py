"""Sign-in by token over https, with a certificate authority of the test's own, against the emulator."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.identity import ClientSecretCredential, ManagedIdentityCredential, WorkloadIdentityCredential

from batchtrain.client import local
from batchtrain.config.types import Secret
from batchtrain.emulator import identity, server, tokens, wire
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import Unreachable
from batchtrain.service import connect as signing
from batchtrain.service import read
from batchtrain.service.connect import Account
from tests.certificates import Certificates, issue
from tests.emulation import POOL, FakeMachine

pytestmark = pytest.mark.process

KEY = base64.b64encode(b"the account's key").decode()
SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"


class Issuer:
    """A credential: gives tokens for the emulator, and notes for what it was asked."""

    def __init__(self, lasts: int = 3600) -> None:
        self.lasts, self.asked = lasts, list[tuple[str, ...]]()

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.asked.append(scopes)
        token = tokens.issue(KEY, "batchtrain", wire.AUDIENCE, server.clock(), self.lasts)
        return AccessToken(token, int(time.time() + self.lasts))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Emulator]:
    """An emulator that speaks https and takes tokens."""
    data_dir = tmp_path_factory.mktemp("emulator") / "data"
    data_dir.mkdir(mode=0o700)
    (data_dir / server.KEY_FILE).write_text(KEY)
    settings = Settings(data_dir, port=0, certificate=certificates.certificate, private_key=certificates.private_key)
    with Emulator(settings, FakeMachine.open) as running:
        yield running


@pytest.fixture
def account(emulator: Emulator, certificates: Certificates) -> Account:
    return signing.account(emulator.endpoint, emulator.account, ca=str(certificates.ca))


def test_a_token_and_a_signature_open_the_account_over_https(account: Account, emulator: Emulator) -> None:
    assert server.status(emulator.settings.data_dir) == emulator.status
    issuer = Issuer()
    client = signing.client(account, issuer)
    assert read.pools(client) == read.pools(signing.connect(account._replace(key=Secret(KEY)))) == ()
    assert list(client.list_supported_images(max_results=5)), "the next page is over https, too"
    assert issuer.asked == [("https://batch.core.windows.net//.default",)]


def test_a_token_that_is_about_to_expire_is_fetched_anew(account: Account) -> None:
    issuer = Issuer(lasts=100)  # the SDK renews what has less than 300 seconds
    client = signing.client(account, issuer)
    read.pools(client)
    read.pools(client)
    assert len(issuer.asked) == 2


def test_a_server_of_an_unknown_authority_gets_no_token(account: Account) -> None:
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        read.pools(signing.client(account._replace(ca=None), Issuer()))


def test_the_embedded_service_gives_its_clients_tokens_over_http_for_what_a_key_cannot_have(tmp_path: Path) -> None:
    with Emulator(Settings(tmp_path / "data", port=0), FakeMachine.open) as emulator:
        own = signing.OwnTokens(emulator.account, Secret(emulator.key), local.issued)
        account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True, token=own)
        network = {"networkConfiguration": {"subnetId": SUBNET}}
        signing.connect(account).create_pool({**POOL, **network})
        keyed = signing.connect(account._replace(token=None))
        assert keyed.get_pool("pool").network_configuration.subnet_id == SUBNET
        with pytest.raises(HttpResponseError, match="SharedKey is not allowed when external resources"):
            keyed.create_pool({**POOL, **network, "id": "other"})


@pytest.fixture(scope="module")
def entra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """An emulator with its own certificate, whose sign-in service the libraries of Azure can use."""
    with Emulator(Settings(tmp_path_factory.mktemp("entra") / "data", port=0, https=True), FakeMachine.open) as running:
        yield running


def in_pools(emulator: Emulator, credential: Any) -> list[str]:
    with BatchClient(emulator.endpoint, credential, connection_verify=emulator.status.certificate) as client:
        return [pool.id for pool in client.list_pools()]


def test_a_program_signs_in_with_a_client_secret_or_a_federated_token(entra: Emulator, tmp_path: Path) -> None:
    token_file = tmp_path / "federated-token"
    token_file.write_text(identity.assertion(entra.key, entra.account, server.clock()))
    values = identity.application(entra.endpoint, entra.key, str(token_file))
    who: dict[str, Any] = {"tenant_id": values["AZURE_TENANT_ID"], "client_id": values["AZURE_CLIENT_ID"]}
    options: dict[str, Any] = {
        "authority": values["AZURE_AUTHORITY_HOST"],
        "disable_instance_discovery": True,
        "connection_verify": entra.status.certificate,
    }
    secret = ClientSecretCredential(**who, client_secret=values["AZURE_CLIENT_SECRET"], **options)
    assert in_pools(entra, secret) == []
    federated = WorkloadIdentityCredential(**who, token_file_path=values["AZURE_FEDERATED_TOKEN_FILE"], **options)
    assert in_pools(entra, federated) == []
    with pytest.raises(ClientAuthenticationError, match="AADSTS7000215"):
        ClientSecretCredential(**who, client_secret="wrong", **options).get_token(f"{wire.AUDIENCE}.default")


def test_a_task_signs_in_with_the_identity_of_its_pool(entra: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    host = identity.node_authority(entra.endpoint, entra.key, "pool")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", host)
    credential = ManagedIdentityCredential(connection_verify=entra.status.certificate)
    assert in_pools(entra, credential) == []
