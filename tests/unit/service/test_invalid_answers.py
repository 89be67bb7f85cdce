"""Answers that are not the API's, at every client of a service: exit code 5 with the operation, the URL and a quote."""

from __future__ import annotations

import gc
import gzip
import itertools
import json
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.core.credentials import AccessToken

from batchtrain.cli import failures
from batchtrain.cli.app import root
from batchtrain.config.types import Secret, StorageCredentials
from batchtrain.errors import ServiceError, Unreachable
from batchtrain.plan.task_stream import TaskDocument
from batchtrain.records import File
from batchtrain.service import (
    answer_body,
    arm,
    connect,
    downloads,
    entra,
    files,
    prices,
    read,
    rest,
    retry,
    standing,
    submit,
    vault,
)
from batchtrain.service.connect import Account
from batchtrain.service.entra import SignIn
from batchtrain.service.register import Thing
from batchtrain.service.rest import Rest
from batchtrain.service.submission import Submission
from batchtrain.storage import blob
from tests.certificates import issue
from tests.raw_server import RawServer, answer, serve, without_length
from tests.unit.service.test_retry import Time

TREE = downloads.task_tree("j", "t")
TASK = TaskDocument("t", b'{"id":"t"}')
PATIENCE = retry.NEAR._replace(budget=2.0, refused=2.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts take no time."""
    time = Time()
    clock = retry.Clock(time.now, time.sleep)
    for module in (connect, rest):
        monkeypatch.setattr(module, "RetryPolicy", lambda patience, **_: retry.RetryPolicy(patience, clock))
    monkeypatch.setattr(retry, "interruptible", lambda stopped: clock)
    monkeypatch.setattr(connect, "NEAR", PATIENCE)


def batch(url: str) -> Any:
    return connect.connect(Account(url, "acct", Secret("a2V5")))


def storage(url: str) -> Any:
    credentials = StorageCredentials(account="acct", account_key=Secret("a2V5"), endpoint=f"{url}/acct")
    return blob.connect("link", credentials)


class Door(NamedTuple):
    """A client of a service: what it asks for, and the path that an error names."""

    ask: Callable[[str], Any]
    path: str


DOORS = {
    "pools": Door(lambda url: read.pools(batch(url)), "/pools"),
    "a node": Door(lambda url: read.node(batch(url), "p", "n"), "/pools/p/nodes/n"),
    "tasks": Door(lambda url: list(read.tasks(batch(url), "j")), "/jobs/j/tasks"),
    "counts": Door(lambda url: read.counts(batch(url), "j"), "/jobs/j/taskcounts"),
    "a whole document": Door(lambda url: read.job_document(batch(url), "j"), "/jobs/j"),
    "the tasks of a plan": Door(lambda url: standing.listed(batch(url), "j"), "/jobs/j/tasks"),
    "files": Door(
        lambda url: list(downloads.listed(batch(url), downloads.task_tree("j", "t"))), "/jobs/j/tasks/t/files"
    ),
    "a deletion": Door(lambda url: submit.delete_version(batch(url), Thing("job", "j"), ""), "/jobs/j"),
    "added tasks": Door(
        lambda url: list(Submission(batch(url), "j").add([TaskDocument("t", b'{"id":"t"}')])),
        "/jobs/j/addtaskcollection",
    ),
    "Azure Resource Manager": Door(lambda url: list(arm.accounts(Rest(url), "s")), "/subscriptions/s/providers/Micr"),
    "VM sizes": Door(lambda url: arm.batch_sizes(Rest(url), "s", "l"), "/subscriptions/s/providers/Micr"),
    "prices": Door(lambda url: prices.read("eastus", date(2026, 11, 28), url=f"{url}/api"), "/api"),
    "blobs": Door(lambda url: list(blob.stored(storage(url), "box")), "/acct/box"),
    "an upload": Door(lambda url: blob.make_container(storage(url), "box"), "/acct/box"),
}


def raised(door: Door, send: Any) -> ServiceError:
    with serve(send) as server, pytest.raises(ServiceError) as caught:
        door.ask(server.url)
    return caught.value


NOT_THE_APIS = {
    "an array": answer([1, 2]),
    "a number": answer(5),
    "a text": answer("x"),
    "a page of a proxy": answer(b"<html>\r\n<body>\x1b[31mSign in</body>", Content_Type="text/html"),
    "a page that is called JSON": answer(b"<html>"),
    "a picture": answer(b"\x89PNG\r\n\x1a\n", Content_Type="image/png"),
    "no JSON and no UTF-8": answer(b'"\xff\xfe'),
    "100,000 levels": answer(b"[" * 100_000 + b"]" * 100_000),
    "a number of 5,000 digits": answer(b"9" * 5000),
    "1e400": answer(b"1e400"),
    "what is not gzip": answer(b"[no gzip]", Content_Encoding="gzip"),
    "a cut gzip": answer(gzip.compress(b'{"value": [1, 2, 3, 4, 5, 6, 7, 8, 9]}')[:-12], Content_Encoding="gzip"),
    "an unknown encoding": answer(b"\x0b\x02\x80{}\x03", Content_Encoding="br"),
    "chunks": without_length(b"[1", b", 2]"),
    "no length": answer(b"[1, 2]", Content_Length=""),
    "a redirect to another host": answer(b"", "302 Found", Location="https://elsewhere.example/?sig=secret"),
    "a redirect to its own host": answer(b"", "307 Temporary Redirect", Location="/other"),
}


@pytest.mark.parametrize("send", NOT_THE_APIS.values(), ids=NOT_THE_APIS)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_an_answer_that_is_not_the_apis_is_named_with_its_url_and_quoted(door: Door, send: Any) -> None:
    error = raised(door, send)
    text = str(error)
    assert (type(error), error.exit_code, error.code) == (Unreachable, 5, "InvalidAnswer")
    assert "an answer that is not the API's, from http://127.0.0.1:" in text
    assert f"{door.path}" in text.partition("API's, from ")[2].partition(": ")[0]
    assert text.isprintable(), "a terminal shows it"
    assert "?" not in text and "secret" not in text, "without the query"
    quote = text.partition("it begins with `")[2].partition("`; check")[0]
    assert len(quote.encode()) <= 200
    if isinstance(send, bytes) and b"<html>" in send:
        assert quote.startswith("<html>")


@pytest.mark.parametrize("door", [door for name, door in DOORS.items() if name not in ("a deletion", "an upload")])
def test_nothing_is_no_document(door: Door) -> None:
    assert "it is empty" in str(raised(door, answer(b"")))


def test_a_document_counts_whatever_its_type_is_called() -> None:
    for content_type in ("text/html", "image/png", "", "application/json; charset=latin-1"):
        with serve(answer({"value": [{"id": "p"}]}, Content_Type=content_type)) as server:
            assert [pool.id for pool in read.pools(batch(server.url))] == ["p"]


def item(**properties: Any) -> str:
    return json.dumps({"value": [{"id": "p", **properties}]})


def raw(name: str, value: str) -> str:
    return f'{{"value": [{{"id": "p", "{name}": {value}}}]}}'


OF_ANOTHER_FORM: dict[str, list[str]] = {
    "pools": [
        *(json.dumps({"value": value}) for value in (5, "x", {}, [5], [None], [[]], None)),
        *(item(id=value) for value in (5, None, [], {})),
        *(item(creationTime=value) for value in (5, "yesterday", "2026-01-01T00:00:00", "0000-01-01T00:00:00Z")),
        *(item(metadata=value) for value in (5, [5], {"a": 1}, [{"name": 5}])),
        *(item(currentDedicatedNodes=value) for value in ("x", 2**40, 1.5, [], True)),
        *(item(autoScaleRun=value) for value in (5, "x", [1])),
        *(raw("x", value) for value in ("9" * 5000, "1e400", "[" * 70 + "]" * 70, '{"a":' * 70 + "0" + "}" * 70)),
        '{"value": [], "odata.nextLink": 5}',
    ],
    "a node": [
        json.dumps({"id": "n", "startTaskInfo": value})
        for value in (5, {"exitCode": "x"}, {"startTime": "2026-01-01T00:00:00"}, {"failureInfo": [1]})
    ],
    "tasks": [
        *(item(executionInfo=value) for value in (5, {"exitCode": 2**40}, {"startTime": "soon"}, {"retryCount": -1})),
        *(item(constraints={"maxWallClockTime": value}) for value in (5, "P99999999999D", "a day")),
        *(raw("x", value) for value in ("[" * 100_000 + "]" * 100_000, "[", "1.", '"\\ud800"')),
    ],
    "counts": [json.dumps(value) for value in ({}, {"taskCounts": 5}, {"taskCounts": {"active": "x"}})],
    "a whole document": [
        json.dumps({"id": "j", **value})
        for value in (
            {"state": 5}, {"poolInfo": [1]}, {"poolInfo": {"poolId": 5}}, {"metadata": [{}]}, {"constraints": 1},
        )
    ],
    "the tasks of a plan": [json.dumps({"value": [value]}) for value in ({}, {"id": 5}, 5)],
    "files": [
        json.dumps({"value": [{"name": "a", "properties": {"contentLength": value}}]})
        for value in ("x", -1, 2**70, "9" * 5000, None)
    ],
    "added tasks": [
        json.dumps({"value": [{"taskId": "t", "status": "Success", **value}]})
        for value in ({"taskId": "other"}, {"taskId": 5}, {"status": 5}, {"error": 5})
    ] + ['{"value": []}', '{"value": [{"taskId": "t"}]}'],
    "Azure Resource Manager": [
        json.dumps({"value": [{"name": "a", "id": "/subscriptions/s/resourceGroups/g/x", **value}]})
        for value in (
            {"id": 5}, {"id": "x"}, {"name": None}, {"properties": 5}, {"properties": {"poolQuota": "many"}},
            {"properties": {"dedicatedCoreQuotaPerVMFamily": [5]}},
        )
    ] + ['{"value": 5}', '{"value": [5]}', '{"nextLink": [1]}', "null"],
    "VM sizes": [
        *(json.dumps({"value": [{"name": "a", **value}]})
          for value in ({"capabilities": 5}, {"batchSupportEndOfLife": "soon"}, {"restrictions": [{"type": 5}]})),
        *(json.dumps({"value": [{"name": "a", "capabilities": [{"name": name, "value": value}]}]})
          for name, value in (("vCPUs", "many"), ("MemoryGB", "nan"), ("HyperVGenerations", ""), ("GPUs", "9" * 5000))),
    ],
    "prices": [json.dumps({"Items": value}) for value in (5, [5], [{"retailPrice": "free"}], [{"type": 1}])],
}  # fmt: skip


@pytest.mark.parametrize(
    ("door", "body"), [(door, body) for door, bodies in OF_ANOTHER_FORM.items() for body in bodies]
)
def test_a_document_of_another_form_is_not_the_apis(door: str, body: str) -> None:
    error = raised(DOORS[door], answer(body.encode()))
    assert (type(error), error.code) == (Unreachable, "InvalidAnswer")


def test_a_service_may_claim_any_number_of_retries() -> None:
    run = {"retryCount": 2**40, "requeueCount": 7}
    with serve(answer({"id": "t", "state": "active", "executionInfo": run})) as server:
        task = read.task(batch(server.url), "j", "t")
    assert (task.retries, task.requeues) == (100_000, 7)


BLOB = (
    "<Blob><Name>{name}</Name><Properties><Content-Length>{size}</Content-Length><Last-Modified>{date}</Last-Modified>"
    "<Content-MD5>{md5}</Content-MD5></Properties></Blob>"
)


GOOD_BLOB = {"name": "a", "size": "1", "date": "Sun, 22 Nov 2026 00:00:00 GMT", "md5": "YQ=="}
NO_LISTS_OF_BLOBS = [
    "",
    "<html/>",
    "<EnumerationResults>",
    '<!DOCTYPE a [<!ENTITY b "b">]><EnumerationResults>&b;</EnumerationResults>',
    f"<EnumerationResults>{'<a>' * 100_000}{'</a>' * 100_000}</EnumerationResults>",
    *(
        f"<EnumerationResults><Blobs>{BLOB.format(**{**GOOD_BLOB, name: value})}</Blobs></EnumerationResults>"
        for name, value in (
            ("name", ""), ("size", "x"), ("size", "9" * 5000), ("size", "-1"), ("date", "soon"),
            ("date", "Sun, 22 Nov 99999999999 00:00:00 GMT"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("page", NO_LISTS_OF_BLOBS, ids=range(len(NO_LISTS_OF_BLOBS)))
def test_a_list_of_blobs_of_another_form_is_not_the_apis(page: str) -> None:
    error = raised(DOORS["blobs"], answer(page.encode(), Content_Type="application/xml"))
    assert (type(error), error.code) == (Unreachable, "InvalidAnswer")


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """What earlier tests left is not collected 1,000 calls deep, where its destructors fail."""
    gc.disable()
    yield
    gc.enable()


UNREADABLE = {
    "a page": answer(b"<html>", "{status}", Content_Type="text/html"),
    "a page that is called JSON": answer(b"<html>", "{status}"),
    "an array": answer([1], "{status}"),
    "other types": answer({"code": 5, "message": 7, "values": "x", "error": [1]}, "{status}"),
    "100,000 levels": answer(b'{"error":' * 100_000, "{status}"),
    "a picture": answer(b"\x89PNG", "{status}", Content_Type="image/png"),
    "what is not gzip": answer(b"{", "{status}", Content_Encoding="gzip"),
    "a wrong length": answer(b"{}", "{status}", Content_Length="many"),
    "a date that is none": answer(b"", "{status}", Date="Sun, 22 Nov 99999999999 00:00:00 GMT", Retry_After="never"),
    "nothing": answer(b"", "{status}"),
}


STATUSES = (("404 Not Found", 3), ("400 Bad Request", 4), ("403 No", 4), ("500 Oh", 5))
ERRORS = [(body, *status) for body, status in zip(UNREADABLE.values(), itertools.cycle(STATUSES))]
"""Each body with one status: every door meets all bodies and all statuses, but not all pairs."""


@pytest.mark.parametrize(("body", "status", "code"), ERRORS, ids=UNREADABLE)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_an_error_whose_body_cannot_be_read_counts_by_its_status(
    door: Door, body: bytes, status: str, code: int
) -> None:
    if door is DOORS["added tasks"] and code == 4:
        return  # each task is refused
    with serve(body.replace(b"{status}", status.encode())) as server, pytest.raises(ServiceError) as caught:
        door.ask(server.url)
    assert caught.value.exit_code == code
    assert (len(server.requests) > 1) == (code == 5), "it is repeated"


@pytest.mark.parametrize("door", [door for name, door in DOORS.items() if name not in ("a deletion", "an upload")])
def test_a_body_is_read_until_the_limit_and_not_to_its_end(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_body, "PAGE_BYTES", 1 << 20)
    piece = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
    head = answer(b"", Transfer_Encoding="chunked", Content_Length="")

    def endless(request: bytes, url: str) -> Iterator[bytes]:
        yield head
        while True:
            yield piece

    with serve(endless) as server, pytest.raises(Unreachable, match="it is larger than 1 MiB"):
        door.ask(server.url)
    assert server.sent < 64 << 20


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip"])
def test_a_gzip_bomb_takes_no_memory(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_body, "PAGE_BYTES", 1 << 20)
    bomb = gzip.compress(b" " * (64 << 20))
    bomb = gzip.compress(bomb) if encoding != "gzip" else bomb
    tracemalloc.start()
    try:
        error = raised(DOORS["pools"], answer(bomb, Content_Encoding=encoding))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "it is larger than 1 MiB" in str(error)
    assert peak < 32 << 20


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_body_that_falls_silent_is_a_lost_connection(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "NEAR", PATIENCE._replace(read=0.05))
    silent = threading.Event()

    def send(request: bytes, url: str) -> Iterator[bytes]:
        yield answer(b"[", Content_Length="100")
        silent.wait(60)

    with serve(send) as server, pytest.raises(Unreachable, match=r"no answer in time|timed out"):
        door.ask(server.url)
    silent.set()
    assert retry.FAR.read == 60


# --- lists ------------------------------------------------------------------------------------------------------------


def linked(door: str, link: str) -> bytes:
    """A page with the link of the next one."""
    if door == "blobs":
        return answer(f"<EnumerationResults><Blobs/><NextMarker>{link}</NextMarker></EnumerationResults>".encode())
    name = {"prices": "NextPageLink", "Azure Resource Manager": "nextLink", "VM sizes": "nextLink"}.get(
        door, "odata.nextLink"
    )
    return answer({"value": [], "Items": [], name: link})


LISTS = ("pools", "tasks", "the tasks of a plan", "files", "Azure Resource Manager", "VM sizes", "prices")


@pytest.mark.parametrize("door", [*LISTS, "blobs"])
@pytest.mark.parametrize("pages", [1, 2])
def test_a_list_that_comes_back_to_a_page_has_no_end(door: str, pages: int) -> None:
    count = iter(range(100))
    with (
        serve(lambda request, url: linked(door, f"{url}/p?skip={next(count) % pages}")) as server,
        pytest.raises(Unreachable, match="its next page is one that was read before"),
    ):
        DOORS[door].ask(server.url)
    assert len(server.requests) == pages + 1


@pytest.mark.parametrize("door", [*LISTS, "blobs"])
def test_a_list_whose_pages_are_all_new_ends_with_an_error(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_body, "MOST_PAGES", 3)
    count = itertools.count()
    with (
        serve(lambda request, url: linked(door, f"{url}/p?skip={next(count)}")) as server,
        pytest.raises(Unreachable, match="its list has more than 3 pages"),
    ):
        DOORS[door].ask(server.url)
    assert len(server.requests) == 4


@pytest.mark.parametrize("link", ["https://elsewhere.example/p", "//localhost/p", "{url}@localhost/p", "http://[x/p",
                                  "{url}0/p", "file:///etc/passwd", "{url}.localhost/p"])  # fmt: skip
@pytest.mark.parametrize("door", LISTS)
def test_a_next_page_on_another_host_gets_no_request(door: str, link: str) -> None:
    with (
        serve(lambda request, url: linked(door, link.format(url=url))) as server,
        pytest.raises(Unreachable, match="its next page is on another host"),
    ):
        DOORS[door].ask(server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_redirect_is_not_followed(door: Door, status: str) -> None:
    with serve(answer({"value": []})) as other:
        error = raised(door, answer(b"", status, Location=f"{other.url}/?sig=secret"))
    assert other.requests == []
    assert f"it redirects to {other.url}" in str(error)


# --- files ------------------------------------------------------------------------------------------------------------

FILE = {"Content_Type": "text/plain", "Last_Modified": "Sun, 22 Nov 2026 00:00:00 GMT", "ocp_batch_file_url": "x"}


def fetched(url: str, target: Path, size: int = 5) -> downloads.Fetched:
    wanted = downloads.Wanted(TREE, File("a", size), target)
    (result,) = downloads.fetch(batch(url), [wanted], target.parent, patience=PATIENCE)
    return result


def test_a_file_may_be_larger_than_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_body, "PAGE_BYTES", 1 << 10)
    content = b"x" * (1 << 16)
    with serve(answer(content, **FILE)) as server:
        assert fetched(server.url, tmp_path / "a", len(content)).sha256
    assert (tmp_path / "a").read_bytes() == content


@pytest.mark.parametrize(
    "send",
    [
        answer(b"<htm>", Content_Type="text/html"),
        answer(b"hello", **{**FILE, "Content_Length": "five"}),
        answer(b"", "302 Found", Location="https://elsewhere.example/"),
        [answer(b"", **FILE, Content_Length="", Connection="close") + b"x" * (1 << 20)],
    ],
    ids=["a page", "no length", "a redirect", "too long"],
)
def test_an_answer_that_is_no_file_is_not_written(send: Any, tmp_path: Path) -> None:
    with serve(send) as server:
        result = fetched(server.url, tmp_path / "a")
    assert "an answer that is not the API's" in result.reason
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_a_proxy_is_not_printed_as_the_output_of_a_task() -> None:
    with (
        serve(answer(b"<html>", Content_Type="text/html")) as server,
        pytest.raises(Unreachable, match="a page and not"),
    ):
        list(files.blocks(batch(server.url), TREE, "stdout.txt"))


def test_the_ranges_of_a_file_of_any_size_are_few() -> None:
    spans = downloads.spans(2**62, downloads.RANGE)
    assert len(spans) <= 100_000
    assert (spans[0][0], spans[-1][1]) == (0, 2**62)
    assert downloads.spans(20 << 20, 8 << 20) == ((0, 8 << 20), (8 << 20, 16 << 20), (16 << 20, 20 << 20))


# --- signing in -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls(certificates: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.private_key)
    return context


def signed_in(server: RawServer, ca: str, mode: str = entra.SECRET) -> Any:
    sign_in = SignIn(mode, server.url.partition("://")[2], "tenant", "client", Secret("s3cret"))
    return read.pools(connect.connect(Account(server.url, "acct", sign_in=sign_in, ca=ca)))


def discovery(url: str, **more: str) -> bytes:
    names = ("authorization_endpoint", "token_endpoint", "device_authorization_endpoint", "issuer")
    return answer({**{name: f"{url}/tenant/{name}" for name in names}, "issuer": f"{url}/tenant/v2.0", **more})


TOKENS = {
    "an array": [1],
    "null": None,
    "nothing": {},
    "a number for a token": {"access_token": 5, "expires_in": 3600},
    "two headers": {"access_token": "s3cret\r\nX: y", "expires_in": 3600},
    "no duration": {"access_token": "s3cret", "expires_in": "soon"},
    "a duration below 0": {"access_token": "s3cret", "expires_in": -1},
}


@pytest.mark.parametrize("body", [*TOKENS.values(), b"<html>s3cret", b"[" * 100_000, b"\xff", b'{"expires_in": 1e400}'])
@pytest.mark.parametrize("path", [b"openid-configuration", b"token_endpoint"])
def test_an_answer_that_is_no_token_is_named_and_not_quoted(
    path: bytes, body: Any, certificates: Any, tls: ssl.SSLContext
) -> None:
    def send(request: bytes, url: str) -> bytes:
        return answer(body) if path in request else discovery(url)

    with serve(send, tls) as server, pytest.raises(Unreachable) as caught:
        signed_in(server, str(certificates.ca))
    assert "list pools: signing in: an answer that is not the API's, from https://127.0.0.1:" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["https://elsewhere.example/token", "http://127.0.0.1/token", "https://[x"])
def test_a_secret_is_sent_only_to_its_sign_in_service(endpoint: str, certificates: Any, tls: ssl.SSLContext) -> None:
    with (
        serve(lambda request, url: discovery(url, token_endpoint=endpoint), tls) as server,
        pytest.raises(Unreachable, match="an endpoint of it is on another host"),
    ):
        signed_in(server, str(certificates.ca))
    assert not any(b"s3cret" in request for request in server.requests)


@pytest.mark.parametrize(("status", "code"), [("404 Not Found", 3), ("400 Bad Request", 4)])
def test_a_refused_sign_in_without_a_document_counts_by_its_status(
    status: str, code: int, certificates: Any, tls: ssl.SSLContext
) -> None:
    with serve(answer(b"<html>", status), tls) as server, pytest.raises(ServiceError, match="signing in: ") as caught:
        signed_in(server, str(certificates.ca))
    assert caught.value.exit_code == code


@pytest.mark.parametrize("body", [[1], None, {}, b"<html>", b"[" * 100_000])
def test_a_metadata_service_that_is_none_is_named(
    body: Any, certificates: Any, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(answer(body)) as metadata, serve(answer({"value": []}), tls) as server:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.url)
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
        with pytest.raises(Unreachable, match=r"signing in: an answer that is not the API's, .*`az login`"):
            signed_in(server, str(certificates.ca), entra.DEFAULT)


class Token:
    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken("t0ken", 4_000_000_000)


@pytest.mark.parametrize("body", [["s3cret"], {"value": ["s3cret"]}, b"s3cret"])
def test_a_secret_of_a_vault_is_not_quoted(body: Any, certificates: Any, tls: ssl.SSLContext) -> None:
    with serve(answer(body), tls) as server, pytest.raises(Unreachable) as caught:
        vault.secret(Token(), f"{server.url}/secrets/k", ca=str(certificates.ca), domain=server.url.partition("://")[2])
    assert "read the secret k of" in str(caught.value)
    assert "s3cret" not in str(caught.value)


# --- the command line -------------------------------------------------------------------------------------------------


def test_a_command_ends_with_5_and_one_printable_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(answer(b"<html>\x1b[2J Sign in")) as server:
        monkeypatch.setenv("AZURE_BATCH_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_BATCH_ACCOUNT", "acct")
        monkeypatch.setenv("AZURE_BATCH_ACCESS_KEY", "a2V5")
        with pytest.raises(Unreachable) as caught:
            root.main(["pool", "list"], standalone_mode=False)
    text, code = failures.message_of(caught.value)
    assert code == 5
    assert f"from {server.url}/pools: " in text and "it begins with `<html>[2J Sign in`" in text


def test_an_answer_that_is_no_document_says_what_is_wrong_with_it() -> None:
    with pytest.raises(answer_body.InvalidAnswer, match="JSON is malformed"):
        answer_body.decoded(b"<html>", dict)


def test_a_body_is_read_up_to_its_limit_and_not_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_body, "PAGE_BYTES", 4)
    monkeypatch.setattr(answer_body, "ERROR_BYTES", 4)
    assert answer_body.whole([b"ab", b"cd"], "u") == b"abcd"
    with pytest.raises(answer_body.InvalidAnswer, match="it is larger than"):
        answer_body.whole([b"ab", b"cd", b"e"], "u")
    pieces = iter([b"ab", b"cd", b"ef"])
    assert (answer_body.beginning(pieces), next(pieces)) == (b"abcd", b"ef")
    assert answer_body.beginning([b"abc", b"def"]) == b"abcd"


@pytest.mark.parametrize(
    ("text", "is_size"), [("0", True), ("9" * 18, True), ("9" * 19, False), ("", False), ("-1", False), ("²", False)]
)
def test_a_size_is_a_number_of_at_most_18_digits(text: str, is_size: bool) -> None:
    assert answer_body.is_size(text) is is_size
