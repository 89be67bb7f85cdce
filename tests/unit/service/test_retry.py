"""The retry policy inside the SDK's own pipeline, with a transport that plays answers and a clock that never waits."""

from __future__ import annotations

import io
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from contextvars import copy_context
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from azure.batch import BatchClient
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceResponseError,
    ServiceResponseTimeoutError,
)
from azure.core.pipeline import Pipeline
from azure.core.pipeline.transport import HttpRequest, HttpTransport
from azure.core.rest._requests_basic import RestRequestsTransportResponse

from batchtrain.config.types import Secret
from batchtrain.errors import AlreadyExists, Differs, NotAllowed, ServiceError, Unreachable
from batchtrain.plan import Plan, Step
from batchtrain.plan.marks import Marks
from batchtrain.records.events import Event
from batchtrain.service import clock_difference, connect, files, read, retry, submit
from batchtrain.service.connect import Account
from batchtrain.service.downloads import task_tree
from batchtrain.service.register import Thing
from batchtrain.service.retry import FAR, NEAR, Clock, RetryPolicy
from tests.submitting import RUN, carry_out
from tests.waiting import GUARD

NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=timezone.utc)
EMPTY: dict[str, Any] = {"value": []}


class Time:
    """A clock that goes on by what is slept."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


class Plays(HttpTransport):  # type: ignore[type-arg]
    """Gives its answers one after the other, the last one again and again. One may be a function of the request."""

    def __init__(self, answers: Iterable[Any], time: Time) -> None:
        self.answers, self.time = list(answers), time
        self.sent: list[tuple[str, str, dict[str, str]]] = []
        self.requests: list[Any] = []
        self.timeouts: list[tuple[float, float]] = []
        self.takes = 0.0

    def send(self, request: Any, **options: Any) -> Any:
        self.sent.append((request.method, request.url.split("?")[0], dict(request.headers)))
        self.requests.append(request)
        self.timeouts.append((options.get("connection_timeout", 0.0), options.get("read_timeout", 0.0)))
        self.time.seconds += self.takes
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        status, document, *headers = answer
        return response(request, status, document, headers[0] if headers else {})

    def open(self) -> None: ...
    def close(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class OfBatch(Plays):
    """The same for paths of the Batch API."""

    PATHS = re.compile("https://x(/(pools|jobs|jobschedules|nodecounts|supportedimages)(/|[?]|$)|$)")

    def send(self, request: Any, **options: Any) -> Any:
        assert self.PATHS.match(request.url), request.url
        return super().send(request, **options)


def response(request: Any, status: int, document: Any, headers: dict[str, str]) -> Any:
    inner = requests.Response()
    inner.status_code, inner.reason = status, headers.get("reason")  # type: ignore[assignment]  # None, too
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    inner._content = b"" if document is None else content
    inner._content_consumed = True  # type: ignore[attr-defined]
    inner.headers.update({"Content-Type": "application/json", "Date": format_datetime(NOW, usegmt=True), **headers})
    return RestRequestsTransportResponse(request=request, internal_response=inner, block_size=4096)


def refusal(code: str, status: int = 409) -> tuple[int, Any]:
    return status, {"code": code, "message": {"lang": "en-US", "value": "No."}}


class Service:
    """A client of the SDK as batchtrain makes it, and what it is answered."""

    def __init__(self, *answers: Any, patience: retry.Patience = FAR) -> None:
        self.time = Time()
        self.transport = OfBatch(answers, self.time)
        self.policy = RetryPolicy(patience, Clock(self.time.now, self.time.sleep))
        key = AzureNamedKeyCredential("name", "a2V5")
        self.client = BatchClient("https://x", key, retry_policy=self.policy, transport=self.transport)  # type: ignore[arg-type]

    @property
    def asked(self) -> list[str]:
        return [f"{method} {url.removeprefix('https://x')}" for method, url, _ in self.transport.sent]

    @property
    def bodies(self) -> list[Any]:
        """The documents that were sent; None for a request without one."""
        return [json.loads(request.content) if request.content else None for request in self.transport.requests]

    @property
    def queries(self) -> list[dict[str, str]]:
        """The parameters of each request, without the version of the API."""
        parsed = (dict(parse_qsl(urlsplit(request.url).query)) for request in self.transport.requests)
        return [{name: value for name, value in query.items() if name != "api-version"} for query in parsed]


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


NO_CONNECTION = ServiceRequestError("refused", error=ConnectionRefusedError(111, "Connection refused"))
UNKNOWN = ServiceRequestError("x", error=socket.gaierror(-2, "Name or service not known"))  # type: ignore[arg-type]
NO_ANSWER = ServiceResponseError("('Connection aborted.', RemoteDisconnected('x'))")
FAULTS = {
    "no connection": NO_CONNECTION,
    "reset": ServiceResponseError("reset", error=ConnectionResetError(104, "Connection reset by peer")),
    "timeout": ServiceResponseTimeoutError("read timed out"),
    "truncated": IncompleteReadError("IncompleteRead(1 bytes read, 2 more expected)"),
    **{str(status): (status, EMPTY) for status in (408, 429, 500, 502, 503, 504)},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_transient_fault_is_retried(fault: Any) -> None:
    service = Service(fault, fault, fault, (200, EMPTY))
    assert read.pools(service.client) == ()
    assert len(service.transport.sent) == 4


@pytest.mark.parametrize(
    "fault",
    [
        (400, EMPTY), (403, EMPTY), (404, EMPTY), (409, EMPTY), (412, EMPTY), (501, EMPTY), (505, EMPTY),
        caused(ServiceRequestError("x"), ssl.SSLCertVerificationError("self-signed")),
        ServiceRequestError("x", error=requests.exceptions.InvalidSchema("Missing dependencies for SOCKS support.")),
        ClientAuthenticationError("nobody is signed in"),
    ],
    ids=["400", "403", "404", "409", "412", "501", "505", "certificate", "proxy", "sign-in"],
)  # fmt: skip
def test_everything_else_is_final_at_once(fault: Any) -> None:
    service = Service(fault, (200, EMPTY))
    with pytest.raises(ServiceError):
        read.pools(service.client)
    assert len(service.transport.sent) == 1


@pytest.mark.parametrize(("answer", "age"), [(refusal("JobNotFound", 404), 0.0), (UNKNOWN, None)])
def test_any_answer_of_the_service_sets_the_time_of_the_last_one(
    answer: Any, age: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "ANSWERS", retry.Answers(lambda: 7.0))
    with pytest.raises(ServiceError):
        read.job(Service(answer).client, "j")
    assert retry.ANSWERS.age == age


def test_the_answers_of_a_block_are_counted_with_those_that_are_transient() -> None:
    service = Service((503, {}), (200, {"id": "j"}))
    with retry.answer_count() as count:
        read.job(service.client, "j")
    read.job(service.client, "j")
    assert count.answers == 2


def test_every_page_of_a_list_is_retried() -> None:
    more = {"value": [], "odata.nextLink": "https://x/pools?$skiptoken=1"}
    service = Service(NO_ANSWER, (200, more), NO_ANSWER, (200, EMPTY))
    assert read.pools(service.client) == ()
    assert len(service.transport.sent) == 4


def test_a_file_that_is_cut_off_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service((200, "whole"))
    pieces, cuts = RestRequestsTransportResponse.iter_bytes, [IncompleteReadError("IncompleteRead(1 bytes read)")]

    def once(self: Any) -> Iterator[bytes]:
        if cuts:
            raise cuts.pop()
        return pieces(self)

    monkeypatch.setattr(RestRequestsTransportResponse, "iter_bytes", once)
    assert b"".join(files.blocks(service.client, task_tree("j", "t"), "stdout.txt")) == b'"whole"'
    assert len(service.transport.sent) == 2


def test_pauses_grow_and_are_random() -> None:
    pauses = []
    for _ in range(40):
        service = Service(*[(503, EMPTY)] * 5, (200, EMPTY))
        read.pools(service.client)
        pauses.append(service.time.pauses)
    for number in range(5):
        column = [row[number] for row in pauses]
        assert 0 <= min(column) < max(column) <= FAR.first * 2**number
    assert max(row[4] for row in pauses) > FAR.first * 2  # 40 draws of up to 16 s


@pytest.mark.parametrize("given", ["30", "000000030", "soon", "-1", "nan", "inf", "²", "9" * 10, "9" * 400])
def test_retry_after_is_obeyed_as_seconds_and_ignored_if_it_cannot_be_read(given: str) -> None:
    service = Service((429, EMPTY, {"Retry-After": given}), (200, EMPTY))
    read.pools(service.client)
    assert service.time.pauses == [30] if given.endswith("30") else service.time.pauses[0] <= FAR.first


def test_retry_after_is_obeyed_as_a_date() -> None:
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(hours=1), usegmt=True)
    service = Service((200, EMPTY), (503, EMPTY, {"Retry-After": soon}), (200, EMPTY))
    read.pools(service.client)
    with retry.until(86_400):
        read.pools(service.client)
    assert 1800 < service.time.pauses[0] <= 3600


@pytest.mark.parametrize("patience", [FAR, NEAR], ids=["Azure", "loopback"])
@pytest.mark.parametrize("takes", [0.0, 7.0])
def test_a_call_ends_within_its_budget_and_uses_it(patience: retry.Patience, takes: float) -> None:
    service = Service((503, EMPTY), patience=patience)
    service.transport.takes = takes
    with pytest.raises(Unreachable, match=r"list pools: .*"):
        read.pools(service.client)
    assert patience.budget - takes - 1 <= service.time.seconds <= patience.budget + takes
    for connect_timeout, read_timeout in service.transport.timeouts:
        assert connect_timeout <= patience.connect
        assert read_timeout <= patience.read
    assert service.transport.timeouts[-1][1] <= max(takes, 1.0) + 1  # the last attempt has what is left


def test_a_retry_after_beyond_the_budget_ends_the_call_at_once() -> None:
    service = Service((503, EMPTY, {"Retry-After": "600"}))
    with pytest.raises(Unreachable):
        read.pools(service.client)
    assert service.time.pauses == []


def test_where_nothing_listens_on_this_machine_the_first_call_fails_soon() -> None:
    service = Service(NO_CONNECTION, patience=NEAR)
    with pytest.raises(Unreachable, match="connection refused; check the endpoint") as caught:
        read.pools(service.client)
    assert service.time.seconds <= NEAR.refused
    assert caught.value.code == "NoConnection"


WITHOUT_A_NAME = (UNKNOWN, 1.0, retry.UNRESOLVED, "its name does not resolve")
GIVEN_UP: dict[str, tuple[retry.Patience, bool, float | None, Any, float, float, str]] = {
    "a name that does not resolve": (FAR, False, None, *WITHOUT_A_NAME),
    "such a name in a wait": (FAR, False, 3600.0, *WITHOUT_A_NAME),
    "such a name on this machine": (NEAR, False, None, UNKNOWN, -1, NEAR.refused, "its name does not resolve"),
    "such a name on this machine in a wait": (
        NEAR,
        False,
        3600.0,
        UNKNOWN,
        0,
        NEAR.refused,
        "its name does not resolve",
    ),
    "a name that resolved before": (FAR, True, None, UNKNOWN, FAR.budget - 1, FAR.budget, "its name does not resolve"),
    "refused connections": (FAR, False, None, NO_CONNECTION, FAR.refused - 1, FAR.budget, "x does not answer"),
    "a host that answered once": (NEAR, True, None, NO_CONNECTION, NEAR.budget - 1, NEAR.budget, "x does not answer"),
    "a wrong endpoint in a wait": (NEAR, False, 3600.0, NO_CONNECTION, -1, NEAR.refused, "x does not answer"),
    "a wait, at its deadline": (FAR, True, 300.0, NO_ANSWER, 295, 300, "x does not answer"),
}


@pytest.mark.parametrize(
    ("patience", "answered", "end", "fault", "least", "most", "why"), GIVEN_UP.values(), ids=GIVEN_UP
)
def test_a_host_is_given_up_sooner_if_it_never_answered(
    patience: retry.Patience, answered: bool, end: float | None, fault: Any, least: float, most: float, why: str
) -> None:
    service = Service(*[(200, EMPTY)] * answered, fault, patience=patience)
    if answered:
        read.pools(service.client)
    with retry.until(end) if end else nullcontext(), pytest.raises(Unreachable, match=why):
        read.pools(service.client)
    assert least < service.time.seconds <= most


def test_a_sign_in_host_whose_name_does_not_resolve_is_given_up_soon_too() -> None:
    class Tokens:
        def get_token(self, *_: str, **__: Any) -> AccessToken:
            raise caused(ClientAuthenticationError("Authentication failed"), UNKNOWN)

    service = Service((200, EMPTY))
    client = BatchClient("https://x", Tokens(), retry_policy=service.policy, transport=service.transport)
    with pytest.raises(Unreachable, match="signing in: the sign-in service does not answer: its name does not resolve"):
        read.pools(client)
    assert (service.transport.sent, 1.0 < service.time.seconds <= retry.UNRESOLVED) == ([], True)


def test_work_of_another_library_is_repeated_after_transient_faults() -> None:
    outcomes: list[Any] = [NO_CONNECTION, HttpResponseError(response=response(None, 503, EMPTY, {})), "key"]

    def work() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    time = Time()
    assert retry.answered(work, met=False, clock=Clock(time.now, time.sleep)) == "key"
    outcomes[:] = [HttpResponseError(response=response(None, 403, EMPTY, {}))]
    with pytest.raises(HttpResponseError):
        retry.answered(work, met=False, clock=Clock(time.now, time.sleep))
    assert len(time.pauses) == 2


def test_each_attempt_is_signed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    dates = iter(["Mon, 23 Nov 2026 12:00:00 GMT", "Mon, 23 Nov 2026 12:20:00 GMT"])
    monkeypatch.setattr("azure.batch._patch.Serializer.serialize_rfc", lambda *_, **__: next(dates))
    service = Service((503, EMPTY), (200, EMPTY))
    read.pools(service.client)
    (first, second) = (headers for _, _, headers in service.transport.sent)
    assert first["ocp-date"] != second["ocp-date"]
    assert first["Authorization"] != second["Authorization"]


def test_the_loop_is_the_only_one() -> None:
    """The SDK's own policy is not in the pipeline any more."""
    service = connect.connect(Account("http://127.0.0.1:9", "name", Secret("a2V5")))
    kinds = [type(policy).__name__ for policy in service._client._pipeline._impl_policies]
    assert kinds.count("RetryPolicy") == 1
    assert isinstance(service._config.retry_policy, RetryPolicy)


def test_a_service_that_takes_connections_and_says_nothing_is_given_up() -> None:
    quick = retry.Patience(first=0.01, most=0.01, budget=0.6, refused=0.6, connect=0.1, read=0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = BatchClient(
            f"http://127.0.0.1:{silent.getsockname()[1]}",
            AzureNamedKeyCredential("name", "a2V5"),  # type: ignore[arg-type]
            retry_policy=RetryPolicy(quick),
        )
        with pytest.raises(Unreachable, match=r"list pools: 127\.0\.0\.1:\d+ does not answer: no answer in time"):
            read.pools(client)


# --- inside a wait --------------------------------------------------------------------------------------------------


def test_inside_a_wait_faults_are_retried_until_its_end_and_reported_each_minute() -> None:
    service = Service((200, EMPTY), *[(503, EMPTY)] * 60, (200, EMPTY))
    read.pools(service.client)
    said: list[str] = []
    with retry.until(service.time.now() + 3600, said.append):
        read.pools(service.client)
    assert service.time.seconds > FAR.budget
    minutes = service.time.seconds / 60
    assert minutes / 2 <= len(said) - 1 <= minutes + 1
    assert "the service cannot be reached since" in said[0]
    assert "it answers 503" in said[0]
    assert "the service answers again, after" in said[-1]


@pytest.mark.parametrize(("lost", "least", "most"), [("it has ended", 1, retry.RESTART_SECONDS), ("", 299, 300)])
def test_a_wait_for_a_service_that_has_ended_is_over_within_seconds(lost: str, least: float, most: float) -> None:
    service = Service((200, EMPTY), NO_CONNECTION, patience=NEAR)
    service.policy.lost = lambda: lost
    read.pools(service.client)
    with retry.until(300), pytest.raises(Unreachable, match=lost or "x does not answer"):
        read.pools(service.client)
    assert least <= service.time.seconds <= most


@pytest.mark.parametrize(("outer", "last", "inner", "end"), [(5, True, 60, 5), (60, True, 5, 5), (5, False, 60, 60)])
def test_a_wait_ends_with_the_one_around_it_if_that_ends_attempts_too(
    outer: float, last: bool, inner: float, end: float
) -> None:
    with retry.until(outer, last=last), retry.until(inner):
        assert (retry._WAIT.get().end, retry._WAIT.get().last) == (end, last)


def test_a_short_fault_is_not_reported() -> None:
    service = Service(NO_ANSWER, (200, EMPTY), patience=NEAR)
    said: list[str] = []
    with retry.until(60, said.append):
        read.pools(service.client)
    assert said == []


def test_a_sign_in_that_fails_later_is_an_outage() -> None:
    class Tokens:
        fails = 0

        def get_token(self, *_: str, **__: Any) -> AccessToken:
            if self.fails:
                self.fails -= 1
                raise ClientAuthenticationError("the sign-in service does not answer")
            return AccessToken("token", 0)  # never kept

    service, tokens = Service((200, EMPTY)), Tokens()
    client = BatchClient("https://x", tokens, retry_policy=service.policy, transport=service.transport)
    read.pools(client)
    tokens.fails = 3
    assert read.pools(client) == ()
    assert tokens.fails == 0


# --- what may have been done already --------------------------------------------------------------------------------

POOL = {"id": "p", "vmSize": "STANDARD_D2S_V5", "targetDedicatedNodes": 2}
BODIES = {
    "pool": (Step("pool.add", "p", POOL), "PoolExists", "/pools/p"),
    "job": (Step("job.add", "j", {"id": "j", "priority": 3}), "JobExists", "/jobs/j"),
    "schedule": (
        Step("schedule.add", "s", {"id": "s", "displayName": "S", "jobSpecification": {}}), "JobScheduleExists",
        "/jobschedules/s"),
    "task": (Step("task.add", "j", {"id": "t", "commandLine": "true"}), "TaskExists", "/jobs/j/tasks/t"),
}  # fmt: skip


MARKED = ("pool", "job", "schedule")
"""What carries the run in its metadata; a task carries no metadata."""


def add(service: Service, step: Step) -> list[Event]:
    return list(carry_out(service.client, Plan((step,))))


def stands(body: Any, age: float = 0.0, *, run: str = "") -> tuple[int, Any]:
    created = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.1234567Z")
    metadata = {"metadata": Marks(run).metadata} if run else {}
    return 200, {**body, "creationTime": created, "state": "active", **metadata}


def other_values(body: Any) -> dict[str, Any]:
    return {key: value if key == "id" else 9 if isinstance(value, int) else "x" for key, value in body.items()}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("lost", [NO_ANSWER, (503, EMPTY), FAULTS["truncated"]], ids=["dropped", "503", "truncated"])
def test_what_an_attempt_without_an_answer_has_made_is_a_success(kind: str, lost: Any) -> None:
    step, code, path = BODIES[kind]
    service = Service(lost, refusal(code), stands(step.body, run=RUN if kind in MARKED else ""))
    assert add(service, step)[-1].kind == f"{kind}.add"
    assert service.asked[-1] == f"GET {path}"


@pytest.mark.parametrize("kind", MARKED)
@pytest.mark.parametrize("run", ["another", ""], ids=["another run", "no run"])
@pytest.mark.parametrize(
    "before",
    [(), (NO_CONNECTION,), ((429, EMPTY),), (NO_ANSWER,)],
    ids=["at once", "after no connection", "after 429", "after a lost answer"],
)
def test_what_does_not_carry_this_run_is_an_error_though_it_is_new_and_alike(
    kind: str, run: str, before: tuple[Any, ...]
) -> None:
    step, code, path = BODIES[kind]
    service = Service(*before, refusal(code), stands(step.body, run=run))
    with pytest.raises(AlreadyExists, match=code):
        add(service, step)
    assert service.asked[-1] == f"GET {path}"


@pytest.mark.parametrize("kind", MARKED)
def test_what_carries_this_run_is_a_success_however_old_and_changed_it_is(kind: str) -> None:
    step, code, _ = BODIES[kind]
    service = Service(refusal(code), stands(other_values(step.body), age=600, run=RUN))
    assert add(service, step)[-1].kind == f"{kind}.add"


SENT = BODIES["task"][0].body
NOT_THE_SENT_ONE: dict[str, tuple[list[Any], tuple[int, Any]]] = {
    "before the first attempt": ([], stands(SENT)),
    "no connection": ([NO_CONNECTION], stands(SENT)),
    "429": ([(429, EMPTY)], stands(SENT)),
    "other values": ([NO_ANSWER], stands(other_values(SENT))),
    "older than the call": ([NO_ANSWER], stands(SENT, age=600)),
}


@pytest.mark.parametrize(("attempts", "standing"), NOT_THE_SENT_ONE.values(), ids=NOT_THE_SENT_ONE)
def test_a_task_that_no_attempt_can_have_added_is_an_error(attempts: list[Any], standing: tuple[int, Any]) -> None:
    step, code, _ = BODIES["task"]
    with pytest.raises(AlreadyExists):
        add(Service(*attempts, refusal(code), standing), step)


def test_tasks_of_a_collection_that_arrived_are_a_success() -> None:
    tasks = [{"id": name, "commandLine": "true"} for name in "ab"]
    step = Step("task.add", "j", {"value": tasks})
    there = {"code": "TaskExists", "message": {"lang": "en-US", "value": "It is there."}}
    answer = {"value": [{"taskId": name, "status": "clienterror", "error": there} for name in "ab"]}
    service = Service(NO_ANSWER, (200, answer), stands(tasks[0]), stands(tasks[1]))
    assert [event.text for event in add(service, step)] == ["added 2 tasks"]
    other = {**tasks[0], "commandLine": "false"}
    with pytest.raises(Differs, match="1 of its tasks differ from the plan: a"):
        add(Service((200, answer), stands(other), stands(tasks[1])), step)


ENDINGS: dict[str, tuple[Callable[[BatchClient], None], tuple[int, Any], Any]] = {
    "delete, deleting": (
        lambda c: submit.delete_version(c, Thing("pool", "p"), ""), refusal("OperationInvalidForCurrentState"),
        {"state": "deleting"}),
    "delete, gone": (lambda c: submit.delete_version(c, Thing("job", "j"), ""), refusal("JobNotFound", 404), None),
    "terminate": (lambda c: submit.terminate(c, Thing("job", "j")), refusal("JobCompleted"), {"state": "completed"}),
    "terminate a schedule": (
        lambda c: submit.terminate(c, Thing("job schedule", "s")), refusal("JobScheduleBeingTerminated"),
        {"state": "terminating"}),
    "disable": (lambda c: submit.disable_job(c, "j", "requeue"), refusal("JobDisabled"), {"state": "disabled"}),
    "enable": (lambda c: submit.enable_job(c, "j"), refusal("OperationInvalidForCurrentState"), {"state": "active"}),
    "reboot": (lambda c: submit.reboot_node(c, "p", "n", None), refusal("NodeBeingRebooted"), {"state": "rebooting"}),
    "resize": (
        lambda c: submit.resize_pool(c, "p", 3, None, "requeue", None), refusal("PoolBeingResized"),
        {"targetDedicatedNodes": 3, "targetLowPriorityNodes": 0}),
}  # fmt: skip
OF_A_VERSION = ("terminate", "terminate a schedule", "disable", "enable", "reboot", "resize")
"""Those that read the version which they change."""


@pytest.mark.parametrize("name", ENDINGS)
def test_a_request_without_an_id_that_arrived_is_a_success_and_refused_at_first_it_is_an_error(name: str) -> None:
    act, refused, standing = ENDINGS[name]
    version = [(200, {"id": "x"})] if name in OF_A_VERSION else []
    act(Service(*version, NO_ANSWER, refused, (200, standing)).client)
    with pytest.raises(ServiceError):
        act(Service(*version, refused, (200, standing)).client)


def test_a_resize_that_stands_with_other_numbers_did_not_arrive() -> None:
    service = Service((200, {"id": "p"}), NO_ANSWER, refusal("PoolBeingResized"), (200, {"targetDedicatedNodes": 7}))
    with pytest.raises(ServiceError, match="PoolBeingResized"):
        submit.resize_pool(service.client, "p", 3, None, "requeue", None)


# --- words ----------------------------------------------------------------------------------------------------------


def certificate(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("refused")
    error.verify_code = code
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NO_CONNECTION, "connection refused"),
        (FAULTS["truncated"], "the answer was truncated"),
        (ServiceResponseError("x", error=ConnectionResetError(104, "Connection reset by peer")), "connection reset by"),
        (ServiceResponseError("something else.\nat line 2"), "something else"),
        (caused(ServiceRequestError("x"), certificate(9)), "its certificate is not valid yet by this machine's clock"),
        (caused(ServiceRequestError("x"), certificate(10)), "its certificate has expired by this machine's clock"),
        (caused(ServiceRequestError("x"), certificate(18)), "its certificate is not trusted"),
    ],
)
def test_a_reason_is_a_few_words(error: Exception, words: str) -> None:
    assert retry.reason(error).startswith(words)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (3569, "59 min"), (3600, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_a_time_is_said_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert retry.span(seconds) == text


def test_the_documentation_has_the_policys_numbers(root: Path) -> None:
    text = (root / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    for line in (
        f"| deadline of a call | {FAR.budget:g} s | {NEAR.budget:g} s |",
        f"| the same, if nothing has ever accepted a connection | {FAR.refused:g} s | {NEAR.refused:g} s |",
        f"| the same, if its name does not resolve | {retry.UNRESOLVED:g} s | {NEAR.refused:g} s |",
        f"{FAR.connect:g} s, {FAR.read:g} s | {NEAR.connect:g} s, {NEAR.read:g} s |",
        f"{FAR.first:g} s, then 2, 4, … {FAR.most:g} s | {NEAR.first:g} s, then 0.04, … {NEAR.most:g} s |",
        f"cannot be reached for {retry.QUIET:g} s",
    ):
        assert line in text


def test_a_401_in_the_middle_of_following_is_one_sentence_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_difference, "now", lambda: NOW)
    refused = (401, {"code": "AuthenticationFailed", "message": {"value": "The token has expired."}})
    service = Service((206, "step 1\n"), refused)
    follower = files.Follower(service.client, "j", "t", "stdout.txt")
    assert list(follower.new_lines("n")) == []
    with pytest.raises(NotAllowed) as caught:
        list(follower.new_lines("n"))
    assert "\n" not in str(caught.value) and "az login" in str(caught.value)


# --- boundaries -----------------------------------------------------------------------------------------------------


@pytest.fixture
def outage() -> tuple[retry.Outage, Time, list[str]]:
    """An outage that has begun, its clock, and a list for the events about it."""
    time = Time()
    outage = retry.Outage(Clock(time.now, time.sleep))
    outage.begin(0.0)
    return outage, time, []


Outage = tuple[retry.Outage, Time, list[str]]


@pytest.mark.parametrize(("lasted", "reported"), [(4.9, False), (5.0, True)])
def test_an_outage_is_reported_after_five_seconds(lasted: float, reported: bool, outage: Outage) -> None:
    begun, time, told = outage
    time.sleep(lasted)
    begun.report("why", 1.0, told.append)
    begun.end(told.append)
    assert len(told) == 2 * reported


def test_an_outage_is_reported_again_each_full_minute_and_with_a_long_pause_before_the_next_attempt(
    outage: Outage,
) -> None:
    begun, time, told = outage
    for pause in (5.0, 59.9, 0.1):
        time.sleep(pause)
        begun.begin(time.seconds)
        begun.report("why", 60.0 if len(told) else 61.0, told.append)
    after = [text.partition(" (")[2] for text in told]
    assert after == ["5 s): why; trying again, next attempt in 61 s", "65 s): why; trying again"]


def test_the_next_outage_begins_anew(outage: Outage) -> None:
    begun, time, told = outage
    time.sleep(10)
    begun.report("why", 1.0, told.append)
    begun.end(told.append)
    begun.end(told.append)
    begun.begin(time.seconds)
    begun.report("why", 1.0, told.append)
    assert told[1:] == ["the service answers again, after 10 s"]


def test_work_is_repeated_up_to_its_time_limit() -> None:
    def work() -> None:
        time.seconds += 5.0
        raise ServiceError("not now")

    time = Time()
    patience = retry.NOT_NOW._replace(first=0.0, most=0.0, budget=10.0)
    with pytest.raises(ServiceError):
        retry.repeated(work, lambda outcome: True, patience, Clock(time.now, time.sleep))
    assert time.seconds == 15.0


def test_work_that_succeeds_is_not_repeated() -> None:
    time = Time()
    assert retry.repeated(lambda: 7, lambda outcome: outcome != 7, retry.NOT_NOW, Clock(time.now, time.sleep)) == 7
    assert time.pauses == []


def test_an_event_interrupts_the_next_pause_of_its_thread_once() -> None:
    stop = threading.Event()
    token = retry.INTERRUPT.set(stop)
    try:
        stop.set()
        with pytest.raises(KeyboardInterrupt):
            retry.CLOCK.sleep(GUARD)
        retry.CLOCK.sleep(0.0)
    finally:
        retry.INTERRUPT.reset(token)


def test_a_stopped_clock_does_not_sleep() -> None:
    stopped = threading.Event()
    retry.interruptible(stopped).sleep(0.0)
    stopped.set()
    with pytest.raises(InterruptedError):
        retry.interruptible(stopped).sleep(GUARD)


def test_a_listener_hears_of_outages_outside_a_wait_until_it_is_ended() -> None:
    told: list[str] = []

    def outage() -> None:
        service = Service((503, EMPTY), (200, EMPTY))
        service.transport.takes = 6.0
        read.pools(service.client)

    def call() -> None:
        end = retry.listen(told.append)
        outage()
        assert told.pop().startswith("the service answers again, after ")
        told.clear()
        end()
        outage()

    copy_context().run(call)
    assert told == []


def test_a_body_that_is_read_while_it_is_sent_is_sent_again_from_where_it_began() -> None:
    service, sent = Service((503, EMPTY), (201, EMPTY)), list[bytes]()
    body = io.BytesIO(b"head body")
    body.seek(5)
    send = service.transport.send

    def read(request: Any, **options: Any) -> Any:
        sent.append(request.body.read())
        return send(request, **options)

    service.transport.send = read  # type: ignore[method-assign]
    Pipeline(service.transport, [service.policy]).run(HttpRequest("PUT", "https://x", data=body))  # type: ignore[arg-type]
    assert sent == [b"body", b"body"]
