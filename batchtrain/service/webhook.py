"""Sends a JSON document to a webhook."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from batchtrain.config.types import Secret
from batchtrain.service.retry import CLOCK

ATTEMPTS, SECONDS = 3, 5.0
"""How often it is tried, and the time limit of each try."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would be followed without the document."""

    def http_error_302(self, *_: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302  # type: ignore[assignment]


_OPENER = urllib.request.build_opener(_NoRedirects)


def send(url: Secret, document: Mapping[str, Any], sleep: Callable[[float], None] = CLOCK.sleep) -> str:
    """Send a document. Returns why it was not received; empty if it was. The reason does not contain the URL, which may
    be a secret."""
    request = urllib.request.Request(  # a check of the configuration allows only http and https
        url.reveal(), msgspec.json.encode(document), {"Content-Type": "application/json"}, method="POST"
    )
    again = Retrying(
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(max=SECONDS),
        retry=retry_if_exception_type((OSError, http.client.HTTPException)),
        sleep=sleep,
        reraise=True,
    )
    try:
        for attempt in again:
            with attempt, _OPENER.open(request, timeout=SECONDS):  # see above
                pass
    except (OSError, http.client.HTTPException) as error:
        return f"HTTP {error.code}" if isinstance(error, HTTPError) else type(error).__name__
    return ""
