"""Changes, refusals, pages and the event stream of the application."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ServiceResponseError

from batchtrain import errors
from batchtrain.dashboard import app, connection
from batchtrain.dashboard.app import MOST_WATCHED, _news, _patiently, _refused, application
from batchtrain.dashboard.board import Board, DocumentTopic, Viewer
from batchtrain.dashboard.budget import Budget, Unlimited
from batchtrain.dashboard.connection import Connection
from batchtrain.errors import BatchtrainError, Unreachable
from tests import dashboards
from tests.unit.dashboard.asking import (
    BEARER,
    FAR,
    KEYS,
    NEAR,
    Client,
    Service,
    dashboard,
    stopped,
    watch,
)

NOBODY: Any = None


@pytest.fixture
def client(service: Service, tmp_path: Path) -> Iterator[Client]:
    with dashboard(tmp_path, NEAR, changes=True) as client:
        yield client


# --- changes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/jobs/j/terminate", ("POST", "/jobs/j/terminate", {"terminateReason": "UserTerminate"})),
        ("/jobs/j/disable", ("POST", "/jobs/j/disable", {"disableTasks": "requeue"})),
        ("/jobs/j/enable", ("POST", "/jobs/j/enable", None)),
        ("/jobs/j/delete", ("DELETE", "/jobs/j", None)),
        ("/pools/p/delete", ("DELETE", "/pools/p", None)),
        ("/pools/p/nodes/n/reboot", ("POST", "/pools/p/nodes/n/reboot", {"nodeRebootOption": "requeue"})),
    ],
)
def test_an_action_sends_one_change_and_does_not_wait(
    client: Client, service: Service, path: str, sent: tuple[str, str, Any]
) -> None:
    created = {"creationTime": "2026-11-22T11:15:02Z", "eTag": "0x1"}
    service.documents.update({"/jobs/j": {"id": "j", **created}, "/pools/p": {"id": "p", **created}})
    answer = client("POST", f"/api/v1{path}", **BEARER)
    assert (answer.status, answer.body) == (202, b"")
    assert [(method, path, body or None) for method, path, body in service.changes] == [sent]


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ({"dedicated": 3}, {"targetDedicatedNodes": 3}),
        ({"spot": 0}, {"targetLowPriorityNodes": 0}),
        ({"dedicated": 0, "spot": 2}, {"targetDedicatedNodes": 0, "targetLowPriorityNodes": 2}),
    ],
)
def test_a_resize_keeps_the_number_of_a_kind_that_is_not_named(
    client: Client, service: Service, body: dict[str, int], counts: dict[str, int]
) -> None:
    service.documents["/pools/p"] = {"id": "p"}
    answer = client("POST", "/api/v1/pools/p/resize", json.dumps(body).encode(), **BEARER)
    assert answer.status == 202
    assert service.changes == [("POST", "/pools/p/resize", {**counts, "nodeDeallocationOption": "requeue"})]


def test_the_tasks_that_failed_alike_run_again_and_no_others(client: Client, service: Service) -> None:
    failed = [
        {
            "id": name,
            "state": "completed",
            "executionInfo": {"exitCode": code, "result": "failure", "failureInfo": {"code": "FailureExitCode"}},
        }
        for name, code in (("a", 3), ("b", 4), ("c", 3))
    ]
    service.documents |= {"/jobs/j/tasks": failed, "/jobs/j/tasks/a": failed[0]}
    answer = client("POST", "/api/v1/jobs/j/tasks/a/retry-alike", **BEARER)
    assert answer.status == 202
    assert sorted(path for _, path, _ in service.changes) == [
        "/jobs/j/tasks/a/reactivate", "/jobs/j/tasks/c/reactivate",
    ]  # fmt: skip


@pytest.mark.parametrize("body", [b"[]", b"no json", b"{}", b'{"dedicated": -1}', b'{"spot": "two"}', b'{"spot": 1.5}'])
def test_a_wrong_number_of_nodes_changes_nothing(client: Client, service: Service, body: bytes) -> None:
    answer = client("POST", "/api/v1/pools/p/resize", body, **BEARER)
    assert (answer.status, bool(answer.document["error"]), service.asked) == (400, True, [])


def test_a_change_is_never_made_by_a_get_request(client: Client, service: Service) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert client(method, "/api/v1/jobs/j/terminate", **BEARER).status in (404, 405)
    assert service.asked == []


def test_a_document_and_a_change_are_paid_from_the_budget(service: Service, tmp_path: Path) -> None:
    budget = Budget(lambda: 0.0, per_minute=60, burst=20)
    service.documents |= {"/pools": [], "/nodecounts": []}
    with dashboard(tmp_path, NEAR, changes=True, budget=budget) as client:
        client.get("/pools")
        assert budget._left == 18
        client("POST", "/api/v1/jobs/j/terminate", **BEARER)
        assert budget._left == 17


# --- refusals and pages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.NotFound("x", code="JobNotFound"), 404),
        (errors.NotAllowed("x"), 403),
        (errors.Unreachable("x"), 503),
        (errors.ServiceError("x"), 502),
        (errors.UsageError("x"), 400),
        (errors.TimedOut("x"), 504),
        (BatchtrainError("x"), 500),
    ],
)
def test_each_kind_of_error_has_its_status(error: BatchtrainError, status: int) -> None:
    answer = _refused(Connection(None, Path()), NOBODY, error)
    document = {"error": "x", "code": "JobNotFound" if status == 404 else ""}
    assert (answer.status_code, json.loads(bytes(answer.body))) == (status, document)


@pytest.mark.parametrize(
    ("status", "path"),
    [
        *((200, path) for path in ("/", "/pools/p/nodes/n", "/jobs/j/tasks/t", "/runs/r", "/jobs")),
        *((404, path) for path in ("/jobs/", "/jobs/j/x", "/index.html")),  # a page that shows the way on
    ],
)
def test_every_page_is_the_same_file(client: Client, status: int, path: str) -> None:
    answer = client("GET", path)
    assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")


@pytest.mark.parametrize("path", ["/static/none.js", "/static/../app.py", "/api/v1/none"])
def test_an_address_of_no_file_is_404_with_a_sentence(client: Client, path: str) -> None:
    answer = client("GET", path, **BEARER)
    assert (answer.status, bool(answer.document["error"])) == (404, True)


def test_a_long_document_is_packed_for_a_browser_that_asks_for_it(client: Client, service: Service) -> None:
    service.documents["/jobs"] = [{"id": f"job-{at}", "state": "active"} for at in range(60)]
    for at in range(60):
        service.documents[f"/jobs/job-{at}"] = {"id": f"job-{at}"}
        service.documents[f"/jobs/job-{at}/taskcounts"] = {"taskCounts": {}}
    assert client("GET", "/api/v1/jobs", accept_encoding="gzip", **BEARER).headers["content-encoding"] == "gzip"
    assert "content-encoding" not in client("GET", "/api/v1/runs", accept_encoding="gzip", **BEARER).headers


def test_the_account_is_named_and_whether_it_may_be_changed(service: Service, tmp_path: Path) -> None:
    for account, name, emulated in ((NEAR, "near", True), (FAR, "far", False), (None, "", False)):
        with dashboard(tmp_path, account, changes=emulated) as client:
            document = client.get("/account")
        assert [document[key] for key in ("name", "emulated", "changes")] == [name, emulated, emulated]
        assert document["endpoint"] == (account.endpoint if account else "")


def test_without_an_account_the_overview_has_the_newest_recorded_runs_alone(tmp_path: Path) -> None:
    for number in range(9):
        dashboards.record(tmp_path, f"20261122T11150{number}Z-digits-7f3a", loss=0.1)
    with dashboard(tmp_path) as client:
        overview = client.get("/overview")
    assert (overview["pools"], overview["jobs"]) == ([], [])
    assert [run["id"][14:15] for run in overview["runs"]] == list("87654321")


def test_a_method_that_a_route_does_not_have_is_refused_with_those_that_it_has(client: Client) -> None:
    answer = client("DELETE", "/api/v1/account", **BEARER)
    assert (answer.status, sorted(answer.headers["allow"].split(", "))) == (405, ["GET", "HEAD"])


# --- the connection -------------------------------------------------------------------------------------------------


def test_a_read_that_is_not_answered_connects_again_and_another_error_does_not(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = NEAR._replace(endpoint="http://127.0.0.1:10011", home=str(tmp_path))
    monkeypatch.setattr(connection, "running", lambda home: moved if home == str(tmp_path) else None)
    connected = Connection(NEAR._replace(home=str(tmp_path)), tmp_path)

    def fail(error: BatchtrainError) -> Any:
        raise error

    with pytest.raises(errors.NotFound):
        _patiently(lambda: fail(errors.NotFound("x")), connected, Unlimited(), 1)
    assert connected.client.account.endpoint == NEAR.endpoint
    with pytest.raises(Unreachable):
        _patiently(lambda: fail(Unreachable("x")), connected, Unlimited(), 1)
    assert connected.client.account.endpoint == moved.endpoint


@pytest.mark.parametrize("answer", [None, "same", errors.UsageError("its state cannot be read")])
def test_a_connection_is_kept_if_the_emulator_has_no_other_address(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    account = NEAR._replace(home=str(tmp_path))

    def running(_: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return account if answer else None

    monkeypatch.setattr(connection, "running", running)
    connected = Connection(account, tmp_path)
    before = connected.client
    connected.renew()
    assert connected.client is before


@pytest.mark.parametrize(("account", "near"), [(None, True), (FAR, False)])
def test_an_account_that_is_no_emulator_is_never_replaced_and_only_one_elsewhere_is_not_near(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: Any, near: bool
) -> None:
    monkeypatch.setattr(connection, "running", lambda _: NEAR)
    connected = Connection(account, tmp_path)
    connected.renew()
    assert (connected.account, connected.near) == (account, near)
    assert Connection(NEAR, tmp_path).near


def test_the_output_of_a_task_is_shared_and_only_that_of_the_last_tasks_is_kept(tmp_path: Path) -> None:
    connected = Connection(None, tmp_path)
    first, second = connected.outputs("j", "t0"), connected.outputs("j", "t1")
    for number in range(2, connection.MOST_TASKS):
        connected.outputs("j", f"t{number}")
    assert connected.outputs("j", "t0") is first  # and is now the newest
    connected.outputs("j", "another")
    assert connected.outputs("j", "t0") is first
    assert connected.outputs("j", "t1") is not second
    assert (first.job_id, first.task_id) == ("j", "t0")


def test_a_transient_fault_is_retried_while_the_page_waits(client: Client, service: Service) -> None:
    service.documents |= {"/pools": [], "/nodecounts": []}
    faults = [ServiceResponseError("cut off")]
    send = service.send

    def fails_once(request: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return send(request, **options)

    service.send = fails_once  # type: ignore[method-assign]
    assert client.get("/pools") == []


# --- the event stream -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "status"), [(0, 400), (1, 200), (MOST_WATCHED, 200), (MOST_WATCHED + 1, 400)])
def test_a_stream_watches_a_limited_number_of_documents(client: Client, number: int, status: int) -> None:
    query = "&".join(["watch=/runs"] * number)
    assert client("HEAD", f"/api/v1/events?{query}", **BEARER).status == status


def board_of(**values: Any) -> Board:
    """A board whose topics have a value each; a topic that fails has an exception. Its thread has ended."""

    def make(name: str) -> DocumentTopic:
        return DocumentTopic(lambda: values[name], 0, 1.0)

    return stopped(Board(make, Unlimited(), near=True))


def events_of(board: Board, viewer: Viewer, positions: list[str], number: int) -> list[list[str]]:
    """The lines of the first events of a stream."""

    async def collected() -> list[list[str]]:
        stream = _news(board, viewer, positions)
        return [(await anext(stream)).decode().splitlines() for _ in range(number)]

    return asyncio.run(collected())


def test_a_stream_begins_with_each_value_and_the_positions_of_all_topics() -> None:
    board = board_of(a=1, b=2)
    with watch(board, "a", "b") as viewer:
        for watched in viewer.watched:
            board._read(watched)
            watched.at = 5.0
        first, second, beat = events_of(board, viewer, ["", ""], 3)
    assert (first[0], first[2]) == ("event: news", 'data: {"topic":"a","at":5.0,"live":true,"value":1}')
    assert (second[0], second[2]) == ("event: news", 'data: {"topic":"b","at":5.0,"live":true,"value":2}')
    positions = [watched.topic.since("").position for watched in viewer.watched]  # type: ignore[union-attr]
    assert (first[1], second[1]) == (f"id: {positions[0]},", f"id: {positions[0]},{positions[1]}")
    assert beat[:2] == ["event: beat", 'data: {"a":{"at":5.0,"live":true},"b":{"at":5.0,"live":true}}']


def test_a_viewer_who_comes_back_gets_only_what_has_changed() -> None:
    board = board_of(a=1, b=2)
    with watch(board, "a", "b") as viewer:
        for watched in viewer.watched:
            board._read(watched)
        known = viewer.watched[0].topic.since("")
        assert known is not None
        first, second = events_of(board, viewer, [known.position, ""], 2)
    assert '"topic":"b"' in first[2] and second[0] == "event: beat"


def test_the_reason_of_a_failure_is_sent_once_and_its_end_too() -> None:
    board = board_of(a=1)

    async def collected() -> list[bytes]:
        with board.watch(["a"]) as viewer:
            viewer.watched[0].trouble = "no answer"
            stream = _news(board, viewer, [""])
            trouble, beat = await anext(stream), await anext(stream)
            viewer.watched[0].trouble = ""
            viewer.wake()
            end = await anext(stream)
            board.end()
            return [trouble, beat, end, *[event async for event in stream]]

    trouble, beat, end = asyncio.run(collected())
    assert trouble.startswith(b"event: trouble\n") and b'"value":"no answer"' in trouble
    assert beat.startswith(b"event: beat\n")
    assert end.startswith(b"event: trouble\n") and b'"value":""' in end


@pytest.mark.parametrize(("header", "sent"), [("POSITION", False), ("POSITION,", True), ("", True)])
def test_the_positions_of_a_lost_stream_count_if_there_is_one_for_each_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, sent: bool
) -> None:
    board = board_of(**{"/a": 1})
    given: list[list[str]] = []

    async def news(_: Board, viewer: Viewer, positions: list[str]) -> Any:
        given.append(positions)
        yield b""

    monkeypatch.setattr(app, "_news", news)
    client = Client(application(Connection(None, tmp_path), board, Unlimited(), KEYS), Connection(None, tmp_path))
    answer = client("GET", "/api/v1/events?watch=" + urllib.parse.quote("/a"), last_event_id=header, **BEARER)
    assert (answer.status, answer.headers["x-accel-buffering"]) == (200, "no")
    assert given == [[""] if sent else ["POSITION"]]
