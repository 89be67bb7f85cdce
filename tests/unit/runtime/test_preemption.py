"""What counts as the announcement of a preemption, and when it happens."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from batchtrain.runtime import preemption

EVENT = {"EventType": "Preempt", "Resources": ["vm_0"], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}
MOMENT = 1474309787.0


@pytest.mark.parametrize(
    ("event", "at"),
    [
        ({}, MOMENT),
        ({"Resources": ["vm_1", "vm_0"]}, MOMENT),
        ({"Resources": ["vm_1"]}, None),
        ({"EventType": "Reboot"}, None),
    ],
)
def test_a_preemption_of_this_machine_is_announced(event: dict[str, Any], at: float | None) -> None:
    assert preemption.announced({"Events": [EVENT | event]}, "vm_0") == at


def test_of_several_announcements_the_earliest_counts() -> None:
    later = EVENT | {"NotBefore": "Mon, 19 Sep 2016 18:29:48 GMT"}
    assert preemption.announced({"Events": [later, EVENT]}, "vm_0") == MOMENT


def test_an_event_that_has_begun_is_now() -> None:
    before = time.time()
    at = preemption.announced({"Events": [EVENT | {"NotBefore": ""}]}, "vm_0")
    assert at is not None
    assert at >= before


@pytest.mark.parametrize("document", [{}, {"Events": []}, {"Events": None}])
def test_a_document_without_events_announces_nothing(document: dict[str, Any]) -> None:
    assert preemption.announced(document, "vm_0") is None


@pytest.mark.parametrize(
    "document",
    [
        b"[1]", b"5", b"\xff", b"[" * 100_000, b'{"Events": [5]}',
        b'{"Events": [{"EventType": "Preempt", "Resources": 5}]}',
        b'{"Events": [{"EventType": "Preempt", "Resources": ["vm_0"], "NotBefore": 5}]}',
    ],
    ids=range(7),
)  # fmt: skip
def test_an_answer_that_is_not_the_services_is_asked_for_again(
    document: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([document, json.dumps({"Events": [EVENT]}).encode()])
    monkeypatch.setattr(preemption, "events", lambda: (next(answers), "vm_0"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert preemption.wait(0) == MOMENT


def test_it_ends_with_the_process_that_it_watches_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATED_NODE", str(tmp_path))
    monkeypatch.setenv("AZ_BATCH_NODE_ROOT_DIR", str(tmp_path))
    assert preemption.wait(2**22 + 1) is None  # above the largest number of a process


def test_the_announcement_on_an_emulated_node_is_written_for_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATED_NODE", str(tmp_path))
    monkeypatch.setenv("AZ_BATCH_NODE_ROOT_DIR", str(tmp_path))
    monkeypatch.setenv("AZ_BATCH_NODE_ID", "tvm-1")
    (tmp_path / "volatile").mkdir()
    (tmp_path / preemption.EMULATED).write_text(json.dumps({"Events": [EVENT]}))
    preemption.main([str(tmp_path / "file"), str(os.getpid())])
    assert json.loads((tmp_path / "file").read_text()) == {"node": "tvm-1", "not_before": MOMENT}


def test_the_file_of_a_rank_that_just_starts_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.pid").write_text("17\n", encoding="utf-8")
    (tmp_path / "1.pid").touch()
    assert preemption.ranks_in(str(tmp_path)) == [17]
