"""What is watched: read once for all viewers, within a budget, and only while a page is open."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.dashboard.app import application
from batchtrain.dashboard.board import LONGEST_READ, Board, DocumentTopic, Viewer
from batchtrain.dashboard.budget import Budget, Unlimited
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.guard import Keys
from batchtrain.errors import NotAllowed, ServiceError
from batchtrain.service.retry import Clock
from tests.unit.dashboard.asking import stopped, watch
from tests.unit.service.test_retry import Time
from tests.waiting import GUARD, until


class Source:
    """A document that counts its reads, and may fail."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None

    def read(self) -> int:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.reads


def board(source: Source, budget: Budget, *, near: bool, cost: int = 1) -> Board:
    return Board(lambda _: DocumentTopic(source.read, cost, 0.01), budget, near=near, clock=Clock())


def budget(now: float = 0.0) -> Budget:
    """A budget whose clock stands."""
    return Budget(lambda: now, per_minute=25, burst=12)


def test_nothing_is_read_without_a_viewer() -> None:
    source = Source()
    watched = board(source, Unlimited(), near=True)
    with contextlib.closing(watched):
        assert source.reads == 0


def test_on_azure_reads_stop_when_the_budget_is_spent() -> None:
    source, spent = Source(), budget()
    with contextlib.closing(board(source, spent, near=False)) as watched, watch(watched, "/jobs"):
        until(lambda: source.reads >= 12)  # the burst; the clock of the budget stands
        until(lambda: spent.delay() > 0)
        assert source.reads == 12


@pytest.mark.parametrize(
    "error",
    [ServiceError("too many requests", code="TooManyRequests"), NotAllowed("sign in", code="AuthenticationFailed")],
)
def test_the_age_and_the_reason_of_a_failure_are_known_and_the_last_value_stays(error: ServiceError) -> None:
    source = Source()
    with contextlib.closing(board(source, Unlimited(), near=True)) as watched, watch(watched, "/jobs") as viewer:
        (topic,) = viewer.watched
        at = until(lambda: topic.at)
        source.error = error
        assert until(lambda: topic.trouble) == str(error)
        assert topic.at >= at and topic.topic.since("") is not None and not watched.is_live(topic)
        source.error = None
        until(lambda: watched.is_live(topic))


def test_nothing_is_live_while_a_read_hangs() -> None:
    source, begun, gate, elapsed = Source(), threading.Event(), threading.Event(), [0.0]
    clock = Clock(now=lambda: elapsed[0])

    def read() -> object:
        begun.set()
        return gate.wait(GUARD) and source.read()

    watched = Board(lambda _: DocumentTopic(read, 1, 0.0), Unlimited(), near=True, clock=clock)
    with contextlib.closing(watched), watch(watched, "/jobs") as viewer:
        (topic,) = viewer.watched
        assert watched.is_live(topic)
        assert begun.wait(GUARD)
        elapsed[0] = LONGEST_READ
        until(lambda: not watched.is_live(topic))
        gate.set()
        until(lambda: watched.is_live(topic))


def test_a_bug_in_one_topic_is_logged_and_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.error = ZeroDivisionError()
    with contextlib.closing(board(source, Unlimited(), near=True)) as watched, watch(watched, "/jobs") as viewer:
        (topic,) = viewer.watched
        assert "this is a bug of batchtrain" in until(lambda: topic.trouble)
        assert "reading /jobs" in caplog.messages
        source.error = None
        until(lambda: topic.at)


def test_an_unchanged_document_is_no_news() -> None:
    topic = DocumentTopic(lambda: {"a": 1}, 1, 1.0)
    topic.read()
    news = topic.since("")
    assert news is not None and topic.since(news.position) is None


@pytest.mark.parametrize("version", ["2.0", "2.4"])
def test_a_viewer_who_leaves_before_the_stream_has_started_is_not_counted(version: str, tmp_path: Path) -> None:
    source = Source()
    with contextlib.closing(board(source, Unlimited(), near=True)) as watched:
        app = application(Connection(None, tmp_path), watched, Unlimited(), Keys("token", "session", "cookie"))
        scope = {
            "type": "http",
            "asgi": {"spec_version": version},
            "method": "GET",
            "path": "/api/v1/events",
            "query_string": b"watch=/jobs",
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer token")],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            raise OSError("the viewer has left")

        with contextlib.suppress(Exception):
            asyncio.run(app(scope, receive, send))
        assert watched._viewers == []
        assert watched._watched == {}


# --- when what is read next -----------------------------------------------------------------------------------------


class Slow:
    """A topic whose read takes time, and may fail."""

    def __init__(self, time: Time, *, remote: bool = True, takes: float = 0.0, requests: int = 1) -> None:
        self._time, self._takes, self._requests = time, takes, requests
        self.remote, self.seconds = remote, 20.0
        self.error: Exception | None = None

    def read(self) -> int:
        self._time.seconds += self._takes
        if self.error is not None:
            raise self.error
        return self._requests

    def since(self, position: str) -> None:
        return None


def still(topic: Any, spent: Budget, time: Time, *, near: bool, renew: Callable[[], None] = lambda: None) -> Board:
    return stopped(Board(lambda _: topic, spent, near=near, renew=renew, clock=Clock(time.now)))


@pytest.mark.parametrize(
    ("near", "remote", "takes", "pause"),
    [
        (False, True, 0.0, 20.0), (False, True, 5.0, 20.0), (True, True, 0.0, 0.1), (True, True, 0.5, 5.0),
        (True, False, 0.0, 0.5), (False, False, 0.0, 0.5), (False, False, 0.5, 5.0),
    ],
)  # fmt: skip
def test_a_topic_of_this_machine_takes_a_tenth_of_the_time_and_one_of_azure_is_read_by_its_own_time(
    near: bool, remote: bool, takes: float, pause: float
) -> None:
    time = Time()
    board = still(Slow(time, remote=remote, takes=takes), Unlimited(), time, near=near)
    with watch(board, "/x") as viewer:
        (watched,) = viewer.watched
        assert watched.due == 0.0
        board._read(watched)
        assert watched.due == pytest.approx(takes + pause)


@pytest.mark.parametrize(
    ("near", "remote", "pauses"),
    [
        (False, True, [40.0, 60.0, 60.0]),
        (True, True, [0.2, 0.4, 0.8, 1.6, 2.0]),
        (False, False, [0.2, 0.4, 0.8, 1.6, 2.0]),
    ],
)
def test_after_each_failure_the_pause_doubles_up_to_a_limit(near: bool, remote: bool, pauses: list[float]) -> None:
    time, renewals = Time(), list[int]()
    topic = Slow(time, remote=remote)
    board = still(topic, Unlimited(), time, near=near, renew=lambda: renewals.append(1))
    topic.error = ServiceError("no")
    with watch(board, "/x") as viewer:
        (watched,) = viewer.watched
        for number, pause in enumerate(pauses, 1):
            board._read(watched)
            assert watched.due - time.seconds == pytest.approx(pause)
            assert (watched.failures, len(renewals)) == (number, number)
        topic.error = None
        board._read(watched)
        assert (watched.failures, watched.trouble) == (0, "")


@pytest.mark.parametrize(
    ("code", "remote", "left"), [("TooManyRequests", True, -12.5), ("Other", True, 11.0), ("Other", False, 12.0)]
)
def test_a_failure_costs_a_request_and_throttling_costs_half_a_minute(code: str, remote: bool, left: float) -> None:
    time, spent = Time(), budget()
    topic = Slow(time, remote=remote)
    topic.error = ServiceError("no", code=code)
    board = still(topic, spent, time, near=False)
    with watch(board, "/x") as viewer:
        board._read(viewer.watched[0])
    assert spent._left == left


def test_a_read_is_paid_by_its_requests() -> None:
    time, spent = Time(), budget()
    board = still(Slow(time, requests=8), spent, time, near=False)
    with watch(board, "/x") as viewer:
        board._read(viewer.watched[0])
    assert spent._left == 4


def test_only_a_remote_topic_waits_for_the_budget() -> None:
    time, spent = Time(), budget()
    spent.spend(24)
    for remote, delay in ((True, 13 / (25 / 60)), (False, -3.0)):
        board = still(Slow(time, remote=remote), spent, time, near=False)
        with watch(board, "/x") as viewer:
            viewer.watched[0].due = time.seconds - 3
            assert board._delay(viewer.watched[0]) == pytest.approx(delay)


def test_the_topic_that_is_due_first_is_read_next() -> None:
    time = Time()
    board = still(Slow(time, remote=False), Unlimited(), time, near=True)
    with watch(board, "/a", "/b", "/c") as viewer:
        for watched, due in zip(viewer.watched, (-1.0, -2.0, 1.0), strict=True):
            watched.due = due
        assert board._next() is viewer.watched[1]
        viewer.watched[1].due = 0.5
        assert board._next() is viewer.watched[0]
        viewer.watched[0].due = 0.0
        assert board._next() is viewer.watched[0]  # what is due now is read now
        board.end()
        assert board.closed and board._next() is None


def test_two_viewers_share_a_topic_that_is_read_until_the_last_has_left() -> None:
    time = Time()
    board = still(Slow(time), Unlimited(), time, near=True)
    with watch(board, "/a", "/b") as first:
        with watch(board, "/b") as second:
            assert second.watched[0] is first.watched[1]
            assert second.watched[0].viewers == 2
        assert sorted(board._watched) == ["/a", "/b"]
    assert board._watched == {} and board._viewers == []


def test_a_viewer_of_the_topic_that_was_read_is_woken() -> None:
    source = Source()

    async def woken() -> bool:
        with contextlib.closing(board(source, Unlimited(), near=True)) as watched, watched.watch(["/jobs"]) as viewer:
            await asyncio.wait_for(viewer._woken.wait(), GUARD)
            return source.reads > 0

    assert asyncio.run(woken())


def test_a_viewer_waits_only_for_what_is_new() -> None:
    async def waits() -> list[bool]:
        viewer = Viewer(())
        viewer.wake()
        await viewer.wait(GUARD)
        woken = [viewer._woken.is_set()]
        await viewer.wait(0.0)
        return [*woken, viewer._woken.is_set()]

    assert asyncio.run(waits()) == [False, False]


def test_the_end_of_the_server_wakes_every_viewer_and_ends_the_reading_thread() -> None:
    async def ended() -> bool:
        watched = board(Source(), Unlimited(), near=True)
        with watched.watch(["/a"]) as viewer:
            watched.close()
            await asyncio.wait_for(viewer._woken.wait(), GUARD)
            watched._thread.join(GUARD)
            return watched.closed and not watched._thread.is_alive()

    assert asyncio.run(ended())


# --- the budget -----------------------------------------------------------------------------------------------------


def test_a_budget_fills_with_time_up_to_its_burst() -> None:
    time = Time()
    spent = Budget(time.now, per_minute=60, burst=5)
    spent.spend(5)
    assert spent.delay() == 1.0
    time.seconds += 0.5
    assert spent.delay() == 0.5
    time.seconds += 1000
    spent.spend(4)
    assert spent.delay() == 0.0
    spent.spend(1)
    assert spent.delay() == 1.0


@pytest.mark.parametrize(
    ("steps", "delay"),
    [
        (["spend 100"], 6.0),  # it is overdrawn at most by its burst
        (["spend 10", "exhaust 2"], 6.0),  # throttling never gives anything back
        (["spend 10", "exhaust 2", "exhaust 30"], 31.0),
        (["wait 1000", "exhaust 2"], 3.0),  # after a quiet time it lasts its whole time
        (["wait 1000", "exhaust 2", "wait 3"], 0.0),
    ],
)
def test_a_budget_that_is_overdrawn_or_throttled_has_a_delay(steps: list[str], delay: float) -> None:
    time = Time()
    spent = Budget(time.now, per_minute=60, burst=5)
    for step in steps:
        verb, _, number = step.partition(" ")
        {"spend": spent.spend, "exhaust": spent.exhaust, "wait": time.sleep}[verb](int(number))
    assert spent.delay() == delay


def test_the_budget_of_the_emulator_is_never_spent() -> None:
    free = Unlimited()
    free.spend(1000)
    free.exhaust(1000)
    assert free.delay() == 0.0
