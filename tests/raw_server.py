"""A server that answers every request with given bytes, such as no service should."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Send = Callable[[bytes, str], bytes | Iterable[bytes]]
"""Makes the answer to a request from its bytes and the URL of the server."""


def free_port() -> int:
    """A port of this machine that no program listens on, and that no launcher chooses."""
    with socket.create_server(("", 0)) as free:
        return int(free.getsockname()[1])


def answer(body: Any, status: str = "200 OK", **headers: str) -> bytes:
    """An answer with a body: bytes, or the JSON of a value. headers: `_` for `-`; without Content-Type, JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items() if value)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def without_length(*pieces: bytes, **headers: str) -> list[bytes]:
    """The same in chunks."""
    head = answer(b"", Transfer_Encoding="chunked", Content_Length="", **headers)
    return [head, *(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


class RawServer:
    """A server that runs: its URL, the requests, and how many bytes it could send."""

    def __init__(self, send: Send, tls: ssl.SSLContext | None) -> None:
        self._send, self._tls = send, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection = self._listener.accept()[0]
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), self._secured(connection) as stream:
            if not (request := _received(stream)):
                return
            self.requests.append(request)
            pieces = self._send(request, self.url)
            for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
                stream.sendall(piece)
                self.sent += len(piece)
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(1 << 16):  # a client that has not read everything would lose the end
                pass

    def _secured(self, connection: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection


def _received(stream: socket.socket) -> bytes:
    """A request with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := stream.recv(1 << 16)):
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < int(lengths[0] if lengths else 0):
        body += stream.recv(1 << 16)
    return head + b"\r\n\r\n" + body


@contextmanager
def serve(send: bytes | Iterable[bytes] | Send, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    server = RawServer(send if callable(send) else lambda request, url: send, tls)
    try:
        yield server
    finally:
        server.close()
