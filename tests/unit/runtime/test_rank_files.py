"""The files that keep what each process of a framework prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from batchtrain.runtime.launch import supervisor
from batchtrain.runtime.launch.supervisor import Running, Supervisor


def test_a_file_keeps_the_beginning_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MOST_KEPT", 10)
    path = tmp_path / "rank-0.stdout.txt"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    running = Running(0, 0, [-1, -1], [file, -1])
    nobody: Any = None
    for part in (b"01234567", b"89abcdef", b"more"):
        Supervisor.keep(nobody, running, 0, part)
    os.close(file)
    assert path.read_bytes() == b"0123456789"


def test_without_rank_logs_no_file_is_opened(tmp_path: Path) -> None:
    quiet: Any = type("Quiet", (), {"logs": False})()
    assert Supervisor.open_file(quiet, str(tmp_path / "ranks"), "rank-0", "stdout") == -1
    assert not (tmp_path / "ranks").exists()
