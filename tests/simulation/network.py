"""The network between the client and the service and storage: the seed decides the fate of each request."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable, Mapping
from http.client import RemoteDisconnected
from random import Random
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from tests.simulation.doors import COLLECTION, Doors, Sent
from tests.simulation.faults import Fates
from tests.simulation.owned import Process, Simulation, current
from tests.simulation.service import Down, Service
from tests.simulation.storage import Answer

DONE = {
    verb: Answer(status, {}, b"")
    for verb, status in (("GET", 200), ("HEAD", 200), ("POST", 201), ("PUT", 201), ("PATCH", 200), ("DELETE", 202))
}
"""The answer to a request that a planted bug leaves out."""
REFUSALS = {413: "RequestBodyTooLarge", 429: "TooManyRequests", 500: "InternalError", 503: "ServerBusy"}


Server = Callable[[str, str, Mapping[str, str], bytes], Awaitable[Answer]]
"""Answers a request: its verb, path with query, headers and body."""


class Wire:
    """What befalls the requests of all processes, and their answers."""

    def __init__(self, sim: Simulation, service: Service, fates: Fates, doors: Doors) -> None:
        self._sim, self._service, self._fates, self._doors = sim, service, fates, doors
        self._unreachable: dict[str, float] = {}
        """When the network of a process works again."""

    def answer(self, sent: Sent, to: Server, seconds: float) -> Answer:
        """The answer to a request of this thread, cut if that is its fate. Raises Down and TimeoutError."""
        fiber = current()
        assert fiber is not None
        name, number = fiber.process.name, fiber.process.requests + 1
        place = f"{name} request {number}"
        rng = self._fates.at(place)
        fate = self._fates.of_request(sent.verb, place, rng, is_of_service=to == self._service.answer)
        if sent.at("POST", COLLECTION) and len(json.loads(sent.body)["value"]) > 1:
            fate = self._fates.of_collection(place, rng) or fate
        if self._sim.loop.now < self._unreachable.get(name, 0.0):
            fate = "lost before"
        elif fate == "outage":
            self._unreachable[name] = self._sim.loop.now + rng.choice((30, 200, 400))
        path = sent.target.partition("?")[0]
        self._sim.note(f"{name} {sent.verb} {path} {fate}")
        try:
            answer: Answer = self._sim.request(self._carried(fiber.process, sent, to, fate, rng), seconds)
        except TimeoutError:
            self._sim.note(f"{name} {sent.verb} {path} timed out")
            raise
        is_listing = path.endswith("/files")  # the times of files are the disk's
        self._sim.note(f"{name} {sent.verb} {path} -> {answer.status} {'' if is_listing else len(answer.content)}")
        headers = {name.lower(): value for name, value in answer.headers.items()}
        headers.setdefault("content-length", str(len(answer.content)))
        content = answer.content[: len(answer.content) // 2] if fate == "cut" else answer.content
        return Answer(answer.status, headers, content)

    async def _carried(self, process: Process, sent: Sent, to: Server, fate: str, random: Random) -> Answer:
        """The answer of a server, after what befalls the request and the answer. Raises Down."""
        await self._pause(random.random() * 0.05)
        if fate == "lost before":
            raise Down
        if fate.isdigit() or fate.endswith("+"):
            return _refusal(int(fate.rstrip("+")), random.choice((1, 2, 5)) if fate.endswith("+") else None)
        if fate == "late":
            await self._pause(random.random() * 90)
        answer = DONE[sent.verb]
        invariants, path = self._service.invariants, sent.target.partition("?")[0]
        is_of_service = to == self._service.answer
        for request in self._doors.sent(process.name, sent):
            answer = await to(*request)
            if is_of_service and answer.status < 400:  # a deletion that comes late has the version of another pool
                invariants.touched(process, sent.verb, path)
            if is_of_service and sent.verb == "POST" and answer.status == 201:
                invariants.created(process, path, sent.body)
        if fate == "twice":
            await self._pause(random.random() * 0.02)
            for request in self._doors.sent(process.name, sent):
                await to(*request)
        answer = self._doors.answered(process.name, sent, answer)
        await self._pause(random.random() * 0.05)
        if fate == "service dies before its answer":
            self._service.die()
        if fate in ("lost after", "outage", "service dies before its answer"):
            raise Down
        return answer

    async def _pause(self, seconds: float) -> None:
        future = self._sim.loop.create_future()
        self._sim.loop.call_later(seconds, future.set_result, None)
        await future


class Network(BaseAdapter):
    """The adapter of the SDK's session, in the place of the one that opens sockets."""

    def __init__(self, wire: Wire, to: Server) -> None:
        super().__init__()
        self._wire, self._to = wire, to
        self._build = HTTPAdapter().build_response

    def send(  # type: ignore[override]
        self, request: requests.PreparedRequest, timeout: Any = None, **_: Any
    ) -> requests.Response:
        read_timeout = timeout[1] if isinstance(timeout, tuple) else timeout or 60.0
        parts = urlsplit(request.url or "")
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        sent_headers = {name: str(value) for name, value in request.headers.items()}
        sent = Sent(request.method or "", target, sent_headers, _bytes(request.body))
        try:
            answer = self._wire.answer(sent, self._to, read_timeout)
        except TimeoutError:
            raise requests.exceptions.ReadTimeout("no answer in time", request=request) from None
        except Down:
            raise requests.exceptions.ConnectionError(
                ProtocolError("Connection aborted.", RemoteDisconnected("closed")), request=request
            ) from None
        raw = HTTPResponse(
            body=io.BytesIO(answer.content),
            headers=answer.headers,
            status=answer.status,
            reason=_reason(answer.status),
            preload_content=False,
            request_method=sent.verb,
        )
        return self._build(request, raw)

    def close(self) -> None: ...


class Connection:
    """A kept connection of the client's own HTTP code, in the place of `http.client.HTTPConnection` and its socket."""

    def __init__(self, wire: Wire, to: Server) -> None:
        self._wire, self._to = wire, to
        self._sent, self._seconds = bytearray(), 60.0

    @property
    def sock(self) -> Connection:
        return self

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def sendall(self, data: bytes) -> None:
        self._sent += data

    def makefile(self, mode: str) -> io.BytesIO:
        """The bytes of the answer to what was sent; none if the connection is lost. Raises TimeoutError."""
        head, _, body = bytes(self._sent).partition(b"\r\n\r\n")
        self._sent.clear()
        first, *lines = head.decode("latin-1").split("\r\n")
        verb, target, _ = first.split(" ")
        headers = dict(line.split(": ", 1) for line in lines)
        try:
            answer = self._wire.answer(Sent(verb, target, headers, body), self._to, self._seconds)
        except Down:
            return io.BytesIO()
        names = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        start = f"HTTP/1.1 {answer.status} {_reason(answer.status)}\r\n{names}\r\n".encode("latin-1")
        return io.BytesIO(start + answer.content)

    def close(self) -> None: ...


def _reason(status: int) -> str:
    return requests.status_codes._codes.get(status, [""])[0]


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    if hasattr(body, "read"):
        body = body.read()
    elif not isinstance(body, (str, bytes)):
        body = b"".join(body)
    return body.encode() if isinstance(body, str) else bytes(body)


def _refusal(status: int, retry_after: int | None) -> Answer:
    message = {"lang": "en-US", "value": "A fault was asked for."}
    content = json.dumps({"code": REFUSALS[status], "message": message, "values": []}).encode()
    headers = {"content-type": "application/json"} | ({"Retry-After": str(retry_after)} if retry_after else {})
    return Answer(status, headers, content)
