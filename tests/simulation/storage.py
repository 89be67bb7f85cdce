"""A storage account in the process: as much of Blob storage as the client and the nodes use. It does not die."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from datetime import timezone
from email.utils import format_datetime
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy

from tests.simulation import owned

ACCOUNT, KEY = "simulated", "c3RvcmFnZQ=="
HOST = f"{ACCOUNT}.blob.region.example"
PAGE = 4
"""Blobs of a page of a list."""


class Answer(NamedTuple):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Blob(NamedTuple):
    data: bytes
    md5: str
    etag: str
    changed: str


def md5_of(data: bytes) -> str:
    """The MD5 of bytes, as headers have it."""
    return b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


class BlobService:
    """Containers, blobs and blocks in memory. Checks signatures with the code of Azure's SDK."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Blob]] = {}
        self._blocks: dict[tuple[str, str], dict[str, bytes]] = {}
        self._number = 0
        self._policy = SharedKeyCredentialPolicy(ACCOUNT, KEY)  # type: ignore[no-untyped-call]  # the SDK's

    async def answer(self, verb: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a signed request."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if not self._is_signed(verb, target, headers):
            return _fault(403, "AuthenticationFailed")
        container, _, name = unquote(parts.path.lstrip("/")).partition("/")
        return self._of_blob(verb, container, name, query, headers, body) if name else self._of_container(
            verb, container, query
        )  # fmt: skip

    def put(self, container: str, name: str, data: bytes, md5: str = "") -> bool:
        """Store a blob, unless there is no such container."""
        if container not in self.containers:
            return False
        self._number += 1
        changed = format_datetime(owned.Datetime.now(timezone.utc).replace(microsecond=0), usegmt=True)
        self.containers[container][name] = Blob(data, md5 or md5_of(data), f'"{self._number:#x}"', changed)
        return True

    def _is_signed(self, verb: str, target: str, headers: Mapping[str, str]) -> bool:
        names = {"Range": "byte_range"}  # where the SDK signs it
        signed = {names.get(name, name): value for name, value in headers.items() if name != "Authorization"}
        request = PipelineRequest(HttpRequest(verb, f"https://{HOST}{target}", signed), PipelineContext(None))
        self._policy.on_request(request)  # type: ignore[no-untyped-call]  # the SDK's
        return bool(request.http_request.headers["Authorization"] == headers.get("Authorization"))

    def _of_container(self, verb: str, container: str, query: Mapping[str, str]) -> Answer:
        if verb == "PUT":
            if container in self.containers:
                return _fault(409, "ContainerAlreadyExists")
            self.containers[container] = {}
            return Answer(201, {}, b"")
        if container not in self.containers:
            return _fault(404, "ContainerNotFound")
        blobs = self.containers[container]
        names = sorted(name for name in blobs if name.startswith(query.get("prefix", "")))
        names = [name for name in names if name >= query.get("marker", "")]
        entries = "".join(_entry(name, blobs[name]) for name in names[:PAGE])
        marker = names[PAGE] if len(names) > PAGE else ""
        return _xml("EnumerationResults", f"<Blobs>{entries}</Blobs><NextMarker>{escape(marker)}</NextMarker>")

    def _of_blob(
        self, verb: str, container: str, name: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        if container not in self.containers:
            return _fault(404, "ContainerNotFound")
        match verb, query.get("comp"):
            case "PUT", "block":
                self._blocks.setdefault((container, name), {})[query["blockid"]] = body
                return Answer(201, {}, b"")
            case "PUT", "blocklist":
                return self._assembled(container, name, headers, body)
            case "PUT", _:
                md5 = headers.get("Content-MD5")
                if md5 and md5 != md5_of(body):
                    return _fault(400, "Md5Mismatch")
                self.put(container, name, body, headers.get("x-ms-blob-content-md5", ""))
                return Answer(201, {}, b"")
            case "GET", "blocklist":
                return self._block_list(container, name)
        if (blob := self.containers[container].get(name)) is None:
            return _fault(404, "BlobNotFound")
        if verb == "DELETE":
            del self.containers[container][name]
            return Answer(202, {}, b"")
        return _content(verb, blob, headers)

    def _block_list(self, container: str, name: str) -> Answer:
        blocks = self._blocks.get((container, name))
        if blocks is None and name not in self.containers[container]:
            return _fault(404, "BlobNotFound")
        entries = "".join(
            f"<Block><Name>{key}</Name><Size>{len(data)}</Size></Block>" for key, data in (blocks or {}).items()
        )
        text = f"<BlockList><UncommittedBlocks>{entries}</UncommittedBlocks></BlockList>"
        return Answer(200, {"content-type": "application/xml"}, text.encode())

    def _assembled(self, container: str, name: str, headers: Mapping[str, str], body: bytes) -> Answer:
        blocks = self._blocks.get((container, name), {})
        identities = [item.text or "" for item in ElementTree.fromstring(body).iter("Latest")]
        if any(identity not in blocks for identity in identities):
            return _fault(400, "InvalidBlockList")
        data = b"".join(blocks[identity] for identity in identities)
        self.put(container, name, data, headers.get("x-ms-blob-content-md5", ""))
        self._blocks.pop((container, name))
        return Answer(201, {}, b"")


def _content(verb: str, blob: Blob, headers: Mapping[str, str]) -> Answer:
    if headers.get("If-Match", blob.etag) != blob.etag:
        return _fault(412, "ConditionNotMet")
    answered = {"etag": blob.etag, "last-modified": blob.changed, "content-length": str(len(blob.data))}
    if verb == "HEAD":
        return Answer(200, answered, b"")
    if "Range" not in headers:
        return Answer(200, answered, blob.data)
    start, _, end = headers["Range"].removeprefix("bytes=").partition("-")
    if int(start) >= len(blob.data):
        return _fault(416, "InvalidRange")
    data = blob.data[int(start) : int(end) + 1]
    return Answer(206, {**answered, "content-length": str(len(data))}, data)


def _entry(name: str, blob: Blob) -> str:
    properties = (
        f"<Last-Modified>{blob.changed}</Last-Modified><Etag>{blob.etag.strip(chr(34))}</Etag>"
        f"<Content-Length>{len(blob.data)}</Content-Length><Content-MD5>{blob.md5}</Content-MD5>"
    )
    return f"<Blob><Name>{escape(name)}</Name><Properties>{properties}</Properties></Blob>"


def _xml(root: str, content: str) -> Answer:
    return Answer(200, {"content-type": "application/xml"}, f"<{root}>{content}</{root}>".encode())


def _fault(status: int, code: str) -> Answer:
    text = f"<Error><Code>{code}</Code><Message>It was refused.</Message></Error>"
    return Answer(status, {"content-type": "application/xml", "x-ms-error-code": code}, text.encode())
