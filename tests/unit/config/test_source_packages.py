"""The packages that the source of a recipe lists for its local environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.config.source_packages import Package, SourcePackages, allowed_pythons, digest, of_directory, of_recipe
from batchtrain.errors import PlanError
from tests.unit.plan.jobs import recipe

IMAGE = "example/train"


def write(directory: Path, **files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return directory


def listed(
    home: Path, image: str = IMAGE, command: str = "true", **files: str
) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    write(home / "src", **files)
    mine = recipe(task={"docker_image": IMAGE, "source": "src", "command": command}, directory=str(home))
    return [(packages.file, packages.lines, packages.arguments) for packages in of_recipe(mine, image)]


def test_requirements_are_installed_as_they_are_and_shown_without_comments(tmp_path: Path) -> None:
    text = "# mine\nrich>=13  # colours\n\n--prefer-binary\nnumpy\n"
    lines = ("rich>=13", "--prefer-binary", "numpy")
    files = {"requirements__txt": text, "pyproject__toml": "[project]\ndependencies = ['x']"}
    assert listed(tmp_path, **files) == [("requirements.txt", lines, ("-r", "requirements.txt"))]
    assert listed(tmp_path, "another/image") == []


def test_a_line_of_requirements_may_continue_on_the_next_and_hashes_are_for_the_file(tmp_path: Path) -> None:
    text = "# a \\\nnumpy==2.0.0 \\\n    --hash=sha256:aaaa \\\n    --hash=sha256:bbbb\n    # via x\nrich\n"
    packages = of_directory(write(tmp_path, requirements__txt=text))
    assert packages.packages == (Package("numpy==2.0.0", 2), Package("rich", 6))
    assert packages.words() == ("numpy==2.0.0", "rich")


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


STARTS = "python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --epochs 3"
INLINE = '# /// script\n# dependencies = [\n#   "rich>=13",\n# ]\n# ///\nimport rich\n'


def test_the_script_of_the_command_lists_its_packages_itself(tmp_path: Path) -> None:
    files = {"train__py": INLINE, "requirements__txt": "numpy\n"}
    assert listed(tmp_path, command=STARTS, **files) == [("train.py", ("rich>=13",), ("rich>=13",))]
    assert listed(tmp_path, command="python other.py", **files) == [
        ("requirements.txt", ("numpy",), ("-r", "requirements.txt"))
    ]


def test_two_blocks_in_a_script_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"src/train\.py cannot be read: it has two"):
        listed(tmp_path, command=STARTS, train__py=INLINE * 2)


def test_an_environment_of_conda_is_read_as_packages_of_pip(tmp_path: Path) -> None:
    text = """
name: mine
channels: [pytorch]
dependencies:
- python=3.11
- pytorch=2.13
- conda-forge::numpy==2.4.6
- scikit-learn
- rich>=13
- scipy=1.17.0=py311_0
- pip
- pip:
  - transformers==5.23.0
"""
    lines = (
        "torch==2.13.*", "numpy==2.4.6", "scikit-learn", "rich>=13", "scipy==1.17.0.*", "transformers==5.23.0",
    )  # fmt: skip
    assert listed(tmp_path, environment__yml=text) == [("environment.yml", lines, lines)]


@pytest.mark.parametrize(
    ("dependency", "requirement"),
    [
        ("pytorch>=2.0", "torch>=2.0"),
        ("pytorch >=2.0,<3", "torch>=2.0,<3"),
        ("numpy 1.26.*", "numpy==1.26.*"),
        ("numpy 1.26.4 py311_0", "numpy==1.26.4"),
        ("numpy = 1.26", "numpy==1.26.*"),
    ],
)
def test_conda_writes_versions_in_several_ways(tmp_path: Path, dependency: str, requirement: str) -> None:
    text = f"dependencies:\n- {dependency}\n- cudatoolkit>=11\n- pip >=23\n"
    assert of_directory(write(tmp_path, environment__yml=text)).lines == (requirement,)


def test_two_files_with_other_versions_of_a_package_are_an_error_with_both_places(tmp_path: Path) -> None:
    files = {
        "requirements__txt": "numpy\nScikit_Learn==1.9.1\n",
        "pyproject__toml": "[project]\ndependencies = [\n 'numpy>=1',\n 'scikit-learn==1.5.2',\n]",
    }
    with pytest.raises(PlanError) as error:
        listed(tmp_path, **files)
    assert f"{tmp_path}/src/requirements.txt:2 asks for `Scikit_Learn==1.9.1`, and" in str(error.value)
    assert f"{tmp_path}/src/pyproject.toml:4 for `scikit-learn==1.5.2`" in str(error.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [("Scikit_Learn[x]>=1", "scikit-learn"), ("x @ https://a/b.whl", "x"), ("git+https://a/b", ""), ("--pre", "")],
)
def test_the_name_of_a_package_is_normalized(text: str, name: str) -> None:
    assert Package(text, 1).name == name


def with_pythons(home: Path, **files: str) -> SourcePackages:
    return of_directory(write(home, **files), "train.py")


def test_the_versions_of_python_of_all_files_count_and_are_no_package(tmp_path: Path) -> None:
    packages = with_pythons(
        tmp_path,
        train__py='# /// script\n# requires-python = ">=3.12"\n# ///\n',
        requirements__txt="rich\n",
        pyproject__toml='[project]\nrequires-python = "<3.14"\n',
        environment__yml="dependencies:\n- python>=3.10\n",
    )
    assert packages.lines == ("rich",)
    assert allowed_pythons((packages,), ("3.11", "3.12", "3.13", "3.14"), "this") == ("3.12", "3.13")
    assert [(python.path.name, python.line) for python in packages.pythons] == [
        ("train.py", 2), ("pyproject.toml", 2), ("environment.yml", 2),
    ]  # fmt: skip


def test_a_late_patch_of_a_version_counts(tmp_path: Path) -> None:
    packages = with_pythons(tmp_path, pyproject__toml='[project]\nrequires-python = ">=3.11.9"\n')
    assert digest((packages,)) == ""
    assert allowed_pythons((packages,), ("3.10", "3.11"), "this") == ("3.11",)


def test_a_version_of_python_that_nothing_has_is_an_error_with_its_line(tmp_path: Path) -> None:
    packages = with_pythons(tmp_path, environment__yml="dependencies:\n- python=3.9\n")
    with pytest.raises(PlanError) as error:
        allowed_pythons((packages,), ("3.11", "3.12"), "the environment pytorch")
    assert str(error.value) == (
        f"{tmp_path}/environment.yml:2 asks for Python ==3.9.*, and the environment pytorch needs Python 3.11 or 3.12;"
        " change what is asked for"
    )


def test_versions_of_python_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"pyproject\.toml cannot be read: Invalid specifier: 'three'"):
        with_pythons(tmp_path, pyproject__toml='[project]\nrequires-python = "three"\n')
