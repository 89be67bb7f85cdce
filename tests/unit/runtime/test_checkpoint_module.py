"""The module for checkpoints: what counts as complete, what wins, what is removed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchtrain.runtime import batchtrain_checkpoint as checkpoint

MODULE = Path(checkpoint.__file__)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the checkpoints are."""
    monkeypatch.setenv("BATCHTRAIN_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    return tmp_path / "checkpoints"


def written(step: int) -> Path:
    """A checkpoint that lacks its manifest."""
    path = Path(checkpoint.begin(step))
    (path / "part").mkdir()
    (path / "part" / "weights").write_bytes(b"x" * step)
    return path


def completed(step: int) -> Path:
    path = written(step)
    checkpoint.complete(str(path))
    return path


def test_there_is_none_before_the_first() -> None:
    assert checkpoint.newest() is None
    assert checkpoint.step_of(checkpoint.newest()) == 0


def test_the_complete_one_with_the_highest_step_wins() -> None:
    completed(10)
    completed(9)
    written(11)
    assert checkpoint.step_of(checkpoint.newest()) == 10


def test_the_manifest_names_every_file_with_its_size() -> None:
    assert json.loads((completed(3) / "manifest.json").read_text()) == {"version": 1, "files": {"part/weights": 3}}


@pytest.mark.parametrize("text", ["", "{", '{"version": 1', "[]", "{}", '{"files": 3}', '{"files": ["part/weights"]}'])
def test_a_half_written_manifest_is_none(text: str) -> None:
    (written(3) / "manifest.json").write_text(text)
    assert checkpoint.newest() is None


def test_a_file_that_is_short_or_missing_makes_it_incomplete() -> None:
    completed(1)
    path = completed(2) / "part" / "weights"
    path.write_bytes(b"x")
    assert checkpoint.newest() == str(path.parents[2] / "step-1")
    path.unlink()
    assert checkpoint.newest() == str(path.parents[2] / "step-1")


def test_the_newest_two_stay_and_what_has_no_manifest_is_left_alone(directory: Path) -> None:
    written(1)
    (directory / "notes").mkdir()
    for step in (2, 3, 4):
        completed(step)
    written(5)
    completed(6)
    assert {path.name for path in directory.iterdir()} == {"step-1", "step-4", "step-5", "step-6", "notes"}


def test_the_number_to_keep_is_the_tasks(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHTRAIN_CHECKPOINT_KEEP", "1")
    completed(1)
    completed(2)
    assert [path.name for path in directory.iterdir()] == ["step-2"]


def test_a_removal_that_was_interrupted_is_finished_by_the_next(directory: Path) -> None:
    (completed(1) / "part" / "weights").unlink()
    for step in (2, 3):
        completed(step)
    assert {path.name for path in directory.iterdir()} == {"step-2", "step-3"}


def test_what_an_earlier_attempt_left_at_a_step_is_gone_when_it_begins_again() -> None:
    (written(3) / "stale").touch()
    assert list(Path(checkpoint.begin(3)).iterdir()) == []


def test_the_time_left_is_none_without_an_announcement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHTRAIN_PREEMPTION", str(tmp_path / "preemption.json"))
    assert checkpoint.preempted() is None
    (tmp_path / "preemption.json").write_text(json.dumps({"node": "n", "not_before": time.time() + 1000}))
    left = checkpoint.preempted()
    assert left is not None
    assert 0 < left <= 1000


def test_a_shell_program_does_the_same(directory: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run([sys.executable, MODULE, *words], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout.strip()

    assert run("newest") == ""
    path = run("begin", "7")
    (Path(path) / "weights").write_text("w")
    run("complete", path)
    assert run("newest") == path == str(directory / "step-7")
    run("complete", str(directory / "none"), code=2)
    run("nonsense", code=2)
