"""The Starlette application: the API, the event stream, files, and the page."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from batchtrain.config.masking import masked_text
from batchtrain.dashboard import recorded
from batchtrain.dashboard.actions import ACTIONS, Action
from batchtrain.dashboard.board import Board, Viewer, Watched
from batchtrain.dashboard.budget import Budget
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.guard import API, SIGN_IN, Guard, Keys, same
from batchtrain.dashboard.reading import DOCUMENTS, TASK, Asked, Document, Found
from batchtrain.errors import BatchtrainError, NotAllowed, NotFound, ServiceError, TimedOut, Unreachable, UsageError
from batchtrain.service import downloads, retry

STATIC = Path(__file__).parent / "static"
PAGES = re.compile(
    r"/|/pools|/pools/[^/]+|/pools/[^/]+/nodes/[^/]+|/jobs|/jobs/[^/]+|/jobs/[^/]+/tasks/[^/]+|/runs|/runs/[^/]+"
)
"""The addresses of pages; all are the same file, whose script reads the address."""
STATUSES: tuple[tuple[type[BatchtrainError], int], ...] = (
    (NotFound, 404), (NotAllowed, 403), (Unreachable, 503), (ServiceError, 502), (UsageError, 400), (TimedOut, 504),
)  # fmt: skip
PATIENCE = 10.0
"""Seconds in which a transient fault is retried, while a page waits for an answer."""
BEAT = 5.0
"""Seconds between two messages about the age of what is shown, if nothing changes."""
MOST_WATCHED = 16
BLOCK = 1 << 20
PACKED = [Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)]
"""Not for files, whose ranges count bytes as they are."""


def application(
    connection: Connection, board: Board, budget: Budget, keys: Keys, hosts: frozenset[str] = frozenset()
) -> Guard:
    """The application with its guard outermost: no route can be without it."""
    prefix = f"{API}v1"
    routes = [
        Route(SIGN_IN, functools.partial(_sign_in, keys), methods=["POST"]),
        Route(f"{prefix}/events", functools.partial(_events, board)),
        Route(f"{prefix}{TASK}/file", functools.partial(_task_file, connection, budget)),
        Route(f"{prefix}/runs/{{run}}/file", functools.partial(_run_file, connection)),
        *(Route(f"{prefix}{row.path}", _answering(row, connection, budget), middleware=PACKED) for row in DOCUMENTS),
        *(Route(f"{prefix}{row.path}", _acting(row, connection, budget), methods=["POST"]) for row in ACTIONS),
        Mount("/static", StaticFiles(directory=STATIC), middleware=PACKED),
        Route("/{path:path}", _page),
    ]
    handlers: dict[Any, Any] = {BatchtrainError: functools.partial(_refused, connection), HTTPException: _missing}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), keys, hosts)


def _refused(connection: Connection, _: Request, error: BatchtrainError) -> Response:
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    message = masked_text(connection.completed(str(error)))
    return JSONResponse({"error": message, "code": getattr(error, "code", "")}, status)


def _missing(_: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _sign_in(keys: Keys, request: Request) -> Response:
    """Exchange the token for a cookie that scripts of the page cannot read."""
    with suppress(msgspec.DecodeError):
        token = msgspec.json.decode(await request.body(), type=dict[str, str]).get("token", "")
        if same(token, keys.token):
            answer = Response(status_code=204)
            answer.set_cookie(keys.cookie, keys.session, httponly=True, samesite="strict", path="/")
            return answer
    return JSONResponse({"error": "this is not the token of this dashboard"}, 401)


async def _page(request: Request) -> Response:
    """A page; also for an address that is none: its script shows the way on."""
    if request.url.path.startswith(API):
        raise HTTPException(404, f"the API has no {request.url.path}")
    return FileResponse(STATIC / "index.html", 200 if PAGES.fullmatch(request.url.path) else 404)


def _answering(row: Document, connection: Connection, budget: Budget) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        inputs = Asked(request.path_params, {name: request.query_params.getlist(name) for name in request.query_params})
        result = await run_in_threadpool(
            _patiently, functools.partial(row.read, connection, inputs), connection, budget, row.cost
        )
        headers = {}
        if isinstance(result, Found):
            if result.next:
                query = urlencode({**request.query_params, "skip": result.next})
                headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'
            result = result.value
        return Response(msgspec.json.encode(result), headers=headers, media_type="application/json")

    return answer


def _patiently(read: Callable[[], Any], connection: Connection, budget: Budget, cost: int) -> Any:
    budget.spend(cost)
    with retry.answer_count() as count:
        try:
            with retry.until(time.monotonic() + PATIENCE, lambda _: None):  # the page shows it, not the terminal
                return read()
        except Unreachable:
            connection.renew()
            raise
        finally:
            budget.spend(max(count.answers - cost, 0))  # causes, for example, which are read once


def _acting(row: Action, connection: Connection, budget: Budget) -> Callable[[Request], Any]:
    async def act(request: Request) -> Response:
        if not connection.changes:
            raise HTTPException(403, "this dashboard is read-only; start it with `--allow-changes`")
        try:
            body = msgspec.json.decode(await request.body() or b"{}", type=dict[str, Any])
        except msgspec.DecodeError:
            raise UsageError("the body is not a JSON object") from None
        send = functools.partial(row.send, connection, request.path_params, body)
        await run_in_threadpool(_patiently, send, connection, budget, 1)
        return Response(status_code=202)

    return act


async def _events(board: Board, request: Request) -> Response:
    """Changes of what is watched. The id of an event has the positions of all topics, so that a viewer who comes back
    misses nothing and gets nothing twice, also from a restarted server."""
    names = request.query_params.getlist("watch")
    if not 0 < len(names) <= MOST_WATCHED:
        raise UsageError(f"watch from 1 to {MOST_WATCHED} documents: /api/v1/events?watch=/jobs&watch=/pools")
    event_ids = request.headers.get("last-event-id", "").split(",")
    positions = event_ids if len(event_ids) == len(names) else [""] * len(names)
    for name in names:
        board.make(name)
    return _Stream(board, names, positions)


class _Stream(StreamingResponse):
    """An event stream. Its viewer counts only while it is sent: one who leaves before the start is never counted."""

    def __init__(self, board: Board, names: list[str], positions: list[str]) -> None:
        super().__init__(iter(()), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._board, self._names, self._positions = board, names, positions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)  # the headers of GET, and an empty body
            return
        with self._board.watch(self._names) as viewer:
            self.body_iterator = _news(self._board, viewer, self._positions)
            await super().__call__(scope, receive, send)


async def _news(board: Board, viewer: Viewer, positions: list[str]) -> AsyncIterator[bytes]:
    troubles: list[str] = [""] * len(positions)
    beaten = float("-inf")
    while not board.closed:
        has_news = False
        for index, entry in enumerate(viewer.watched):
            if (news := entry.topic.since(positions[index])) is not None:
                positions[index], has_news = news.position, True
                yield _event("news", entry, board.is_live(entry), positions, news.body)
            if entry.trouble != troubles[index]:
                troubles[index] = entry.trouble
                yield _event("trouble", entry, board.is_live(entry), positions, msgspec.json.encode(entry.trouble))
        if time.monotonic() - beaten >= BEAT:
            beaten = time.monotonic()
            states = {entry.name: {"at": entry.at, "live": board.is_live(entry)} for entry in viewer.watched}
            yield b"event: beat\ndata: " + msgspec.json.encode(states) + b"\n\n"
        if not has_news:
            await viewer.wait(BEAT)
        await asyncio.sleep(0)


def _event(kind: str, entry: Watched, is_live: bool, positions: list[str], value: bytes) -> bytes:
    head = msgspec.json.encode({"topic": entry.name, "at": entry.at, "live": is_live})[:-1]
    return b"event: %b\nid: %b\ndata: %b,\"value\":%b}\n\n" % (
        kind.encode(), ",".join(positions).encode(), head, value,
    )  # fmt: skip


async def _run_file(connection: Connection, request: Request) -> Response:
    path = request.query_params.get("path", "")
    file = await run_in_threadpool(recorded.file, connection.runs, request.path_params["run"], path)
    return FileResponse(file, media_type="text/plain; charset=utf-8", headers={"Content-Disposition": _attached(path)})


async def _task_file(connection: Connection, budget: Budget, request: Request) -> Response:
    """A file of a task, or a range of it. It is text and a download, never a page."""
    path = request.query_params.get("path", "")
    tree = downloads.task_tree(request.path_params["job"], request.path_params["task"])
    look = functools.partial(downloads.size_of, connection.batch, tree, path)
    size = (await run_in_threadpool(_patiently, look, connection, budget, 1)).size
    span = _span(request.headers.get("range", ""), size)
    headers = {"Content-Disposition": _attached(path), "Accept-Ranges": "bytes"}
    if span is None:
        raise HTTPException(416, f"the file has {size} bytes", headers={"Content-Range": f"bytes */{size}"})
    start, end = span
    headers["Content-Length"] = str(end - start)
    is_whole = "range" not in request.headers
    if not is_whole:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    read = functools.partial(downloads.read, connection.batch, tree, path)
    blocks = _blocks(read, budget, start, end) if request.method != "HEAD" else iter(())
    return StreamingResponse(blocks, 200 if is_whole else 206, headers, media_type="text/plain; charset=utf-8")


def _blocks(read: Callable[[int, int], bytes], budget: Budget, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, BLOCK):
        budget.spend(1)
        yield read(at, min(at + BLOCK, end))


def _span(header: str, size: int) -> tuple[int, int] | None:
    """The first range of a Range header; everything without one; None if it lies outside."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)(?:,.*)?", header.strip())
    if match is None or not (match[1] or match[2]):
        return 0, size
    if not match[1]:
        return max(size - int(match[2]), 0), size
    start, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    return (start, end) if start < end else None


def _attached(path: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2] or 'file', safe='')}"
