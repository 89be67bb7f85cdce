"""What a webhook receives about a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from batchtrain.config.types import Credentials, Happening, Notify, Recipe, Secret, Settings, StorageCredentials
from batchtrain.errors import LimitReached, TaskFailed
from batchtrain.records import Attempt
from batchtrain.records.events import AttemptEnded, Event
from batchtrain.service import webhook
from batchtrain.service.connect import Account
from batchtrain.service.notices import Notices
from tests.raw_server import answer, serve
from tests.unit.plan.jobs import recipe

ACCOUNT = Account("https://train.westeurope.batch.azure.com", "train", Secret("a2V5"))


class Receiver:
    """A webhook on this machine, which refuses the first documents with 503."""

    def __init__(self, refusals: int = 0) -> None:
        self.documents: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                nonlocal refusals
                body = self.rfile.read(int(self.headers["Content-Length"]))
                refusals, code = refusals - 1, 503 if refusals > 0 else 204
                if code == 204:
                    receiver.documents.append(msgspec.json.decode(body))
                self.send_response(code)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = Secret(f"http://127.0.0.1:{self.server.server_port}/hook?token=t0ken")
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def of(url: Secret, *on: Happening) -> Recipe:
    storage = {"s": StorageCredentials(account="a", account_key=Secret("a-long-account-key"))}
    return replace(
        recipe({}), settings=Settings(notify=Notify(url=url, on=on)), credentials=Credentials(storage=storage)
    )


@pytest.mark.parametrize(
    ("state", "error", "event", "on"),
    [
        ("completed", None, "end", ("end",)),
        ("failed", TaskFailed("task j/t failed", task="j/t"), "failure", ("failure",)),
        ("failed", TaskFailed("task j/t failed", task="j/t"), "failure", ("end",)),
        ("interrupted", LimitReached("the run has lasted 60 s"), "limit", ("limit",)),
        ("interrupted", KeyboardInterrupt(), "end", ("end",)),
    ],
)
def test_the_end_of_a_run_is_sent_once_by_its_kind(
    state: str, error: BaseException | None, event: str, on: tuple[Happening, ...], receiver: Receiver
) -> None:
    Notices(of(receiver.url, *on), ACCOUNT, lambda _: None).ended("j", "20270101T000000Z-j-0000", state, error)
    [document] = receiver.documents
    assert (document["event"], document["state"]) == (event, state)
    assert document["link"] == "https://train.westeurope.batch.azure.com/jobs/j"


def test_what_was_not_asked_for_is_not_sent(receiver: Receiver) -> None:
    notices = Notices(of(receiver.url, "limit"), ACCOUNT, lambda _: None)
    notices.ended("j", "r", "failed", TaskFailed("x", task="j/t"))
    notices.see("j", "r", AttemptEnded("t", "", attempt=Attempt("t", 1, reason="preempted")))
    assert receiver.documents == []


def test_a_preemption_is_sent_and_a_retry_is_not(receiver: Receiver) -> None:
    notices = Notices(of(receiver.url, "preempted"), ACCOUNT, lambda _: None)
    notices.see("j", "r", AttemptEnded("t", "attempt 1 failed", attempt=Attempt("t", 1, reason="requeued")))
    notices.see("j", "r", AttemptEnded("t", "attempt 1 is over", attempt=Attempt("t", 1, reason="preempted")))
    assert [(one["event"], one["reason"]) for one in receiver.documents] == [("preempted", "attempt 1 is over")]


def test_no_secret_is_sent(receiver: Receiver) -> None:
    error = TaskFailed("task j/t failed: a-long-account-key is wrong", task="j/t")
    Notices(of(receiver.url, "end"), ACCOUNT, lambda _: None).ended("j", "r", "failed", error)
    text = str(receiver.documents)
    assert "task j/t failed" in text
    assert "a-long-account-key" not in text and "t0ken" not in text


def test_a_webhook_that_recovers_gets_the_document_and_one_that_does_not_is_an_event() -> None:
    pauses: list[float] = []
    for refusals, reason, count in ((2, "", 1), (9, "HTTP 503", 0)):
        receiver = Receiver(refusals)
        assert webhook.send(receiver.url, {}, pauses.append) == reason
        assert len(receiver.documents) == count
        receiver.close()
    assert len(pauses) == 4


@pytest.mark.parametrize("location", ["{url}/other", "http://[bad", "file:///etc/passwd"])
def test_a_webhook_that_redirects_has_not_received_the_document(location: str) -> None:
    with serve(lambda request, url: answer(b"", "302 Found", Location=location.format(url=url))) as server:
        assert webhook.send(Secret(server.url), {}, lambda seconds: None) == "HTTP 302"
    assert {request.split()[0] for request in server.requests} == {b"POST"}


def test_a_webhook_that_does_not_answer_fails_no_run(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver.close()
    monkeypatch.setattr("batchtrain.service.webhook.ATTEMPTS", 1)
    told: list[Event] = []
    Notices(of(receiver.url, "end"), ACCOUNT, told.append).ended("j", "r", "completed", None)
    assert [event.text for event in told] == ["the webhook of `notify` did not receive `end`: URLError"]
