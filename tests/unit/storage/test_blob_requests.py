"""Requests to Blob storage: signed as the SDK signs them, through a proxy, and what an error answer becomes."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from datetime import datetime, timezone
from http.client import HTTPConnection, HTTPSConnection, IncompleteRead
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy

from batchtrain.config.types import Secret
from batchtrain.errors import NotAllowed, NotFound, ServiceError, Unreachable, UsageError
from batchtrain.service import clock_difference, retry
from batchtrain.service.answer_body import InvalidAnswer
from batchtrain.service.retry import NEAR, Clock
from batchtrain.storage import blob_requests
from batchtrain.storage.blob_requests import Answer, LocalFault, Request, Span, Storage, blob_path, fault, transient
from tests.unit.service.test_retry import Time

from .blob_server import BlobServer

URL = "https://acct.blob.core.windows.net"


def head(storage: Storage, request: Request) -> tuple[str, dict[str, str]]:
    """The first line of a request, and its headers."""
    first, *lines = storage._head(request).decode("latin-1").split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines if line)


@pytest.mark.parametrize("url", [URL, "http://127.0.0.1:10000/acct"])
@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/box", {"restype": "container", "comp": "list", "prefix": "a b/ü&="}),
        Request("PUT", "/box", {"restype": "container"}),
        Request("PUT", blob_path("box", "a b/ü#.txt"), headers={"x-ms-blob-type": "BlockBlob"}, body=b"x"),
        Request("PUT", "/box/a", {"comp": "block", "blockid": "AA=="}, {"Content-MD5": "bWQ1"}, b"x" * 120),
        Request("GET", "/box/a", headers={"Range": "bytes=0-9", "If-Match": '"1"'}),
        Request("PUT", "/box/a", headers={"Content-Type": "text/plain", "Content-Encoding": "gzip"}, body=b"xy"),
        Request("HEAD", "/box/a", headers={"If-None-Match": "*", "Content-Language": "de"}),
        Request("DELETE", "/box/a", headers={"x-ms-delete-snapshots": "include"}),
    ],
    ids=lambda value: value.method if isinstance(value, Request) else None,
)
def test_a_request_is_signed_as_the_sdk_signs_it(url: str, request_: Request) -> None:
    first, headers = head(Storage(url, "acct", Secret("a2V5")), request_)
    signature = headers.pop("Authorization")
    target = first.split(" ")[1]
    headers["byte_range"] = headers.get("Range", "")  # the SDK's name of it, which is a mistake
    sdk = SimpleNamespace(method=request_.method, headers=headers, query=dict(request_.query))
    sdk.url = f"https://host{target}"
    context = SimpleNamespace(transport=None)
    policy: Any = SharedKeyCredentialPolicy
    policy("acct", "a2V5").on_request(SimpleNamespace(http_request=sdk, context=context))
    assert signature == headers["Authorization"]


def test_a_name_and_a_query_are_percent_encoded() -> None:
    request = Request("GET", blob_path("box", "a b/ü#~?"), {"prefix": "a b&c"})
    first, headers = head(Storage(f"{URL}/", "acct", Secret("a2V5")), request)
    assert first == "GET /box/a%20b/%C3%BC%23~%3F?prefix=a%20b%26c HTTP/1.1"
    assert headers["Host"] == "acct.blob.core.windows.net"


@pytest.mark.parametrize("status", [300, 307])
def test_an_answer_that_leads_elsewhere_is_no_success(blobs: BlobServer, status: int) -> None:
    blobs.refuse = lambda asked: status
    with pytest.raises(Unreachable, match=r"make it: .*: it redirects to nothing"):
        blobs.storage.send("make it", Request("PUT", "/box"))


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_success_with_a_document_is_not_the_services(
    monkeypatch: pytest.MonkeyPatch, blobs: BlobServer, method: str
) -> None:
    monkeypatch.setattr(blob_requests, "received", lambda response: answer(200, b"<html>"))
    with pytest.raises(Unreachable, match="it has a body, which no answer to such a request has"):
        blobs.storage.send("make it", Request(method, "/box"))
    assert blobs.storage.send("read it", Request("GET", "/box")).body == b"<html>"


@pytest.mark.parametrize("status", [400, 503])
def test_a_refusal_whose_body_is_cut_is_a_refusal(status: int) -> None:
    cut: Any = SimpleNamespace(geturl=lambda: URL, status=status, headers={}, read=lambda size: b"", length=5)
    assert blob_requests.received(cut).status == status


@pytest.mark.parametrize(("method", "length"), [("GET", None), ("DELETE", None), ("PUT", "0")])
def test_only_a_put_names_the_length_of_an_empty_body(method: str, length: str | None) -> None:
    assert head(Storage(URL, "acct", None), Request(method, "/box"))[1].get("Content-Length") == length


class Tokens:
    """Issues numbered tokens that last for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes += scopes
        return AccessToken(f"t{len(self.scopes)}", int(time.time() + self.seconds))


@pytest.mark.parametrize(("seconds", "last"), [(3600, "t1"), (300, "t1"), (299, "t2")])
def test_a_token_is_kept_until_five_minutes_before_its_end(
    seconds: float, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    tokens = Tokens(seconds)
    storage = Storage(URL, "acct", None, tokens)
    headers = [head(storage, Request("GET", "/box"))[1]["Authorization"] for _ in range(2)]
    assert headers == ["Bearer t1", f"Bearer {last}"]
    assert set(tokens.scopes) == {"https://storage.azure.com/.default"}


@pytest.mark.parametrize(
    ("variable", "url", "target"),
    [
        ("http_proxy", "http://acct.example", "acct.example:80"),
        ("https_proxy", "https://acct.example", "acct.example:443"),
        ("https_proxy", "https://acct.example:8443", "acct.example:8443"),
        ("all_proxy", "https://acct.example", "acct.example:443"),
    ],
)
def test_a_connection_goes_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, url: str, target: str
) -> None:
    received: list[bytes] = []

    def refuse() -> None:
        connection = listener.accept()[0]
        with connection:
            received.append(connection.recv(4096))
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

    for name in ("no_proxy", "NO_PROXY", variable.upper()):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv(variable, f"http://me:w%40rd@127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(OSError, match="403"):
            Storage(url, "acct", Secret("a2V5"))._opened()
        thread.join()
    request, *headers = received[0].decode().split("\r\n")
    assert request.startswith(f"CONNECT {target} ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:w@rd').decode()}" in headers


@pytest.mark.parametrize("proxy", ["socks5://me:word@proxy:1080", "https://me:word@proxy", "http://me:word@proxy:x"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_login(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(UsageError, match="cannot reach storage accounts: set HTTPS_PROXY") as caught:
        Storage("https://acct.example", "acct", Secret("a2V5"))._opened()
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address"), [("http://proxy", ("proxy", 80)), ("proxy", ("proxy", 80)), ("proxy:3128", ("proxy", 3128))]
)
def test_a_proxy_may_be_named_without_its_scheme_and_port(url: str, address: tuple[str, int]) -> None:
    assert blob_requests._proxy(url) == (*address, {})


def test_a_host_that_needs_no_proxy_is_reached_directly(blobs: BlobServer, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs.store("a", b"x")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert blobs.storage.send("look", Request("HEAD", "/box/a")).status == 200


@pytest.mark.parametrize(("url", "secure"), [(URL, True), ("http://127.0.0.1:10000/acct", False)])
def test_a_connection_is_encrypted_if_the_url_says_so(monkeypatch: pytest.MonkeyPatch, url: str, secure: bool) -> None:
    for kind in (HTTPConnection, HTTPSConnection):
        monkeypatch.setattr(kind, "connect", lambda connection: None)
    assert isinstance(Storage(url, "acct", Secret("a2V5"))._opened(), HTTPSConnection) is secure


def test_a_connection_is_kept_for_the_next_request(blobs: BlobServer) -> None:
    blobs.store("a", b"x" * 10)
    for _ in range(3):
        assert blobs.storage.send("look", Request("HEAD", "/box/a")).status == 200
        assert len(blobs.storage._idle) == 1
    (connection,) = blobs.storage._idle
    blobs.storage.close()
    assert (blobs.storage._idle, connection.sock) == ([], None)


def test_a_connection_waits_longer_for_an_answer_than_to_be_made(blobs: BlobServer) -> None:
    connection = blobs.storage._connection()
    assert connection.timeout == NEAR.connect
    assert connection.sock is not None and connection.sock.gettimeout() == NEAR.read
    connection.close()


def test_an_answer_that_was_not_read_to_its_end_closes_its_connection(blobs: BlobServer) -> None:
    blobs.store("a", b"x" * 10)
    connection = blobs.storage._connection()
    blobs.storage._idle.append(connection)
    with blobs.storage.answer(Request("GET", "/box/a", headers={"Range": "bytes=0-9"})) as response:
        assert response.read(4) == b"xxxx"
    assert (blobs.storage._idle, connection.sock) == ([], None)


def test_a_transient_fault_closes_the_other_kept_connections(blobs: BlobServer) -> None:
    old, connection = blobs.storage._connection(), blobs.storage._connection()
    blobs.storage._idle += [old, connection]
    blobs.refuse = lambda asked: 503 if len(blobs.asked) == 1 else 0
    blobs.storage.send("store", Request("PUT", "/box/a", body=b"x"))
    assert old.sock is None


def test_a_refusal_with_a_document_is_no_answer_with_a_body(monkeypatch: pytest.MonkeyPatch, blobs: BlobServer) -> None:
    monkeypatch.setattr(blob_requests, "received", lambda response: answer(400, DOCUMENT))
    with pytest.raises(ServiceError, match=r"store: No \(OutOfRange\)"):
        blobs.storage.send("store", Request("PUT", "/box/a"))


def test_a_sign_in_that_fails_is_named_with_its_account() -> None:
    class SignedOut(Tokens):
        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            raise ClientAuthenticationError("nobody is signed in")

    with pytest.raises(ServiceError, match="sign in to the storage account: signing in failed"):
        head(Storage(URL, "acct", None, SignedOut(1)), Request("GET", "/box"))


def test_a_transient_fault_is_repeated_and_a_lasting_one_is_not(blobs: BlobServer) -> None:
    blobs.refuse = lambda asked: 503 if len(blobs.asked) < 3 else 0
    blobs.storage.send("store", Request("PUT", "/box/a", body=b"x"))
    assert (len(blobs.asked), blobs.blobs) == (3, {"a": b"x"})
    blobs.refuse = lambda asked: 400
    with pytest.raises(ServiceError, match="store: it answers 400"):
        blobs.storage.send("store", Request("PUT", "/box/b"))
    assert len(blobs.asked) == 4


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


DOCUMENT = b"<Error><Code>OutOfRange</Code><Message>No.\nRequestId:1</Message></Error>"
DETAIL = b"<Error><Message>Long</Message><AuthenticationErrorDetail>Old signature.</AuthenticationErrorDetail></Error>"


@pytest.mark.parametrize(
    ("refusal", "kind", "message", "code"),
    [
        (answer(401, DETAIL), NotAllowed, "refused: Old signature; check the account's key", ""),
        (answer(403), NotAllowed, "refused: it answers 403; check", ""),
        (answer(404, x_ms_error_code="BlobNotFound"), NotFound, r"it is not there \(BlobNotFound\)$", "BlobNotFound"),
        (answer(404), NotFound, r"it is not there \(404\)$", ""),
        (answer(503, DOCUMENT), Unreachable, "send: No$", "OutOfRange"),
        (answer(400, DOCUMENT), ServiceError, r"send: No \(OutOfRange\)$", "OutOfRange"),
        (answer(400, b"<html"), ServiceError, "send: it answers 400$", ""),
    ],
)
def test_an_error_answer_becomes_an_error_with_its_code_and_first_line(
    refusal: Answer, kind: type[ServiceError], message: str, code: str
) -> None:
    error = fault("send", refusal)
    assert (type(error), error.operation, error.code) == (kind, "send", code)
    with pytest.raises(kind, match=message):
        raise error


def test_a_refusal_names_a_clock_that_is_too_far_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_difference, "now", lambda: datetime(2026, 11, 24, 13, 0, tzinfo=timezone.utc))
    old = answer(403, x_ms_error_code="AuthenticationFailed", date="Tue, 24 Nov 2026 12:00:00 GMT")
    assert "this machine's clock is 1 h 0 min ahead of the service's, which allows 15 min" in str(fault("send", old))


def test_an_account_whose_name_does_not_resolve_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    passed = Time()
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(retry, "interruptible", lambda stopped: Clock(passed.now, passed.sleep))
    with pytest.raises(Unreachable, match=r"list box: acct\.blob\..* does not answer: its name does not resolve"):
        Storage(URL, "acct", Secret("a2V5")).send("list box", Request("GET", "/box"))
    assert 1.0 < passed.seconds <= retry.UNRESOLVED


def test_a_long_error_document_is_not_parsed() -> None:
    assert answer(400, b"<Error>" + b" " * (1 << 16) + b"<Code>x</Code></Error>").code == ""


@pytest.mark.parametrize(("body", "why"), [(b" \n", "it is empty"), (b"<a", "unclosed token")])
def test_a_list_that_is_no_document_says_why(body: bytes, why: str) -> None:
    with pytest.raises(InvalidAnswer, match=why):
        blob_requests.document(body, "EnumerationResults")


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (answer(503), True),
        (answer(400), False),
        (ConnectionResetError(), True),
        (IncompleteRead(b""), True),
        (ssl.SSLCertVerificationError(), False),
        (ValueError(), False),
    ],
)
def test_another_attempt_is_made_after_what_may_pass(outcome: Answer | BaseException, again: bool) -> None:
    assert transient(outcome) is again


def test_nothing_is_repeated_after_a_stop_and_an_account_that_does_not_answer_says_what_to_check(
    blobs: BlobServer,
) -> None:
    stopped = threading.Event()
    stopped.set()
    blobs.refuse = lambda asked: 503
    with pytest.raises(Unreachable):
        blobs.storage.send("store", Request("PUT", "/box/a"), stopped=stopped)
    assert len(blobs.asked) == 1
    silent = Storage("http://127.0.0.1:9/acct", "acct", Secret("a2V5"))
    with pytest.raises(Unreachable, match=r"list box: 127\.0\.0\.1:9 does not answer: .*; check `account` and"):
        silent.send("list box", Request("GET", "/box"), stopped=stopped)


def test_a_span_is_the_bytes_between_two_positions_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_requests, "PIECE", 4)
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        span = Span(file.fileno(), 1, 8)
        assert (len(span), list(span), list(span)) == (7, [b"1234", b"567"], [b"1234", b"567"])
        with pytest.raises(LocalFault) as raised:
            list(Span(file.fileno(), 8, 11))
    assert raised.value.error is None
    with pytest.raises(LocalFault) as raised:
        list(Span(-1, 0, 1))
    assert isinstance(raised.value.error, OSError)


def test_the_certificates_to_trust_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("")
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert len(blob_requests._trust().get_ca_certs()) > 10
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ssl.SSLError):
        blob_requests._trust()
