"""The project of a recipe: by its file, or by its path; and a copied directory is another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from batchtrain.config import projects
from batchtrain.config.ids import project_id
from batchtrain.config.projects import FILE, project_of
from batchtrain.errors import DamagedState


def directory(home: Path) -> Path:
    home.mkdir(parents=True)
    return home


def test_without_a_file_the_path_is_the_project(tmp_path: Path) -> None:
    first, second = directory(tmp_path / "a"), directory(tmp_path / "b")
    assert project_of(str(first)) == (project_id(str(first.resolve())), None)
    assert project_of(str(first)) != project_of(str(second))


def test_a_link_to_a_directory_is_the_same_project(tmp_path: Path) -> None:
    first = directory(tmp_path / "a")
    (tmp_path / "link").symlink_to(first)
    assert project_of(str(tmp_path / "link")) == project_of(str(first))


def test_a_new_project_has_a_random_id(tmp_path: Path) -> None:
    home = directory(tmp_path / "a")
    ids = set()
    for _ in range(2):
        projects.write(home)
        project = project_of(str(home))
        assert project.copied is None
        ids.add(project.id)
    assert len(ids) == 2
    assert project_id(str(home)) not in ids


def test_a_copied_directory_is_another_project_until_someone_says_otherwise(tmp_path: Path) -> None:
    home = directory(tmp_path / "a")
    projects.write(home)
    shutil.copytree(home, tmp_path / "copy")
    copy = project_of(str(tmp_path / "copy"))
    assert copy.id == project_id(str(tmp_path / "copy"))
    known = json.loads((home / FILE).read_text())
    assert copy.copied is not None
    assert (copy.copied.id, copy.copied.path) == (known["id"], str(home))
    projects.write(tmp_path / "copy", copy.copied.id)
    assert project_of(str(tmp_path / "copy")) == (known["id"], None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1, "path": "/"}'])
def test_a_file_that_cannot_be_read_is_an_error_and_no_other_project(tmp_path: Path, text: str) -> None:
    home = directory(tmp_path / "a")
    (home / FILE).write_text(text)
    with pytest.raises(DamagedState, match=r"project\.json cannot be read: .*; mend it, or reset it with `mv "):
        project_of(str(home))
