"""Services beside Batch: which requests go to Azure Resource Manager and to a vault, and to no other host."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.core import PipelineClient
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError

from batchtrain.catalog.offer import Catalog
from batchtrain.config.types import Aad, Credentials, Management
from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable, UsageError
from batchtrain.service import arm, rest, vault
from batchtrain.service.arm import Region, Sold
from batchtrain.service.rest import Rest
from tests import management as shapes
from tests.unit.service.test_retry import Plays, Time, caused

Play = Callable[..., Plays]


class Whole(Plays):
    """Reads each answer, as the SDK's own transport does."""

    def send(self, request: Any, **options: Any) -> Any:
        answer = super().send(request, **options)
        answer.read()
        return answer


class Token:
    """A credential that is always signed in."""

    def __init__(self) -> None:
        self.scopes: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes.append(scopes)
        return AccessToken("t", 4_000_000_000)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Makes every Rest get these answers."""

    def make(*answers: Any) -> Plays:
        transport = Whole(answers, Time())

        def client(base: str, **options: Any) -> Any:
            return PipelineClient(base, transport=transport, **options)

        monkeypatch.setattr(rest, "PipelineClient", client)
        return transport

    return make


def listed(*items: Any, **more: Any) -> tuple[int, Any]:
    return 200, {"value": list(items), **more}


def asked(transport: Plays) -> list[str]:
    return [f"{request.method} {request.url}" for request in transport.requests]


# --- JSON over https ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "link"),
    [
        ("https://x", "https://x/b?page=2"),
        ("https://x/", "https://x:443/b?page=2"),
        ("https://x:443", "https://x/b?page=2"),
        ("http://127.0.0.1:80", "http://127.0.0.1/b?page=2"),
    ],
)
def test_the_pages_of_a_list_are_followed_on_their_host(base: str, link: str, play: Play) -> None:
    transport = play(listed({"n": 1}, nextLink=link), (200, {"nextLink": f"{link}3"}), listed({"n": 2}))
    assert [item["n"] for item in Rest(base).listed("/a", "list", {"v": "1"})] == [1, 2]
    assert asked(transport) == [f"GET {base.rstrip('/')}/a?v=1", f"GET {link}", f"GET {link}3"]


@pytest.mark.parametrize("link", ["https://y/a", "https://x:444/a", "http://x:443/a", "https://x.y/a"])
def test_a_page_on_another_host_is_not_requested(link: str, play: Play) -> None:
    transport = play(listed({"n": 1}, nextLink=link), listed({"n": 2}))
    with pytest.raises(Unreachable, match=r"list: .*: its next page is on another host"):
        list(Rest("https://x", Token(), "s").listed("/a", "list", {}))
    assert len(transport.sent) == 1


def test_a_token_is_sent_only_over_https() -> None:
    with pytest.raises(UsageError, match="http://x would get the token unencrypted"):
        Rest("http://x", Token(), "s")
    Rest("http://x").close()


@pytest.mark.parametrize(
    ("status", "document", "kind", "text"),
    [
        (404, {"error": {"code": "Gone", "message": "It is\nnot here."}}, NotFound, "look: It is (Gone)"),
        (403, {"error": {"code": "AuthorizationFailed", "message": "No."}}, NotAllowed,
         "look: No (AuthorizationFailed); the signed-in identity needs"),
        (400, {"error": {"code": "Bad"}}, ServiceError, "look: refused (Bad)"),
        (400, {"error": "text"}, ServiceError, "look: refused (400)"),
        (400, [1], ServiceError, "look: refused (400)"),
        (400, b"<html>", ServiceError, "look: refused (400)"),
    ],
)  # fmt: skip
def test_a_refusal_has_the_code_and_the_first_line_of_the_message(
    status: int, document: Any, kind: type[ServiceError], text: str, play: Play
) -> None:
    play((status, document, {"x-ms-request-id": "r"}))
    with pytest.raises(ServiceError) as caught:
        Rest("https://x").get("/a", "look", {}, dict)
    assert (type(caught.value), caught.value.request_id) == (kind, "r")
    assert str(caught.value).startswith(text)


def test_a_service_that_does_not_answer_is_named(play: Play) -> None:
    play(caused(ServiceRequestError("x"), ssl.SSLCertVerificationError("self-signed")))
    with pytest.raises(Unreachable, match="look: x:8443 does not answer: its certificate is not trusted"):
        Rest("https://x:8443").get("/a", "look", {}, dict)


# --- Azure Resource Manager -----------------------------------------------------------------------------------------

SUBSCRIPTIONS = listed({"subscriptionId": "one"}, {"subscriptionId": "two"})
MINE = "https://mine.westeurope.batch.azure.com"


def manager() -> Rest:
    return arm.connect(Token())


def account(name: str, **more: Any) -> Any:
    return {**shapes.account(name, f"{name}.westeurope.batch.azure.com"), "location": "westeurope", **more}


@pytest.mark.parametrize(
    ("subscription", "location", "region"),
    [
        ("s", "l", Region("s", "l")),
        (None, None, Region("two", "westeurope")),
        (None, "eastus", Region("two", "eastus")),
    ],
)
def test_the_account_is_searched_in_all_subscriptions_unless_its_region_is_given_whole(
    subscription: str | None, location: str | None, region: Region, play: Play
) -> None:
    mine = account("mine", id=shapes.account("mine")["id"].replace(shapes.SUBSCRIPTION, "two"))
    transport = play(SUBSCRIPTIONS, listed(account("other")), listed(account("third"), mine))
    assert arm.region(manager(), MINE, subscription, location) == region
    searched = [
        "/subscriptions",
        "/subscriptions/one/providers/Microsoft.Batch/batchAccounts",
        "/subscriptions/two/providers/Microsoft.Batch/batchAccounts",
    ]
    assert [urlsplit(url).path for _, url, _ in transport.sent] == ([] if subscription else searched)


@pytest.mark.parametrize(
    ("subscription", "location", "missing"),
    [(None, None, "--subscription and --location"), ("s", None, "--location"), (None, "l", "--subscription")],
)
def test_what_an_account_would_complete_is_named(
    subscription: str | None, location: str | None, missing: str, play: Play
) -> None:
    play(SUBSCRIPTIONS)
    with pytest.raises(UsageError, match=f"give {missing}, or set AZURE_BATCH_ENDPOINT"):
        arm.region(manager(), "", subscription, location)


def test_an_account_is_searched_in_the_given_subscription_alone(play: Play) -> None:
    transport = play(listed(account("other")))
    with pytest.raises(UsageError, match="no subscription that may be read has the account of"):
        arm.region(manager(), MINE, "a/b", None)
    assert asked(transport) == [
        "GET https://management.azure.com/subscriptions/a%2Fb/providers/Microsoft.Batch/batchAccounts"
        "?api-version=2025-06-01"
    ]


def test_the_sizes_of_a_region_are_those_of_batch_and_of_the_compute_service(play: Play) -> None:
    disk = {"name": "Premium_LRS", "resourceType": "disks"}
    transport = play(listed(shapes.H100), listed(disk, {**shapes.D4S, "resourceType": "virtualMachines"}))
    connected = manager()
    assert [size.name for size in arm.batch_sizes(connected, "s", "eu/x")] == [shapes.H100["name"]]
    assert [size.name for size in arm.compute_sizes(connected, "s", "westeurope")] == [shapes.D4S["name"]]
    assert [urlsplit(url).path for _, url, _ in transport.sent] == [
        "/subscriptions/s/providers/Microsoft.Batch/locations/eu%2Fx/virtualMachineSkus",
        "/subscriptions/s/providers/Microsoft.Compute/skus",
    ]
    assert transport.requests[1].url.endswith("$filter=location eq 'westeurope'")


@pytest.mark.parametrize("location", ["", "a' or 'b", "west europe"])
def test_a_location_that_is_no_name_is_not_sent(location: str, play: Play) -> None:
    transport = play(listed())
    with pytest.raises(UsageError, match="is no name of a region"):
        arm.compute_sizes(manager(), "s", location)
    assert transport.sent == []


@pytest.mark.parametrize(
    ("identities", "sent", "answer"),
    [
        (["/i/1", "/i/2"], {"type": "UserAssigned", "userAssignedIdentities": {"/i/1": {}, "/i/2": {}}}, None),
        ([], {"type": "None"}, None),
        ([], {"type": "None"}, {"identity": None}),
    ],
)
def test_the_identities_of_a_pool_are_replaced(identities: list[str], sent: Any, answer: Any, play: Play) -> None:
    transport = play((200, answer or {"identity": sent}))
    where = arm.account_of(shapes.account())
    assert arm.set_pool_identity(manager(), where, "p/q", identities) == tuple(identities)
    assert transport.requests[0].content == json.dumps({"identity": sent})
    assert asked(transport) == [f"PATCH https://management.azure.com{where.path}/pools/p%2Fq?api-version=2025-06-01"]


@pytest.mark.parametrize(
    ("credentials", "endpoint", "host"),
    [
        (None, "", "management.azure.com"),
        (None, "https://a.r.batch.usgovcloudapi.net", "management.usgovcloudapi.net"),
        (Credentials(management=Management(aad=Aad(endpoint="https://mine"))), "", "mine"),
        (Credentials(aad=Aad(authority_url="https://login.chinacloudapi.cn")), "", "management.chinacloudapi.cn"),
    ],
)
def test_the_manager_is_that_of_the_files_or_of_the_accounts_cloud(
    credentials: Credentials | None, endpoint: str, host: str, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, token = play(SUBSCRIPTIONS), Token()
    monkeypatch.setattr(arm.entra, "credential", lambda sign_in, *, ca: token)
    arm.subscriptions(arm.reach(credentials, {}, endpoint))
    assert urlsplit(transport.sent[0][1]).netloc == host
    assert token.scopes == [(f"https://{host}/.default",)]


def test_only_sizes_that_the_catalogue_does_not_have_are_corrections() -> None:
    known, new = arm.sold_of(shapes.H100), Sold("Standard_X1_v9", "standardX1v9Family", 4, 16.0)
    (correction,) = arm.corrections([known, new], Catalog()).own_sizes
    assert (correction.name, correction.family, correction.gpus) == ("Standard_X1_v9", "X1v9", 0)
    assert (correction.gpu_model, correction.gpu_vendor, correction.rdma, correction.hcas) == (None, "", None, 0)


@pytest.mark.parametrize(
    ("name", "model", "vendor"),
    [
        ("Standard_ND8_MI400X_v6", "MI400X", "amd"),
        ("Standard_NV8_V710_v5", "V710", "amd"),
        ("Standard_NC8_R300_v6", "R300", "nvidia"),
        ("Standard_NC8_v9", None, "nvidia"),
    ],
)
def test_the_name_of_a_new_size_tells_the_model_of_its_gpu(name: str, model: str | None, vendor: str) -> None:
    size = arm.corrected(Sold(name, "", 8, 64.0, gpus=1, rdma=True), None)
    assert size is not None
    assert (size.gpu_model, size.gpu_vendor, size.family, size.rdma, size.hcas) == (model, vendor, name, "sr-iov", 1)


# --- vaults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/secrets/key", "/secrets/key/version"])
@pytest.mark.parametrize("domain", ["vault.azure.net", "vault.azure.cn", "vault.usgovcloudapi.net"])
def test_a_secret_is_read_from_its_vault_with_a_token_for_vaults(domain: str, path: str, play: Play) -> None:
    transport, token = play((200, {"value": "secret"})), Token()
    assert vault.secret(token, f"https://mine.{domain}{path}") == "secret"
    assert asked(transport) == [f"GET https://mine.{domain}{path}?api-version=7.4"]
    assert token.scopes == [(f"https://{domain}/.default",)]
    assert vault.secret(token, "https://my.vault/secrets/key", domain="my.vault") == "secret"


@pytest.mark.parametrize(
    "secret_id",
    [
        "http://mine.vault.azure.net/secrets/key", "https://mine.vault.azure.net.example/secrets/key",
        "https://minevault.azure.net/secrets/key", "https://mine.vault.azure.net/keys/key",
        "https://mine.vault.azure.net/secrets", "https://mine.vault.azure.net/secrets/key/version/more", "key",
    ],
)  # fmt: skip
def test_a_url_that_is_no_secret_of_a_vault_gets_no_request(secret_id: str, play: Play) -> None:
    transport, token = play((200, {"value": "secret"})), Token()
    with pytest.raises(UsageError, match="is not the id of a secret"):
        vault.secret(token, secret_id)
    assert (transport.sent, token.scopes) == ([], [])


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((404, {"error": {"code": "SecretNotFound", "message": "No."}}), NotFound, "read the secret key of .*: No"),
        ((200, {"value": None}), ServiceError, r"the secret key of mine\.vault\.azure\.net has no value"),
    ],
)
def test_a_secret_that_does_not_exist_or_has_no_text_is_named(
    answer: Any, kind: type[ServiceError], said: str, play: Play
) -> None:
    play(answer)
    with pytest.raises(kind, match=said):
        vault.secret(Token(), "https://mine.vault.azure.net/secrets/key")


def test_a_client_that_is_closed_closes_its_connections(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(type(play((200, {}))), "__exit__", lambda *_: closed.append(True), raising=False)
    Rest("https://x").close()
    assert closed == [True]
