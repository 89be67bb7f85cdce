"""Requests through the SDK's pipeline that the SDK's own methods cannot express, and whether they took effect.

Documents are read without the SDK's models, which take 0.1 ms for each task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from azure.batch import BatchClient
from azure.core.rest import HttpRequest, HttpResponse

from batchtrain.errors import AlreadyExists, NotFound, ServiceError, Unreachable, UsageError
from batchtrain.plan.diff import same
from batchtrain.plan.wire import API_VERSION
from batchtrain.records.record import Time
from batchtrain.service.answer_body import InvalidAnswer, http_date, next_page, read_as
from batchtrain.service.faults import faults
from batchtrain.service.retry import Attempts

CONTENT_TYPE = "application/json; odata=minimalmetadata"
CHANGED = "ConditionNotMet"
CLOCK_STEP = 2.0
"""The precision in seconds of the service's dates, which have whole seconds."""

Document = TypeVar("Document")
Item = TypeVar("Item")
Value = TypeVar("Value")
Body = Mapping[str, Any]
Done = Callable[[Body], bool]
"""Whether a pool, job, task or node is as the request would have made it."""


def quoted(name: str) -> str:
    """An id or a path as one segment of a URL. Raises UsageError if it cannot be one."""
    if not name:
        raise UsageError("an empty id names nothing")
    if name in (".", ".."):  # a part of a path, and so of a URL
        raise UsageError(f"`{name}` is not an id")
    return quote(name, safe="")


def ask(
    client: BatchClient,
    method: str,
    path: str,
    operation: str,
    body: Body | None = None,
    *,
    done: Done | None = None,
    etag: str = "",
) -> None:
    """Send one request. Raises ServiceError, unless an earlier attempt of this call took effect (`done`, checked on
    what exists at the path) and only its answer was lost. etag: of the version that it may change; CHANGED is the code
    of the error for another version."""
    attempts = Attempts()
    try:
        _send(client, method, path, operation, body, attempts, etag)
    except Unreachable:
        raise
    except ServiceError as error:
        if not attempts.unsure or done is None:
            raise
        is_deletion = method == "DELETE"
        thing = path if is_deletion else path.rpartition("/")[0]
        is_gone = is_deletion and isinstance(error, NotFound)
        if not is_gone and not done(answer(client, thing, operation, dict[str, Any])):
            raise


def made(client: BatchClient, path: str, body: Body, attempts: Attempts) -> bool:
    """Whether an earlier attempt of a call that adds `body` created the object at `path`: it has the same values, and
    is not older than the call by the service's own clock. An older pool with the same body does not count."""
    if not attempts.unsure:
        return False
    document, created = _created(client, path)
    age = created.age
    return has(document, body) and age is not None and age <= time.monotonic() - attempts.began + CLOCK_STEP


def posted(client: BatchClient, path: str, body: bytes, attempts: Attempts, version: str = API_VERSION) -> HttpResponse:
    """The answer to a JSON document that is ready to be sent. Raises the errors of the SDK."""
    headers = {"Content-Type": CONTENT_TYPE, "Accept": "application/json"}
    request = HttpRequest("POST", path, params={"api-version": version}, headers=headers, content=body)
    return client.send_request(request, attempts=attempts)


def create(client: BatchClient, path: str, body: Body, attempts: Attempts, version: str = API_VERSION) -> str | None:
    """Send the document of a new thing; returns its ETag, if the answer has it. Raises the errors of the SDK."""
    response = posted(client, path, msgspec.json.encode(body), attempts, version)
    response.raise_for_status()
    return str(response.headers.get("ETag", "")).strip('"') or None


def add(client: BatchClient, operation: str, path: str, body: Body) -> None:
    """Add a task, which has no metadata. Raises AlreadyExists, unless an earlier attempt of this call created it."""
    attempts = Attempts()
    try:
        with faults(operation):
            create(client, path, body, attempts)
    except AlreadyExists:
        if not made(client, f"{path}/{quoted(body['id'])}", body, attempts):
            raise


class Creation(NamedTuple):
    """When something was created, and how many seconds before the service's answer that was (None if unknown)."""

    time: datetime | None
    age: float | None


class _Created(msgspec.Struct, frozen=True, rename="camel"):
    creation_time: Time | None = None


class Page(msgspec.Struct, Generic[Item]):
    """A part of a list, and the link of the next part; empty on the last."""

    value: tuple[Item, ...] = ()
    next: str = msgspec.field(default="", name="odata.nextLink")


def query(params: Mapping[str, str]) -> str:
    """Parameters as the end of a URL, without the empty ones."""
    parameters = {"api-version": API_VERSION, **{name: value for name, value in params.items() if value}}
    return "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())


def answer(client: BatchClient, url: str, operation: str, kind: type[Document]) -> Document:
    """A document of the service. Raises NotFound, and Unreachable for an answer that is not the API's."""
    return answer_as(client, url, operation, kind, _itself)


def listed(client: BatchClient, url: str, operation: str, kind: type[Page[Item]]) -> Iterator[Item]:
    """The documents of a list, which is read page by page. Raises as `answer` does, also for a list without an end."""
    return listed_as(client, url, operation, kind, _itself)


def answer_as(
    client: BatchClient, url: str, operation: str, kind: type[Document], read: Callable[[Document], Value]
) -> Value:
    """What `read` makes of a document; it raises ValidationError for one of another form."""
    with faults(operation):
        return _read(_got(client, url), kind, read)


def listed_as(
    client: BatchClient, url: str, operation: str, kind: type[Page[Item]], read: Callable[[Item], Value]
) -> Iterator[Value]:
    """The same for the documents of a list."""
    links = set[str]()

    def page(document: Page[Item]) -> tuple[list[Value], str]:
        return list(map(read, document.value)), next_page(response.request.url, document.next, links)

    while url:
        with faults(operation):
            response = _got(client, url)
            items, url = _read(response, kind, page)
        yield from items


def _itself(value: Value) -> Value:
    return value


def _got(client: BatchClient, url: str) -> HttpResponse:
    return client.send_request(HttpRequest("GET", url if "?" in url else url + query({})))


def _read(response: HttpResponse, kind: type[Document], read: Callable[[Document], Value]) -> Value:
    return read_as(read, response.content, kind, response.request.url)


def creation(client: BatchClient, path: str) -> Creation:
    """When the object at `path` was created. Raises NotFound."""
    return _created(client, path)[1]


def _created(client: BatchClient, path: str) -> tuple[dict[str, Any], Creation]:
    """The object at `path`, and when it was created."""
    with faults(f"look at {path}"):
        response = _got(client, path)
        document, time = _read(response, dict[str, Any], lambda it: (it, msgspec.convert(it, _Created).creation_time))
    date = http_date(response.headers.get("Date"))
    return document, Creation(time, (date - time.replace(microsecond=0)).total_seconds() if date and time else None)


def has(document: Body, body: Body) -> bool:
    """Whether a document agrees with a request in every text, number and truth value that both have."""
    return all(
        same(document[key], value, key)
        for key, value in body.items()
        if isinstance(value, (str, int, bool)) and key in document
    )


def in_state(*states: str) -> Done:
    """Whether it is in one of these states."""
    return lambda document: str(document.get("state", "")).lower() in states


def _send(
    client: BatchClient, method: str, path: str, operation: str, body: Body | None, attempts: Attempts, etag: str
) -> None:
    request = HttpRequest(method, path, params={"api-version": API_VERSION}, json=body)
    if etag:
        request.headers["If-Match"] = f'"{etag}"'
    if body is not None:
        request.headers["Content-Type"] = CONTENT_TYPE
    with faults(operation):
        response = client.send_request(request, attempts=attempts)
        if response.content.strip():
            raise InvalidAnswer(
                "it has a body, which no answer to such a request has", response.request.url, response.content
            )
