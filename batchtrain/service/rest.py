"""JSON over https, usually with an Entra token, for services that Batch's own SDK does not cover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from azure.core import PipelineClient
from azure.core.credentials import TokenCredential
from azure.core.pipeline import policies
from azure.core.rest import HttpRequest

from batchtrain.errors import ServiceError, UsageError
from batchtrain.service.connect import loopback, patience
from batchtrain.service.faults import failure, faults
from batchtrain.service.retry import RetryPolicy
from batchtrain.version import __version__

Json = dict[str, Any]


class Rest:
    """One service: its URL and the credential. Tokens are sent only to that host, over https.

    Without a credential, requests are not signed, and http is allowed.
    """

    def __init__(
        self, base: str, credential: TokenCredential | None = None, scope: str = "", *, ca: str | None = None
    ) -> None:
        if credential is not None and urlsplit(base).scheme != "https":
            raise UsageError(f"{base} would get the token unencrypted; the URL must begin with https://")
        self._base, self._host = base.rstrip("/"), _host(base)
        sign = [policies.BearerTokenCredentialPolicy(credential, scope)] if credential is not None else []
        self._client: PipelineClient[Any, Any] = PipelineClient(
            base,
            policies=[policies.UserAgentPolicy(f"batchtrain/{__version__}"), RetryPolicy(patience(base)), *sign],
            connection_verify=ca or True,
            use_env_settings=not loopback(base),
        )

    def get(self, path: str, operation: str, query: Mapping[str, str]) -> Json:
        """A document. Raises NotFound, NotAllowed, Unreachable or another ServiceError."""
        return self._send(HttpRequest("GET", self._base + path, params=dict(query)), operation)

    def patch(self, path: str, operation: str, query: Mapping[str, str], body: Json) -> Json:
        """Change a document; returns the new one. Raises as `get` does."""
        return self._send(HttpRequest("PATCH", self._base + path, params=dict(query), json=body), operation)

    def listed(
        self, path: str, operation: str, query: Mapping[str, str], *, items: str = "value", link: str = "nextLink"
    ) -> Iterator[Json]:
        """The items of every page of a list. Raises as `get` does."""
        page = self.get(path, operation, query)
        while True:
            yield from page.get(items) or ()
            following = page.get(link)
            if not following:
                return
            if _host(following) != self._host:
                raise ServiceError(f"{operation}: the next page is on another host, {urlsplit(following).netloc}")
            page = self._send(HttpRequest("GET", following), operation)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _send(self, request: HttpRequest, operation: str) -> Json:
        with faults(operation, self._host):
            response = self._client.send_request(request)
        try:
            document = response.json() if response.content else {}
        except ValueError:
            document = {}
        if response.status_code < 400:
            return document if isinstance(document, dict) else {}
        error = document.get("error") if isinstance(document, dict) else None
        code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
        text = str(message or response.reason or "refused").strip().splitlines()[0].rstrip(".")
        request_id = response.headers.get("x-ms-request-id", "")
        status, date = response.status_code, response.headers.get("Date", "")
        raise failure(operation, str(code or status), text, request_id, status=status, date=date)


def _host(url: str) -> str:
    """Host and port; the port of the scheme may be written or not."""
    parts = urlsplit(url)
    return parts.netloc.removesuffix(":443" if parts.scheme == "https" else ":80")
