"""https with the emulator's own authority or another, and sign-in by token and with azure-identity, as on Azure."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.batch import BatchClient, models
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.identity import (
    ClientSecretCredential,
    DefaultAzureCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)

import batchtrain as bt
from batchtrain.client import local
from batchtrain.config.types import Secret
from batchtrain.emulator import certificates, identity, server, tokens, trust, wire
from batchtrain.emulator.server import Settings, Status
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import Unreachable
from batchtrain.service import connect as signing
from batchtrain.service import read
from batchtrain.service.connect import Account
from tests.certificates import Certificates, issue
from tests.contract.conftest import completed, connect, job, pool, task
from tests.emulation import POOL, FakeMachine

pytestmark = pytest.mark.process

NAME = "acct.eastus.batch.azure.com"
KEY = base64.b64encode(b"the account's key").decode()
SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    settings = Settings(tmp_path_factory.mktemp("secure") / "data", "127.0.0.9", port=0, https=True, names=(NAME,))
    with Emulator(settings) as running:
        yield running


def presented(endpoint: str, ca: Path, name: str) -> object:
    """The certificate that a server shows to a client that asks for a host name and trusts an authority."""
    where = urlsplit(endpoint)
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection((where.hostname or "", where.port or 0)) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        return secured.getpeercert()


def test_the_certificate_is_good_for_the_names_of_the_emulator_and_no_other(secure: Emulator) -> None:
    ca = trust.of(secure.settings.data_dir).ca
    for name in (NAME, "localhost", "127.0.0.1", "127.0.0.9", "::1"):
        assert presented(secure.endpoint, ca, name)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.eastus"):
        presented(secure.endpoint, ca, "other.eastus.batch.azure.com")


def test_only_the_owner_reads_the_private_key_and_the_authority_s_own_is_not_kept(secure: Emulator) -> None:
    files = trust.of(secure.settings.data_dir)
    keys = [path for path in files.ca.parent.iterdir() if "PRIVATE KEY" in path.read_text()]
    assert keys == [files.private_key]
    assert stat.S_IMODE(files.private_key.stat().st_mode) == 0o600


def test_the_authority_is_kept_until_a_name_is_new(tmp_path: Path) -> None:
    same, again, other = (
        certificates.ensure(tmp_path, names, {}, NOON).ca.read_bytes()
        for names in ((NAME,), (NAME,), (NAME, "more.example"))
    )
    assert same == again != other


def test_the_authority_is_kept_until_its_certificate_lasts_less_than_a_month(tmp_path: Path) -> None:
    first, a_month, less, later = (
        certificates.ensure(tmp_path, (), {}, NOON + after).ca.read_bytes()
        for after in (timedelta(), timedelta(days=335), timedelta(days=335, seconds=1), timedelta(days=336))
    )
    assert first == a_month != less == later


def test_the_bundle_has_the_usual_authorities_too(secure: Emulator) -> None:
    files = trust.of(secure.settings.data_dir)
    context = ssl.create_default_context(cafile=files.bundle)
    assert len(context.get_ca_certs()) > 50
    assert files.ca.read_text() in files.bundle.read_text()


def test_the_users_own_authorities_stay_in_the_bundle_after_a_restart_with_it(tmp_path: Path) -> None:
    own = issue(tmp_path).ca
    first = certificates.ensure(tmp_path / "data", (), {"SSL_CERT_FILE": str(own)}, NOON)
    again = certificates.ensure(tmp_path / "data", ("more.example",), first.variables, NOON)
    assert again.bundle.read_text() == own.read_text() + again.ca.read_text()


def test_default_azure_credential_signs_in(secure: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in secure.status.environment.items():  # as `emulator env` exports them
        monkeypatch.setenv(name, value)
    with BatchClient(secure.endpoint, DefaultAzureCredential(), retry_total=0) as client:
        client.create_pool(pool("signed", 0))
        assert [one.id for one in client.list_pools()] == ["signed"]


def token(status: Status, header: str) -> str:
    """An access token of the identity endpoint."""
    url = f"{status.environment['IDENTITY_ENDPOINT']}?api-version=2019-08-01&resource=https://x/"
    context = ssl.create_default_context(cafile=status.certificate)
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"X-IDENTITY-HEADER": header}), context=context
    ) as answer:
        return str(json.load(answer)["access_token"])


def test_our_own_client_finds_and_trusts_it_and_no_secret_is_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(tmp_path / "data"))
    started = server.spawn(Settings(tmp_path / "data", port=0, https=True))
    try:
        client = bt.connect(local=True)
        assert (client.account.started, list(client.pools.list())) == (False, [])
        header = started.environment["IDENTITY_HEADER"]
        secrets = (started.key, header, token(started, header))
        with pytest.raises(urllib.error.HTTPError, match="403"):
            token(started, header[::-1])
    finally:
        server.stop(started.data_dir)
    assert not [secret for secret in secrets if secret in started.log.read_text()]


def test_nodes_fetch_the_emulator_s_own_files_over_https(secure: Emulator) -> None:
    url = server.ask("PUT", secure.status, "blob_store/job/in.txt", content=b"over https\n")["url"]
    with connect(secure, connection_verify=secure.status.certificate) as client:
        client.create_pool(pool())
        client.create_job(job())
        files = [models.ResourceFile(http_url=url, file_path="in.txt")]
        client.create_task("job", task(command="cat in.txt", resource_files=files))
        assert completed(client).execution_info.exit_code == 0
        assert b"".join(client.download_task_file("job", "task", "stdout.txt")) == b"over https\n"


# Tokens ---------------------------------------------------------------------------------------------------------------


class Issuer:
    """A credential: gives tokens for the emulator, and notes for what it was asked."""

    def __init__(self, lasts: int = 3600) -> None:
        self.lasts, self.asked = lasts, list[tuple[str, ...]]()

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.asked.append(scopes)
        token = tokens.issue(KEY, "batchtrain", wire.AUDIENCE, server.clock(), self.lasts)
        return AccessToken(token, int(time.time() + self.lasts))


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, issued: Certificates) -> Iterator[Emulator]:
    """An emulator with the certificate of another authority."""
    data_dir = tmp_path_factory.mktemp("emulator") / "data"
    data_dir.mkdir(mode=0o700)
    (data_dir / server.KEY_FILE).write_text(KEY)
    settings = Settings(data_dir, port=0, certificate=issued.certificate, private_key=issued.private_key)
    with Emulator(settings, FakeMachine.open) as running:
        yield running


@pytest.fixture
def account(emulator: Emulator, issued: Certificates) -> Account:
    return signing.account(emulator.endpoint, emulator.account, ca=str(issued.ca))


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


def sign_in(emulator: Emulator, credential: Any) -> None:
    """Ask for something; an error without a sign-in."""
    with BatchClient(emulator.endpoint, credential, connection_verify=emulator.status.certificate) as client:
        list(client.list_pools())


def test_a_program_signs_in_with_a_client_secret_or_a_federated_token(secure: Emulator, tmp_path: Path) -> None:
    token_file = tmp_path / "federated-token"
    token_file.write_text(identity.assertion(secure.key, secure.account, server.clock()))
    values = identity.application(secure.endpoint, secure.key, str(token_file))
    who: dict[str, Any] = {"tenant_id": values["AZURE_TENANT_ID"], "client_id": values["AZURE_CLIENT_ID"]}
    options: dict[str, Any] = {
        "authority": values["AZURE_AUTHORITY_HOST"],
        "disable_instance_discovery": True,
        "connection_verify": secure.status.certificate,
    }
    secret = ClientSecretCredential(**who, client_secret=values["AZURE_CLIENT_SECRET"], **options)
    sign_in(secure, secret)
    federated = WorkloadIdentityCredential(**who, token_file_path=values["AZURE_FEDERATED_TOKEN_FILE"], **options)
    sign_in(secure, federated)
    with pytest.raises(ClientAuthenticationError, match="AADSTS7000215"):
        ClientSecretCredential(**who, client_secret="wrong", **options).get_token(f"{wire.AUDIENCE}.default")


def test_a_task_signs_in_with_the_identity_of_its_pool(secure: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    host = identity.node_authority(secure.endpoint, secure.key, "pool")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", host)
    credential = ManagedIdentityCredential(connection_verify=secure.status.certificate)
    sign_in(secure, credential)
