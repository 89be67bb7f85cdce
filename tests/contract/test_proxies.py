"""A proxy of the environment: never used on this machine, and named in errors of services elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batchtrain.client import Client
from batchtrain.config.types import Secret
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.errors import Unreachable
from batchtrain.service import connect, look, retry
from batchtrain.service.connect import Account
from batchtrain.testing import BatchService
from tests.emulation import FakeMachine

pytestmark = pytest.mark.process

CLOSED = "http://me:hidden-word@127.0.0.1:9"
SETTINGS = (
    {"http_proxy": CLOSED},
    {"HTTP_PROXY": CLOSED},
    {"https_proxy": CLOSED},
    {"HTTPS_PROXY": CLOSED},
    {"all_proxy": CLOSED},
    {"ALL_PROXY": CLOSED},
    {"http_proxy": CLOSED, "https_proxy": CLOSED, "no_proxy": "example.org"},
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for setting in SETTINGS for name in setting} | {"NO_PROXY"}:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path_factory.mktemp("data"), port=0), FakeMachine.open) as running:
        yield running


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "+".join(setting))
def test_the_emulator_is_reached_without_the_proxy(
    setting: dict[str, str], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    assert client.pools.list() == ()
    with BatchService(emulator.status).connect() as sdk:
        assert list(sdk.list_pools()) == []
    hosts = emulator.status.environment["NO_PROXY"].split(",")
    assert {"127.0.0.1", "localhost", *filter(None, [setting.get("no_proxy")])} == set(hosts)


def test_an_error_of_a_service_elsewhere_names_the_proxy_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", CLOSED)
    monkeypatch.setattr(retry, "FAR", retry.NEAR)
    account = Account("https://acct.westeurope.batch.azure.com", "acct", Secret("a2V5"))
    with retry.until(0), pytest.raises(Unreachable) as caught:
        look.pools(connect.connect(account))
    assert "does not answer through the proxy http://me:***@127.0.0.1:9" in str(caught.value)
