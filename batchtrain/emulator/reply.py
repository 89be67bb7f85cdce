"""The input and output of an operation: a call and a reply, independent of any HTTP library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from batchtrain.emulator import models, wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.records import Document, Record
from batchtrain.emulator.tokens import SHARED_KEY
from batchtrain.emulator.versions import CURRENT

NOT_BY_KEY = (
    "The specified type of authentication SharedKey is not allowed when external resources of type {kind} are linked."
)


class Call(NamedTuple):
    """One request: its path is matched and decoded, its body not read yet."""

    path: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Header names in lower case."""
    body: bytes
    raw_path: str
    """The path as received, percent-encoded."""
    base: str
    """`http://host:port` as the client wrote it, for links in the answer."""
    now: int
    revision: int = CURRENT
    """The revision of the client's service version."""
    asked: Mapping[str, str] = {}
    """The query as received, for the link to the next page; empty if `query` says the same."""
    signed_by: str = SHARED_KEY
    """SHARED_KEY or TOKEN: some operations need a token of Microsoft Entra ID."""

    request_id: str = ""

    def read(self, model: str) -> Document:
        """The body in canonical form. Raises Fault 400, and 403 if a shared key is not enough for it."""
        document = models.read(model, models.decode(self.body), revision=self.revision)
        if self.signed_by == SHARED_KEY and (kind := next(models.links(model, document), "")):
            raise Fault("AuthenticationFailed", AuthenticationErrorDetail=NOT_BY_KEY.format(kind=kind))
        return document

    def check(self, record: Record, *, reading: bool = False) -> None:
        """Check the conditional headers against a record. Raises Fault 412 or NotModified."""
        wire.check_conditions(self.headers, record.etag, record.modified, reading=reading)

    def flag(self, name: str) -> bool:
        """A truth value of the query."""
        return self.query.get(name, "").lower() == "true"


class Slice(NamedTuple):
    """Part of an open file, which is closed after it was sent."""

    file: BinaryIO
    start: int
    length: int


class Reply(NamedTuple):
    """One answer; `document` is sent as JSON, `content` as the bytes of a file."""

    status: int
    document: dict[str, Any] | None = None
    headers: Mapping[str, str] = {}
    content: Slice | None = None
    cut: float | None = None
    """An injected fault: only this share of the answer is sent before the connection closes."""
    is_reached: Callable[[], bool] | None = None
    """Whether the state is reached that the answer promises; it is sent then."""


Steps = Iterator[Reply | None]
"""A reply in steps that run off the event loop: each gives None, the last one the reply."""


def stamped(record: Record) -> dict[str, str]:
    """The headers ETag and Last-Modified of a record."""
    return {"ETag": record.etag, "Last-Modified": wire.http_date(record.modified)}


def created(record: Record, url: str) -> Reply:
    """201 with no body, as every create answers."""
    return Reply(201, headers={**stamped(record), "Location": url, "DataServiceId": url})


def accepted(call: Call, record: Record, status: int = 202) -> Reply:
    """The answer to an operation on an object: no body. DataServiceId is the URL of the action, or of the object that a
    PUT or PATCH changed."""
    return Reply(status, headers={**stamped(record), **data_service_id(call)})


def data_service_id(call: Call) -> dict[str, str]:
    """The header DataServiceId: the URL of the request."""
    return {"DataServiceId": f"{call.base}{call.raw_path}"}


ENTITIES = "Microsoft.Azure.Batch.Protocol.Entities"


def element(kind: str, base: str, document: dict[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
    """The answer 200 with one entity."""
    suffix = "" if kind.startswith(ENTITIES) else "/@Element"
    metadata = {"odata.metadata": f"{base}/$metadata#{kind}{suffix}"}
    return Reply(200, {**metadata, **document}, headers or {})
