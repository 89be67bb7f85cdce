"""The ASGI application: a request becomes a call, a reply becomes bytes, a fault becomes the service's error body.

It is written against ASGI itself: routes go by the raw path, and every import counts towards the start.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec

from batchtrain.emulator import routes, wire
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.faults import Fault, NotModified, not_implemented
from batchtrain.emulator.reply import Call, Reply, Slice
from batchtrain.emulator.world import World

logger = logging.getLogger("batchtrain.emulator.http")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY = 1_048_576
DRAINED = 64 * MAX_BODY
"""What is read and thrown away of a body that is too large, so that the refusal arrives."""
CHUNK = 262_144
JSON = "application/json;odata=minimalmetadata"
CONTROL = "/_emulator/"


class Identity(NamedTuple):
    """What /_emulator/health tells anyone who asks."""

    version: str
    pid: int
    account: str


class Request(NamedTuple):
    verb: str
    raw_path: str
    query: str
    headers: Mapping[str, str]

    @property
    def base(self) -> str:
        return f"http://{self.headers.get('host', 'localhost')}"


class Application:
    """The emulated service over HTTP."""

    def __init__(self, driver: Driver, identity: Identity, key: str, stop: Callable[[], None]) -> None:
        self.driver, self.identity, self.key, self.stop = driver, identity, key, stop
        self.ids = uuid.uuid4

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = _request(scope)
        request_id = str(self.ids())
        now = self.driver.clock()
        try:
            reply = await self._answer(request, receive, now)
        except NotModified:
            reply = Reply(304)
        except Fault as fault:
            reply = self._refusal(fault, request, request_id, now)
        except Exception:  # the outer door: a bug is logged, and answered in the service's own words
            logger.exception("internal error in %s %s (request %s)", request.verb, request.raw_path, request_id)
            reply = self._refusal(Fault("InternalError"), request, request_id, now)
        await _send(reply, request, request_id, receive, send)

    def _refusal(self, fault: Fault, request: Request, request_id: str, now: int) -> Reply:
        return Reply(fault.status, wire.error_document(fault, request.base, request_id, now))

    async def _answer(self, request: Request, receive: Receive, now: int) -> Reply:
        if request.raw_path == f"{CONTROL}health":
            return Reply(200, self.identity._asdict())
        account = self.identity.account
        wire.authenticate(account, self.key, *request, now)
        if request.raw_path.startswith(CONTROL):
            return await self._control(request)
        route, path = routes.find(request.verb, request.raw_path)
        body = await _body(receive)
        operation = route.operation
        if operation is None:
            raise not_implemented(route.name)
        call = Call(path, dict(wire.query_pairs(request.query)), request.headers, body, request.raw_path,
                    request.base, now)  # fmt: skip
        if request.verb in ("GET", "HEAD"):
            return operation(self.driver.world, call)
        return self.driver.change(lambda: operation(self.driver.world, call))

    async def _control(self, request: Request) -> Reply:
        match request.verb, request.raw_path.removeprefix(CONTROL):
            case "GET", "hints":
                return Reply(200, {"value": hints(self.driver.world)})
            case "POST", "reset":
                await self.driver.reset()
                return Reply(204)
            case "POST", "stop":
                self.stop()
                return Reply(202)
        raise Fault("ResourceNotFound")


def hints(world: World) -> list[dict[str, str]]:
    """Why tasks stay active, which the service itself never says."""
    found = []
    for book in world.jobs.values():
        waiting = book.ready.values() if world.hints else ()
        found += [
            {"jobId": book.record.id, "taskId": task.id, "text": world.hints[task.seq]}
            for task in waiting
            if task.seq in world.hints
        ]
        if book.counts["active"] and (reason := _job_reason(world, book.pool_key)):
            found.append({"jobId": book.record.id, "taskId": "", "text": reason})
    return found


def _job_reason(world: World, pool_key: str) -> str:
    pool = world.pools.get(pool_key)
    if pool is None:
        return f"its pool {pool_key} does not exist"
    failed = [node for node in pool.nodes.values() if node.state in ("starttaskfailed", "unusable")]
    if failed:
        return f"{len(failed)} of {len(pool.nodes)} nodes of pool {pool.record.id} take no tasks: {failed[0].state}"
    return "" if pool.nodes else f"pool {pool.record.id} has no nodes"


# Requests ------------------------------------------------------------------------------------------------------------


def _request(scope: Mapping[str, Any]) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    raw_path = scope["raw_path"].decode("latin-1")
    return Request(scope["method"], raw_path, scope["query_string"].decode("latin-1"), headers)


async def _body(receive: Receive) -> bytes:
    """The whole body; Fault 413 past the limit, after the rest was read away."""
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        part = message.get("body", b"")
        size += len(part)
        if size <= MAX_BODY:
            parts.append(part)
        elif size > DRAINED:
            break
        more = message.get("more_body", False)
    if size > MAX_BODY:
        raise Fault("RequestBodyTooLarge", MaxLimit=str(MAX_BODY))
    return b"".join(parts)


# Replies -------------------------------------------------------------------------------------------------------------


async def _send(reply: Reply, request: Request, request_id: str, receive: Receive, send: Send) -> None:
    headers = {"request-id": request_id, "DataServiceVersion": "3.0", **reply.headers}
    if request.headers.get("return-client-request-id", "").lower() == "true":
        headers["client-request-id"] = request.headers.get("client-request-id", "")
    body = b""
    if reply.document is not None and request.verb != "HEAD":
        body = msgspec.json.encode(reply.document)
        headers["Content-Type"] = JSON
    length = reply.content.length if reply.content else len(body)
    if reply.status not in (204, 304):
        headers.setdefault("Content-Length", str(length))
    start = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": start})
    if reply.content is not None:
        await _send_slice(reply.content, receive, send)
    else:
        await send({"type": "http.response.body", "body": body})


async def _send_slice(content: Slice, receive: Receive, send: Send) -> None:
    """The bytes promised: a file that shrank meanwhile is made up with zeros rather than a broken answer."""
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await _send_parts(content, gone, send)
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    """Until the client has gone: the server takes what is sent then without a word."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_parts(content: Slice, gone: asyncio.Future[None], send: Send) -> None:
    with content.file as file:
        file.seek(content.start)
        left = content.length
        while left and not gone.done():
            part = file.read(min(left, CHUNK))
            part = part or bytes(min(left, CHUNK))
            left -= len(part)
            await send({"type": "http.response.body", "body": part, "more_body": left > 0})
            await asyncio.sleep(0)  # a send that need not wait gives nobody else a turn
        if not content.length:
            await send({"type": "http.response.body", "body": b""})
