"""What questions to the service answer if the service says little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.verify import questions
from batchtrain.verify.probe import UNREAD


def answer(document: dict[str, Any], status: int = 200) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, content=b"{}", headers={}, json=lambda: document)


def test_a_task_that_has_not_ended_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PATIENCE_SECONDS", 0)
    task = answer({"state": "active", "executionInfo": {}})
    client: Any = SimpleNamespace(pace=SimpleNamespace(first=0))
    target: Any = SimpleNamespace(
        client=client, job="job", get=lambda path: task, post=lambda *_, **headers: answer({}, 201)
    )
    seen = questions.OF_HOST["stranger"](target)
    assert seen["state"] == "active"
    assert "failed" not in seen


def test_an_account_that_no_subscription_shows_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions.arm, "reach", lambda *_: None)
    monkeypatch.setattr(questions.arm, "account", lambda *_: None)
    client: Any = SimpleNamespace(account=SimpleNamespace(endpoint="https://name.westeurope.batch.azure.com"))
    target = questions.Target(client, SimpleNamespace(), "pool", "job")  # type: ignore[arg-type]  # asks neither
    (seen,) = questions.answers(questions.OF_HOST, frozenset({"account"}), target).values()
    assert "ask for the role Reader" in seen[UNREAD]
