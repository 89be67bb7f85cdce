"""The parts of a submission: its queue, its limit of requests, its progress, and its end at a refused task."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import pytest

from batchtrain.errors import Refused, TasksRefused
from batchtrain.plan import Plan, Step
from batchtrain.plan.task_stream import COLLECTION_BYTES, TaskDocument
from batchtrain.service import retry, submission
from batchtrain.service.connect import CONNECTIONS
from batchtrain.service.job_addition import AddOptions
from batchtrain.service.submission import (
    DISTANT,
    NEARBY,
    Belt,
    Closed,
    Collection,
    Gate,
    Progress,
    Submission,
    packed,
)
from tests.submitting import carry_out
from tests.unit.service import test_refused, test_retry
from tests.unit.service.test_retry import Time
from tests.waiting import GUARD, until

ONE: Collection = (TaskDocument("a", b'{"id":"a"}'),)
OTHER: Collection = (TaskDocument("b", b'{"id":"b"}'),)


# --- --fail-fast ----------------------------------------------------------------------------------------------------


def tasks_of(request: Any) -> list[str]:
    return [task["id"] for task in json.loads(request.content)["value"]]


def refuse(request: Any) -> Any:
    """Refuses every task."""
    error = {"status": "clienterror", "error": test_refused.REFUSED}
    return 200, {"value": [{"taskId": name, **error} for name in tasks_of(request)]}


@pytest.mark.parametrize("fail_fast", [True, False])
def test_only_with_fail_fast_a_refused_task_ends_the_submission(
    fail_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "DISTANT", math.inf)  # NEARBY senders, however slow this machine is
    service, plan = (
        test_retry.Service(refuse),
        Plan((Step("task.add", "j", {"value": [{"id": f"t{n}"} for n in range(5000)]}),)),
    )
    with pytest.raises(TasksRefused) as caught:
        list(carry_out(service.client, plan, options=AddOptions(fail_fast=fail_fast)))
    assert len(caught.value.refused) == sum(map(len, map(tasks_of, service.transport.requests)))
    assert (len(service.asked) <= NEARBY) == fail_fast  # each sender stops after its own


# --- the queue ------------------------------------------------------------------------------------------------------


def test_a_full_belt_takes_no_more_until_a_collection_was_taken() -> None:
    belt = Belt(1)
    assert belt.put(ONE, 0.0)
    assert not belt.put(OTHER, 0.0)
    assert belt.take() == ONE
    assert belt.put(OTHER, 0.0)
    assert belt.waiting


@pytest.mark.parametrize(("now", "taken"), [(False, ONE), (True, None)])
def test_what_waits_on_a_closed_belt_is_still_taken_unless_it_is_closed_now(now: bool, taken: Any) -> None:
    belt = Belt(2)
    belt.put(ONE, 0.0)
    belt.close(now=now)
    with pytest.raises(Closed):
        belt.put(OTHER, 0.0)
    assert (belt.take(), belt.take()) == (taken, None)


def test_a_sender_waits_for_a_collection_and_for_the_end() -> None:
    belt, taken = Belt(1), []

    def take_all() -> None:
        while item := belt.take():
            taken.append(item)

    sender = threading.Thread(target=take_all, daemon=True)
    sender.start()
    assert belt.put(ONE, GUARD)
    assert belt.put(OTHER, GUARD)
    belt.close()
    sender.join(GUARD)
    assert (sender.is_alive(), taken) == (False, [ONE, OTHER])


# --- the limit of concurrent requests -------------------------------------------------------------------------------


def test_a_throttled_answer_halves_the_requests_to_one_and_answers_within_a_second_count_once() -> None:
    time = Time()
    gate = Gate(64, time.now)
    limits = []
    for pause in (0.0, 0.9, 0.1, 1.0, 1.0, 1.0, 1.0, 1.0):
        time.sleep(pause)
        gate.throttle()
        limits.append(gate.limit)
    assert limits == [32, 32, 16, 8, 4, 2, 1, 1]
    with gate:
        pass


def test_good_answers_raise_the_limit_by_one_for_a_round_of_requests_and_to_its_maximum() -> None:
    gate = Gate(4, Time().now)
    gate.throttle()
    limits = []
    for _ in range(12):
        with gate:
            pass
        limits.append(gate.limit)
    assert limits == sorted(limits)
    assert (limits[0], limits[2], limits[-1]) == (2, 3, 4)


def test_a_request_above_the_limit_waits_for_the_end_of_another() -> None:
    gate, order = Gate(1), list[str]()
    waits = threading.Event()
    with gate:
        pass

    def send() -> None:
        waits.set()
        with gate:
            order.append("second")

    with gate:
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        assert waits.wait(GUARD)
        until(lambda: order or gate._changed._waiters)  # type: ignore[attr-defined]
        order.append("first")
    sender.join(GUARD)
    assert order == ["first", "second"]


@pytest.mark.parametrize(("status", "limit"), [(429, CONNECTIONS // 2), (503, CONNECTIONS // 2), (500, CONNECTIONS)])
def test_only_an_answer_that_asks_for_fewer_requests_slows_a_submission_down(status: int, limit: int) -> None:
    stands = {"value": [{"taskId": "a", "status": "success"}]}
    service = test_retry.Service((status, test_retry.EMPTY), (200, stands))
    sent = Submission(service.client, "j")
    list(sent.add(ONE))
    assert (sent.added, sent._gate.limit) == (1, limit)


@pytest.mark.parametrize(
    ("fastest", "added"), [(None, False), (DISTANT / 2, False), (DISTANT, True), (2 * DISTANT, True)]
)
def test_a_distant_service_gets_more_requests_at_once(
    fastest: float | None, added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Submission, "_work", lambda _: None)
    sent = Submission(test_retry.Service().client, "j", fastest)
    sent._threads = [threading.current_thread()] * NEARBY
    sent._belt.put(ONE, 0.0)
    sent._add_sender()
    assert len(sent._threads) == NEARBY + added


@pytest.mark.parametrize("status", [400, 413])
def test_of_a_refused_collection_only_the_refused_tasks_are_left_out(status: int) -> None:
    stands = {"value": [{"taskId": "b", "status": "success"}]}
    service = test_retry.Service(*[test_retry.refusal("Bad", status)] * 2, (200, stands))
    sent = Submission(service.client, "j")
    list(sent.add(ONE + OTHER))
    assert ([refusal.task for refusal in sent.refused], sent.added) == (["a"], 1)
    assert [[task["id"] for task in body["value"]] for body in service.bodies] == [["a", "b"], ["a"], ["b"]]


def test_a_task_that_the_service_does_not_take_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "NOT_NOW", retry.NOT_NOW._replace(budget=-60.0))
    service = test_retry.Service((200, {"value": [{"taskId": "a", "status": "servererror"}]}))
    sent = Submission(service.client, "j")
    list(sent.add(ONE))
    assert sent.refused == [Refused("a", "ServerError", "the service could not take it in time")]
    assert sent.added == 0


@pytest.mark.parametrize(("count", "size", "sizes"), [(201, 10, [100, 100, 1]), (3, 400_000, [2, 1]), (0, 1, [])])
def test_a_collection_has_at_most_100_tasks_and_fits_into_a_request(count: int, size: int, sizes: list[int]) -> None:
    documents = [TaskDocument(str(number), bytes(size)) for number in range(count)]
    collections = list(packed(documents))
    assert [len(collection) for collection in collections] == sizes
    assert [task for collection in collections for task in collection] == documents


def test_a_collection_may_have_exactly_the_most_bytes() -> None:
    half = COLLECTION_BYTES // 2 - 1
    documents = [TaskDocument("a", bytes(half)), TaskDocument("b", bytes(half + COLLECTION_BYTES % 2))]
    assert len(list(packed(documents))) == 1
    assert len(list(packed([*documents[:1], TaskDocument("b", bytes(half + COLLECTION_BYTES % 2 + 1))]))) == 2


class Held(test_retry.Service):
    """Answers no request before it is released."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.released = threading.Event()

    def answer(self, request: Any) -> Any:
        if request.url.partition("?")[0].endswith("/jobs"):
            return 201, None
        assert self.released.wait(GUARD)
        return 200, {"value": [{"taskId": name, "status": "success"} for name in tasks_of(request)]}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    monkeypatch.setattr(submission, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(submission, "DISTANT", math.inf)
    return Held()


MANY = [TaskDocument(f"t{number}", b'{"id":"t%d"}' % number) for number in range(5000)]


def test_progress_is_reported_while_the_service_takes_its_time(held: Held) -> None:
    sent, reports = Submission(held.client, "j"), list[Progress]()
    for report in sent.add(MANY):
        reports.append(report)
        held.released.set()
    assert reports[0].added_tasks == 0
    assert sent.added == len(MANY)
    assert [report.seconds for report in reports] == sorted(report.seconds for report in reports)


def test_an_interrupted_submission_sends_nothing_more_and_waits_for_the_answers(held: Held) -> None:
    sent = Submission(held.client, "j")
    steps = sent.add(MANY)
    next(steps)
    until(lambda: held.asked)

    def release() -> None:
        until(lambda: sent._belt._closed)
        held.released.set()

    threading.Thread(target=release, daemon=True).start()
    steps.close()  # type: ignore[attr-defined]
    assert 0 < len(held.asked) <= NEARBY
    assert sent.added == sum(map(len, map(tasks_of, held.transport.requests)))


def test_a_service_whose_job_took_a_while_gets_many_requests_before_it_answers_one(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "DISTANT", 0.0)
    tasks = Step("task.add", "j", {"value": [{"id": task.id} for task in MANY]})
    events = carry_out(held.client, Plan((Step("job.add", "j", {"id": "j"}), tasks)))
    sender = threading.Thread(target=list, args=(events,), daemon=True)
    sender.start()
    until(lambda: len(held.asked) > 1 + NEARBY)
    held.released.set()
    sender.join(GUARD)
    assert not sender.is_alive()


def test_a_submission_reads_eight_collections_ahead_of_its_senders(held: Held) -> None:
    read: list[TaskDocument] = []
    sent = Submission(held.client, "j")
    steps = sent.add(read.append(document) or document for document in MANY)  # type: ignore[func-returns-value]
    until(lambda: next(steps) and len(held.asked) == NEARBY)
    for _ in range(100):
        next(steps)
    assert len(read) // 100 == NEARBY + 8 + 1, "one more is due"
    held.released.set()
    steps.close()  # type: ignore[attr-defined]


def test_a_submission_sleeps_while_its_senders_wait_for_answers(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "REPORT_SECONDS", GUARD)
    threading.Timer(0.05, held.released.set).start()
    sent = Submission(held.client, "j")
    assert len(list(sent._steps(MANY[:1]))) <= 2


# --- the progress ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("progress", "total", "text"),
    [
        (Progress(1000, 2.0), None, "added 1,000 tasks, 500/s"),
        (Progress(0, 2.0), 100, "sending tasks"),
        (Progress(1000, 2.0), 6000, "added 1,000 of 6,000 tasks, 500/s, 10 s left"),
        (Progress(1000, 2.0, equal=3000), 6000, "added 1,000 of 3,000 tasks, 500/s, 4 s left"),
        (Progress(100, 1.0), 1_000_000, "added 100 of 1,000,000 tasks, 100/s, 2 h 47 min left"),
        (Progress(5, 0.0), 5, "added 5 of 5 tasks, 5,000/s, 0 s left"),
    ],
)
def test_progress_is_a_rate_and_the_remaining_time(progress: Progress, total: int | None, text: str) -> None:
    assert progress.text(total) == text
