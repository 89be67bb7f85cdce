"""A storage service in a thread of the test process: containers of blobs over HTTP, as much as the emulator uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests import http_server

PAGE = 2
"""Blobs in one page of a list."""


class Blob(NamedTuple):
    data: bytes
    headers: dict[str, str]
    etag: str
    changed: float


class FakeBlobs:
    """`containers` has the blobs of each by name. `failures` are statuses for the next requests instead of answers."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Blob]] = {}
        self.failures: list[int] = []
        self.requests: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.short = 0
        """Bytes that an answer lacks at its end."""
        self.now = 1_000_000_000.0
        """The time of the next change."""
        self.endpoint = ""
        self._blocks: dict[tuple[str, str], bytes] = {}
        self._numbers = itertools.count(1)

    def put(self, container: str, name: str, data: bytes, headers: dict[str, str] | None = None) -> Blob:
        blob = Blob(data, headers or {}, f"0x{next(self._numbers):X}", self.now)
        self.containers.setdefault(container, {})[name] = blob
        return blob

    def texts(self, container: str) -> dict[str, str]:
        return {name: blob.data.decode() for name, blob in self.containers[container].items()}

    def answer(
        self, verb: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.requests.append(f"{verb} {path}")
        self.queries.append(query)
        if self.failures and (status := self.failures.pop(0)):
            return status, {}, b""
        container, _, name = unquote(path).removeprefix("/account/").partition("/")
        if query.get("restype") == "container" and verb == "PUT":
            if container in self.containers:
                return 409, {}, b""
            self.containers[container] = {}
            return 201, {}, b""
        if container not in self.containers:
            return 404, {}, b""
        blobs = self.containers[container]
        if query.get("comp") == "list":
            return 200, {}, self._page(blobs, query)
        if verb == "PUT" and query.get("comp") == "block":
            self._blocks[name, query["blockid"]] = body
            return 201, {}, b""
        if verb == "PUT":
            if query.get("comp") == "blocklist":
                body = b"".join(self._blocks[name, item.text or ""] for item in ElementTree.fromstring(body))
            return 201, {"ETag": f'"{self.put(container, name, body, headers).etag}"'}, b""
        if name not in blobs:
            return 404, {}, b""
        if verb == "DELETE":
            del blobs[name]
            return 202, {}, b""
        return 200, {}, blobs[name].data

    def _page(self, blobs: dict[str, Blob], query: dict[str, str]) -> bytes:
        names = [name for name in sorted(blobs) if name.startswith(query.get("prefix", ""))]
        start = int(query.get("marker", "0"))
        more = str(start + PAGE) if start + PAGE < len(names) else ""
        entries = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Etag>{blobs[name].etag}</Etag>"
            f"<Last-Modified>{formatdate(blobs[name].changed, usegmt=True)}</Last-Modified></Properties></Blob>"
            for name in names[start : start + PAGE]
        )
        return f"<R><Blobs>{entries}</Blobs><NextMarker>{more}</NextMarker></R>".encode()


@contextmanager
def serve() -> Iterator[FakeBlobs]:
    """The service on a free port, until the end of the block."""
    blobs = FakeBlobs()

    def answer(handler: http_server.Handler) -> None:
        where = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        status, more, data = blobs.answer(handler.command, where.path, query, headers, body)
        handler.close_connection = True
        with suppress(OSError):  # the client may be gone
            handler.send_response(status)
            for name, value in {**more, "Content-Length": str(len(data) + blobs.short)}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(data)

    with http_server.serving(answer) as url:
        blobs.endpoint = f"{url}/account"
        yield blobs
