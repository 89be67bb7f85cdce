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
from batchtrain.emulator import server, sign_in, steering, tokens, wire
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.errors import NotAllowed, Unreachable, UsageError
from batchtrain.service import connect as signing
from batchtrain.service import read, submit
from batchtrain.service.connect import Account
from tests.certificates import Certificates, issue
from tests.emulation import POOL, FakeMachine

pytestmark = pytest.mark.process

KEY = base64.b64encode(b"the account's key").decode()
SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"


class Issuer:
    """A credential: gives tokens for the emulator, and counts."""

    def __init__(
        self,
        lasts: int = 3600,
        says: float | None = None,
        account: str = "batchtrain",
        resource: str = wire.AUDIENCE,
        allows: str = tokens.WRITE,
    ):
        self.lasts, self.says = lasts, lasts if says is None else says
        self.account, self.resource, self.allows = account, resource, allows
        self.asked: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.asked.append(scopes)
        return AccessToken(self.token(), int(time.time() + self.says))

    def token(self) -> str:
        return tokens.issue(KEY, self.account, self.resource, server.clock(), self.lasts, self.allows)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return issue(tmp_path / "certificates")


@pytest.fixture
def emulator(tmp_path: Path, certificates: Certificates) -> Iterator[Emulator]:
    """An emulator that speaks https and takes tokens."""
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    (data_dir / server.KEY_FILE).write_text(KEY)
    settings = Settings(data_dir, port=0, certificate=certificates.certificate, private_key=certificates.private_key)
    with Emulator(settings, FakeMachine.open) as running:
        yield running


@pytest.fixture
def account(emulator: Emulator, certificates: Certificates) -> Account:
    return signing.account(emulator.endpoint, emulator.account, ca=str(certificates.ca))


def test_a_token_opens_the_account_over_https(account: Account) -> None:
    issuer = Issuer()
    assert read.pools(signing.client(account, issuer)) == ()
    assert issuer.asked == [("https://batch.core.windows.net//.default",)]


def test_a_token_that_lasts_is_asked_for_once(account: Account) -> None:
    issuer = Issuer()
    client = signing.client(account, issuer)
    read.pools(client)
    read.jobs(client)
    assert len(issuer.asked) == 1


def test_a_token_that_is_about_to_expire_is_fetched_anew(account: Account) -> None:
    issuer = Issuer(lasts=100)  # the SDK renews what has less than 300 seconds
    client = signing.client(account, issuer)
    read.pools(client)
    read.pools(client)
    assert len(issuer.asked) == 2


def test_an_expired_token_is_shown_as_not_allowed_with_the_next_step(account: Account) -> None:
    with pytest.raises(NotAllowed, match=r"list pools: .*expired at .*\(AuthenticationFailed\); sign in again"):
        read.pools(signing.client(account, Issuer(lasts=-600, says=3600)))


def test_a_token_of_another_service_is_answered_with_401_and_where_to_sign_in(
    account: Account, certificates: Certificates
) -> None:
    from azure.core import PipelineClient
    from azure.core.rest import HttpRequest

    with PipelineClient(account.endpoint, policies=[], connection_verify=str(certificates.ca)) as bare:
        signed = {"Authorization": "Bearer not.this.emulators"}
        response = bare.send_request(HttpRequest("GET", f"{account.endpoint}/pools", headers=signed))
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith('Bearer authorization_uri="https://login.')


def test_a_token_of_somebody_else_s_key_is_refused(account: Account) -> None:
    class Forged(Issuer):
        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            token = super().get_token(*scopes)
            return AccessToken(f"{token.token[:-1]}{'0' if token.token[-1] != '0' else '1'}", token.expires_on)

    with pytest.raises(NotAllowed, match="not issued by this emulator"):
        read.pools(signing.client(account, Forged()))


def test_a_clock_that_differs_from_the_service_s_is_named_as_the_cause(emulator: Emulator, account: Account) -> None:
    clients = (
        signing.client(account, Issuer(lasts=60)),
        signing.connect(account._replace(key=Secret(emulator.key))),
    )
    for client, limit in zip(clients, ("5 min", "15 min"), strict=True):
        for seconds, direction in ((7200, "behind"), (-7200, "ahead of")):
            steering.fault(emulator.status, "skew", seconds=seconds, count=1)
            with pytest.raises(NotAllowed) as caught:
                read.pools(client)
            named = f"this machine's clock is 2 h 0 min {direction} the service's, which allows {limit}: synchronise"
            assert named in str(caught.value)


def test_a_token_without_the_permission_is_shown_with_the_role_that_is_missing(account: Account) -> None:
    client = signing.client(account, Issuer(allows=tokens.READ))
    assert read.pools(client) == ()
    with pytest.raises(
        NotAllowed, match=r"delete pool p: .*\(AuthorizationFailure\); the signed-in identity needs a role"
    ):
        submit.delete_pool(client, "p")


def test_a_token_for_another_account_is_refused(account: Account) -> None:
    with pytest.raises(NotAllowed, match="for account other"):
        read.pools(signing.client(account, Issuer(account="other")))


def test_a_sign_in_that_fails_says_so_with_the_next_step(account: Account) -> None:
    class Refused(Issuer):
        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            raise ClientAuthenticationError("AADSTS7000215: Invalid client secret provided.\nTrace ID: 1")

    with pytest.raises(NotAllowed, match=r"signing in failed: AADSTS7000215: Invalid client secret provided; sign in"):
        read.pools(signing.client(account, Refused()))


def test_the_signature_opens_the_same_account(emulator: Emulator, certificates: Certificates) -> None:
    account = signing.account(emulator.endpoint, emulator.account, Secret(emulator.key), ca=str(certificates.ca))
    assert read.pools(signing.connect(account)) == ()


def test_a_server_of_an_unknown_authority_gets_no_token(account: Account) -> None:
    issuer = Issuer()
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        read.pools(signing.client(account._replace(ca=None), issuer))


def test_the_next_page_is_asked_for_over_https_too(account: Account) -> None:
    client = signing.client(account, Issuer())
    assert list(client.list_supported_images(max_results=5))


def test_a_token_is_not_sent_unencrypted() -> None:
    with pytest.raises(UsageError, match="signing in by token needs https"):
        signing.account("http://127.0.0.1:10010")


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


def test_a_token_for_another_service_is_refused(account: Account) -> None:
    with pytest.raises(NotAllowed, match=r"is for https://vault.azure.net, not for https://batch.core.windows.net/"):
        read.pools(signing.client(account, Issuer(resource="https://vault.azure.net")))


def test_a_call_knows_how_it_was_signed() -> None:
    def signed_by(authorization: str, ocp_date: str = "") -> str:
        headers = {"authorization": authorization, "ocp-date": ocp_date}
        return tokens.signed_by("batchtrain", KEY, "GET", "/pools", "", headers, now)

    now = server.clock()
    date = wire.http_date(now)
    key = wire.authorization("batchtrain", KEY, "GET", "/pools", "", {"ocp-date": date})
    assert signed_by(key, date) == tokens.SHARED_KEY
    assert signed_by(f"Bearer {Issuer().token()}") == tokens.TOKEN


def test_an_emulator_process_over_https_is_found_and_stopped(tmp_path: Path, certificates: Certificates) -> None:
    settings = Settings(tmp_path / "data", port=0, certificate=certificates.certificate,
                        private_key=certificates.private_key)  # fmt: skip
    started = server.spawn(settings)
    found = server.status(settings.data_dir)
    stopped = server.stop(settings.data_dir)
    assert started.endpoint.startswith("https://")
    assert found == started
    assert stopped


@pytest.fixture
def entra(tmp_path: Path) -> Iterator[Emulator]:
    """An emulator with its own certificate, whose sign-in service the libraries of Azure can use."""
    with Emulator(Settings(tmp_path / "entra", port=0, https=True), FakeMachine.open) as emulator:
        yield emulator


def in_pools(emulator: Emulator, credential: Any) -> list[str]:
    with BatchClient(emulator.endpoint, credential, connection_verify=emulator.status.certificate) as client:
        return [pool.id for pool in client.list_pools()]


def test_a_program_signs_in_with_a_client_secret_or_a_federated_token(entra: Emulator, tmp_path: Path) -> None:
    token_file = tmp_path / "federated-token"
    token_file.write_text(sign_in.assertion(entra.key, entra.account, server.clock()))
    values = sign_in.variables(entra.endpoint, entra.key, str(token_file))
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
    host = sign_in.node_authority(entra.endpoint, entra.key, "pool")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", host)
    credential = ManagedIdentityCredential(connection_verify=entra.status.certificate)
    assert in_pools(entra, credential) == []
