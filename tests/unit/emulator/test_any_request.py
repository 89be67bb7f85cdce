"""Whatever a client sends to whichever operation: it answers or refuses, and the indexes can be stored and read again.

Bodies are made from the emulator's own table of models, mostly as they should be, now and then not.
"""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.emulator import models, query
from batchtrain.emulator.faults import Fault, NotModified
from batchtrain.emulator.reply import Call, Reply
from batchtrain.emulator.routes import ROUTES, Route
from batchtrain.emulator.tokens import TOKEN
from batchtrain.emulator.versions import CURRENT
from batchtrain.emulator.world import World
from tests import examples
from tests.emulation import BASE, POOL, Kept, carried_out
from tests.unit.emulator.test_any_order import Chaos

STEPS = 250
DEPTH = 4
NAMES = ("pool", "job", "task", "schedule", "t1", "t2", "lesser")
FIELDS = {
    name: [
        (field.name, field.kind, field.many, field.required)
        for field in fields
        if field.since <= CURRENT <= field.until
    ]
    for name, fields in models.fields().items()
}
ENUMS = models.enums()
BODIES = {route.name: route.body for route in ROUTES if route.body}
STARTS: dict[str, dict[str, Any]] = {
    "create_pool": POOL,
    "create_job": {"id": "job", "poolInfo": {"poolId": "pool"}},
    "create_job_schedule": {"id": "schedule", "schedule": {}, "jobSpecification": {"poolInfo": {"poolId": "pool"}}},
    "replace_job": {"poolInfo": {"poolId": "pool"}},
    "replace_job_schedule": {"schedule": {}, "jobSpecification": {"poolInfo": {"poolId": "pool"}}},
    "create_task": {"id": "task", "commandLine": "true"},
    "upload_node_logs": {"containerUrl": "http://127.0.0.1:1/c?sig=s", "startTime": "2026-11-21T10:00:00Z"},
}
"""What most of these bodies begin with, so that they are not all refused for the same thing."""
WRONG = (None, [], {}, "", "\0", "x" * 5000, -1, 0, 2**31, 2**70, 1.5, True, [None], {"id": None}, "é\ud800", "NaN")
TEXTS = (
    *NAMES,
    "",
    "true",
    "/bin/sh -c 'echo hello'",
    "$TargetDedicatedNodes = 1;",
    "a b",
    "http://127.0.0.1:1/c?sig=s",
)
DURATIONS = ("PT0S", "PT1S", "PT5M", "PT1H", "P7D", "P10675199DT2H48M5.4775807S", "P99999999999D", "-PT1S")
TIMES = ("2026-11-21T10:00:00Z", "2026-11-21T10:00:01.1234567+01:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
QUERIES: dict[str, tuple[str, ...]] = {
    "$filter": (
        "state eq 'active'",
        "id eq 'x' or startswith(id, 'j')",
        "nonsense",
        "creationTime lt DateTime'2026-01-01'",
    ),
    "$select": ("id", "id, state", "nothing", "id,,state", "executionInfo/exitCode"),
    "$expand": ("stats", "nothing"),
    "maxresults": ("1", "0", "1000", "1001", "x", "-1"),
    "$skiptoken": ("0", "3", "x", "99999999999999999999"),
    "recursive": ("true", "false", "x"),
    "force": ("true", "x"),
    "starttime": TIMES,
    "endtime": TIMES,
}
HEADERS: dict[str, tuple[str, ...]] = {
    "if-match": ("*", "0x1", '"0x1"'),
    "if-none-match": ("*", "0x1"),
    "if-modified-since": ("Sat, 21 Nov 2026 10:00:00 GMT", "yesterday"),
    "if-unmodified-since": ("Sat, 21 Nov 2026 10:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"),
    "ocp-range": ("bytes=0-3", "bytes=-", "bytes=9-1", "x"),
}


class Requests(Chaos):
    """A machine as in Chaos, and clients that send anything to anything."""

    def step(self) -> None:
        for _ in range(4):
            with contextlib.suppress(Fault):
                self.client()
        super().step()

    def client(self) -> None:
        if self.random.random() < 0.3:
            super().client()  # or there would seldom be anything to ask about
            return
        route, call = self.request()
        if route.name.startswith(("delete_", "terminate_")) and self.random.random() < 0.7:
            return
        try:
            reply = self.operate(route, call)
        except NotModified:
            return
        msgspec.json.encode(reply.document)

    def operate(self, route: Route, call: Call) -> Reply:
        assert route.operation is not None
        try:
            asked = query.checked(route.query, route.answer, call.query, call.revision)
            reply = route.operation(self.stage.world, call._replace(query=asked))
            return reply if isinstance(reply, Reply) else carried_out(reply)
        except (Fault, NotModified):
            raise
        except Exception as error:
            raise AssertionError(f"{route.name} {call.path} {call.query} {call.headers} {call.body!r}") from error

    def request(self) -> tuple[Route, Call]:
        route = self.random.choice(ROUTES)
        path = tuple(self.segment(route.path.split("/"), index) for index in range(route.path.count("{")))
        body = json.dumps(self.body(route.name)).encode() if route.verb in ("POST", "PUT", "PATCH") else b""
        if self.random.random() < 0.02:
            body = self.random.choice((b"", b"{", b"[]", b"null", b'"text"', b"\xff", b"{}" * 3))
        known = {name: values for name, values in QUERIES.items() if name in route.query or self.random.random() < 0.02}
        asked, headers = self.some(known, 0.1), self.some(HEADERS, 0.03)
        return route, Call(path, asked, headers, body, "/", BASE, self.stage.now, signed_by=TOKEN)

    def segment(self, shape: list[str], index: int) -> str:
        """An id that is likely to be there."""
        before = shape[[at for at, part in enumerate(shape) if part.startswith("{")][index] - 1]
        if before == "nodes" and self.pool_nodes() and self.random.random() < 0.9:
            return str(self.random.choice(self.stage.nodes()).id)
        likely = {"pools": "pool", "jobs": "job", "jobschedules": "schedule", "tasks": "task"}.get(before, "x")
        return likely if self.random.random() < 0.8 else str(self.random.choice((*TEXTS, "../..", "a/b", "\0", "*")))

    def some(self, table: dict[str, tuple[str, ...]], chance: float) -> dict[str, str]:
        return {name: self.random.choice(values) for name, values in table.items() if self.random.random() < chance}

    def body(self, operation: str) -> Any:
        model = BODIES.get(operation)
        if model is None:
            return {}
        if model == "BatchTaskGroup":
            return {"value": [self.body("create_task")] * self.random.randrange(3)}
        document = {**STARTS.get(operation, {}), **self.document(model, 0)}
        if self.random.random() < 0.9:
            document.update(STARTS.get(operation, {}))
        return document

    def document(self, model: str, depth: int) -> dict[str, Any]:
        """What a model needs, and a few of the things it may have."""
        optional = [field[0] for field in FIELDS[model] if not field[3]]
        chosen = set(self.random.sample(optional, min(len(optional), self.random.randrange(4))))
        return {
            name: self.value(kind, depth, many=many)
            for name, kind, many, required in FIELDS[model]
            if name in chosen or required
        }

    def value(self, kind: str, depth: int, *, many: bool = False) -> Any:
        if self.random.random() < 0.02:
            return self.random.choice(WRONG)
        if many:
            return [self.value(kind, depth) for _ in range(self.random.randrange(3))]
        if kind in ENUMS:
            return self.random.choice(ENUMS[kind])
        if kind in FIELDS:
            return self.document(kind, depth + 1) if depth < DEPTH else {}
        return self.random.choice(SCALARS[kind])


GROUP = "/subscriptions/s/resourceGroups/g/providers"
SCALARS: dict[str, tuple[Any, ...]] = {
    "subnet": (f"{GROUP}/Microsoft.Network/virtualNetworks/v/subnets/s", "x"),
    "address": (f"{GROUP}/Microsoft.Network/publicIPAddresses/a", "x"),
    "image": (f"{GROUP}/Microsoft.Compute/galleries/g/images/i", "x"),
    "gallery": ("/sharedGalleries/g/images/i/versions/1.0.0",),
    "str": TEXTS,
    "int": (0, 1, 2, 3, 10, 50, 22, 1000, 50_000, -1, "2"),
    "bool": (True, False, "true", "False"),
    "duration": DURATIONS,
    "time": TIMES,
    "object": ({}, "x", {"a": 2**70}, {"a": [1]}),
}


@pytest.mark.property
@pytest.mark.parametrize("seed", range(examples.count(80)))
def test_any_request_is_answered_or_refused_and_can_be_stored(seed: int, tmp_path: Path) -> None:
    chaos, stage = Requests(seed), Kept(tmp_path / "world.sqlite3")
    chaos.random, chaos.stage = random.Random(f"requests {seed}"), stage
    stage.gang_pool(3)
    stage.job()
    for _ in range(STEPS):
        chaos.step()
    world = stage.world
    again = World(seed="seed")
    assert list(again.restore(stage.store.load())) == []
    assert sorted(again.pools) == sorted(world.pools)
    assert {key: sorted(entry.tasks) for key, entry in again.jobs.items()} == {
        key: sorted(entry.tasks) for key, entry in world.jobs.items()
    }
    stage.store.close()
