"""Requests to Blob storage: signed, over kept connections, repeated after transient faults.

The SDK needs several times the processor time for a request, which is what small files cost (tests/bench/transfers.py).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import http.client
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree

import certifi
from azure.core.credentials import TokenCredential

from batchtrain.config.types import Secret
from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable, UsageError
from batchtrain.service import answer_body, local_files, retry
from batchtrain.service.answer_body import InvalidAnswer
from batchtrain.service.connect import patience
from batchtrain.service.faults import clock_step, faults, invalid, unreachable

API_VERSION = "2023-11-03"
SCOPE = "https://storage.azure.com/.default"
PIECE = 1 << 18
"""Bytes that are sent or received at once."""
NEVER = threading.Event()
"""Is never set, for a request that nothing stops."""


class Span:
    """Bytes of an open file as the body of a request; they are read while they are sent, and again when repeated."""

    def __init__(self, fd: int, start: int, end: int) -> None:
        self._fd, self._start, self._end = fd, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[bytes]:
        at = self._start
        while at < self._end:
            piece = read_at(self._fd, at, min(PIECE, self._end - at))
            yield piece
            at += len(piece)


class LocalFault(Exception):
    """A fault of this machine's file system, which no other attempt would mend; `error` is None for a file that has
    become shorter."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error


def read_at(fd: int, start: int, size: int) -> bytes:
    """Some of the bytes of a file. Raises LocalFault."""
    try:
        piece = local_files.read_at(fd, size, start)
    except OSError as error:
        raise LocalFault(error) from error
    if not piece:
        raise LocalFault
    return piece


class Answer(NamedTuple):
    """An answer that was received completely; of an error its beginning."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""

    @property
    def code(self) -> str:
        """The error code of the service."""
        return self.headers.get("x-ms-error-code") or _text(self.body, "Code")

    @property
    def message(self) -> str:
        """The first line of the service's explanation."""
        detail = _text(self.body, "AuthenticationErrorDetail") or _text(self.body, "Message")
        return (detail.strip().splitlines() or [f"it answers {self.status}"])[0].rstrip(".")


class Request(NamedTuple):
    """A request before it is signed. `path` begins with `/` and is percent-encoded."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes | Span = b""


def received(response: HTTPResponse, body: bytes | None = None) -> Answer:
    """An answer with its body, which is read if it was not. Raises InvalidAnswer."""
    url, status = response.geturl(), response.status
    answer_body.refuse_redirect(status, response.headers.get("Location", ""), url)
    if body is None:
        pieces = iter(lambda: response.read(PIECE), b"")
        body = answer_body.whole(pieces, url) if status < 400 else answer_body.beginning(pieces)
        if response.length and status < 400:
            raise IncompleteRead(b"", response.length)
    return Answer(status, {name.lower(): value for name, value in response.headers.items()}, body, url)


def document(body: bytes, root: str, url: str = "") -> ElementTree.Element:
    """The XML document in the body of an answer. Raises InvalidAnswer."""
    try:
        text = body.decode("utf-8-sig")
        element = None if "<!DOCTYPE" in text else ElementTree.fromstring(text)
    except (UnicodeDecodeError, ElementTree.ParseError) as error:
        why = str(error) if body.strip() else "it is empty"
        raise InvalidAnswer(why, url, body) from error
    if element is None or element.tag != root:
        raise InvalidAnswer(f"it is no {root}", url, body)
    level = [element]
    for _ in range(answer_body.DEPTH):
        level = [child for parent in level for child in parent]
    if level:
        raise InvalidAnswer(f"it is nested more than {answer_body.DEPTH} levels deep", url, body)
    return element


def blob_path(container: str, name: str = "") -> str:
    """The path of a container or of a blob, for a request."""
    path = f"/{quote(container, safe='$')}"
    return f"{path}/{quote(name, safe='/~')}" if name else path


class Storage:
    """A storage account: sends requests, signed by its key or by a token of Entra ID. Threads may share it."""

    def __init__(self, url: str, account: str, key: Secret | None, token: TokenCredential | None = None) -> None:
        self.url, self.account, self.token = url.rstrip("/"), account, token
        self._key = _key(key, account) if key else None
        self._split = urlsplit(self.url)
        self._tokens = _Tokens(token, self._split.netloc) if token is not None else None
        self._patience = patience(url)
        self._idle: list[HTTPConnection] = []
        self.ahead = 0.0
        """Seconds by which the dates of its signatures are ahead; `verify` sets it."""
        self._met = False
        """Whether a connection ever succeeded."""

    def close(self) -> None:
        """Close the kept connections."""
        with suppress(IndexError):  # other threads may take the last one
            while True:
                self._idle.pop().close()

    def send(
        self, operation: str, request: Request, *, allow: tuple[int, ...] = (), stopped: threading.Event = NEVER
    ) -> Answer:
        """The answer to a request, repeated after transient faults until `stopped`. Raises ServiceError that names the
        operation, except for the statuses that `allow` has."""

        def attempt() -> Answer:
            with self.answer(request) as response:
                answer = received(response)
            if request.method in ("PUT", "DELETE") and answer.body and answer.status < 400:
                raise InvalidAnswer("it has a body, which no answer to such a request has", answer.url, answer.body)
            return answer

        return self.checked(operation, attempt, allow=allow, stopped=stopped)

    def checked(
        self,
        operation: str,
        attempt: Callable[[], Answer],
        again: Callable[[], bool] = lambda: True,
        *,
        allow: tuple[int, ...] = (),
        stopped: threading.Event = NEVER,
    ) -> Answer:
        """The first answer of `attempt` that is not transient, as for `send`. again: whether to make more attempts."""
        try:
            answer = self._repeated(attempt, lambda: again() and not stopped.is_set(), stopped)
        except InvalidAnswer as error:
            raise invalid(operation, error) from error
        except (OSError, HTTPException) as error:
            what = "`account` and `endpoint` in credentials.yaml, and this machine's network"
            raise unreachable(operation, self._split.netloc, self.url, error, what) from error
        if answer.status >= 400 and answer.status not in allow:
            raise fault(operation, answer)
        return answer

    def _repeated(self, attempt: Callable[[], Answer], again: Callable[[], bool], stopped: threading.Event) -> Answer:
        try:
            answer = attempt()  # almost always the only one
            if not retry.transient_status(answer.status) or not again():
                return answer
        except (OSError, HTTPException) as error:
            if not transient(error) or not again():
                raise
        self.close()  # the other kept connections are as old
        clock = retry.interruptible(stopped)
        return retry.repeated(
            attempt, lambda outcome: again() and transient(outcome), self._patience, clock, met=self._met
        )

    @contextmanager
    def answer(self, request: Request) -> Iterator[HTTPResponse]:
        """The answer to one attempt, whose body the caller reads; the connection is kept if it was read completely."""
        connection = self._connection()
        reusable = False
        try:
            response = self._exchange(connection, request)
            self._met = True
            yield response
            reusable = response.isclosed() and not response.will_close
        finally:
            if reusable:
                self._idle.append(connection)
            else:
                connection.close()

    # --- one attempt ------------------------------------------------------------------------------------------------

    def _connection(self) -> HTTPConnection:
        try:
            return self._idle.pop()
        except IndexError:
            connection = self._opened()
            assert connection.sock is not None
            connection.sock.settimeout(self._patience.read)
            return connection

    def _opened(self) -> HTTPConnection:
        secure, host = self._split.scheme == "https", self._split.hostname or ""
        port = self._split.port or (443 if secure else 80)
        proxy = retry.proxy_of(self.url)
        near, near_port, login = _proxy(proxy) if proxy else (host, port, {})
        connection: HTTPConnection
        if secure:
            connection = http.client.HTTPSConnection(near, near_port, timeout=self._patience.connect, context=_trust())
        else:
            connection = HTTPConnection(near, near_port, timeout=self._patience.connect)
        if proxy:
            connection.set_tunnel(host, port, login)
        connection.connect()
        return connection

    def _exchange(self, connection: HTTPConnection, request: Request) -> HTTPResponse:
        assert connection.sock is not None
        head = self._head(request)
        body = request.body
        try:
            if isinstance(body, bytes):
                connection.sock.sendall(head + body)
            else:
                connection.sock.sendall(head)
                for piece in body:
                    connection.sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a refusal may have come before the body was sent
        response = HTTPResponse(connection.sock, method=request.method)
        response.url = self.url + request.path
        response.begin()
        return response

    def _head(self, request: Request) -> bytes:
        path, length = self._split.path + request.path, len(request.body)
        headers = {
            **request.headers,
            "x-ms-date": formatdate(time.time() + self.ahead, usegmt=True),
            "x-ms-version": API_VERSION,
        }
        if length or request.method == "PUT":
            headers["Content-Length"] = str(length)
        if self._key is not None:
            headers["Authorization"] = self._signature(self._key, request, path, headers)
        elif self._tokens is not None:
            headers["Authorization"] = f"Bearer {self._tokens.get()}"
        target = f"{path}?{urlencode(request.query, quote_via=quote)}" if request.query else path
        lines = [f"{request.method} {target} HTTP/1.1", f"Host: {self._split.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _signature(self, key: bytes, request: Request, path: str, headers: Mapping[str, str]) -> str:
        """SharedKey, as the service prescribes it: the order of these lines is fixed."""
        x_ms_headers = sorted(
            (name.lower(), value) for name, value in headers.items() if name.lower().startswith("x-ms-")
        )
        text = "\n".join(
            [
                request.method,
                *(headers.get(name, "") for name in ("Content-Encoding", "Content-Language")),
                headers.get("Content-Length", "").removeprefix("0"),  # zero is written as nothing
                *(headers.get(name, "") for name in ("Content-MD5", "Content-Type")),
                "",  # x-ms-date replaces the date
                *(headers.get(name, "") for name in ("If-Modified-Since", "If-Match", "If-None-Match")),
                *(headers.get(name, "") for name in ("If-Unmodified-Since", "Range")),
                *(f"{name}:{value}" for name, value in x_ms_headers),
                f"/{self.account}{path}",
                *(f"{name.lower()}:{value}" for name, value in sorted(request.query.items())),
            ]
        )
        signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
        return f"SharedKey {self.account}:{signature}"


def _key(key: Secret, account: str) -> bytes:
    try:
        return base64.b64decode(key.reveal(), validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(
            f"the account_key of the storage account `{account}` is not base64: copy the key again from Azure"
        ) from None


def _proxy(url: str) -> tuple[str, int, dict[str, str]]:
    """Host and port of a proxy, and the header with its login. Raises UsageError unless it is an http proxy."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname if parts.scheme == "http" else None, parts.port or 80
    except ValueError:  # a port that is not a number
        host = None
    if not host:
        raise UsageError(
            f"the proxy {retry.proxy_name(url)} cannot reach storage accounts: set HTTPS_PROXY to http://HOST:PORT, or"
            " name their hosts in NO_PROXY"
        )
    login = unquote(parts.netloc.rpartition("@")[0])
    header = {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    return host, port, header


def _trust() -> ssl.SSLContext:
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
    return ssl.create_default_context(cafile=bundle or certifi.where())


class _Tokens:
    """The token of Entra ID, until shortly before its end."""

    def __init__(self, credential: TokenCredential, host: str) -> None:
        self._credential, self._host = credential, host
        self._lock = threading.Lock()
        self._token, self._end = "", 0.0

    def get(self) -> str:
        with self._lock:
            if time.time() > self._end - 300:
                with faults("sign in to the storage account", self._host):
                    token = retry.answered(lambda: self._credential.get_token(SCOPE), met=bool(self._token))
                    self._token, self._end = token.token, token.expires_on
            return self._token


# --- faults ---------------------------------------------------------------------------------------------------------


def transient(outcome: Answer | BaseException) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(outcome, Answer):
        return retry.transient_status(outcome.status)
    return isinstance(outcome, (OSError, HTTPException)) and not isinstance(outcome, ssl.SSLCertVerificationError)


def fault(operation: str, answer: Answer) -> ServiceError:
    """An answer with an error, as an error that names the operation."""
    status, code = answer.status, answer.code
    if status in (401, 403):
        step = clock_step(code, status, answer.headers.get("date")) or "check the account's key in credentials.yaml"
        text = f"{operation}: the storage account refused: {answer.message}; {step}"
        return NotAllowed(text, operation=operation, code=code)
    if status == 404:
        return NotFound(f"{operation}: it is not there ({code or 404})", operation=operation, code=code)
    if retry.transient_status(status):
        return Unreachable(f"{operation}: {answer.message}", operation=operation, code=code)
    return ServiceError(f"{operation}: {answer.message}{f' ({code})' if code else ''}", operation=operation, code=code)


def _text(body: bytes, tag: str) -> str:
    try:
        return document(body[: answer_body.ERROR_BYTES], "Error").findtext(tag) or ""
    except InvalidAnswer:
        return ""
