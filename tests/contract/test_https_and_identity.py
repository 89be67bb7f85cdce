"""https with the emulator's own authority, and sign-in with azure-identity as programs on Azure do it."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.batch import BatchClient, models
from azure.identity import DefaultAzureCredential

from batchtrain.client.local import emulated
from batchtrain.emulator import certificates, server, trust
from batchtrain.emulator.server import Emulator, Settings, StartFailed, Status
from batchtrain.service import connect as signing
from batchtrain.service import read
from tests.certificates import issue
from tests.contract.conftest import completed, connect, job, pool, task
from tests.emulation import FakeMachine

pytestmark = pytest.mark.process

NAME = "acct.eastus.batch.azure.com"


def settings(tmp_path: Path, **more: object) -> Settings:
    return Settings(tmp_path / "data", port=0, https=True, names=(NAME,))._replace(**more)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(settings(tmp_path), FakeMachine.open) as running:
        yield running


@pytest.fixture
def shell(secure: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that `emulator env` exports."""
    for name, value in secure.status.environment.items():
        monkeypatch.setenv(name, value)


def presented(endpoint: str, ca: Path, name: str) -> object:
    """The certificate that a server shows to a client that asks for a host name and trusts an authority."""
    where = urlsplit(endpoint)
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection((where.hostname or "", where.port or 0)) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        return secured.getpeercert()


@pytest.mark.parametrize("name", [NAME, "localhost", "127.0.0.1", "::1"])
def test_the_certificate_is_good_for_each_name(secure: Emulator, name: str) -> None:
    assert presented(secure.endpoint, trust.of(secure.settings.data_dir).ca, name)


def test_the_certificate_is_not_good_for_another_name(secure: Emulator) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.eastus"):
        presented(secure.endpoint, trust.of(secure.settings.data_dir).ca, "other.eastus.batch.azure.com")


def test_only_the_owner_reads_the_private_key_and_the_authority_s_own_is_not_kept(secure: Emulator) -> None:
    files = trust.of(secure.settings.data_dir)
    keys = [path for path in files.ca.parent.iterdir() if "PRIVATE KEY" in path.read_text()]
    assert keys == [files.private_key]
    assert stat.S_IMODE(files.private_key.stat().st_mode) == 0o600


def test_a_restart_keeps_the_authority_until_a_name_is_new(tmp_path: Path) -> None:
    ca = trust.of(tmp_path / "data").ca
    seen = []
    for names in ((NAME,), (NAME,), (NAME, "more.example")):
        with Emulator(settings(tmp_path, names=names), FakeMachine.open):
            seen.append(ca.read_bytes())
    assert seen[0] == seen[1] != seen[2]


def test_the_bundle_has_the_usual_authorities_too(secure: Emulator) -> None:
    files = trust.of(secure.settings.data_dir)
    context = ssl.create_default_context(cafile=files.bundle)
    assert len(context.get_ca_certs()) > 50
    assert files.ca.read_text() in files.bundle.read_text()


def test_the_users_own_authorities_stay_in_the_bundle_after_a_restart_with_it(tmp_path: Path) -> None:
    own = issue(tmp_path).ca
    first = certificates.ensure(tmp_path / "data", (), {"SSL_CERT_FILE": str(own)})
    again = certificates.ensure(tmp_path / "data", ("more.example",), first.variables)
    assert again.bundle.read_text() == own.read_text() + again.ca.read_text()


@pytest.mark.usefixtures("shell")
def test_default_azure_credential_signs_in(secure: Emulator) -> None:
    with BatchClient(secure.endpoint, DefaultAzureCredential(), retry_total=0) as client:
        client.create_pool(pool())
        client.create_job(job())
        client.create_task("job", task(command="print hello"))
        assert completed(client).execution_info.exit_code == 0


def token(status: Status, header: str) -> str:
    """An access token of the identity endpoint."""
    url = f"{status.environment['IDENTITY_ENDPOINT']}?api-version=2019-08-01&resource=https://x/"
    context = ssl.create_default_context(cafile=status.certificate)
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"X-IDENTITY-HEADER": header}), context=context
    ) as answer:
        return str(json.load(answer)["access_token"])


def test_the_identity_s_header_is_needed(secure: Emulator) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        token(secure.status, "guess")


def test_no_secret_is_in_the_log(tmp_path: Path) -> None:
    started = server.spawn(settings(tmp_path))
    try:
        header = started.environment["IDENTITY_HEADER"]
        secrets = (started.key, header, token(started, header))
        with pytest.raises(urllib.error.HTTPError):
            token(started, header[::-1])
    finally:
        server.stop(started.data_dir)
    assert not [secret for secret in secrets if secret in started.log.read_text()]


def test_our_own_client_finds_and_trusts_it(tmp_path: Path) -> None:
    started = server.spawn(settings(tmp_path))
    try:
        account = emulated({"BATCHTRAIN_EMULATOR_DIR": str(started.data_dir)})
        assert read.pools(signing.connect(account)) == ()
    finally:
        server.stop(started.data_dir)


def test_nodes_fetch_the_emulator_s_own_files_over_https(tmp_path: Path) -> None:
    with Emulator(settings(tmp_path)) as emulator:
        url = server.ask("PUT", emulator.status, "blob_store/job/in.txt", content=b"over https\n")["url"]
        with connect(emulator, connection_verify=emulator.status.certificate) as client:
            client.create_pool(pool())
            client.create_job(job())
            files = [models.ResourceFile(http_url=url, file_path="in.txt")]
            client.create_task("job", task(command="cat in.txt", resource_files=files))
            assert completed(client).execution_info.exit_code == 0
            assert b"".join(client.download_task_file("job", "task", "stdout.txt")) == b"over https\n"


@pytest.mark.parametrize("host", ["127.0.0.9", "::1", "localhost"])
def test_any_loopback_address_will_do(tmp_path: Path, host: str) -> None:
    with Emulator(settings(tmp_path, host=host), FakeMachine.open) as emulator:
        assert server.status(emulator.settings.data_dir) == emulator.status
        with connect(emulator, connection_verify=emulator.status.certificate) as client:
            assert list(client.list_pools()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
def test_other_addresses_are_refused(tmp_path: Path, host: str) -> None:
    refused = settings(tmp_path, host=host, https=False)
    with pytest.raises(StartFailed, match="loopback addresses only"), Emulator(refused, FakeMachine.open):
        pass
