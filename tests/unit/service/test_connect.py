"""The account that a user names, and the client that reaches it."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.credentials import AccessToken

from batchtrain.config.types import Aad, Credentials, Secret, convert
from batchtrain.errors import ServiceError, UsageError
from batchtrain.service import connect, read
from batchtrain.service.connect import Account, OwnTokens
from batchtrain.service.retry import FAR, NEAR
from tests.unit.service.test_retry import EMPTY, Plays, Time

KEY = Secret("a2V5")


@pytest.mark.parametrize(
    ("endpoint", "near"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://127.1.2.3", True),
        ("http://[::1]:8080", True),
        ("https://localhost", True),
        ("https://10.0.0.1", False),
        ("https://localhost.example", False),
        ("https://a.r.batch.azure.com", False),
        ("", False),
    ],
)
def test_only_this_machine_is_near(endpoint: str, near: bool) -> None:
    assert connect.loopback(endpoint) == near
    assert connect.patience(endpoint) == (NEAR if near else FAR)


@pytest.mark.parametrize(
    ("emulated", "label", "options", "region", "node_key"),
    [
        (False, "", "", "westeurope", ""),
        (True, "", " --local", None, "a2V5"),
        (False, "west", " --batch-account west", "westeurope", ""),
    ],
)
def test_only_the_emulator_or_a_labelled_account_needs_an_option_and_only_a_node_of_the_emulator_gets_the_key(
    emulated: bool, label: str, options: str, region: str | None, node_key: str
) -> None:
    account = Account("https://a.westeurope.batch.azure.com", "a", KEY, emulated=emulated, label=label)
    assert (account.option, account.region, account.node_key) == (options, region, node_key)
    assert account._replace(key=None).node_key == ""


@pytest.mark.parametrize(
    ("endpoint", "key", "text"),
    [
        ("ftp://a.r.batch.azure.com", KEY, "is not a Batch endpoint"),
        ("https://", KEY, "is not a Batch endpoint"),
        ("https://a:0", KEY, "is not a Batch endpoint"),
        ("https://a:port", KEY, "is not a Batch endpoint"),
        ("https://[a", KEY, "is not a Batch endpoint"),
        ("http://127.0.0.1:99999", KEY, "is not a Batch endpoint"),
        ("   ", KEY, "is not a Batch endpoint"),
        ("http://a.r.batch.azure.com", KEY, "only loopback may be http"),
        ("http://127.0.0.1", None, "needs a shared key.*signing in by token needs https"),
        ("https://a", Secret("no base64!"), "the account key is not base64"),
    ],
)
def test_an_account_that_cannot_be_reached_safely_is_refused(endpoint: str, key: Secret | None, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        connect.account(endpoint, "a", key)


@pytest.mark.parametrize(
    ("endpoint", "name", "reached"),
    [
        ("a.r.batch.azure.com", "name", "https://a.r.batch.azure.com"),
        (" https://a.r.batch.azure.com/ ", "name", "https://a.r.batch.azure.com"),
        ("https://a:1", "name", "https://a:1"),
        ("http://127.0.0.1:80", "name", "http://127.0.0.1:80"),
        ("https://mine.r.batch.azure.com", None, "https://mine.r.batch.azure.com"),
    ],
)
def test_an_account_is_reached_by_its_whole_url_and_has_by_default_the_name_of_its_host(
    endpoint: str, name: str | None, reached: str
) -> None:
    assert connect.account(endpoint, name, KEY)[:3] == (reached, name or "mine", KEY)


@pytest.mark.parametrize("resource", ["https://mine", "https://mine/"])
def test_the_audience_of_tokens_ends_with_a_slash(resource: str) -> None:
    assert connect.account("https://a.r.batch.azure.com", own=Aad(endpoint=resource)).resource == "https://mine/"


def test_the_credentials_of_an_account_win_over_the_environment_and_its_sign_in_over_the_general_one() -> None:
    environment = {"AZURE_BATCH_ENDPOINT": "https://a", "AZURE_BATCH_ACCOUNT": "b", "AZURE_BATCH_ACCESS_KEY": "a2V5"}
    of_the_environment = connect.account_of(None, environment)
    assert of_the_environment is not None and of_the_environment[:3] == ("https://a", "b", KEY)
    batch = {"account": "c", "account_service_url": "https://c", "aad": {"endpoint": "https://own"}}
    credentials: Credentials = convert({"batch": batch, "aad": {"endpoint": "https://general"}}, Credentials)
    account = connect.account_of(credentials, environment)
    assert account is not None
    assert (*account[:3], account.resource) == ("https://c", "c", None, "https://own/")
    with pytest.raises(UsageError, match="AZURE_BATCH_ACCOUNT is b, and AZURE_BATCH_ENDPOINT is not set"):
        connect.account_of(None, {"AZURE_BATCH_ACCOUNT": "b"})


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> Plays:
    made = Plays([(200, EMPTY)], Time())
    monkeypatch.setattr(connect, "_transport", lambda ca: made)
    return made


def test_a_request_is_signed_for_its_account_or_has_the_embedded_services_own_token(transport: Plays) -> None:
    def issued(key: str, account: str) -> AccessToken:
        return AccessToken(f"{key} for {account}", 4_000_000_000)

    own = Account("http://127.0.0.1:1", "a", token=OwnTokens("a", KEY, issued))
    for where in (own, Account("https://a", "name", KEY)):
        assert read.pools(connect.connect(where)) == ()
    by_token, by_key = (headers["Authorization"] for _, _, headers in transport.sent)
    assert by_token == "Bearer a2V5 for a"
    assert by_key.startswith("SharedKey name:")


@pytest.mark.parametrize("signed", [True, False])
def test_a_request_that_is_sent_once_is_signed_by_the_key_or_not_at_all(transport: Plays, signed: bool) -> None:
    transport.answers = [(503, EMPTY)]
    token = OwnTokens("acct", KEY, lambda key, account: AccessToken("x", 4_000_000_000))
    client = connect.once(Account("http://127.0.0.1:1", "acct", KEY, token=token), signed=signed)
    with pytest.raises(ServiceError):
        read.pools(client)
    ((_, _, headers),) = transport.sent
    assert headers.get("Authorization", "").startswith("SharedKey acct:") is signed
    with pytest.raises(UsageError, match="without a shared key"):
        connect.once(Account("http://127.0.0.1:1", "acct", None), signed=signed)


def test_a_client_keeps_a_connection_for_each_of_many_threads() -> None:
    transport: Any = connect._transport(Account("https://acct.westeurope.batch.azure.com", "acct"))
    pools = [adapter.poolmanager.connection_pool_kw for adapter in transport.session.adapters.values()]
    assert [pool["maxsize"] for pool in pools] == [connect.CONNECTIONS] * len(pools)
    transport.close()
