"""How times, durations and ETags look on the wire."""

from __future__ import annotations

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
