"""Who may ask: the checks of every request, before any route, and the headers of every answer."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
SIGN_IN = "/api/v1/session"
"""The only route of the API without a token: it takes the token."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SAFE = frozenset({"GET", "HEAD"})
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Keys(NamedTuple):
    """The secrets of one server, new at each start. The cookie has its port in the name: cookies ignore ports."""

    token: str
    session: str
    cookie: str

    def __repr__(self) -> str:
        return f"Keys(cookie={self.cookie!r})"

    def bearer(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the token in its header."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and same(token.strip(), self.token)

    def signed_in(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the cookie."""
        return same(cookie_parser(headers.get("cookie", "")).get(self.cookie, ""), self.session)


def same(text: str, secret: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(text.encode(), secret.encode())


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    message: str


class Guard:
    """Checks each request by its headers alone, whatever its route and method."""

    def __init__(self, app: ASGIApp, keys: Keys, hosts: frozenset[str] = frozenset()) -> None:
        self._app, self._keys, self._hosts = app, keys, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self.refusal(scope["method"], scope["path"], Headers(scope=scope))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store" if scope["path"].startswith(API) else "no-cache")
            await send(message)

        app = JSONResponse({"error": refusal.message}, refusal.status) if refusal else self._app
        await app(scope, receive, guarded)

    def refusal(self, method: str, path: str, headers: Headers) -> Refusal | None:
        """Why a request is refused; None if it is not."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _name_of(f"//{hosts[0]}") not in LOOPBACK | self._hosts:
            return Refusal(400, "this host name is not allowed; `--allow-host NAME` allows it")
        if not self._own_page(method, path, headers):
            return Refusal(403, "another web page may not ask this")
        if not path.startswith(API) or (path == SIGN_IN and method == "POST"):
            return None
        if self._keys.bearer(headers):
            return None
        if not self._keys.signed_in(headers):
            return Refusal(401, "sign in with the link that `batchtrain dashboard` printed")
        if method not in SAFE and "origin" not in headers:
            return Refusal(403, "a change needs an Origin header, or the token as `Authorization: Bearer TOKEN`")
        return None

    def _own_page(self, method: str, path: str, headers: Headers) -> bool:
        """Whether no other web page sent the request. A link on another page may lead to a page of ours."""
        for origin in headers.getlist("origin"):
            name = _name_of(origin)
            if not name or (urlsplit(origin).netloc != headers["host"] and name not in self._hosts):
                return False
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return True
        follows = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return follows and method in SAFE and not path.startswith(API)


def _name_of(url: str) -> str:
    """The host name of a URL; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
