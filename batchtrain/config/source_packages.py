"""The Python packages that the source of a recipe lists for itself: by its script (PEP 723), requirements.txt,
pyproject.toml or environment.yml, in this order."""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tomli
from packaging.specifiers import SpecifierSet

from batchtrain.config import document
from batchtrain.config.types import Recipe, Task
from batchtrain.errors import PlanError
from batchtrain.launchers import python

READY = ".ready"
"""The file that marks a finished local environment; it contains the digest of the packages of a source in it."""
REQUIREMENTS, PROJECT, CONDA = "requirements.txt", "pyproject.toml", "environment.yml"
PYTHON = "python"
"""The name under which a list has the versions of Python that it needs, as conda writes them."""
OF_CONDA = frozenset({"pip", "cpuonly", "cudatoolkit", "pytorch-cuda", "cuda-toolkit"})
"""Packages of conda that are not packages of Python."""
NAMES_OF_CONDA = {"pytorch": "torch"}
"""Packages that have another name on PyPI."""


_NEEDS_FILES = re.compile(r"--?(?:r|requirement|e|editable|c|constraint)\b|\.{0,2}/|\.$")


def normalized(name: str) -> str:
    """The name of a package as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


class Package(NamedTuple):
    """One line of a list of packages."""

    text: str
    """The requirement, or an option of pip."""
    line: int

    @property
    def name(self) -> str:
        """The normalized name; empty for an option or a URL."""
        return normalized(self._written_name)

    @property
    def versions(self) -> str:
        """The versions and the extras; empty if any will do."""
        return re.sub(r"\s", "", self.text[len(self._written_name) :].partition(";")[0])

    @property
    def _written_name(self) -> str:
        match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*(?!\S*[:/])", self.text)
        return match[0] if match else ""


class RequiredPython(NamedTuple):
    """A line about the version of Python."""

    path: Path
    line: int
    versions: str
    """As PEP 440 writes them."""

    def allows(self, version: str) -> bool:
        """Whether MAJOR.MINOR, in a late patch, is one of the versions. Raises ValueError if they are not readable."""
        return SpecifierSet(self.versions).contains(f"{version}.999")


class SourcePackages(NamedTuple):
    """The packages of one source directory."""

    directory: Path
    file: str
    """The name of the file that lists them."""
    packages: tuple[Package, ...]
    pythons: tuple[RequiredPython, ...] = ()
    """What the files of the directory say about the version of Python, also those whose packages do not count."""

    @property
    def path(self) -> Path:
        return self.directory / self.file

    @property
    def lines(self) -> tuple[str, ...]:
        """Requirements, as pip reads them in a file; without comments."""
        return tuple(package.text for package in self.packages)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(package.name for package in self.packages)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `uv pip install`, run in the directory: paths of requirements.txt are relative to it."""
        return ("-r", REQUIREMENTS) if self.file == REQUIREMENTS else self.lines

    def words(self) -> tuple[str, ...]:
        """The arguments of pip where the files of the source are not. Raises PlanError for a line that needs them."""
        words: list[str] = []
        for package in self.packages:
            if _NEEDS_FILES.match(package.text):
                raise PlanError(
                    f"{self.path}:{package.line} has `{package.text}`, and the files of the source are not there when"
                    " the packages are installed; write the packages themselves"
                )
            words += shlex.split(package.text) if package.text.startswith("-") else [package.text]
        return tuple(words)

    @property
    def shown(self) -> str:
        """The packages in one line, without options of pip."""
        return " ".join(line for line in self.lines if not line.startswith("-"))


def of_recipe(recipe: Recipe, image: str) -> tuple[SourcePackages, ...]:
    """The packages for the tasks of a recipe in an image. Raises PlanError for a file that cannot be read."""
    tasks = (task for job in recipe.jobs for task in (*job.tasks, job.merge_task) if task is not None)
    sources = {(task.source, _script(task)): None for task in tasks if task.source and task.docker_image == image}
    package_lists = (of_directory(Path(recipe.directory, source).resolve(), script) for source, script in sources)
    by_path = {packages.path: packages for packages in package_lists if packages.packages or packages.pythons}
    return tuple(by_path.values())


def of_directory(directory: Path, script: str = "") -> SourcePackages:
    """The packages of a source, and of its script: those of the directory of the script or else of the next one above,
    up to the one above the source, within the same project. Raises PlanError for a file that cannot be read, and for
    two that disagree about the versions of a package."""
    package_lists = [packages] if (packages := _listed(directory, script)) is not None else []
    of_script = (directory / script).parent if script else directory
    between = (folder for folder in of_script.parents if folder.is_relative_to(directory))
    above = () if (directory / ".git").exists() else (directory.parent,)
    for folder in (of_script, *between, *above):
        if folder == of_script or not package_lists:
            package_lists += [packages for name in _READERS if (packages := _listed(folder, name)) is not None]
    for first, second in itertools.combinations(package_lists, 2):
        _compare(first, second)
    none = SourcePackages(directory, REQUIREMENTS, ())
    pythons = tuple(python for packages in package_lists for python in packages.pythons)
    return next((packages for packages in package_lists if packages.packages), none)._replace(pythons=pythons)


def allowed_pythons(package_lists: Iterable[SourcePackages], versions: Iterable[str], purpose: str) -> tuple[str, ...]:
    """Those versions of Python (MAJOR.MINOR) that every list allows. purpose: what needs one of them. Raises PlanError
    if there is none."""
    pythons, versions = [python for packages in package_lists for python in packages.pythons], tuple(versions)
    common = tuple(version for version in versions if all(python.allows(version) for python in pythons))
    if not common:
        lines = " and ".join(f"{python.path}:{python.line} asks for Python {python.versions}" for python in pythons)
        raise PlanError(f"{lines}, and {purpose} needs Python {' or '.join(versions)}; change what is asked for")
    return common


def digest(package_lists: Iterable[SourcePackages]) -> str:
    """Eight hex digits that depend on the packages, not on their order or spaces; empty if there are none."""
    return digest_of(*(packages.lines for packages in package_lists))


def digest_of(*lists: Iterable[str]) -> str:
    """The digest of the lines of lists."""
    contents = (sorted({re.sub(r"\s", "", line) for line in lines}) for lines in lists)
    texts = ["\n".join(content) for content in contents if content]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8] if texts else ""


def lacks(prefix: Path, package_lists: tuple[SourcePackages, ...]) -> bool:
    """Whether a local environment that batchtrain has made is without these packages."""
    ready, content = prefix / READY, digest(package_lists)
    return bool(content) and ready.is_file() and ready.read_bytes() != content.encode()


def _script(task: Task) -> str:
    """The Python script of the source that the command of a task starts; empty if it starts another program."""
    name = python.script(task.command or "").removeprefix("$AZ_BATCH_TASK_SHARED_DIR/")
    return name if name.endswith(".py") and not Path(name).is_absolute() else ""


def _listed(directory: Path, name: str) -> SourcePackages | None:
    """The packages that a file lists; None if it has no list."""
    if not name or not (directory / name).is_file():
        return None
    path = directory / name
    try:
        lines = _READERS.get(name, _of_script)(path.read_text(encoding="utf-8"))
        pythons = tuple(
            RequiredPython(path, package.line, package.versions)
            for package in lines
            if package.name == PYTHON and package.versions
        )
        for python in pythons:
            python.allows("3.11")  # any version shows whether it can be read
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} cannot be read: {error}") from None
    packages = tuple(package for package in lines if package.name != PYTHON)
    return SourcePackages(directory, name, packages, pythons) if lines else None


def _compare(first: SourcePackages, other: SourcePackages) -> None:
    """Raise PlanError if two lists have different versions of a package."""
    named = {package.name: package for package in other.packages if package.name}
    for package in first.packages:
        twin = named.get(package.name)
        if twin is not None and package.versions and twin.versions and package.versions != twin.versions:
            raise PlanError(
                f"{first.path}:{package.line} asks for `{package.text}`, and {other.path}:{twin.line} for"
                f" `{twin.text}`; write the same in both, or remove one of the lines"
            )


_LINE = re.compile(r"^(?:(?!\s*#).*\\\n)*.*$", re.MULTILINE)
"""A line of requirements.txt with those that continue it."""


def _of_requirements(text: str) -> list[Package]:
    """Without hashes: pip takes them only from the file itself."""
    lines = ((match[0].replace("\\\n", " "), text.count("\n", 0, match.start()) + 1) for match in _LINE.finditer(text))
    packages = (
        Package(re.sub(r"\s--hash[= ]\S+", "", line.partition(" #")[0]).strip(), number) for line, number in lines
    )
    return [package for package in packages if package.text and not package.text.startswith("#")]


_BLOCK = re.compile(r"^# /// script$\s(?P<content>(?:^#(?: .*)?$\s?)+?)^# ///$", re.MULTILINE)
"""The inline metadata of a script, as PEP 723 defines it; it must be the only one."""


def _of_script(text: str) -> list[Package]:
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) > 1:
        raise ValueError("it has two `# /// script` blocks; a script has one (PEP 723)")
    if not blocks:
        return []
    content = "\n".join(line[2:] for line in blocks[0]["content"].splitlines())
    before = text[: blocks[0].start("content")].count("\n")
    packages = _at_lines(tomli.loads(content), "dependencies", content)
    return [package._replace(line=package.line + before) for package in packages]


def _at_lines(table: Mapping[str, Any], name: str, text: str) -> list[Package]:
    dependencies, versions = table.get("dependencies", []), table.get("requires-python", "")
    if not isinstance(dependencies, list):
        raise ValueError(f"`{name}` is not a list")
    lines = text.splitlines()

    def line_of(dependency: str) -> int:
        return next((number for number, line in enumerate(lines, 1) if dependency in line), 1)

    python = [Package(f"{PYTHON} {versions}", line_of("requires-python"))] if versions else []
    return [*python, *(Package(str(dependency), line_of(str(dependency))) for dependency in dependencies)]


def _of_conda(text: str) -> list[Package]:
    yaml, problems = document.parse(CONDA, text.encode())
    if problems:
        raise ValueError(f"line {problems[0].line}: {problems[0].message}")
    dependencies: Any = yaml.data.get("dependencies", []) if isinstance(yaml.data, dict) else None
    if not isinstance(dependencies, list):
        raise ValueError("`dependencies` is not a list")
    requirements: dict[document.Path, str] = {}  # the packages of conda, and those of its `pip` list
    for number, dependency in enumerate(dependencies):
        if isinstance(dependency, str):
            requirements["dependencies", number] = _as_pip(dependency)
        elif isinstance(dependency, dict):
            for index, requirement in enumerate(dependency.get("pip") or ()):
                requirements["dependencies", number, "pip", index] = str(requirement)
    return [Package(text, yaml.position(path)[0]) for path, text in requirements.items() if text]


def _as_pip(dependency: str) -> str:
    """A package of conda as a requirement of pip; empty for one that is not a package of Python."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(.*)", dependency.rpartition("::")[2].strip())
    if match is None:
        return dependency
    name, versions = NAMES_OF_CONDA.get(match[1], match[1]), match[2]
    if name in OF_CONDA:
        return ""
    if versions[:1] in "<>!~[":  # none, or as pip writes them
        return name + versions
    fuzzy = versions.startswith("=") and not versions.startswith("==")
    version = re.split("[= ]", versions.lstrip("= "))[0]  # without the build
    return f"{name}=={version}{'.*' if fuzzy and '*' not in version else ''}"


_READERS: Mapping[str, Callable[[str], list[Package]]] = {
    REQUIREMENTS: _of_requirements,
    PROJECT: lambda text: _at_lines(tomli.loads(text).get("project", {}), "project.dependencies", text),
    CONDA: _of_conda,
}
