"""A client that glances at tasks tells when an attempt has ended: which node, why, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from azure.batch import BatchClient

from batchtrain.errors import NotFound
from batchtrain.records import Attempt, AttemptEvent, Node, Task
from batchtrain.records.attempt import ATTEMPTS
from batchtrain.records.events import AttemptEnded, AttemptSeen, Event
from batchtrain.service import attempts, read
from batchtrain.service.attempts import Attempts, events_of
from batchtrain.service.downloads import task_tree
from batchtrain.service.read import Repeats
from tests.unit.runs.batch_server import BatchServer, serve

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
LATER = NOW + timedelta(seconds=60)
CLIENT = cast("BatchClient", object())


class Account:
    """What the service answers; a test changes it."""

    def __init__(self) -> None:
        self.repeats = Repeats(0, None, None)
        self.nodes: tuple[Node, ...] | None = ()
        self.events: tuple[AttemptEvent, ...] = ()
        self.requests = 0

    def answer(self, value: Any) -> Any:
        self.requests += 1
        if value is None:
            raise NotFound("gone")
        return value


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account()

    def answers(name: str, *ids: str) -> Callable[..., Any]:
        def answer(client: Any, *asked: str) -> Any:
            assert (client, asked[: len(ids)]) == (CLIENT, ids)
            return made.answer(getattr(made, name))

        return answer

    monkeypatch.setattr(read, "repeats", answers("repeats", "j", "t"))
    monkeypatch.setattr(read, "nodes", answers("nodes", "p"))
    monkeypatch.setattr(attempts, "events_of", answers("events", "j", "t"))
    return made


@pytest.fixture
def watched() -> Attempts:
    return Attempts(CLIENT, "j")


def task(state: str = "running", node: str = "n0", started: datetime | None = NOW, **more: Any) -> Task:
    return Task("t", state, node=node, started=started, pool="p", **more)


def looked(watched: Attempts, task: Task, account: Account) -> list[Event]:
    before = watched.requests, account.requests
    events = list(watched.look(task))
    assert watched.requests - before[0] == account.requests - before[1]
    return events


def test_a_task_that_runs_once_takes_no_request(watched: Attempts, account: Account) -> None:
    (seen,) = looked(watched, task(), account)
    assert isinstance(seen, AttemptSeen)
    assert seen.attempt == Attempt("t", 1, ("n0",), NOW)
    assert looked(watched, task(), account) == looked(watched, task("completed"), account) == []
    assert account.requests == 0


def test_a_preempted_node_is_named_at_once_and_the_next_attempt_when_it_runs(
    watched: Attempts, account: Account
) -> None:
    looked(watched, task(), account)
    account.repeats = Repeats(3, None, LATER)
    account.nodes = (Node("n0", "preempted", dedicated=False, since=LATER),)
    (ended,) = looked(watched, task("active", "", None, requeues=1), account)
    assert isinstance(ended, AttemptEnded)
    assert ended.text == (
        "task t: attempt 1 is over: Azure preempted node n0; the service starts it again: attempt 2 of 5"
    )
    assert ended.attempt == Attempt("t", 1, ("n0",), NOW, LATER, "preempted", "n0")
    (seen,) = looked(watched, task("running", "n1", LATER, requeues=1), account)
    assert isinstance(seen, AttemptSeen)
    assert seen.attempt == Attempt("t", 2, ("n1",), LATER)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ((Node("n0", "rebooting", since=LATER),), "node n0 was lost (a dedicated node, now rebooting)"),
        ((Node("n1", "idle"),), "node n0 was lost"),
        ((Node("n0", "running"),), "the service took it from node n0, and gives no reason"),
        (None, "the service took it from node n0, and gives no reason"),
    ],
)
def test_a_lost_dedicated_node_is_not_called_preempted(
    nodes: tuple[Node, ...] | None, why: str, watched: Attempts, account: Account
) -> None:
    looked(watched, task(), account)
    account.nodes = nodes
    ended, _ = looked(watched, task("running", "n1", LATER, requeues=1), account)
    assert ended.text == f"task t: attempt 1 is over: {why}; the service starts it again: attempt 2"


def test_a_failed_attempt_has_its_exit_code_when_the_runtime_shows_it(watched: Attempts, account: Account) -> None:
    looked(watched, task(), account)
    account.repeats = Repeats(1, LATER, None)
    assert looked(watched, task("active", "", None, retries=1), account) == []
    account.events = (AttemptEvent("began", 1, NOW, node="n0"), AttemptEvent("ended", 1, NOW, exit_code=7))
    seen, ended = looked(watched, task("running", "n0", LATER, retries=1), account)
    assert isinstance(seen, AttemptSeen)
    assert isinstance(ended, AttemptEnded)
    assert (ended.attempt.exit_code, ended.attempt.ended) == (7, LATER)
    assert "it failed on node n0 with exit code 7; the service starts it again: attempt 2 of 2" in ended.text


@pytest.mark.parametrize(
    ("state", "counts"), [("running", [*[0] * attempts.LOOKS, 1, 0]), ("completed", [1, *[0] * (attempts.LOOKS + 1)])]
)
def test_an_exit_code_that_is_never_shown_is_unknown_at_the_latest_after_the_end_of_the_task(
    state: str, counts: list[int], watched: Attempts, account: Account
) -> None:
    looked(watched, task(), account)
    looks = [looked(watched, task(state, "n1", LATER, retries=1), account) for _ in counts]
    ends = [[event for event in events if isinstance(event, AttemptEnded)] for events in looks]
    assert [len(events) for events in ends] == counts
    ((ended,),) = filter(None, ends)
    assert (ended.attempt.exit_code, ended.attempt.reason) == (None, "exit code")


def test_a_client_that_comes_later_knows_the_number(watched: Attempts, account: Account) -> None:
    (seen,) = looked(watched, task(retries=1, requeues=2), account)
    assert isinstance(seen, AttemptSeen)
    assert seen.attempt.number == 4


def test_the_events_of_a_task_are_the_lines_that_its_runtime_wrote() -> None:
    server = BatchServer()
    server.files[task_tree("j", "t").url] = {
        ATTEMPTS: b'{"event": "began", "attempt": 1, "time": "2026-11-24T12:00:00Z"}\nbroken\n'
    }
    with serve(server) as client:
        (event,) = events_of(client, "j", "t")
        assert (event.event, event.attempt) == ("began", 1)
        assert events_of(client, "j", "another") == ()
