"""Which tests run a line: coverage of the package with a context per test, measured once and kept in `.cache/mutation`.

Measured again are the test files that have changed since, and those that run a module that has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "mutation"
CHILDREN = {
    "batchtrain/emulator/machine/agent.py": (
        "tests/contract/test_process_machine.py", "tests/contract/test_a_nodes_view.py",
    ),
    "batchtrain/emulator/machine/ssh.py": ("tests/contract/test_process_machine.py",),
    "batchtrain/emulator/server.py": ("tests/contract/test_emulator_process.py",),
    "batchtrain/emulator/serving.py": ("tests/contract/test_emulator_process.py",),
    "batchtrain/connections.py": ("tests/contract/test_emulator_process.py",),
    "batchtrain/emulator/certificates.py": ("tests/contract/test_https_and_identity.py",),
}  # fmt: skip
"""Modules that run in processes of their own, where coverage does not see them, and the tests that start those."""


UNIT = "tests/unit"
JUDGES = {"emulator": (UNIT, *sorted({file for files in CHILDREN.values() for file in files}))}
"""The tests of a folder of the package, by default those of the units: the nodes of the emulator are processes, and no
unit test starts one."""


def judges(area: str) -> list[str]:
    """The tests that may notice a change in an area."""
    return [*JUDGES.get(Path(area).parts[0], (UNIT,))]


class Index(NamedTuple):
    """What is kept: the digests of the package's files, and for each test file its digest and its database."""

    package: dict[str, str]
    tests: dict[str, tuple[str, str]]


def measure(area: str, tests: Iterable[str]) -> dict[str, dict[int, set[str]]]:
    """The tests by line of each file of an area, all as paths of the repository."""
    CACHE.mkdir(parents=True, exist_ok=True)
    package = _digests([*(ROOT / "batchtrain").rglob("*"), *(ROOT / "tests").glob("*.py")])
    files = _digests(_test_files(tests))
    before = _stored(CACHE / "index.json")
    stale = _stale(before, package)
    measured = {file: row for file, row in before.tests.items() if file not in stale}
    if due := [file for file, digest in files.items() if measured.get(file, ("", ""))[0] != digest]:
        database = f"coverage-{time.time_ns()}"
        _run(due, CACHE / database)
        measured.update((file, (files[file], database)) for file in due)
    written = CACHE / f"index-{os.getpid()}.json"  # another area may be measured at the same time
    written.write_text(json.dumps(Index(package, measured)), encoding="utf-8")
    written.replace(CACHE / "index.json")
    found = _tests_by_line(ROOT / "batchtrain" / area, {file: measured[file][1] for file in files})
    for module, starters in CHILDREN.items():
        lines = found.get(module, {})
        starting = {
            test for other in found.values() for tests in other.values() for test in tests if _file(test) in starters
        }.union(*lines.values())  # the module's own tests may fork, too
        for line in range(1, len((ROOT / module).read_text(encoding="utf-8").splitlines()) + 1):
            lines[line] = lines.get(line) or starting
    return found


def _stale(index: Index, package: Mapping[str, str]) -> set[str]:
    """The test files that run a changed module; all of them if another file of the package has changed."""
    changed = {file for file in {*package, *index.package} if package.get(file) != index.package.get(file)}
    if not all(file.startswith("batchtrain/") and file.endswith(".py") for file in changed):
        return set(index.tests)
    databases = {file: database for file, (_, database) in index.tests.items()}
    lines = [
        tests
        for module in changed
        for found in _tests_by_line(ROOT / module, databases).values()
        for tests in found.values()
    ]
    return {_file(test) for tests in lines for test in tests}


def _test_files(tests: Iterable[str]) -> Iterator[Path]:
    for test in tests:
        yield from sorted((ROOT / test).rglob("test_*.py")) if (ROOT / test).is_dir() else [ROOT / test]


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {
        str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    }


def _stored(path: Path) -> Index:
    if not path.exists():
        return Index({}, {})
    package, tests = json.loads(path.read_text(encoding="utf-8"))
    return Index(package, {file: (digest, database) for file, (digest, database) in tests.items()})


def _run(files: list[str], database: Path) -> None:
    settings = CACHE / "settings.ini"
    settings.write_text(f"[run]\nrelative_files = True\ninclude = {ROOT}/batchtrain/*\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n2", "--cov", f"--cov-config={settings}", "--cov-context=test"]
    command += ["--cov-report=", *files]
    print(f"measuring which of {len(files)} test files run which lines of batchtrain", flush=True)
    environment = {**os.environ, "COVERAGE_FILE": str(database), "PYTHONPATH": str(ROOT)}
    ending = subprocess.run(command, cwd=ROOT, env=environment).returncode
    if ending not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # a test that fails counts for nothing
        sys.exit(f"pytest ended with {ending} without any change")


def _file(test: str) -> str:
    return test.partition("::")[0]


def _tests_by_line(path: Path, databases: Mapping[str, str]) -> dict[str, dict[int, set[str]]]:
    """A line that only the import of its module runs counts for every test that runs the module."""
    found: dict[str, dict[int, set[str]]] = {}
    for database in sorted(set(databases.values())):
        data = coverage.CoverageData(str(CACHE / database))
        data.read()
        for measured in data.measured_files():
            if not (ROOT / measured).is_relative_to(path):
                continue
            lines = found.setdefault(measured, {})
            for line, contexts in data.contexts_by_lineno(measured).items():
                names = {context.rpartition("|")[0] for context in contexts} - {""}
                lines.setdefault(line, set()).update(name for name in names if databases.get(_file(name)) == database)
    for lines in found.values():
        everyone = set[str]().union(*lines.values())
        lines.update((line, everyone) for line, tests in lines.items() if not tests)
    return found
