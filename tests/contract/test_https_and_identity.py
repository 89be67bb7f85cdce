"""https with the emulator's own authority, and sign-in with azure-identity as programs on Azure do it."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.batch import BatchClient, models
from azure.identity import DefaultAzureCredential

import batchtrain as bt
from batchtrain.emulator import certificates, server, trust
from batchtrain.emulator.server import Settings, Status
from batchtrain.emulator.serving import Emulator
from tests.certificates import issue
from tests.contract.conftest import completed, connect, job, pool, task

pytestmark = pytest.mark.process

NAME = "acct.eastus.batch.azure.com"
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
