"""The ASGI application: turns requests into calls, replies into bytes, and faults into the service's error bodies.

It uses ASGI directly, because routes match the raw path and every import delays the start.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from batchtrain.emulator import (
    arm_applications,
    arm_request,
    blob_store,
    checks,
    control,
    identity,
    models,
    query,
    resource_manager,
    routes,
    sign_in,
    tokens,
    versions,
    wire,
)
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.faults import Fault, NeedsToken, NotModified, not_implemented
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.reply import Call, Reply, Slice, Steps
from batchtrain.emulator.world import USER_SUBSCRIPTION
from batchtrain.errors import DamagedState

logger = logging.getLogger("batchtrain.emulator.http")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PATIENCE = 30.0
"""Seconds for which an answer waits: the default `timeOut` of the service."""
MAX_BODY = 1_048_576
DRAINED = 64 * MAX_BODY
"""How many bytes of a body that is too large are read and discarded, so that the client receives the refusal."""
CHUNK = 262_144
WORKERS = 2
"""Threads for slow replies. More would take processor time from the event loop."""
JSON = "application/json;odata=minimalmetadata"
TOKENS_ONLY = "The account allocates nodes in the user's subscription; it accepts no shared key, only tokens."
SERVER: Mapping[str, str] = {
    "DataServiceVersion": "3.0",
    "Server": "Microsoft-HTTPAPI/2.0",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer (recorded in azure-sdk-for-node)."""


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
    """The client disconnected before its request was complete."""


class Application:
    """The emulated service over HTTP."""

    def __init__(self, driver: Driver, identity: control.Identity, key: str, stop: Callable[[], None]) -> None:
        self.driver, self.key = driver, key
        self.control = control.Control(driver, identity, stop)
        self.connections: dict[Any, asyncio.BaseTransport] = {}
        """The open connections by client address."""
        self.ids = uuid.uuid4
        self._working = asyncio.Semaphore(WORKERS)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        raw_path = scope["raw_path"].decode("latin-1")
        request = Request(scope["method"], raw_path, scope["query_string"].decode("latin-1"), headers, scope["scheme"])
        request_id = str(self.ids())
        now, date = self.driver.clock(), None
        try:
            reply = await self._answer(request, receive, now, request_id)
        except NotModified:
            reply = Reply(304)
        except Fault as fault:
            reply, date = self._refusal(fault, request, request_id, now), fault.date
        except Disconnected:
            return  # an incomplete request is dropped
        except sqlite3.Error as error:
            logger.error("%s %s was not stored: %s (request %s)", request.verb, request.raw_path, error, request_id)
            busy = Fault("ServerBusy", Reason=f"The emulator could not write to its data directory: {error}.")
            reply = self._refusal(busy, request, request_id, now)
        except DamagedState as error:  # of the VM sizes or the images of the user, while the emulator runs
            damage = Fault("OperationInvalidForCurrentState", Reason=str(error), DamagedState="true")
            reply = self._refusal(damage, request, request_id, now)
        except Exception:  # the outermost handler: a bug is logged, and answered with the service's error body
            logger.exception("internal error in %s %s (request %s)", request.verb, request.raw_path, request_id)
            reply = self._refusal(Fault("InternalError"), request, request_id, now)
        if reply.cut is not None:
            send = _cut(send, reply.cut, self.connections.get(scope["client"]))
        await _send(reply, request, request_id, date or self._now(), receive, send)

    def _refusal(self, fault: Fault, request: Request, request_id: str, now: int) -> Reply:
        document = wire.error_document(fault, request.base, request_id, now)
        if fault.property_path:
            reason = fault.details["Reason"]
            logger.info("%s %s: %s is refused: %s", request.verb, request.raw_path, fault.property_path, reason)
        if isinstance(fault, NeedsToken):
            challenge = f'Bearer authorization_uri="{wire.SIGN_IN}", resource_id="{wire.AUDIENCE}"'
            return Reply(fault.status, document, {"WWW-Authenticate": challenge})
        retry_after = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        return Reply(fault.status, document, retry_after)

    async def _answer(self, request: Request, receive: Receive, now: int, request_id: str) -> Reply:
        parameters = dict(wire.query_pairs(request.query))
        if request.raw_path == f"{control.PREFIX}health":
            proof = wire.proof(self.key, self.driver.world.endpoint, parameters.get("challenge", ""))
            return Reply(200, {**self.control.identity._asdict(), "proof": proof})
        issuer = self.control.identity.account, self.key, self._now()
        if request.raw_path == identity.PATH:
            return sign_in.of_program(request.headers, parameters, *issuer)
        if sign_in.is_path(request.raw_path) and not routes.begins(request.raw_path):
            return sign_in.answer(request.verb, request.raw_path, await _body(receive), request.base, *issuer)
        if request.raw_path.startswith(identity.NODES):
            return sign_in.of_node(request.raw_path, request.headers, parameters, *issuer)
        if request.raw_path.startswith(wire.BLOB_STORE) and self.driver.blob_store is not None:
            return await self._of_blob_store(self.driver.blob_store, request, receive)
        if request.raw_path.startswith(arm_applications.UPLOADS) and request.verb == "PUT":
            package = arm_applications.package_of_link(request.raw_path, parameters, self.key)
            await arm_applications.files(self.driver.world).keep(*package, _parts(receive))
            return Reply(201)
        if request.raw_path.startswith(control.PREFIX):
            self._authenticate(request, 0.0)
            path_below = unquote(request.raw_path.removeprefix(control.PREFIX))
            return await self.control.answer(request.verb, path_below, await _body(receive))
        if resource_manager.is_path(request.raw_path):
            return await self._of_resource_manager(request, receive, now)
        revision = versions.check(parameters)  # Azure tells it before it judges the sign-in
        try:
            route, path = routes.find(request.verb, request.raw_path)
        except Fault:
            self._authenticate(request, 0.0)  # an unsigned request must not learn which paths exist
            raise
        signed_by = await self._befall(request, route.name)
        if signed_by == tokens.SHARED_KEY and self.driver.world.allocation == USER_SUBSCRIPTION:
            raise Fault("AuthenticationFailed", AuthenticationErrorDetail=TOKENS_ONLY)
        if revision > route.until:
            raise Fault("ResourceNotFound")
        options = query.checked(route.query, route.answer, parameters, revision)
        body = await _body(receive)
        operation = route.operation
        if operation is None:
            raise not_implemented(route.name)
        call = Call(
            path, options, request.headers, body, request.raw_path, request.base, now, revision, parameters, signed_by,
            request_id,
        )  # fmt: skip
        if body.strip() and request.verb in ("POST", "PUT", "PATCH"):
            checks.check_content_type(request.headers)
            if not route.body:
                call.read("Nothing")
        if request.verb in ("GET", "HEAD"):
            answer = operation(self.driver.world, call)
        else:
            answer = self.driver.change(lambda: operation(self.driver.world, call))
        reply = answer if isinstance(answer, Reply) else await self._carry_out(answer)
        if reply.is_reached is not None:
            await self.driver.quiet(PATIENCE, reply.is_reached)
        return self._cut_short(request, route.name, _translated(reply, route.answer, revision))

    async def _of_blob_store(self, blobs: blob_store.BlobStore, request: Request, receive: Receive) -> Reply:
        """Receive a file of a task from any client that has its signed link."""
        path = request.raw_path.removeprefix(wire.BLOB_STORE)
        now = time.time()
        if request.verb == "GET":
            return Reply(200, content=blobs.give(path, dict(wire.query_pairs(request.query)), now))
        self._authenticate(request, 0.0)
        if request.verb != "PUT":
            raise Fault("UnsupportedHttpVerb")
        await blobs.keep(path, _parts(receive), self.driver.named)
        return Reply(201, {"url": blobs.link(self.driver.world.endpoint, path, now)})

    async def _of_resource_manager(self, request: Request, receive: Receive, now: int) -> Reply:
        """Answer azure-mgmt-batch: the account and its pools, with refusals in the form of Resource Manager."""
        identity_here = self.control.identity
        host = identity_here.host or urlsplit(self.driver.world.endpoint).netloc
        account = arm_request.Account(identity_here.account, self.key, host)
        query = dict(wire.query_pairs(request.query))
        arm_call = arm_request.Request(request.verb, request.raw_path, query, request.headers, b"", request.base, now)
        try:
            resource_manager.check_token(account, request.verb, request.headers, self._now())
            arm_call = arm_call._replace(body=await _body(receive))
            return self.driver.change(lambda: resource_manager.answer(self.driver.world, account, arm_call))
        except Fault as fault:
            return resource_manager.refusal(fault)

    async def _carry_out(self, steps: Steps) -> Reply:
        """Step by step, so that a long list does not delay other requests."""
        while True:
            async with self._working:
                reply = await asyncio.to_thread(next, steps)
            if reply is not None:
                return reply

    async def _befall(self, request: Request, operation: str) -> str:
        """How the request was signed; raises the injected faults that strike before the operation."""
        skew = self._strikes("skew", request, operation)
        signed_by = self._authenticate(request, skew.seconds if skew else 0.0)
        if late := self._strikes("latency", request, operation):
            await asyncio.sleep(late.seconds)
        if refusal := self._strikes("error", request, operation):
            fault = Fault(refusal.code)
            fault.retry_after = refusal.retry_after
            raise fault
        return signed_by

    def _cut_short(self, request: Request, operation: str, reply: Reply) -> Reply:
        """The injected faults that strike after the operation: the answer is lost or truncated."""
        if self._strikes("drop", request, operation):
            return reply._replace(cut=0.0)
        if half := self._strikes("truncate", request, operation):
            return reply._replace(cut=max(half.fraction, 0.01))
        return reply

    def _authenticate(self, request: Request, skew: float) -> str:
        """How the request was signed. skew: the seconds by which the clock of the service is ahead of the machine's."""
        now = self._now() + int(skew * wire.SECOND)
        try:
            return tokens.signed_by(self.control.identity.account, self.key, *request[:4], now)
        except Fault as fault:
            fault.date = now
            raise

    def _now(self) -> int:
        """The machine's time, against which signatures and tokens are checked, not the account's."""
        return self.driver.clock.machine_time()

    def _strikes(self, kind: str, request: Request, operation: str) -> Injection | None:
        """An injected fault for this operation on this resource."""
        injections = self.driver.world.injections
        return injections.strike((kind,), unquote(request.raw_path.strip("/")), operation) if injections else None


def _translated(reply: Reply, model: str, revision: int) -> Reply:
    """An answer in the form of the client's service version; `model` is that of each entry of a list."""
    document = reply.document
    if not model or document is None or not models.differs(model, revision):
        return reply
    if isinstance(document.get("value"), list):
        entries = [models.shown(model, entry, revision) for entry in document["value"]]
        return reply._replace(document={**document, "value": entries})
    return reply._replace(document=models.shown(model, document, revision))


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    """The chunks of a body. Raises Disconnected."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _body(receive: Receive) -> bytes:
    """The whole body. Raises Fault 413 past the limit, after reading the rest, and Disconnected."""
    parts: list[bytes] = []
    size = 0
    async for part in _parts(receive):
        size += len(part)
        if size <= MAX_BODY:
            parts.append(part)
        elif size > DRAINED:
            break
    if size > MAX_BODY:
        raise Fault("RequestBodyTooLarge", MaxLimit=str(MAX_BODY))
    return b"".join(parts)


async def _send(reply: Reply, request: Request, request_id: str, date: int, receive: Receive, send: Send) -> None:
    headers = {"Date": wire.http_date(date), "request-id": request_id, **SERVER, **reply.headers}
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
    """Sends the beginning of an answer, then closes the connection."""
    abort = getattr(connection, "abort", lambda: None)

    async def part(message: Message) -> None:
        if not fraction:
            abort()
            await asyncio.sleep(0)  # the server notices the end, and logs no answer that is missing
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            await send({**message, "body": body[: int(len(body) * fraction)], "more_body": True})
            await asyncio.sleep(0.01)  # the client should still receive the part that was written
            abort()
        else:
            await send(message)

    return part


async def _send_slice(content: Slice, receive: Receive, send: Send) -> None:
    """Exactly the announced bytes, with zeros for what a shrinking file lost: a short answer breaks the connection."""
    disconnection = asyncio.ensure_future(_disconnected(receive))
    try:
        with content.file as file:
            file.seek(content.start)
            remaining = content.length
            while remaining and not disconnection.done():
                part = file.read(min(remaining, CHUNK)) or bytes(min(remaining, CHUNK))
                remaining -= len(part)
                await send({"type": "http.response.body", "body": part, "more_body": remaining > 0})
                await asyncio.sleep(0)  # sending without waiting never yields to other tasks
            if not content.length:
                await send({"type": "http.response.body", "body": b""})
    finally:
        disconnection.cancel()


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected; the server silently drops what is sent after that."""
    while (await receive())["type"] != "http.disconnect":
        pass
