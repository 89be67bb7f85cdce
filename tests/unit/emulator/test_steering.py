"""Commands to a running emulator."""

from __future__ import annotations

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
