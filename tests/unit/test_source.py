"""What of a source directory travels."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.errors import PlanError
from batchtrain.storage.source import read_source


def test_credentials_and_caches_stay_at_home(tmp_path: Path) -> None:
    for name in ("train.py", "credentials.yaml", "x.pyc", "data/a.txt", "__pycache__/y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    assert [file.name for file in read_source(tmp_path)] == ["data/a.txt", "train.py"]


def test_a_program_stays_executable(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x", encoding="utf-8")
    (tmp_path / "run").chmod(0o755)
    assert read_source(tmp_path)[0].mode == 0o755


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is empty"):
        read_source(tmp_path)
