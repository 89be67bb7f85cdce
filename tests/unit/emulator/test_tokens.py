"""Access tokens: which requests they allow, and until when."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

import pytest

from batchtrain.emulator import identity, sign_in, tokens, wire
from batchtrain.emulator.faults import Fault, NeedsToken

KEY = base64.b64encode(b"key").decode()
RESOURCE = "https://batch.core.windows.net"
NOW = wire.parse_timestamp("2026-11-21T10:00:00Z")
LEEWAY = tokens.LEEWAY_SECONDS * wire.SECOND


def check(token: str, *, method: str = "POST", now: int = NOW, scheme: str = "Bearer ") -> None:
    tokens.check("account", KEY, method, {"authorization": f"{scheme}{token}"}, (RESOURCE,), now)


def issued(resource: str = f"{RESOURCE}/", account: str = "account", key: str = KEY, **more: str) -> str:
    return tokens.issue(key, account, resource, NOW, 60, **more)


@pytest.mark.parametrize(
    ("first", "now", "says"),
    [
        (NOW - LEEWAY, NOW - LEEWAY - wire.SECOND, "is not valid before 2026-11-21T10:00:00"),
        (NOW + 59 * wire.SECOND + LEEWAY, NOW + 60 * wire.SECOND + LEEWAY, "expired at 2026-11-21T10:01:00"),
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
    encoded = tokens._encoded
    later = tokens.seconds(NOW + LEEWAY) + 1

    def changed(part: Mapping[str, object]) -> str:
        return encoded({**part, claim: later} if claim in part else part)

    monkeypatch.setattr(tokens, "_encoded", changed)
    with pytest.raises(NeedsToken, match="AuthenticationFailed"):
        check(issued())


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "neither a shared-key signature nor an access token"),
        (issued(key=base64.b64encode(b"other").decode()), "not issued by this emulator"),
        (issued()[:-2], "not issued by this emulator"),
        (issued(resource="https://vault.azure.net"), f"not for {RESOURCE}/"),
    ],
)
def test_a_token_of_another_issuer_or_for_another_service_is_refused(token: str, says: str) -> None:
    with pytest.raises(NeedsToken) as refusal:
        check(token)
    assert says in refusal.value.details["AuthenticationErrorDetail"]
    with pytest.raises(NeedsToken):
        check(issued(), scheme="Basic ")


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
    reply = sign_in.of_program(headers, {"resource": f"{RESOURCE}/"}, "account", KEY, NOW)
    assert reply.status == 200
    assert reply.document is not None
    assert int(reply.document["expires_on"]) == tokens.seconds(NOW) + 3600
    assert reply.headers == {"Cache-Control": "no-store"}
    check(reply.document["access_token"], now=NOW + 3599 * wire.SECOND)
    with pytest.raises(Fault, match="AuthenticationFailed"):
        sign_in.of_program({"x-identity-header": "guess"}, {"resource": RESOURCE}, "account", KEY, NOW)
    with pytest.raises(Fault, match="MissingRequiredQueryParameter"):
        sign_in.of_program(headers, {}, "account", KEY, NOW)


def test_a_guid_has_five_groups_of_hexadecimal_digits() -> None:
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", tokens.guid("a text"))
    assert tokens.guid("a text") == tokens.guid("a text") != tokens.guid("another text")


def test_a_digest_has_sixteen_hexadecimal_digits() -> None:
    assert re.fullmatch("[0-9A-F]{16}", tokens.digest("a text"))
    assert tokens.digest("a text") != tokens.digest("another text")


def test_a_request_is_signed_by_key_or_by_token() -> None:
    def signed_by(authorization: str) -> str:
        headers = {"authorization": authorization, "ocp-date": wire.http_date(NOW)}
        return tokens.signed_by("account", KEY, "GET", "/pools", "", headers, NOW)

    key = wire.authorization("account", KEY, "GET", "/pools", "", {"ocp-date": wire.http_date(NOW)})
    assert (signed_by(key), signed_by(f"Bearer {issued()}")) == (tokens.SHARED_KEY, tokens.TOKEN)
