"""The ASGI application: a request becomes a call, a reply becomes bytes, a fault becomes the service's error body.

It is written against ASGI itself: routes go by the raw path, and every import counts towards the start.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from batchtrain.emulator import checks, control, routes, wire
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.faults import Fault, NeedsToken, NotModified, not_implemented
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.reply import Call, Reply, Slice

logger = logging.getLogger("batchtrain.emulator.http")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY = 1_048_576
DRAINED = 64 * MAX_BODY
"""What is read and thrown away of a body that is too large, so that the refusal arrives."""
CHUNK = 262_144
JSON = "application/json;odata=minimalmetadata"


class Request(NamedTuple):
    verb: str
    raw_path: str
    query: str
    headers: Mapping[str, str]
    scheme: str = "http"

    @property
    def base(self) -> str:
        return f"{self.scheme}://{self.headers.get('host', 'localhost')}"


class Disconnected(Exception):
    """The client went away before it had said all."""


class Application:
    """The emulated service over HTTP."""

    def __init__(
        self, driver: Driver, identity: control.Identity, key: str, stop: Callable[[], None], token_key: str = ""
    ) -> None:
        self.driver, self.key, self.token_key = driver, key, token_key
        self.control = control.Control(driver, identity, stop)
        self.connections: dict[Any, asyncio.BaseTransport] = {}
        """The open connections by the client's address."""
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
        except Disconnected:
            return  # a request that did not come to its end asks for nothing
        except sqlite3.Error as error:
            logger.error("%s %s was not stored: %s (request %s)", request.verb, request.raw_path, error, request_id)
            busy = Fault("ServerBusy", Reason=f"The emulator could not write to its data directory: {error}.")
            reply = self._refusal(busy, request, request_id, now)
        except Exception:  # the outer door: a bug is logged, and answered in the service's own words
            logger.exception("internal error in %s %s (request %s)", request.verb, request.raw_path, request_id)
            reply = self._refusal(Fault("InternalError"), request, request_id, now)
        if reply.cut is not None:
            send = _cut(send, reply.cut, self.connections.get(scope["client"]))
        await _send(reply, request, request_id, receive, send)

    def _refusal(self, fault: Fault, request: Request, request_id: str, now: int) -> Reply:
        document = wire.error_document(fault, request.base, request_id, now)
        if isinstance(fault, NeedsToken):
            challenge = f'Bearer authorization_uri="{wire.SIGN_IN}", resource_id="{wire.AUDIENCE}"'
            return Reply(fault.status, document, {"WWW-Authenticate": challenge})
        if fault.retry_after is not None:
            return Reply(fault.status, document, {"Retry-After": f"{fault.retry_after:g}"})
        return Reply(fault.status, document)

    async def _answer(self, request: Request, receive: Receive, now: int) -> Reply:
        if request.raw_path == f"{control.PREFIX}health":
            return Reply(200, self.control.identity._asdict())
        if request.raw_path.startswith(control.PREFIX):
            self._authenticate(request, 0.0)
            return await self.control.answer(
                request.verb, request.raw_path.removeprefix(control.PREFIX), await _body(receive)
            )
        try:
            route, path = routes.find(request.verb, request.raw_path)
        except Fault:
            self._authenticate(request, 0.0)  # a stranger is not told what there is
            raise
        await self._befall(request, route.name)
        query = dict(wire.query_pairs(request.query))
        checks.check_version(query)
        body = await _body(receive)
        operation = route.operation
        if operation is None:
            raise not_implemented(route.name)
        call = Call(path, query, request.headers, body, request.raw_path, request.base, now)
        if request.verb in ("GET", "HEAD"):
            reply = operation(self.driver.world, call)
        else:
            reply = self.driver.change(lambda: operation(self.driver.world, call))
        return self._cut_short(request, route.name, reply)

    async def _befall(self, request: Request, operation: str) -> None:
        """Who asks, and the faults that strike before anything is done."""
        skew = self._strikes("skew", request, operation)
        self._authenticate(request, skew.seconds if skew else 0.0)
        if late := self._strikes("latency", request, operation):
            await asyncio.sleep(late.seconds)
        if refused := self._strikes("error", request, operation):
            fault = Fault(refused.code)
            fault.retry_after = refused.retry_after
            raise fault

    def _cut_short(self, request: Request, operation: str, reply: Reply) -> Reply:
        """The faults that strike when it is done already: the answer is lost, or half of it."""
        if self._strikes("drop", request, operation):
            return reply._replace(cut=0.0)
        if half := self._strikes("truncate", request, operation):
            return reply._replace(cut=max(half.fraction, 0.01))
        return reply

    def _authenticate(self, request: Request, skew: float) -> None:
        """By signature; by token only where tokens were asked for, and over https. The clients' clock counts here."""
        now = self.driver.clock.machine_time() + int(skew * wire.SECOND)
        account, given = self.control.identity.account, request.headers.get("authorization", "")
        if self.token_key and not given.startswith("SharedKey "):
            wire.check_token(account, self.token_key, request.verb, given, now)
            return
        wire.authenticate(account, self.key, *request[:4], now)

    def _strikes(self, kind: str, request: Request, operation: str) -> Injection | None:
        """A fault on request, for this operation on this resource."""
        injections = self.driver.world.injections
        return injections.strike((kind,), unquote(request.raw_path.strip("/")), operation) if injections else None


# Requests ------------------------------------------------------------------------------------------------------------


def _request(scope: Mapping[str, Any]) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    raw_path = scope["raw_path"].decode("latin-1")
    return Request(scope["method"], raw_path, scope["query_string"].decode("latin-1"), headers, scope["scheme"])


async def _body(receive: Receive) -> bytes:
    """The whole body; Fault 413 past the limit, after the rest was read away. Raises Disconnected."""
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
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


def _cut(send: Send, fraction: float, connection: asyncio.BaseTransport | None) -> Send:
    """Sends the beginning of an answer, then ends the connection."""
    abort = getattr(connection, "abort", lambda: None)

    async def part(message: Message) -> None:
        if not fraction:
            abort()
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            await send({**message, "body": body[: int(len(body) * fraction)], "more_body": True})
            await asyncio.sleep(0.01)  # what was written should still reach the client
            abort()
        else:
            await send(message)

    return part


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
