"""A storage service in a thread of the test process: containers of blobs over HTTP, as much as the emulator uses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

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

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            where = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(where.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more, data = blobs.answer(self.command, where.path, query, headers, body)
            with suppress(OSError):  # the client may be gone
                self._send(status, more, data)

        def _send(self, status: int, more: dict[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data) + blobs.short))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_DELETE = _do

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        blobs.endpoint = f"http://127.0.0.1:{server.server_address[1]}/account"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield blobs
        finally:
            server.shutdown()
            thread.join()
