"""Requests no SDK would send, signed all the same: the service's own error shape, never an error of ours."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from batchtrain.emulator import server, wire
from batchtrain.emulator.routes import ROUTES
from tests.contract.ways import ACCOUNT, ENDPOINT, KEY, Answer, Inside

VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "GETT")
PARTS = (
    "pools", "jobs", "tasks", "nodes", "files", "jobschedules", "addtaskcollection", "Pools", "applications", "users",
    "pool", "job", "%00", "%ff", "%", "%2e%2e", "..", "..%2f..%2fetc%2fpasswd", "a%2Fb", "%C3%A9", "x" * 3000, "", " ",
    "_emulator", "health", "resize", "terminate", "{}", "$metadata", "odata.nextLink", "*", "a;b", "a=b",
)  # fmt: skip
QUERIES = (
    "", "api-version=2025-06-01", "api-version", "api-version=2025-06-01&&&", "api-version=2025-06-01&%zz=%zz",
    "api-version=2025-06-01&$filter=((((", "api-version=2025-06-01&$filter=" + "(" * 2000 + "id eq 'x'" + ")" * 2000,
    "api-version=2025-06-01&$filter=%00", "api-version=2025-06-01&$filter=id%20eq%20'%FF'",
    "api-version=2025-06-01&=x",
    "api-version=2025-06-01&maxresults=1&maxresults=2", "api-version=2025-06-01&$skiptoken=-1",
    "API-VERSION=2025-06-01", "api-version=2025-06-01&recursive=x&force=x&$expand=x",
    "api-version=2025-06-01&$select=" + "id," * 3000, "api-version=2025-06-01&timeOut=x", "api-version=0000-00-00",
    "api-version=2025-06-01&endtime=%2B10000-01-01T00:00:00Z&starttime=2026-02-30",
)  # fmt: skip
BODIES = (
    b"", b"{", b"null", b"[]", b"[" * 5000, b'{"id":' * 2000, b"\xff\xfe", b'{"id": "\\ud800"}', b'{"id": 1e999}',
    b"x" * 2_000_000,
    b'{"id": "a", "id": "b"}', b'{"value": [null, 1, {}]}', b'{"value": {}}', b'{"__proto__": {}}', b"--boundary",
    b"{}",
)  # fmt: skip
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"if-match": '"'},
    {"if-modified-since": "yesterday"},
    {"if-unmodified-since": "Fri, 31 Dec 99999 00:00:00 GMT"},
    {"ocp-range": "bytes=99999999999999999999-"},
    {"content-type": "text/xml"},
    {"return-client-request-id": "true", "client-request-id": "é" * 10},
    {"host": "a\"b<c>"},
)  # fmt: skip


class Raw(NamedTuple):
    """What azure-core's requests have, as far as `Inside` looks."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    with Inside(tmp_path_factory.mktemp("raw")) as running:
        yield running


def ask(inside: Inside, verb: str, path: str, query: str, body: bytes, headers: dict[str, str]) -> Answer:
    given = {"ocp-date": wire.http_date(server.clock()), "content-length": str(len(body))}
    given |= {"content-type": "application/json"} if body else {}
    given |= headers
    given.setdefault("authorization", wire.authorization(ACCOUNT, KEY, verb, path, query, given))
    return inside.run(inside.answer(Raw(verb, f"{ENDPOINT}{path}?{query}", given, body)))


def described(answer: Answer) -> Any:
    return json.loads(answer.content) if answer.content else None


@pytest.mark.parametrize("seed", range(30))
def test_what_is_malformed_is_refused_in_the_services_words(inside: Inside, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        shape = chance.choice((*ROUTES, None, None))
        names = shape.path.split("/")[1:] if shape else [chance.choice(PARTS) for _ in range(chance.randrange(1, 7))]
        path = "/" + "/".join(chance.choice(PARTS) if name.startswith("{") else name for name in names)
        body = chance.choice(BODIES) if chance.random() < 0.6 else b""
        verb = shape.verb if shape and chance.random() < 0.9 else chance.choice(VERBS)
        wanted = (verb, path, chance.choice(QUERIES), body, chance.choice(HEADERS))
        answer = ask(inside, *wanted)
        shown = (*wanted[:3], body[:80], wanted[4])
        assert answer.status < 500, (shown, answer)
        if answer.status >= 400 and answer.content:
            document = described(answer)
            assert document["code"] and document["message"]["value"], (shown, document)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:12].decode("latin-1"))
@pytest.mark.parametrize("path", ["/pools", "/jobs", "/jobschedules"])
def test_a_body_that_is_none_makes_nothing(inside: Inside, path: str, body: bytes) -> None:
    answer = ask(inside, "POST", path, "api-version=2025-06-01", body, {})
    assert 400 <= answer.status < 500, answer
    assert described(answer)["code"]
