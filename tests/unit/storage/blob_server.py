"""A server with blobs in memory, which cuts or refuses answers when a test asks for it."""

from __future__ import annotations

import hashlib
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from batchtrain.config.types import Secret, StorageCredentials
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import Storage
from tests.http_server import Handler, serving


class BlobServer:
    """Its blobs, the blocks that are not committed, and the requests as `VERB NAME COMP RANGE`. The names of blobs
    outside of the container `box` begin with that of their container, which is there if it has a blob."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.md5: dict[str, bytes] = {}
        self.blocks: dict[str, dict[str, bytes]] = {}
        self.versions: dict[str, str] = {}
        """ETags other than `1`."""
        self.page = 5000
        """Blobs that a list has at most."""
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        """Of each request."""
        self.refuse: Callable[[str], int] = lambda asked: 0
        """The status of a refusal, by the request."""
        self.cut: Callable[[str], int | None] = lambda asked: None
        """After how many bytes an answer is cut, by the request."""
        self.lock = threading.Lock()
        self.storage: Storage
        """The account of this server, while it runs."""

    def store(self, name: str, content: bytes) -> None:
        self.blobs[name], self.md5[name] = content, hashlib.md5(content).digest()

    def answer(self, handler: Handler) -> None:
        url = urlsplit(handler.path)
        container, _, name = unquote(url.path).partition("/account/")[2].partition("/")
        above, query = "" if container == "box" else f"{container}/", parse_qs(url.query)
        name = f"{above}{name}" if name else ""
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        comp, span = query.get("comp", [""])[0], handler.headers.get("Range", "")
        asked = f"{handler.command} {name} {comp} {span}".strip()
        with self.lock:
            self.asked.append(asked)
            self.headers.append(dict(handler.headers))
            status = self.refuse(asked)
            content, headers = b"", {}
            if status:
                headers["x-ms-error-code"] = "AuthenticationFailed" if status == 403 else "InvalidResourceName"
            elif handler.command == "PUT":
                status = self._put(name, comp, query, body, handler)
            elif handler.command == "DELETE":
                status = 404 if self.blobs.pop(name, None) is None else 202
            elif comp == "list" and above and not any(blob.startswith(above) for blob in self.blobs):
                status, headers["x-ms-error-code"] = 404, "ContainerNotFound"
            elif comp == "list":
                status, content = 200, self._listing(above, **{key: values[0] for key, values in query.items()})
            elif name not in self.blobs and not comp:
                status = 404
            elif handler.headers.get("If-Match", self._etag(name)) != self._etag(name):
                status = 412
            else:
                status, content = self._get(name, comp, span)
            cut = self.cut(asked)
        handler.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(content if cut is None else content[:cut])
        handler.close_connection = cut is not None

    def _put(
        self,
        name: str,
        comp: str,
        query: dict[str, list[str]],
        body: bytes,
        handler: Handler,
    ) -> int:
        if comp == "block":
            self.blocks.setdefault(name, {})[query["blockid"][0]] = body
        elif comp == "blocklist":
            listed = re.findall(r"<Latest>(.*?)</Latest>", body.decode())
            self.blobs[name] = b"".join(self.blocks[name][block] for block in listed)
            assert (
                handler.headers["x-ms-blob-content-md5"] == b64encode(hashlib.md5(self.blobs[name]).digest()).decode()
            )
            del self.blocks[name]
        elif name:
            self.store(name, body)
        return 201

    def _get(self, name: str, comp: str, span: str) -> tuple[int, bytes]:
        if comp == "blocklist":
            blocks = "".join(
                f"<Block><Name>{k}</Name><Size>{len(v)}</Size></Block>" for k, v in self.blocks.get(name, {}).items()
            )
            return 200, f"<BlockList><UncommittedBlocks>{blocks}</UncommittedBlocks></BlockList>".encode()
        if not span:
            return 200, b""
        first, last = (int(part) for part in span.removeprefix("bytes=").split("-"))
        return 206, self.blobs[name][first : last + 1]

    def _etag(self, name: str) -> str:
        return f'"{self.versions.get(name, "1")}"'

    def _listing(self, above: str, prefix: str = "", marker: str = "", **_: str) -> bytes:
        names = sorted(name for name in self.blobs if name.startswith(above + prefix) and name >= marker)
        items = "".join(
            f"<Blob><Name>{escape(name[len(above) :])}</Name><Properties>"
            f"<Last-Modified>Sun, 22 Nov 2026 00:00:00 GMT</Last-Modified>"
            f"<Etag>{self.versions.get(name, '1')}</Etag><Content-Length>{len(self.blobs[name])}</Content-Length>"
            f"<Content-MD5>{b64encode(self.md5.get(name, b'')).decode()}</Content-MD5></Properties></Blob>"
            for name in names[: self.page]
        )
        following = escape(names[self.page]) if len(names) > self.page else ""
        page = f"<Blobs>{items}</Blobs><NextMarker>{following}</NextMarker>"
        return f"<EnumerationResults>{page}</EnumerationResults>".encode()


@contextmanager
def serve(blobs: BlobServer) -> Iterator[Storage]:
    """The account of a server that runs."""
    with serving(blobs.answer) as url:
        account = StorageCredentials(account="account", account_key=Secret("a2V5"), endpoint=f"{url}/account")
        blobs.storage = blob.connect("link", account)
        yield blobs.storage
        blobs.storage.close()
