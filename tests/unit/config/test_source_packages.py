"""The packages that the source of a recipe lists for its local environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.config.source_packages import digest, of_recipe
from batchtrain.errors import PlanError
from tests.unit.plan.jobs import recipe

IMAGE = "example/train"


def listed(home: Path, image: str = IMAGE, **files: str) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    (home / "src").mkdir(exist_ok=True)
    for name, text in files.items():
        (home / "src" / name.replace("__", ".")).write_text(text, encoding="utf-8")
    mine = recipe(task={"docker_image": IMAGE, "source": "src"}, directory=str(home))
    return [(packages.file, packages.lines, packages.arguments) for packages in of_recipe(mine, image)]


def test_requirements_are_installed_as_they_are_and_shown_without_comments(tmp_path: Path) -> None:
    text = "# mine\nrich>=13  # colours\n\n--prefer-binary\nnumpy\n"
    lines = ("rich>=13", "--prefer-binary", "numpy")
    files = {"requirements__txt": text, "pyproject__toml": "[project]\ndependencies = ['x']"}
    assert listed(tmp_path, **files) == [("requirements.txt", lines, ("-r", "requirements.txt"))]
    assert listed(tmp_path, "another/image") == []


def test_without_them_the_dependencies_of_a_project_are_installed(tmp_path: Path) -> None:
    text = "[project]\nname = 'mine'\ndependencies = ['rich>=13', 'numpy; python_version > \"3.9\"']"
    lines = ("rich>=13", 'numpy; python_version > "3.9"')
    assert listed(tmp_path, pyproject__toml=text) == [("pyproject.toml", lines, lines)]


@pytest.mark.parametrize("files", [{}, {"requirements__txt": "# none\n"}, {"pyproject__toml": "[tool.ruff]\n"}])
def test_a_source_that_lists_nothing_needs_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    assert listed(tmp_path, **files) == []
    assert digest(()) == ""


@pytest.mark.parametrize("text", ["[project", "[project]\ndependencies = 'rich'"])
def test_a_project_file_that_cannot_be_read_is_an_error_with_its_path(tmp_path: Path, text: str) -> None:
    with pytest.raises(PlanError, match=r"src/pyproject\.toml cannot be read: "):
        listed(tmp_path, pyproject__toml=text)
