"""Who may do anything at all: the shared-key signature."""

from __future__ import annotations

import base64

import pytest

from batchtrain.emulator import wire
from batchtrain.emulator.faults import Fault

KEY = base64.b64encode(b"secret").decode()
NOW = wire.parse_timestamp("2026-11-21T10:00:00Z")
DATE = wire.http_date(NOW)


def signed(verb: str = "GET", path: str = "/pools", query: str = "api-version=1", **headers: str) -> dict[str, str]:
    given = {"ocp-date": DATE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {**given, "authorization": wire.authorization("acct", KEY, verb, path, query, given)}


def check(verb: str, path: str, query: str, headers: dict[str, str], now: int = NOW) -> None:
    wire.authenticate("acct", KEY, verb, path, query, headers, now)


def test_the_string_to_sign_has_eleven_headers_then_ocp_headers_then_path_and_sorted_query() -> None:
    headers = {"ocp-date": DATE, "content-type": "a/b", "if-match": '"0x1"', "ocp-range": "bytes=0-1"}
    text = wire.string_to_sign("GET", "/jobs/j%2F1", "b=2&a=x%20y&empty=", headers, "acct")
    assert text == (
        f'GET\n\n\n\n\na/b\n\n\n"0x1"\n\n\n\nocp-date:{DATE}\nocp-range:bytes=0-1\n/acct/jobs/j%2F1\na:x y\nb:2'
    )


def test_another_account_with_the_same_key_is_refused_by_name() -> None:
    headers = signed()
    authorization = headers["authorization"].replace("acct:", "other:")
    with pytest.raises(Fault) as refusal:
        check("GET", "/pools", "api-version=1", {**headers, "authorization": authorization})
    assert refusal.value.details["AuthenticationErrorDetail"].endswith("is acct, the request was signed for other.")


def test_the_path_is_signed_as_it_was_sent() -> None:
    check("GET", "/files/a%2Fb", "", signed(path="/files/a%2Fb", query=""))
    with pytest.raises(Fault, match="AuthenticationFailed"):
        check("GET", "/files/a/b", "", signed(path="/files/a%2Fb", query=""))


@pytest.mark.parametrize("sent", ["0", ""])
@pytest.mark.parametrize("counted", ["0", ""])
def test_an_empty_body_s_length_may_be_signed_as_zero_or_as_nothing(sent: str, counted: str) -> None:
    headers = signed("POST", content_length=counted)
    check("POST", "/pools", "api-version=1", {**headers, "content-length": sent})


def test_the_length_of_a_body_cannot_be_left_out_of_the_signature() -> None:
    with pytest.raises(Fault, match="AuthenticationFailed"):
        check("POST", "/pools", "api-version=1", {**signed("POST"), "content-length": "5"})


@pytest.mark.parametrize(
    "resource",
    [
        "api-version:1\nstartTime:x",
        "api-version:1\nfilter:\nstartTime:x",
        "api-version:1\nstarttime:x",
        "api-version:1\nfilter:\nstarttime:x",
    ],
    ids=["Python", "JavaScript", ".NET", "Java"],
)
def test_each_sdks_way_of_writing_the_query_down_is_understood(resource: str) -> None:
    text = f"GET\n\n\n\n\n\n\n\n\n\n\n\nocp-date:{DATE}\n/acct/pools\n{resource}"
    headers = {"ocp-date": DATE, "authorization": f"SharedKey acct:{wire.signature(KEY, text)}"}
    check("GET", "/pools", "startTime=x&filter=&api-version=1", headers)


def test_a_date_that_java_adds_may_be_signed_in_place_of_ocp_date() -> None:
    text = f"GET\n\n\n\n\n\n{DATE}\n\n\n\n\n\n/acct/pools\napi-version:1"
    headers = {"date": DATE, "authorization": f"SharedKey acct:{wire.signature(KEY, text)}"}
    check("GET", "/pools", "api-version=1", headers)


def test_a_date_beside_ocp_date_may_be_left_out() -> None:
    check("GET", "/pools", "api-version=1", {**signed(), "date": DATE})


@pytest.mark.parametrize(
    "change",
    [
        {"authorization": ""},
        {"authorization": "Bearer token"},
        {"authorization": "SharedKey acct:AAAA"},
        {"authorization": "SharedKey other:AAAA"},
        {"authorization": "SharedKey"},
        {"authorization": "Basic YTpi"},
        {"authorization": "SharedKey acct:é"},
        {"ocp-date": "today"},
        {"ocp-date": wire.http_date(NOW + wire.SECOND)},
        {"ocp-date": ""},
        {"if-match": "*"},
    ],
)
def test_anything_changed_after_signing_is_refused_with_403(change: dict[str, str]) -> None:
    with pytest.raises(Fault) as refusal:
        check("GET", "/pools", "api-version=1", {**signed(), **change})
    assert (refusal.value.status, refusal.value.code) == (403, "AuthenticationFailed")
    assert refusal.value.details["AuthenticationErrorDetail"]


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_clock_more_than_fifteen_minutes_off_is_refused(minutes: int) -> None:
    with pytest.raises(Fault, match="AuthenticationFailed") as refusal:
        check("GET", "/pools", "api-version=1", signed(), NOW + minutes * 60 * wire.SECOND)
    assert "is more than 15 minutes from the server's" in refusal.value.details["AuthenticationErrorDetail"]
    check("GET", "/pools", "api-version=1", signed(), NOW + minutes // 16 * 14 * 60 * wire.SECOND)
