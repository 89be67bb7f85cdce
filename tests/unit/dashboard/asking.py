"""The dashboard in process: requests to its application, and a Batch service that is a table of answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import requests
from azure.core.pipeline.transport import HttpTransport
from azure.core.rest._requests_basic import RestRequestsTransportResponse

from batchtrain.config.types import Secret
from batchtrain.dashboard.app import application
from batchtrain.dashboard.board import Board, Viewer
from batchtrain.dashboard.budget import Budget, Unlimited
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.guard import Keys
from batchtrain.dashboard.reading import topic
from batchtrain.service import connect
from batchtrain.service.connect import Account

KEYS = Keys("the-token", "the-session", "batchtrain_8265")
HOST = "127.0.0.1:8265"
BEARER = {"authorization": "Bearer the-token"}
COOKIE = {"cookie": "batchtrain_8265=the-session"}
NEAR = Account("http://127.0.0.1:10010", "near", Secret("a2V5"), emulated=True)
FAR = Account("https://far.westeurope.batch.azure.com", "far", Secret("a2V5"))


class Asked(NamedTuple):
    """A request that the service received."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


class Service(HttpTransport[Any, Any]):
    """Answers GET by a table of documents and files; accepts every change."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        """By path: a JSON document, a list of items, or a function that makes one from the query."""
        self.files: dict[str, bytes] = {}
        self.asked: list[Asked] = []

    @property
    def changes(self) -> list[tuple[str, str, Any]]:
        """Method, path and body of the requests that change something."""
        return [(row.method, row.path, row.body) for row in self.asked if row.method not in ("GET", "HEAD")]

    def send(self, request: Any, **_: Any) -> Any:
        parts = urlsplit(request.url)
        path, query = unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = json.loads(request.content) if request.content else None
        asked = Asked(request.method, path, query, dict(request.headers), body)
        self.asked.append(asked)
        inner = requests.Response()
        inner.status_code, content, headers = self._answer(asked)
        inner._content = content
        inner._content_consumed = True
        inner.headers.update({"Content-Type": "application/json", "Date": formatdate(usegmt=True), **headers})
        return RestRequestsTransportResponse(request=request, internal_response=inner, block_size=4096)

    def _answer(self, asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        if asked.method in ("POST", "DELETE"):
            return 202, b"", {}
        if asked.path in self.files:
            return self._file(asked, self.files[asked.path])
        if asked.path not in self.documents:
            code = "FileNotFound" if "/files/" in asked.path else "JobNotFound"
            return 404, json.dumps({"code": code, "message": {"value": "There is none."}}).encode(), {}
        document = self.documents[asked.path]
        document = document(asked.query) if callable(document) else document
        return 200, json.dumps({"value": document} if isinstance(document, list) else document).encode(), {}

    def _file(self, asked: Asked, content: bytes) -> tuple[int, bytes, dict[str, str]]:
        binary = {"Content-Type": "application/octet-stream"}
        if asked.method == "HEAD":
            return 200, b"", {**binary, "Content-Length": str(len(content))}
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", asked.headers["ocp-range"])
        assert span is not None
        if int(span[1]) >= len(content):
            return 416, json.dumps({"code": "InvalidRange", "message": {"value": "It ends before."}}).encode(), {}
        return 206, content[int(span[1]) : int(span[2]) + 1], binary

    def open(self) -> None: ...

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Answer(NamedTuple):
    """What the application sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks the application with the headers of a call, by default with the token."""

    def __init__(self, app: Any, connection: Connection) -> None:
        self._app, self.connection = app, connection

    def __call__(self, method: str, route: str, body: bytes = b"", /, **headers: str) -> Answer:
        path, _, query = route.partition("?")
        named = {"host": HOST, **{name.replace("_", "-").lower(): value for name, value in headers.items()}}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        return asyncio.run(_answered(self._app, scope, body))

    def get(self, path: str) -> Any:
        """A document of the API."""
        answer = self("GET", f"/api/v1{path}", **BEARER)
        assert answer.status == 200, answer.body
        return answer.document


async def _answered(app: Any, scope: dict[str, Any], body: bytes) -> Answer:
    sent: list[dict[str, Any]] = []
    received = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not received:
            await asyncio.Event().wait()  # the client stays
        return received.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent))


@contextmanager
def dashboard(
    runs: Path, account: Account | None = None, *, changes: bool = False, budget: Budget | None = None
) -> Iterator[Client]:
    """A dashboard in process."""
    connection, budget = Connection(account, runs, changes=changes), budget or Unlimited()
    board = Board(lambda url: topic(connection, url), budget, near=True)
    try:
        yield Client(application(connection, board, budget, KEYS, frozenset({"gpu.example"})), connection)
    finally:
        board.close()


@contextmanager
def watch(board: Board, *names: str) -> Iterator[Viewer]:
    """A viewer, on a loop of its own."""

    async def enter() -> Viewer:
        return stack.enter_context(board.watch(names))

    with ExitStack() as stack:
        yield asyncio.run(enter())


def stopped(board: Board) -> Board:
    """A board whose thread has ended: the test itself reads."""
    board.close()
    board._thread.join()
    board._closed = False
    return board


def answered_by(service: Service, monkeypatch: Any) -> None:
    """Every client that is made from now on asks this service."""
    transport: Callable[..., Any] = lambda _: service  # noqa: E731
    monkeypatch.setattr(connect, "_transport", transport)
