"""How times, durations, ETags and signatures look on the wire."""

from __future__ import annotations

import base64

import pytest

from batchtrain.emulator import wire
from batchtrain.emulator.faults import Fault, NotModified

NOON = wire.parse_timestamp("2026-11-21T12:00:00Z")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("2026-11-21T12:00:00Z", "2026-11-21T12:00:00Z"),
        ("2026-11-21T12:00:00.1234567Z", "2026-11-21T12:00:00.1234567Z"),
        ("2026-11-21T12:00:00.9595230Z", "2026-11-21T12:00:00.959523Z"),
        ("2026-11-21T14:00:00+02:00", "2026-11-21T12:00:00Z"),
        ("2026-11-21", "2026-11-21T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
    ],
)
def test_a_time_stamp_has_seven_digits_without_trailing_zeros(text: str, printed: str) -> None:
    assert wire.timestamp(wire.parse_timestamp(text)) == printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("PT06M00S", "PT6M"),
        ("PT36H", "P1DT12H"),
        ("PT90S", "PT1M30S"),
        ("PT0.5S", "PT0.5S"),
        ("P7D", "P7D"),
        ("P1W", "P7D"),
        ("PT0S", "PT0S"),
        ("1.02:03:04", "P1DT2H3M4S"),
        (wire.INFINITE, wire.INFINITE),
        ("P99999999D", wire.INFINITE),
        ("99999999.00:00:00", wire.INFINITE),
    ],
)
def test_durations_are_normalised(text: str, printed: str) -> None:
    assert wire.duration(wire.parse_duration(text)) == printed


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "6 minutes", "PT-5M", "P1Y"])
def test_an_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        wire.parse_duration(text)


def test_an_etag_is_the_unquoted_time_in_hexadecimal() -> None:
    assert wire.etag(638_203_072_000_000_000).startswith("0x8DB")
    assert wire.timestamp(wire.FOREVER) == "9999-12-31T23:59:59.9999999Z"


@pytest.mark.parametrize("header", ['"0x1"', "0x1", "*", '"0x0", "0x1"'])
def test_if_match_takes_the_etag_with_and_without_quotes_and_another_is_412(header: str) -> None:
    wire.check_conditions({"if-match": header}, "0x1", NOON, reading=False)
    with pytest.raises(Fault) as refusal:
        wire.check_conditions({"if-match": '"0x2"'}, "0x1", NOON, reading=False)
    assert (refusal.value.status, refusal.value.code) == (412, "ConditionNotMet")


def test_if_none_match_answers_304_to_a_reader_and_412_to_a_writer() -> None:
    with pytest.raises(NotModified):
        wire.check_conditions({"if-none-match": '"0x1"'}, "0x1", NOON, reading=True)
    with pytest.raises(Fault):
        wire.check_conditions({"if-none-match": "*"}, "0x1", NOON, reading=False)


def test_date_conditions_look_at_whole_seconds() -> None:
    same, later = wire.http_date(NOON), wire.http_date(NOON + wire.SECOND)
    wire.check_conditions({"if-unmodified-since": same}, "0x1", NOON + 5, reading=False)
    with pytest.raises(NotModified):
        wire.check_conditions({"if-modified-since": later}, "0x1", NOON, reading=True)
    with pytest.raises(Fault):
        wire.check_conditions({"if-unmodified-since": same}, "0x1", NOON + wire.SECOND, reading=False)


@pytest.mark.parametrize("text", ["soon", "Mon, 01 Jan 99999999999 00:00:00 GMT"])
def test_an_invalid_date_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"date|time"):
        wire.parse_http_date(text)


def test_a_time_before_the_first_moment_is_no_time() -> None:
    with pytest.raises(ValueError, match="not a time stamp"):
        wire.parse_timestamp("0001-01-01T00:00:00+10:00")


# Who may do anything at all: the shared-key signature

KEY = base64.b64encode(b"secret").decode()
DATE = wire.http_date(NOON)


def signed(verb: str = "GET", path: str = "/pools", query: str = "api-version=1", **headers: str) -> dict[str, str]:
    given = {"ocp-date": DATE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {**given, "authorization": wire.authorization("acct", KEY, verb, path, query, given)}


def check(verb: str, path: str, query: str, headers: dict[str, str], now: int = NOON) -> None:
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
        {"ocp-date": wire.http_date(NOON + wire.SECOND)},
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
        check("GET", "/pools", "api-version=1", signed(), NOON + minutes * 60 * wire.SECOND)
    assert "is more than 15 minutes from the server's" in refusal.value.details["AuthenticationErrorDetail"]
    check("GET", "/pools", "api-version=1", signed(), NOON + minutes // 16 * 14 * 60 * wire.SECOND)
