"""The formats of the wire: time stamps, durations, ETags, error bodies and the shared-key signature; pure.

Times are ticks: hundreds of nanoseconds since year 1, the unit of the service's times and ETags.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime, parsedate_to_datetime
from functools import lru_cache
from urllib.parse import unquote

from batchtrain.emulator.faults import Fault, NotModified

SECOND = 10_000_000
"""Ticks in a second."""
DAY = 86_400 * SECOND
UNIX_EPOCH = 621_355_968_000_000_000
"""1 January 1970 in ticks."""
LAST_MOMENT = 3_155_378_975_999_999_999
"""The end of the year 9999: the latest time, whatever duration is added."""
INFINITE = "P10675199DT2H48M5.4775807S"
"""The longest duration, which the service prints for "no limit"."""
FOREVER = 2**63 - 1
"""The same in ticks."""
BLOB_STORE = "/_emulator/blob_store/"
"""The prefix of paths of files that the emulator itself keeps for tasks."""
MAX_SKEW = 15 * 60 * SECOND

_YEAR_ONE = datetime(1, 1, 1, tzinfo=timezone.utc)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?)?\s*(Z|[+-]\d\d:?\d\d)?", re.IGNORECASE
)
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_CLOCK = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d\d):(\d\d)(?:\.(\d{1,7}))?")


# Times ---------------------------------------------------------------------------------------------------------------


def from_unix_ns(nanoseconds: int) -> int:
    """Nanoseconds since 1970 as ticks."""
    return nanoseconds // 100 + UNIX_EPOCH


def as_datetime(ticks: int) -> datetime:
    """Ticks as an aware datetime (microseconds)."""
    return _YEAR_ONE + timedelta(microseconds=min(ticks, LAST_MOMENT) // 10)


@lru_cache(maxsize=1024)
def timestamp(ticks: int) -> str:
    """`2026-11-21T10:00:00.1234567Z`; trailing zeros of the fraction are removed as in the service."""
    ticks = min(ticks, LAST_MOMENT)
    seconds = as_datetime(ticks).isoformat()[:19]  # strftime writes the year 1 as `1`
    fraction = f"{ticks % SECOND:07d}".rstrip("0")
    return f"{seconds}.{fraction}Z" if fraction else f"{seconds}Z"


def parse_timestamp(text: str) -> int:
    """The ticks of an ISO time stamp. Raises ValueError."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if not match:
        raise ValueError(f"not a time stamp: {text}")
    day, clock, fraction, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z", "z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:
        moment = datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{offset}")
    except OverflowError as error:
        raise ValueError(f"not a time stamp: {text}") from error
    seconds = (moment - _YEAR_ONE) // timedelta(seconds=1)
    if seconds < 0:
        raise ValueError(f"not a time stamp: {text}")
    return seconds * SECOND + int((fraction or "0").ljust(7, "0")[:7])


def http_date(ticks: int) -> str:
    """`Sat, 21 Nov 2026 10:00:00 GMT`."""
    return format_datetime(as_datetime(ticks).replace(microsecond=0), usegmt=True)


def parse_http_date(text: str) -> int:
    """The ticks of an RFC 1123 date. Raises ValueError."""
    try:
        moment = parsedate_to_datetime(text)
    except OverflowError as error:
        raise ValueError(f"not a date: {text}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _YEAR_ONE) // timedelta(seconds=1) * SECOND


def parse_duration(text: str) -> int:
    """The ticks of an ISO 8601 duration or of .NET's `[d.]hh:mm:ss`. Raises ValueError."""
    text = text.strip()
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds, fraction = (part or "0" for part in clock.groups())
        total_seconds = int(days) * 86_400 + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        return min(total_seconds * SECOND + int(fraction.ljust(7, "0")), FOREVER)
    match = _DURATION.fullmatch(text)
    if not match or text in ("P", "PT") or text.endswith("T"):
        raise ValueError(f"not an ISO 8601 duration: {text}")
    part = {name: value or "0" for name, value in match.groupdict().items()}
    seconds, _, fraction = part["seconds"].partition(".")
    total_seconds = (int(part["weeks"]) * 7 + int(part["days"])) * 86_400
    total_seconds += int(part["hours"]) * 3600 + int(part["minutes"]) * 60 + int(seconds)
    return min(total_seconds * SECOND + int((fraction or "0").ljust(7, "0")[:7]), FOREVER)


def limit(text: str) -> int:
    """The ticks of a maximum duration; 0 for no limit."""
    return 0 if text == INFINITE else parse_duration(text)


def duration(ticks: int) -> str:
    """Ticks as the service writes a duration: `PT6M`, `P1DT12H`."""
    days, remainder = divmod(ticks, DAY)
    hours, remainder = divmod(remainder, 3600 * SECOND)
    minutes, remainder = divmod(remainder, 60 * SECOND)
    seconds, fraction = divmod(remainder, SECOND)
    tail = f".{fraction:07d}".rstrip("0") if fraction else ""
    clock = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    clock += f"{seconds}{tail}S" if seconds or fraction else ""
    date = f"{days}D" if days else ""
    return f"P{date}T{clock}" if clock else f"P{date}" if date else "PT0S"


# ETags ---------------------------------------------------------------------------------------------------------------


def etag(ticks: int) -> str:
    """The service's ETag: the change's time in hexadecimal, without quotes."""
    return f"0x{ticks:X}"


def check_conditions(headers: Mapping[str, str], tag: str, modified: int, *, reading: bool) -> None:
    """Raise Fault 412 or NotModified (304, only for reading) as the four conditional headers ask. The SDK quotes the
    ETag that it sends, and the service does not quote the one that it returns: quotes are removed."""
    seconds = modified - modified % SECOND
    if (matches := headers.get("if-match")) and not _names(matches, tag):
        raise Fault("ConditionNotMet")
    if (non_matches := headers.get("if-none-match")) and _names(non_matches, tag):
        raise NotModified if reading else Fault("ConditionNotMet")
    if (since := _date(headers, "if-unmodified-since")) is not None and seconds > since:
        raise Fault("ConditionNotMet")
    if (since := _date(headers, "if-modified-since")) is not None and seconds <= since:
        raise NotModified if reading else Fault("ConditionNotMet")


def _names(header: str, tag: str) -> bool:
    tags = [word.strip().removeprefix("W/").strip('"') for word in header.split(",")]
    return "*" in tags or tag in tags


def _date(headers: Mapping[str, str], name: str) -> int | None:
    if not (value := headers.get(name)):
        return None
    try:
        return parse_http_date(value)
    except ValueError as error:
        raise Fault("InvalidHeaderValue", HeaderName=name, HeaderValue=value) from error


def error_document(fault: Fault, base: str, request_id: str, now: int) -> dict[str, object]:
    """The body of a refusal, as the service writes it."""
    document: dict[str, object] = {
        "odata.metadata": f"{base}/$metadata#Microsoft.Azure.Batch.Protocol.Entities.Container.errors/@Element",
        "code": fault.code,
        "message": {"lang": "en-US", "value": f"{fault.text}\nRequestId:{request_id}\nTime:{timestamp(now)}"},
    }
    if fault.details:
        document["values"] = [{"key": key, "value": value} for key, value in fault.details.items()]
    return document


# The shared key ------------------------------------------------------------------------------------------------------

_SIGNED_HEADERS = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


def string_to_sign(method: str, raw_path: str, query: str, headers: Mapping[str, str], account: str) -> str:
    """The text that the Python SDK signs. The path stays percent-encoded as received; query values are decoded."""
    return _text_to_sign(method, raw_path, next(_query_forms(query)), headers, account)


def _text_to_sign(
    method: str, raw_path: str, pairs: Iterable[tuple[str, str]], headers: Mapping[str, str], account: str
) -> str:
    lines = [method, *(headers.get(name, "") for name in _SIGNED_HEADERS)]
    lines += [f"{name}:{value}" for name, value in sorted(headers.items()) if name.startswith("ocp-")]
    lines.append(f"/{account}{raw_path}")
    lines += [f"{name}:{value}" for name, value in sorted(pairs)]
    return "\n".join(lines)


def query_pairs(query: str) -> Iterator[tuple[str, str]]:
    """Names and decoded values of a query string, in its order."""
    for pair in query.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            yield unquote(name), unquote(value.replace("+", " "))


def signature(key: str, text: str) -> str:
    """HMAC-SHA256 under the account's (base64) key."""
    return base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()


def authorization(account: str, key: str, method: str, raw_path: str, query: str, headers: Mapping[str, str]) -> str:
    """The Authorization header of a request."""
    return f"SharedKey {account}:{signature(key, string_to_sign(method, raw_path, query, headers, account))}"


def authenticate(
    account: str, key: str, method: str, raw_path: str, query: str, headers: Mapping[str, str], now: int
) -> None:
    """Raise Fault 403 unless the request was signed with the account's key within the last 15 minutes."""
    scheme, _, credential = headers.get("authorization", "").partition(" ")
    who, _, credential_signature = credential.strip().rpartition(":")
    if scheme != "SharedKey" or not credential_signature:
        raise _denied("The request carries no Authorization header of the form SharedKey account:signature.")
    if who != account:
        raise _denied(f"The account is {account}, the request was signed for {who}.")
    _check_date(headers, now)
    forms = ((pairs, form) for pairs in _query_forms(query) for form in _header_forms(headers))
    for pairs, form in forms:
        valid_signature = signature(key, _text_to_sign(method, raw_path, pairs, form, account))
        if hmac.compare_digest(valid_signature.encode(), credential_signature.encode()):
            return
    raise _denied("The MAC signature found in the HTTP request is not the same as any computed signature.")


def _query_forms(query: str) -> Iterator[list[tuple[str, str]]]:
    """Variants of a query: JavaScript and Java keep empty values, Python not; .NET and Java write lower-case names."""
    pairs = list(query_pairs(query))
    full = [(name, value) for name, value in pairs if value]
    yield full
    others = [pairs, *([(name.lower(), value) for name, value in form] for form in (full, pairs))]
    for index, form in enumerate(others):
        if form not in (full, *others[:index]):
            yield form


def _header_forms(headers: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The variants of the headers, as received first: an empty body's length is `0` for some clients and empty for
    others; some send Date besides ocp-date."""
    yield headers
    date, length = headers.get("date", ""), headers.get("content-length", "")
    dates = [date, ""] if date and headers.get("ocp-date") else [date]
    lengths = [length, "" if length == "0" else "0"] if length in ("", "0") else [length]
    for form in itertools.product(dates, lengths):
        if form != (date, length):
            yield {**headers, "date": form[0], "content-length": form[1]}


def _check_date(headers: Mapping[str, str], now: int) -> None:
    text = headers.get("ocp-date") or headers.get("date")
    if not text:
        raise _denied("The request carries neither an ocp-date nor a Date header.")
    try:
        moment = parse_http_date(text)
    except ValueError as error:
        raise _denied(f"The date {text} is not in RFC 1123 form.") from error
    if abs(moment - now) > MAX_SKEW:
        raise _denied(f"The date {text} is more than 15 minutes from the server's {http_date(now)}.")


def _denied(detail: str) -> Fault:
    return Fault("AuthenticationFailed", AuthenticationErrorDetail=detail)


PROOF = b"the emulator that has this key"
"""The prefix of the text of a proof; no text that a client signs starts with it."""


def proof(key: str, endpoint: str, challenge: str) -> str:
    """The answer to a client's challenge, which needs the account's key. Another service cannot pass it on: the proof
    contains the endpoint of the request."""
    text = b"\n".join([PROOF, endpoint.encode(), challenge.encode()])
    return hmac.new(base64.b64decode(key), text, hashlib.sha256).hexdigest()


SIGN_IN = "https://login.microsoftonline.com/common"
AUDIENCE = "https://batch.core.windows.net/"
"""The reason in a refusal of a client without a token."""
