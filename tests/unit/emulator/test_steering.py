"""Commands to a running emulator."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from batchtrain.emulator import server, steering, wire


def test_the_clock_is_advanced_by_exactly_the_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(server, "ask", lambda method, to, what, body: sent.append(body) or {})
    for hundredths in range(1000):
        steering.advance(None, timedelta(milliseconds=10 * hundredths))  # type: ignore[arg-type]
    assert [wire.parse_duration(body["advance"]) for body in sent] == [wire.SECOND // 100 * at for at in range(1000)]


CALLS: list[tuple[Callable[[Any], object], tuple[object, ...]]] = [
    (steering.account, ("GET", "status")),
    (steering.clock, ("GET", "clock")),
    (lambda to: steering.turn(to, "scaled", 60), ("POST", "clock", {"mode": "scaled", "times": 60})),
    (lambda to: steering.turn(to, "real"), ("POST", "clock", {"mode": "real", "times": 1.0})),
    (lambda to: steering.fault(to, "drop", count=1), ("POST", "faults", {"kind": "drop", "count": 1})),
    (steering.faults, ("GET", "faults")),
    (steering.clear_faults, ("DELETE", "faults")),
    (lambda to: steering.clear_faults(to, 3), ("DELETE", "faults/3")),
    (lambda to: steering.limit(to, {"nodes": 3}), ("POST", "capacity", {"nodes": 3})),
    (lambda to: steering.befall(to, "n", "lose"), ("POST", "nodes/n", {"act": "lose"})),
    (
        lambda to: steering.befall(to, "n", "preempt", 0, 5),
        ("POST", "nodes/n", {"act": "preempt", "seconds": 0, "notice": 5}),
    ),
]


@pytest.mark.parametrize(("call", "request_"), CALLS)
def test_a_command_is_one_request(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], object], request_: tuple[object, ...]
) -> None:
    requests: list[tuple[object, ...]] = []

    def ask(verb: str, to: object, *what: object) -> dict[str, Any]:
        requests.append((verb, *what))
        assert to == "emulator"
        return {"id": "7", "value": []}

    monkeypatch.setattr(server, "ask", ask)
    assert call("emulator") in (None, 7, [], {"id": "7", "value": []})
    assert requests == [request_]
