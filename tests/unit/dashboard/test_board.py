"""What is watched: read once for all viewers, within a budget, and only while a page is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchtrain.dashboard.app import application
from batchtrain.dashboard.board import Board, DocumentTopic, Viewer
from batchtrain.dashboard.budget import Budget, Unlimited
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.guard import Keys
from batchtrain.errors import NotAllowed, ServiceError
from batchtrain.service.retry import Clock
from tests.waiting import until


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


@contextlib.contextmanager
def watch(watched: Board, *names: str) -> Iterator[Viewer]:
    """A viewer, on a loop of its own."""

    async def enter() -> Viewer:
        return stack.enter_context(watched.watch(names))

    with contextlib.ExitStack() as stack:
        yield asyncio.run(enter())


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


def test_the_age_and_the_reason_of_a_failure_are_known_and_the_last_value_stays() -> None:
    source = Source()
    with contextlib.closing(board(source, Unlimited(), near=True)) as watched, watch(watched, "/jobs") as viewer:
        (topic,) = viewer.watched
        at = until(lambda: topic.at)
        source.error = ServiceError("too many requests", code="TooManyRequests")
        assert until(lambda: topic.trouble) == "too many requests"
        assert topic.at >= at and topic.topic.since("") is not None
        source.error = None
        until(lambda: not topic.trouble)


def test_a_bug_in_one_topic_does_not_stop_the_others() -> None:
    source = Source()
    source.error = ZeroDivisionError()
    with contextlib.closing(board(source, Unlimited(), near=True)) as watched, watch(watched, "/jobs") as viewer:
        (topic,) = viewer.watched
        assert "this is a bug of batchtrain" in until(lambda: topic.trouble)
        source.error = None
        until(lambda: topic.at)


def test_throttling_empties_the_budget() -> None:
    spent = budget()
    spent.exhaust(30)
    assert spent.delay() >= 30


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


def test_a_401_in_the_middle_is_shown_and_reading_goes_on_when_the_sign_in_works_again() -> None:
    source = Source()
    with contextlib.closing(board(source, Unlimited(), near=True)) as watched, watch(watched, "/jobs") as viewer:
        (topic,) = viewer.watched
        until(lambda: topic.at)
        source.error = NotAllowed("read the jobs: the token has expired; sign in again", code="AuthenticationFailed")
        assert until(lambda: topic.trouble) == "read the jobs: the token has expired; sign in again"
        assert topic.topic.since("") is not None
        source.error = None
        until(lambda: not topic.trouble)
