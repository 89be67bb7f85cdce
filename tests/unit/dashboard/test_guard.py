"""Who may ask: every route and method, by headers alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.datastructures import Headers

from batchtrain.dashboard.actions import ACTIONS, Action
from batchtrain.dashboard.guard import HEADERS, Guard
from batchtrain.dashboard.reading import DOCUMENTS
from tests.unit.dashboard.asking import BEARER, COOKIE, HOST, KEYS, Client, dashboard

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")
API = [f"/api/v1{row.path}" for row in (*DOCUMENTS, *ACTIONS)] + [
    "/api/v1/events?watch=/runs", "/api/v1/jobs/{job}/tasks/{task}/file", "/api/v1/runs/{run}/file", "/api/v1/none",
]  # fmt: skip
ROUTES = [*API, "/api/v1/session", "/", "/jobs/J/tasks/T", "/static/js/app.js", "/no/such"]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Asks the application, which has no account: `ask(method, route, body, header=value, ...)`."""
    with dashboard(tmp_path_factory.mktemp("runs")) as client:
        yield client


def test_another_host_name_is_refused_on_every_route_and_method(ask: Client) -> None:
    answers = {ask(method, route, Host="evil.example", **BEARER).status for method in METHODS for route in ROUTES}
    assert answers == {400}


IMAGE = {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
LOOKALIKES = ("evil.example:8265", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1")
THIS_MACHINE_AND_THE_PROXY = ("127.0.0.1:8265", "localhost:1", "LOCALHOST", "[::1]:8265", "gpu.example")
OTHER_TOKENS = ("Bearer", "Bearer ", "Bearer the-toke", "Basic the-token", "Bearer the-session")


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        *((400, {**BEARER, "Host": host}) for host in LOOKALIKES),
        *((200, {**BEARER, "Host": host}) for host in THIS_MACHINE_AND_THE_PROXY),
        *((401, {"Authorization": token}) for token in OTHER_TOKENS),
        (401, {"Cookie": "batchtrain_1=the-session"}),  # of another port
        (200, {"Authorization": "bearer  the-token "}),
        *((200, {**COOKIE, "sec-fetch-site": site}) for site in ("none", "same-origin")),  # the address bar, this page
        *((403, {**COOKIE, **IMAGE, "sec-fetch-site": site}) for site in ("cross-site", "same-site")),
        (403, {**COOKIE, **LINK}),
        (200, {**COOKIE, "origin": "https://gpu.example:8443"}),
    ],
)
def test_a_request_for_data_is_answered_or_refused_by_its_headers(
    ask: Client, status: int, headers: dict[str, str]
) -> None:
    assert ask("GET", "/api/v1/runs", **headers).status == status


def test_every_route_of_the_api_needs_the_token(ask: Client) -> None:
    assert {ask(method, route).status for method in METHODS for route in API} == {401}


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9", "http://evil.example/127.0.0.1:8265", "http://["]
)
@pytest.mark.parametrize("method", METHODS)
def test_a_request_of_another_web_page_is_refused(ask: Client, method: str, origin: str) -> None:
    assert ask(method, "/api/v1/runs", Origin=origin, **COOKIE).status == 403
    assert ask("POST", "/api/v1/session", Origin=origin).status == 403


@pytest.mark.parametrize(
    ("status", "method", "path", "headers"),
    [
        (200, "GET", "/jobs/J", LINK),
        (403, "POST", "/", LINK),
        (403, "GET", "/", {**LINK, "sec-fetch-mode": "no-cors"}),
        (403, "GET", "/", {**LINK, "sec-fetch-dest": "iframe"}),
        *((403, "GET", "/static/js/app.js", {**IMAGE, "sec-fetch-site": site}) for site in ("cross-site", "same-site")),
    ],
)
def test_another_site_may_only_link_to_a_page(
    ask: Client, status: int, method: str, path: str, headers: dict[str, str]
) -> None:
    assert ask(method, path, **headers).status == status


@pytest.mark.parametrize(
    ("origin", "said"), [({}, b"needs an Origin header"), ({"Origin": f"http://{HOST}"}, b"--allow-changes")]
)
def test_a_change_by_cookie_reaches_its_route_only_with_the_origin_of_this_page(
    ask: Client, origin: dict[str, str], said: bytes
) -> None:
    answer = ask("POST", "/api/v1/jobs/J/terminate", **origin, **COOKIE)
    assert (answer.status, said in answer.body) == (403, True)


def test_two_hosts_or_none_are_refused() -> None:
    guard = Guard(_never, KEYS)
    bearer = (b"authorization", b"Bearer the-token")
    host = (b"host", HOST.encode())
    assert guard.refusal("GET", "/api/v1/runs", Headers(raw=[host, bearer])) is None
    for hosts in ([], [host, (b"host", b"localhost")]):
        refusal = guard.refusal("GET", "/api/v1/runs", Headers(raw=[*hosts, bearer]))
        assert refusal is not None and refusal.status == 400


def test_one_strange_origin_among_several_is_refused() -> None:
    raw = [(b"host", HOST.encode()), (b"origin", f"http://{HOST}".encode()), (b"origin", b"http://evil.example")]
    refusal = Guard(_never, KEYS).refusal("GET", "/", Headers(raw=raw))
    assert refusal is not None and refusal.status == 403


async def _never(*_: object) -> None:
    raise AssertionError("the application must not be asked")


def test_what_is_no_http_request_is_not_answered() -> None:
    asyncio.run(Guard(_never, KEYS)({"type": "websocket"}, _never, _never))


def test_signing_in_is_only_open_to_post(ask: Client) -> None:
    assert [ask(method, "/api/v1/session").status for method in ("GET", "PUT", "DELETE")] == [401, 401, 401]
    assert ask("POST", "/api/v1/sessions").status == 401


def test_answers_of_the_api_are_never_stored_and_pages_are_checked_again(ask: Client) -> None:
    assert ask("GET", "/api/v1/runs", **BEARER).headers["cache-control"] == "no-store"
    assert ask("GET", "/").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("row", ACTIONS, ids=lambda row: row.path)
def test_without_allow_changes_nothing_is_changed(ask: Client, row: Action) -> None:
    answer = ask("POST", f"/api/v1{row.path}", **BEARER)
    assert (answer.status, b"--allow-changes" in answer.body) == (403, True)


def test_every_answer_forbids_other_sources_and_frames(ask: Client) -> None:
    for route in ("/", "/api/v1/runs", "/api/v1/none", "/static/js/app.js", "/no/such"):
        answer = ask("GET", route, **BEARER)
        assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS, route


def test_the_token_becomes_a_cookie_that_scripts_cannot_read(ask: Client) -> None:
    answer = ask("POST", "/api/v1/session", b'{"token": "the-token"}', Origin=f"http://{HOST}")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["set-cookie"] == "batchtrain_8265=the-session; HttpOnly; Path=/; SameSite=strict"
    assert ask("GET", "/api/v1/account", **COOKIE).status == 200


@pytest.mark.parametrize("body", [b"", b"[]", b'{"token":"other"}', b'{"token":1}', b"\xff"])
def test_a_wrong_token_gives_no_cookie(ask: Client, body: bytes) -> None:
    answer = ask("POST", "/api/v1/session", body)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)


def test_a_head_request_of_the_event_stream_ends_at_once(ask: Client) -> None:
    answer = ask("HEAD", "/api/v1/events?watch=/runs", **BEARER)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert ask("HEAD", "/api/v1/events?watch=/none", **BEARER).status == 400


def test_keys_are_not_printed() -> None:
    assert "the-" not in repr(KEYS)
