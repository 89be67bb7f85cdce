"""What a run tells its tasks about itself, and the question about a copied recipe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchtrain.cli.connecting import settle_copy
from batchtrain.config import projects
from batchtrain.config.projects import FILE, has_former, project_of
from batchtrain.errors import UsageError
from batchtrain.plan.lineage import Lineage, Resume
from batchtrain.runs import continuations, directory
from batchtrain.runs.beginnings import Beginning, copied_from, lineage_of
from batchtrain.runs.directory import RunDirectory
from tests.unit.plan.jobs import recipe

from .made import made

VOLUME = {"resources": {"volumes": {"shared_data_volumes": {"share": {"volume_driver": "nfs", "source": "h:/p"}}}}}
CHECKPOINT = {"checkpoint": {"volume": "share"}}


def training(home: Path, **more: Any) -> Any:
    return recipe(task=CHECKPOINT, **VOLUME, **{"directory": str(home), **more})


def run_of(root: Path, job: str = "j", project: str = "0123") -> RunDirectory:
    return made(root, job, state="failed", project=project)


def test_a_recipe_without_checkpoints_has_no_lineage(tmp_path: Path) -> None:
    assert lineage_of(recipe(directory=str(tmp_path))) is None


@pytest.mark.parametrize("word", ["fresh", "resume"])
def test_a_beginning_needs_checkpoints(tmp_path: Path, word: str) -> None:
    beginning = Beginning(fresh=True) if word == "fresh" else Beginning(resume=run_of(tmp_path))
    with pytest.raises(UsageError, match=f"`{word}` is about checkpoints, and no task of"):
        lineage_of(recipe(directory=str(tmp_path)), beginning)


@pytest.mark.parametrize(("beginning", "fresh"), [(Beginning(fresh=True), True), (Beginning(), False), (None, False)])
def test_a_run_begins_afresh_only_if_its_user_says_so(tmp_path: Path, beginning: Beginning | None, fresh: bool) -> None:
    assert lineage_of(training(tmp_path), beginning) == Lineage(frozenset({"j"}), fresh=fresh)


def test_a_resumed_run_is_named_with_the_place_of_its_checkpoints(tmp_path: Path) -> None:
    run = run_of(tmp_path, "nightly:job-1")
    lineage = lineage_of(training(tmp_path), Beginning(resume=run))
    assert lineage == Lineage(frozenset({"j"}), resume=Resume(run.name, "0123/nightly_job-1", "j"))


def test_the_job_of_the_resumed_run_continues_it(tmp_path: Path) -> None:
    jobs = [{"id": name, "tasks": [{"command": "x", **CHECKPOINT}]} for name in ("i", "j")]
    run = run_of(tmp_path, "j")
    lineage = lineage_of(training(tmp_path, jobs=jobs), Beginning(resume=run))
    assert lineage == Lineage(frozenset({"i", "j"}), resume=Resume(run.name, "0123/j", "j"))


def test_checkpoints_of_earlier_versions_are_not_those_of_a_copy(tmp_path: Path) -> None:
    assert has_former(str(tmp_path))
    copy = copied(tmp_path)
    assert not has_former(copy.directory)


def test_a_run_without_checkpoints_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say where its checkpoints are"):
        lineage_of(training(tmp_path), Beginning(resume=run_of(tmp_path, project="")))


def test_fresh_and_resume_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        lineage_of(training(tmp_path), Beginning(fresh=True, resume=run_of(tmp_path)))


def copied(home: Path) -> Any:
    """A recipe in a copy of the directory of a project."""
    (home / "mine").mkdir()
    projects.write(home / "mine")
    shutil.copytree(home / "mine", home / "copy")
    return training(home / "copy")


def test_only_a_copy_with_checkpoints_is_asked_about(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    project = copied_from(copy)
    assert project is not None
    assert project.path == str(tmp_path / "mine")
    assert copied_from(training(tmp_path / "mine")) is None
    assert copied_from(recipe(directory=copy.directory)) is None


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_copy_is_asked_about_once(tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, asked = copied(tmp_path), list[str]()

    def confirm(question: str, *, err: bool) -> bool:
        asked.append(question)
        return answer == "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", confirm)
    for _ in range(2):
        settle_copy(copy)
    mine = json.loads((tmp_path / "mine" / FILE).read_text())["id"]
    assert asked == [f"This recipe was copied from {tmp_path / 'mine'}. Continue the checkpoints of that project?"]
    assert (project_of(copy.directory).id == mine) is (answer == "y")


def test_without_a_terminal_no_one_is_asked_and_nothing_is_written(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    before = (tmp_path / "copy" / FILE).read_text()
    with CliRunner().isolation():
        settle_copy(copy)
    assert (tmp_path / "copy" / FILE).read_text() == before


def test_what_a_task_continued_is_a_row_of_the_run(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    continues = {
        "run": "earlier", "step": 4, "commit": "0123456789abcdef", "dirty": True, "finished": False,
        "files": ["train.py"], "settings": ["command"], "nodes": [2, 2], "ranks": [4, 8],
    }  # fmt: skip
    record = {"run": run.name, "training": "/mnt/x", "line": 1, "continues": continues, "more": "is ignored"}
    directory.replace(run.logs("train") / "lineage.json", json.dumps(record).encode())
    directory.replace(run.logs("other") / "lineage.json", json.dumps({**record, "continues": None}).encode())
    directory.replace(run.logs("bad") / "lineage.json", b"{")
    assert continuations.continuation_rows(run) == [
        ("train", "earlier", 4, "0123456789ab+", "train.py, command, ranks 4 → 8")
    ]
