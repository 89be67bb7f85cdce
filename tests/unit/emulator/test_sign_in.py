"""Sign-in as with Microsoft Entra ID. Sources: learn v2-oauth2-client-creds-grant-flow; azure-identity 1.27, msal 1.39.
The numbers of errors are from memory, except 70011; clients must not depend on them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from batchtrain.emulator import identity, routes, sign_in, task_environment, tokens, wire
from batchtrain.emulator.faults import Fault, NeedsToken
from tests.emulation import BASE, START, Stage

KEY = base64.b64encode(b"secret").decode()
TOKEN = f"/{tokens.TENANT}/oauth2/v2.0/token"
FORM = {
    "grant_type": "client_credentials",
    "client_id": identity.CLIENT,
    "client_secret": identity.secret(KEY),
    "scope": "https://batch.core.windows.net//.default",
}
NO_ASSERTION = tokens.issue(KEY, "batchtrain", wire.AUDIENCE, START)
ASSERTED = {"client_secret": None, "client_assertion_type": sign_in.ASSERTION}


def ask(verb: str, path: str, form: dict[str, str] | None = None, now: int = START) -> Any:
    return sign_in.answer(verb, path, urlencode(form or {}).encode(), BASE, "batchtrain", KEY, now)


def signed(**change: str | None) -> Any:
    return ask("POST", TOKEN, {name: value for name, value in {**FORM, **change}.items() if value is not None})


def check(token: str, *, method: str = "POST", now: int = START, scheme: str = "Bearer ") -> None:
    tokens.check("batchtrain", KEY, method, {"authorization": f"{scheme}{token}"}, tokens.BATCH, now)


def test_a_secret_gives_a_token_for_batch() -> None:
    reply = signed()
    assert (reply.status, reply.document["token_type"], reply.document["expires_in"]) == (200, "Bearer", 3600)
    check(reply.document["access_token"])


def test_a_federated_assertion_gives_one_too() -> None:
    reply = signed(**ASSERTED, client_assertion=identity.assertion(KEY, "batchtrain", START))
    check(reply.document["access_token"])


@pytest.mark.parametrize(
    ("change", "status", "error", "number"),
    [
        ({"client_secret": "wrong"}, 401, "invalid_client", 7000215),
        ({"client_secret": None}, 401, "invalid_client", 7000216),
        ({**ASSERTED, "client_assertion": "a.b.c"}, 401, "invalid_client", 700213),
        ({**ASSERTED, "client_assertion": NO_ASSERTION}, 401, "invalid_client", 700213),
        ({"client_id": "other"}, 400, "unauthorized_client", 700016),
        ({"scope": "https://batch.core.windows.net/"}, 400, "invalid_scope", 70011),
        ({"scope": "https://example.org/.default"}, 400, "invalid_resource", 500011),
        ({"grant_type": "password"}, 400, "unsupported_grant_type", 70003),
    ],
)
def test_a_refusal_has_the_form_that_msal_reads(
    change: dict[str, str | None], status: int, error: str, number: int
) -> None:
    reply = signed(**change)
    assert (reply.status, reply.document["error"], reply.document["error_codes"]) == (status, error, [number])
    assert reply.document["error_description"].startswith(f"AADSTS{number}: ")
    assert {"timestamp", "trace_id", "correlation_id"} <= reply.document.keys()


def test_discovery_names_both_endpoints() -> None:
    """msal needs both of every authority, and reads the issuer only of others than Entra's."""
    reply = ask("GET", f"/{tokens.TENANT}/v2.0/.well-known/openid-configuration")
    assert reply.document["token_endpoint"] == f"{BASE}{TOKEN}"
    assert reply.document["authorization_endpoint"].startswith(f"{BASE}/{tokens.TENANT}/")
    assert ask("GET", "/nowhere/v2.0/.well-known/openid-configuration").document["error_codes"] == [90002]


@pytest.mark.parametrize("path", ["/pools", "/pools/p", "/jobs/v2.0", "/jobs/j/tasks", "/subscriptions/s"])
def test_no_path_of_the_service_is_one_of_the_sign_in(path: str) -> None:
    assert not sign_in.is_path(path)


@pytest.mark.parametrize("path", ["/jobs/discovery/tasks", "/pools/oauth2/nodes"])
def test_a_job_or_a_pool_may_be_named_as_a_path_of_the_sign_in(path: str) -> None:
    assert sign_in.is_path(path) and routes.begins(path)
    assert not routes.begins(TOKEN)


# Managed identities of nodes -----------------------------------------------------------------------------------------


def of_node(pool: str = "p", metadata: str = "true", **query: str) -> Any:
    path = identity.node_authority("", KEY, pool) + sign_in.IMDS_PATH
    return sign_in.of_node(path, {"metadata": metadata}, query, "batchtrain", KEY, START)


def test_a_node_gets_a_token_of_its_pools_identity() -> None:
    reply = of_node(resource=wire.AUDIENCE)
    document = reply.document
    assert reply.status == 200
    check(document["access_token"])
    assert int(document["expires_on"]) == tokens.seconds(START) + 3600


def test_a_node_must_say_that_it_means_the_metadata_service() -> None:
    assert of_node(resource=wire.AUDIENCE, metadata="").status == 400


def test_another_pools_address_gives_no_token() -> None:
    path = identity.node_authority("", KEY, "p").replace("/p/", "/q/") + sign_in.IMDS_PATH
    with pytest.raises(Fault, match="ResourceNotFound"):
        sign_in.of_node(path, {"metadata": "true"}, {"resource": wire.AUDIENCE}, "batchtrain", KEY, START)


@pytest.mark.parametrize("identity", [None, {"type": "UserAssigned", "userAssignedIdentities": [{"resourceId": "/i"}]}])
def test_only_tasks_of_a_pool_with_an_identity_have_its_address(stage: Stage, identity: object) -> None:
    (node,) = stage.pool(1)
    stage.world.identity_authority = "http://h/{}".format
    entry = stage.world.pools["pool"]
    entry.record.spec = {**entry.record.spec, **({"identity": identity} if identity else {})}
    environment = task_environment._node(stage.world, entry, node)
    assert environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") == ("http://h/pool" if identity else None)


# Access tokens -------------------------------------------------------------------------------------------------------

RESOURCE = "https://batch.core.windows.net"
LEEWAY = tokens.LEEWAY_SECONDS * wire.SECOND


def issued(resource: str = f"{RESOURCE}/", account: str = "batchtrain", key: str = KEY, **more: str) -> str:
    return tokens.issue(key, account, resource, START, 60, **more)


@pytest.mark.parametrize(
    ("first", "now", "says"),
    [
        (START - LEEWAY, START - LEEWAY - wire.SECOND, "is not valid before 2026-11-21T10:00:00"),
        (START + 59 * wire.SECOND + LEEWAY, START + 60 * wire.SECOND + LEEWAY, "expired at 2026-11-21T10:01:00"),
    ],
)
def test_a_token_allows_requests_in_its_time_and_five_minutes_around_it(first: int, now: int, says: str) -> None:
    check(issued(), now=first)
    with pytest.raises(NeedsToken) as refusal:
        check(issued(), now=now)
    assert refusal.value.status == 401
    assert says in refusal.value.details["AuthenticationErrorDetail"]


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_a_token_of_the_future_is_refused_by_either_of_its_times(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, later = tokens._encoded, tokens.seconds(START + LEEWAY) + 1

    def changed(part: Mapping[str, object]) -> str:
        return encoded({**part, claim: later} if claim in part else part)

    monkeypatch.setattr(tokens, "_encoded", changed)
    with pytest.raises(NeedsToken, match="AuthenticationFailed"):
        check(issued())


@pytest.mark.parametrize(
    ("token", "scheme", "says"),
    [
        ("", "Bearer ", "neither a shared-key signature nor an access token"),
        (issued(), "Basic ", "neither a shared-key signature nor an access token"),
        (issued(key=base64.b64encode(b"other").decode()), "Bearer ", "not issued by this emulator"),
        (issued()[:-2], "Bearer ", "not issued by this emulator"),
        (issued(resource="https://vault.azure.net"), "Bearer ", f"not for {RESOURCE}/"),
    ],
)
def test_a_token_of_another_issuer_or_for_another_service_is_refused(token: str, scheme: str, says: str) -> None:
    with pytest.raises(NeedsToken) as refusal:
        check(token, scheme=scheme)
    assert says in refusal.value.details["AuthenticationErrorDetail"]


def test_a_token_of_another_account_is_refused() -> None:
    with pytest.raises(Fault, match="AuthorizationFailure") as refusal:
        check(issued(account="other"))
    assert refusal.value.details == {"Reason": "The token is for account other."}


def test_a_token_for_reading_allows_no_change() -> None:
    for method in ("GET", "HEAD"):
        check(issued(allows="read"), method=method)
    for method in ("POST", "DELETE"):
        with pytest.raises(Fault, match="AuthorizationFailure"):
            check(issued(allows="read"), method=method)
        check(issued(), method=method)


def test_the_managed_identity_gives_a_token_for_an_hour_to_programs_with_its_header() -> None:
    variables = identity.variables("http://host", KEY)
    assert variables["IDENTITY_ENDPOINT"] == f"http://host{identity.PATH}"
    headers = {"x-identity-header": variables["IDENTITY_HEADER"]}
    reply: Any = sign_in.of_program(headers, {"resource": f"{RESOURCE}/"}, "batchtrain", KEY, START)
    assert (reply.status, reply.headers) == (200, {"Cache-Control": "no-store"})
    assert int(reply.document["expires_on"]) == tokens.seconds(START) + 3600
    check(reply.document["access_token"], now=START + 3599 * wire.SECOND)
    with pytest.raises(Fault, match="AuthenticationFailed"):
        sign_in.of_program({"x-identity-header": "guess"}, {"resource": RESOURCE}, "batchtrain", KEY, START)
    with pytest.raises(Fault, match="MissingRequiredQueryParameter"):
        sign_in.of_program(headers, {}, "batchtrain", KEY, START)


@pytest.mark.parametrize(
    ("digest", "form"), [(tokens.guid, "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), (tokens.digest, "[0-9A-F]{16}")]
)
def test_a_guid_and_a_digest_have_their_forms(digest: Any, form: str) -> None:
    assert re.fullmatch(form, digest("a text"))
    assert digest("a text") == digest("a text") != digest("another text")


def test_a_request_is_signed_by_key_or_by_token() -> None:
    date = {"ocp-date": wire.http_date(START)}
    key = wire.authorization("batchtrain", KEY, "GET", "/pools", "", date)
    for authorization, kind in ((key, tokens.SHARED_KEY), (f"Bearer {issued()}", tokens.TOKEN)):
        headers = {**date, "authorization": authorization}
        assert tokens.signed_by("batchtrain", KEY, "GET", "/pools", "", headers, START) == kind
