"""The pool and the job of the README: both forms are valid, and make the same launch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import batchtrain as bt
from tests.environments import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```", README, re.M | re.S)
    assert match
    return match[1]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('step 1 loss 0.5')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def from_yaml(directory: Path) -> bt.Recipe:
    lines = block("yaml").splitlines(keepends=True)
    assert len(lines) == 12
    (directory / "pool.yaml").write_text("".join(lines[:6]), encoding="utf-8")
    (directory / "jobs.yaml").write_text("".join(lines[6:]), encoding="utf-8")
    return bt.load(directory)


def from_python() -> bt.Recipe:
    lines = block("python").splitlines()
    assert len(lines) == 4
    values: dict[str, bt.Recipe] = {}
    exec("\n".join(lines[:2]), values)
    return values["recipe"]


def test_the_two_forms_are_the_same_task_on_the_same_nodes(source: Path) -> None:
    yaml, python = from_yaml(source), from_python()
    assert yaml.jobs[0].tasks[0].command == python.jobs[0].tasks[0].command
    assert yaml.jobs[0].tasks[0].multi_instance.pytorch == python.jobs[0].tasks[0].multi_instance.pytorch  # type: ignore[union-attr]
    assert yaml.pool.vm_size == python.pool.vm_size  # type: ignore[union-attr]
    assert yaml.pool.vm_count == python.pool.vm_count  # type: ignore[union-attr]
