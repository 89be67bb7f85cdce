"""The network between the SDK's own transport and the service: the seed decides the fate of each request."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from http.client import RemoteDisconnected
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from tests.simulation.faults import Fates
from tests.simulation.owned import Simulation, current
from tests.simulation.service import Answer, Down, Service

REFUSALS = {429: "TooManyRequests", 500: "InternalError", 503: "ServerBusy"}


class Sent(NamedTuple):
    """A request as it is on the wire."""

    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Network(BaseAdapter):
    """The adapter of the SDK's session, in the place of the one that opens sockets."""

    def __init__(self, sim: Simulation, service: Service, fates: Fates) -> None:
        super().__init__()
        self._sim, self._service, self._fates = sim, service, fates
        self._build = HTTPAdapter().build_response
        self._unreachable: dict[str, float] = {}
        """When the network of a process works again."""

    def send(  # type: ignore[override]
        self, request: requests.PreparedRequest, timeout: Any = None, **_: Any
    ) -> requests.Response:
        fiber = current()
        assert fiber is not None
        read_timeout = timeout[1] if isinstance(timeout, tuple) else timeout or 60.0
        parts = urlsplit(request.url or "")
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        sent_headers = {name: str(value) for name, value in request.headers.items()}
        sent = Sent(request.method or "", target, sent_headers, _bytes(request.body))
        name, number = fiber.process.name, fiber.process.requests + 1
        place = f"{name} request {number}"
        rng = self._fates.at(place)
        fate = self._fates.of_request(sent.verb, place, rng)
        if self._sim.loop.now < self._unreachable.get(name, 0.0):
            fate = "lost before"
        elif fate == "outage":
            self._unreachable[name] = self._sim.loop.now + rng.choice((30, 200, 400))
        self._sim.note(f"{name} {sent.verb} {parts.path} {fate}")
        try:
            answer: Answer = self._sim.request(self._carried(sent, fate, rng), read_timeout)
        except TimeoutError:
            self._sim.note(f"{name} {sent.verb} {parts.path} timed out")
            raise requests.exceptions.ReadTimeout("no answer in time", request=request) from None
        except Down:
            raise requests.exceptions.ConnectionError(
                ProtocolError("Connection aborted.", RemoteDisconnected("closed")), request=request
            ) from None
        is_listing = parts.path.endswith("/files")  # the times of files are the disk's
        self._sim.note(
            f"{name} {sent.verb} {parts.path} -> {answer.status} {'' if is_listing else len(answer.content)}"
        )
        content = answer.content
        headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
        headers["content-length"] = str(len(content))
        if fate == "cut":
            content = content[: len(content) // 2]
        raw = HTTPResponse(
            body=io.BytesIO(content),
            headers=headers,
            status=answer.status,
            reason=requests.status_codes._codes.get(answer.status, [""])[0],
            preload_content=False,
            request_method=sent.verb,
        )
        return self._build(request, raw)

    async def _carried(self, sent: Sent, fate: str, random: Random) -> Answer:
        """The answer of the service, after what befalls the request and the answer. Raises Down."""
        service = self._service
        await self._pause(random.random() * 0.05)
        if fate == "lost before":
            raise Down
        if fate.isdigit() or fate.endswith("+"):
            return _refusal(int(fate.rstrip("+")), random.choice((1, 2, 5)) if fate.endswith("+") else None)
        if fate == "late":
            await self._pause(random.random() * 90)
        answer = await service.answer(sent.verb, sent.target, sent.headers, sent.body)
        if fate == "twice":
            await self._pause(random.random() * 0.02)
            await service.answer(sent.verb, sent.target, sent.headers, sent.body)
        await self._pause(random.random() * 0.05)
        if fate == "service dies before its answer":
            service.die()
        if fate in ("lost after", "outage", "service dies before its answer"):
            raise Down
        return answer

    async def _pause(self, seconds: float) -> None:
        future = self._sim.loop.create_future()
        self._sim.loop.call_later(seconds, future.set_result, None)
        await future

    def close(self) -> None: ...


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
