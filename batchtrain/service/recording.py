"""Stores every exchange with the service in a directory, without secrets: BATCHTRAIN_RECORD names it.

An exchange is a JSON file: verb, path, query and body of the request, status, headers and body of the answer. The name
of a file is its time, so the files are in the order of the answers. `python -m tests.replay` replays them on the
emulator.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import HTTPPolicy

from batchtrain.config.masking import masked_request
from batchtrain.config.types.secret import MASK
from batchtrain.plan.diff import NEVER_GIVEN_BACK
from batchtrain.service.answer_body import InvalidAnswer, decoded

VARIABLE = "BATCHTRAIN_RECORD"
HEADERS = frozenset(
    {
        "content-type", "dataserviceid", "dataserviceversion", "etag", "last-modified", "location", "retry-after",
        "server", "strict-transport-security", "www-authenticate", "x-content-type-options",
        "ocp-batch-file-isdirectory", "ocp-batch-file-mode", "ocp-batch-file-url", "ocp-creation-time",
    }
)  # fmt: skip
"""The headers of an answer that are stored; the others belong to the connection or to one request."""
_JSON = "application/json"


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request and its answer. `{base}` stands for the endpoint."""

    verb: str
    path: str
    query: dict[str, str]
    status: int
    headers: dict[str, str]
    """Of the answer."""
    body: Any = None
    """Of the request, if it is JSON."""
    answer: Any = None
    """The JSON document of the answer. The content of files is not stored."""


class Recorder(HTTPPolicy[Any, Any]):
    """Stands before the policies that sign a request, so that it sees no signature and no token."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        """Send the request, and store it with its answer."""
        try:
            response = self.next.send(request)
        except HttpResponseError as error:  # a policy of the SDK turns refusals into errors
            if error.response is not None:
                self._store(request.http_request, error.response)
            raise
        self._store(request.http_request, response.http_response)
        return response

    def _store(self, sent: Any, received: Any) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / f"{time.time_ns():020d}.json"
        path.touch(mode=0o600)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(_exchange(sent, received))))


def _exchange(sent: Any, received: Any) -> Exchange:
    where = urlsplit(sent.url)
    headers = {name.lower(): value for name, value in received.headers.items() if name.lower() in HEADERS}
    exchange = Exchange(
        sent.method,
        where.path,
        dict(parse_qsl(where.query)),
        received.status_code,
        headers,
        _document(getattr(sent, "content", None)),
        _document(received.read()) if _has_document(headers) else None,
    )
    text = msgspec.json.encode(masked_request(_masked(msgspec.to_builtins(exchange))))
    return msgspec.json.decode(text.replace(f"{where.scheme}://{where.netloc}".encode(), b"{base}"), type=Exchange)


def _has_document(headers: Mapping[str, str]) -> bool:
    """Whether an answer is a document of the service; a file of a task may be JSON, too."""
    return headers.get("content-type", "").startswith(_JSON) and "ocp-batch-file-url" not in headers


def _document(body: object) -> Any:
    """The body as a document. Returns None if it is empty, or not JSON."""
    text = body.encode() if isinstance(body, str) else body
    try:
        return decoded(text, Any) if isinstance(text, bytes) and text else None
    except InvalidAnswer:
        return None


def _masked(value: Any) -> Any:
    """A document whose values that the service never gives back are masked."""
    if isinstance(value, Mapping):
        return {name: MASK if name in NEVER_GIVEN_BACK else _masked(item) for name, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value
