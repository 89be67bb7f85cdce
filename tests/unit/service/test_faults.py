"""The service's faults as ours: by code, with the next step, without request ids in the sentence."""

from __future__ import annotations

import json
import socket
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core import exceptions as azure
from urllib3.exceptions import NewConnectionError

from batchtrain.errors import AlreadyExists, NotAllowed, NotFound, QuotaReached, ServiceError, Unreachable
from batchtrain.service import clock_difference, retry
from batchtrain.service.faults import NO_CONNECTION, failure, faults, lacks_nodes


class Answer:
    """An HTTP answer as the SDK's exceptions want it."""

    def __init__(self, status: int, document: object) -> None:
        self.status_code, self.reason = status, "reason"
        self.headers = {"request-id": "0000-1"}
        self.content = json.dumps(document).encode()

    def text(self) -> str:
        return self.content.decode()


def refusal(status: int, code: str, sentence: str) -> azure.HttpResponseError:
    document = {
        "values": [{"key": "PropertyName", "value": "id"}, {"key": "Other", "value": "x"}],
        "code": code,
        "message": {"lang": "en-US", "value": f"{sentence}\nRequestId:1\nTime:2"},
    }
    return azure.HttpResponseError(response=Answer(status, document))  # type: ignore[arg-type]


def raised(error: Exception) -> ServiceError:
    with pytest.raises(ServiceError) as caught, faults("add pool p"):
        raise error
    return caught.value


def test_a_connection_that_another_service_refuses_says_nothing_of_batch() -> None:
    lost = azure.ServiceRequestError("refused")
    vars(lost).update(met=False)
    assert raised(lost).code == NO_CONNECTION
    with (
        pytest.raises(
            Unreachable, match=r"management\.example does not answer.*check this machine's network"
        ) as caught,
        faults("look at the account", "management.example"),
    ):
        raise lost
    assert caught.value.code == ""


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (404, "PoolNotFound", NotFound, 3),
        (409, "PoolExists", AlreadyExists, 4),
        (409, "PoolBeingDeleted", ServiceError, 4),
        (403, "AuthenticationFailed", NotAllowed, 4),
        (409, "PoolQuotaReached", QuotaReached, 4),
        (400, "InvalidPropertyValue", ServiceError, 4),
    ],
)
def test_a_fault_is_known_by_its_code(status: int, code: str, kind: type, exit_code: int) -> None:
    error = raised(refusal(status, code, "No."))
    assert type(error) is kind
    assert (error.code, error.exit_code, error.request_id) == (code, exit_code, "0000-1")


def test_a_message_says_the_operation_the_reason_and_the_next_step() -> None:
    text = str(raised(refusal(409, "PoolExists", "The specified pool already exists.")))
    assert text == (
        "add pool p: The specified pool already exists [PropertyName: id] (PoolExists);"
        " delete it with `batchtrain pool del p`, run on it with `batchtrain run --reuse`, or use another id"
    )
    of_a_schedule = str(raised(refusal(409, "JobScheduleExists", "It exists.")))
    assert "jobs add --recreate" in of_a_schedule and "jobs del" in of_a_schedule


AHEAD = "this machine's clock is 20 min ahead of the service's, which allows"
BEHIND = "this machine's clock is 20 min behind the service's, which allows"


@pytest.mark.parametrize(
    ("minutes", "status", "code", "says"),
    [
        (20, 403, "AuthenticationFailed", f"{AHEAD} 15 min: synchronise the clock"),
        (-20, 403, "AuthenticationFailed", f"{BEHIND} 15 min: synchronise the clock"),
        (20, 401, "ExpiredAuthenticationToken", f"{AHEAD} 5 min: synchronise the clock"),
        (15, 403, "AuthenticationFailed", "check the account's name and key"),
        (-15, 403, "AuthenticationFailed", "check the account's name and key"),
        (5, 401, "AuthenticationFailed", "sign in again"),
        (20, 403, "AuthorizationFailure", "the signed-in identity needs a role"),
    ],
)
def test_a_clock_that_is_too_far_off_is_the_cause_of_a_refused_sign_in(
    minutes: float, status: int, code: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
    monkeypatch.setattr(clock_difference, "now", lambda: served + timedelta(minutes=minutes))
    error: Any = refusal(status, code, "No.")
    error.response.headers["Date"] = format_datetime(served, usegmt=True)
    assert f"({code}); {says}" in str(raised(error))


@pytest.mark.parametrize("date", [None, "", "yesterday", "Tue, 24 Nov 2026 12:00:00 -0000"])
def test_an_answer_without_a_readable_date_says_nothing_of_the_clock(date: str | None) -> None:
    assert clock_difference.ahead(date) is None


@pytest.mark.parametrize(
    ("proxy", "name"),
    [
        ("http://me:pass@proxy.example:3128", "http://proxy.example:3128"),
        ("socks5h://me:pa@ss/word@proxy.example", "socks5h://proxy.example"),
        ("me:pass@proxy.example", "proxy.example"),
        ("http://proxy.example", "http://proxy.example"),
    ],
)
def test_a_proxy_is_named_without_its_login(proxy: str, name: str) -> None:
    assert retry.proxy_name(proxy) == name


def test_a_sign_in_service_that_does_not_answer_is_unreachable_and_named() -> None:
    connection = SimpleNamespace(host="login.example")
    unknown = NewConnectionError(connection, "x")  # type: ignore[arg-type]
    unknown.__cause__ = socket.gaierror(-2, "Name or service not known")
    failed = azure.ClientAuthenticationError("Authentication failed")
    failed.__cause__ = azure.ServiceRequestError("x", error=unknown)
    error = raised(failed)
    assert (type(error), error.code) == (Unreachable, "")
    assert "signing in: login.example does not answer: its name does not resolve; check `aad`, and this" in str(error)


def test_what_is_not_the_services_passes_through() -> None:
    with pytest.raises(KeyError), faults("x"):
        raise KeyError("ours")


@pytest.mark.parametrize(("text", "words"), [("first\nsecond", "first"), ("  ", "ClientAuthenticationError")])
def test_a_failed_sign_in_has_its_first_line_or_its_kind(text: str, words: str) -> None:
    error = raised(azure.ClientAuthenticationError(text))
    assert str(error).startswith(f"add pool p: signing in failed: {words}; sign")


@pytest.mark.parametrize(
    ("operation", "code", "step"),
    [
        ("look at task j/t", "TaskNotFound", "`batchtrain jobs tasks j` lists"),
        ("look at pool p", "Other", ""),
    ],
)
def test_the_next_step_names_the_object(operation: str, code: str, step: str) -> None:
    text = str(failure(operation, code, "No."))
    assert text.startswith(f"{operation}: No. ({code})" + ("; " if step else ""))
    assert step in text


def test_a_token_that_is_refused_means_another_sign_in() -> None:
    refused = failure("look", "X", "No.", "id", status=401)
    assert (type(refused), refused.request_id) == (NotAllowed, "id")
    assert "sign in again" in str(refused)
    assert type(failure("look", "X", "No.", status=503)) is Unreachable
    assert type(failure("look", "X", "No.", status=400)) is ServiceError


def test_a_success_with_a_status_that_the_request_does_not_have_is_no_answer_of_the_api() -> None:
    answer: Any = Answer(206, {})
    answer.request = SimpleNamespace(url="https://x/pools")
    error = raised(azure.HttpResponseError(response=answer))
    assert type(error) is Unreachable and "https://x/pools: the status 206" in str(error)


@pytest.mark.parametrize(
    ("code", "name", "lacks"),
    [
        ("InvalidPropertyValue", "vmSize", True),
        ("InvalidPropertyValue", "id", False),
        ("InvalidRequestBody", "vmSize", False),
        ("AllocationFailed", "", True),
        ("SkuNotAvailable", "", True),
        ("AccountCoreQuotaReached", "", True),
        ("PoolExists", "", False),
    ],
)
def test_another_size_or_account_may_have_the_nodes_that_are_lacking(code: str, name: str, lacks: bool) -> None:
    assert lacks_nodes(ServiceError("no", code=code, property_name=name)) is lacks
