"""A proxy of the environment: never used on this machine, and named in errors of services elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.core.credentials import AccessToken

from batchtrain.client import local
from batchtrain.client.client import Client
from batchtrain.config.types import Secret
from batchtrain.emulator.machine import resource_files
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import ServiceError, Unreachable
from batchtrain.service import arm, connect, read, retry
from batchtrain.service.connect import Account
from batchtrain.storage.blob_requests import Request, Storage
from batchtrain.testing import BatchService
from tests.emulation import FakeMachine
from tests.proxies import NAMES, SETTINGS, WORD, Proxy, proxy
from tests.unit.dashboard.asking import dashboard

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path_factory.mktemp("data"), port=0), FakeMachine.open) as running:
        yield running


@pytest.fixture
def counting() -> Iterator[Proxy]:
    with proxy() as running:
        yield running


def by_the_python_api(emulator: Emulator) -> object:
    account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
    own = connect.OwnTokens(account.name, Secret(emulator.key), local.issued)
    return [*Client(account).pools.list(), *Client(account._replace(token=own)).pools.list()]


def by_the_pytest_plug_in(emulator: Emulator) -> object:
    service = BatchService(emulator.status)

    async def pools() -> list[object]:
        async with service.connect_async() as client:
            return [pool async for pool in client.list_pools()]

    with service.connect() as client:
        return [*client.list_pools(), *asyncio.run(pools()), *service.hints()]


def by_the_dashboard(emulator: Emulator) -> object:
    account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
    with dashboard(Path("/nowhere"), account) as page:
        return page.get("/pools")


def by_a_node(emulator: Emulator) -> object:
    with resource_files._open(f"{emulator.endpoint}/_emulator/health") as answer:
        assert answer.status == 200
    return []


@pytest.mark.parametrize("way", [by_the_python_api, by_the_pytest_plug_in, by_the_dashboard, by_a_node])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "+".join(setting))
def test_the_emulator_is_reached_without_the_proxy(
    setting: dict[str, str],
    way: Callable[[Emulator], object],
    emulator: Emulator,
    counting: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in counting.environment(setting).items():
        monkeypatch.setenv(name, value)
    assert (way(emulator), counting.used()) == ([], False)


@pytest.mark.parametrize("hosts", ["", "example.org,.example.net"])
def test_other_programs_are_told_to_use_no_proxy_for_this_machine(
    hosts: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", hosts)
    environment = emulator.status.environment
    assert environment["NO_PROXY"] == environment["no_proxy"] == ",".join(filter(None, (hosts, "127.0.0.1,localhost")))


class Token:
    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        return AccessToken("t", 4_000_000_000)


SERVICES: dict[str, Callable[[], object]] = {
    "Batch": lambda: read.pools(connect.connect(Account("https://acct.batch.example", "acct", Secret("a2V5")))),
    "Resource Manager": lambda: arm.subscriptions(arm.connect(Token(), "https://management.example")),
    "storage": lambda: Storage("https://acct.blob.example", "a", Secret("a2V5")).send("list", Request("GET", "/box")),
}


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "all_proxy"])
def test_an_error_of_a_service_elsewhere_names_the_proxy_without_its_login(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"http://me:{WORD}@127.0.0.1:9")
    monkeypatch.setattr(connect, "FAR", retry.NEAR._replace(refused=0.0))
    with pytest.raises(Unreachable) as caught:
        SERVICES[name]()
    assert "does not answer through the proxy http://127.0.0.1:9: connection refused; check the proxy" in str(
        caught.value
    )


def test_a_proxy_without_support_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"socks5h://me:{WORD}@127.0.0.1:9")
    with pytest.raises(ServiceError, match=r"through the proxy socks5h://127\.0\.0\.1:9: ") as caught:
        SERVICES["Batch"]()
    assert WORD not in str(caught.value)
