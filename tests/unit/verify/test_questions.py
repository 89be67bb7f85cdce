"""What questions to the service answer if the service says little."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.config.types import Credentials, convert
from batchtrain.errors import ServiceError
from batchtrain.verify import questions
from batchtrain.verify.probe import UNREAD


def answer(document: dict[str, Any], status: int = 200) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, content=b"{}", headers={}, json=lambda: document)


def with_storage() -> questions.Target:
    accounts = {"a": {"account": "a", "endpoint": "core.windows.net", "account_key": "eA=="}}
    credentials = convert({"storage": accounts}, Credentials)
    return questions.Target(None, None, "p", "j", credentials)  # type: ignore[arg-type]  # asks neither


def test_a_task_that_has_not_ended_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PATIENCE_SECONDS", 0)
    task = answer({"state": "active", "executionInfo": {}})
    client: Any = SimpleNamespace(pace=SimpleNamespace(first=0))
    target: Any = SimpleNamespace(client=client, job="job", get=lambda path: task, post=lambda *_: answer({}, 201))
    seen = questions.OF_HOST["stranger"](target)
    assert seen["state"] == "active"
    assert "failed" not in seen


def test_a_login_tells_what_it_may_do_on_the_node_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        words.append(command)
        if command[0] == "ssh-keygen":
            Path(f"{command[-1]}.pub").write_text("ssh-ed25519 AAAA\n", encoding="utf-8")
        return SimpleNamespace(returncode=0, stderr="", stdout="batchtrainverify verifygroup\nyes\n4711\nno\n")

    monkeypatch.setattr(questions.subprocess, "run", run)
    posted: list[tuple[str, Any]] = []
    node = {"remoteLoginIPAddress": "20.1.2.3", "remoteLoginPort": 50001}
    task = {"state": "running", "nodeInfo": {"nodeId": "tvm-1"}}
    target: Any = SimpleNamespace(
        client=SimpleNamespace(pace=SimpleNamespace(first=0)),
        pool="p",
        job="j",
        get=lambda path: answer(node if path.endswith("remoteloginsettings") else task),
        post=lambda path, body: posted.append((path, body)) or answer({}, 201),
    )
    seen = questions.OF_HOST["session"](target)
    groups = {"groups": ["batchtrainverify", "verifygroup"], "sudo": True, "process": True, "container": False}
    assert seen == {"code": 0, "error": "", **groups}
    (user,) = (body for path, body in posted if path == "/pools/p/nodes/tvm-1/users")
    assert user == {"name": "batchtrainverify", "isAdmin": True, "sshPublicKey": "ssh-ed25519 AAAA"}
    assert posted[-1][0] == "/jobs/j/tasks/sleeper/terminate"
    assert words[-1][-4:-1] == ["-p", "50001", "batchtrainverify@20.1.2.3"]


def test_a_storage_account_is_asked_with_an_old_date(monkeypatch: pytest.MonkeyPatch) -> None:
    dates: list[float] = []

    def exists(storage: Any, container: str, name: str) -> bool:
        dates.append(storage.ahead)
        raise ServiceError("refused", code="AuthenticationFailed")

    monkeypatch.setattr(questions.blob, "exists", exists)
    target = with_storage()
    assert questions.OF_HOST["storage-date"](target) == "AuthenticationFailed"
    assert dates == [-1200]
    assert UNREAD in questions.answers(questions.OF_HOST, frozenset({"delegated"}), target)["delegated"]


def test_an_account_that_no_subscription_shows_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions.arm, "reach", lambda *_: None)
    monkeypatch.setattr(questions.arm, "account", lambda *_: None)
    client: Any = SimpleNamespace(account=SimpleNamespace(endpoint="https://name.westeurope.batch.azure.com"))
    target = questions.Target(client, SimpleNamespace(), "pool", "job")  # type: ignore[arg-type]  # asks neither
    (seen,) = questions.answers(questions.OF_HOST, frozenset({"account"}), target).values()
    assert "ask for the role Reader" in seen[UNREAD]


def test_the_uploads_of_a_task_are_read_by_their_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = dict[str, Any]()
    names = ("plain/link", "plain/folder/plain", "hidden/.dot", "x")
    storage = SimpleNamespace(send=lambda *_, **__: sent.update(deleted=True))
    monkeypatch.setattr(questions.blob, "connect", lambda *_: storage)
    monkeypatch.setattr(questions.blob, "container_link", lambda *_, **__: "https://a/box?sig")
    monkeypatch.setattr(questions.blob, "stored", lambda *_: [SimpleNamespace(name=name) for name in names])
    monkeypatch.setattr(questions, "_task", lambda _, body: sent.update(body))
    assert questions.OF_HOST["uploads"](with_storage()) == {"plain": ["link", "folder/plain"], "hidden": [".dot"]}
    assert [file["filePattern"] for file in sent["outputFiles"]] == ["**/*", "**/.*"]
    assert sent["deleted"]
