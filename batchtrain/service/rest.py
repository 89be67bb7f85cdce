"""JSON over https, usually with an Entra token, for services that Batch's own SDK does not cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from azure.core import PipelineClient
from azure.core.credentials import TokenCredential
from azure.core.pipeline import policies
from azure.core.rest import HttpRequest

from batchtrain.errors import UsageError
from batchtrain.service.answer_body import next_page, origin, read_as, rows, unquoted
from batchtrain.service.connect import BLOCK, loopback, patience
from batchtrain.service.faults import failure, fault_of, faults
from batchtrain.service.retry import RetryPolicy
from batchtrain.version import __version__

Json = dict[str, Any]
Value = TypeVar("Value")
Read = Callable[[Json], Value]
"""Makes something of a document; raises ValidationError for one of another form."""


class Rest:
    """One service: its URL and the credential. Tokens are sent only to that host, over https.

    Without a credential, requests are not signed, and http is allowed.
    """

    def __init__(
        self, base: str, credential: TokenCredential | None = None, scope: str = "", *, ca: str | None = None
    ) -> None:
        if credential is not None and urlsplit(base).scheme != "https":
            raise UsageError(f"{base} would get the token unencrypted; the URL must begin with https://")
        self._base, self._host = base.rstrip("/"), origin(base)[1]
        sign = [policies.BearerTokenCredentialPolicy(credential, scope)] if credential is not None else []
        self._client: PipelineClient[Any, Any] = PipelineClient(
            base,
            policies=[policies.UserAgentPolicy(f"batchtrain/{__version__}"), RetryPolicy(patience(base)), *sign],
            connection_data_block_size=BLOCK,
            connection_verify=ca or True,
            use_env_settings=not loopback(base),
        )

    def get(
        self, path: str, operation: str, query: Mapping[str, str], read: Read[Value], *, secret: bool = False
    ) -> Value:
        """What `read` makes of a document. secret: no error quotes it. Raises NotFound, NotAllowed, Unreachable or
        another ServiceError."""
        return self._sent(HttpRequest("GET", self._base + path, params=dict(query)), operation, read, secret=secret)

    def patch(self, path: str, operation: str, query: Mapping[str, str], body: Json, read: Read[Value]) -> Value:
        """Change a document; returns what `read` makes of the new one. Raises as `get` does."""
        request = HttpRequest("PATCH", self._base + path, params=dict(query), json=body)
        return self._sent(request, operation, read)

    def listed_as(
        self,
        path: str,
        operation: str,
        query: Mapping[str, str],
        read: Read[Value],
        *,
        items: str = "value",
        link: str = "nextLink",
    ) -> Iterator[Value]:
        """What `read` makes of the items of every page of a list. Raises as `get` does."""

        def page(document: Json) -> tuple[list[Value], str]:
            following = msgspec.convert(document.get(link) or "", str)
            return list(map(read, rows(document.get(items)))), next_page(url, following, links)

        url, links = HttpRequest("GET", self._base + path, params=dict(query)).url, set[str]()
        while url:
            values, url = self._sent(HttpRequest("GET", url), operation, page)
            yield from values

    def listed(self, path: str, operation: str, query: Mapping[str, str]) -> Iterator[Json]:
        """The items of every page of a list. Raises as `get` does."""
        return self.listed_as(path, operation, query, lambda item: item)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _sent(self, request: HttpRequest, operation: str, read: Read[Value], *, secret: bool = False) -> Value:
        with faults(operation, self._host), unquoted() if secret else nullcontext():
            response = self._client.send_request(request)
            if response.status_code < 400:
                return read_as(read, response.content, dict[str, Any], request.url)
        fault = fault_of(response.content)
        text = (fault.text or response.reason or "refused").strip().splitlines()[0].rstrip(".")
        request_id = response.headers.get("x-ms-request-id", "")
        status, date = response.status_code, response.headers.get("Date", "")
        raise failure(operation, fault.code or str(status), text, request_id, status=status, date=date)
