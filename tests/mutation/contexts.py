"""Which tests run a line: coverage of the package with a context per test, measured once and kept in `.cache/mutation`.

Tests of files that have changed since are measured again; a change of the package is measured as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "mutation"


class Index(NamedTuple):
    """What is kept: a digest of the package, and for each test file its digest and its database."""

    package: str
    tests: dict[str, tuple[str, str]]


def measure(area: str, tests: Iterable[str]) -> dict[str, dict[int, set[str]]]:
    """The tests by line of each file of an area, all as paths of the repository."""
    CACHE.mkdir(parents=True, exist_ok=True)
    package = _digest([*(ROOT / "batchtrain").rglob("*"), *(ROOT / "tests").glob("*.py")])
    files = {str(file.relative_to(ROOT)): _digest([file]) for file in _test_files(tests)}
    index = _stored(CACHE / "index.json")
    if index.package != package:
        index = Index(package, {})
    changed = [file for file, digest in files.items() if index.tests.get(file, ("", ""))[0] != digest]
    if changed:
        database = f"coverage-{len(list(CACHE.glob('coverage-*')))}"
        _run(changed, CACHE / database)
        index.tests.update((file, (files[file], database)) for file in changed)
        (CACHE / "index.json").write_text(json.dumps(index), encoding="utf-8")
    return _tests_by_line(area, {file: index.tests[file][1] for file in files})


def _test_files(tests: Iterable[str]) -> Iterator[Path]:
    for test in tests:
        yield from sorted((ROOT / test).rglob("test_*.py")) if (ROOT / test).is_dir() else [ROOT / test]


def _digest(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts):
        total.update(file.read_bytes())
    return total.hexdigest()


def _stored(path: Path) -> Index:
    if not path.exists():
        return Index("", {})
    package, tests = json.loads(path.read_text(encoding="utf-8"))
    return Index(package, {file: (digest, database) for file, (digest, database) in tests.items()})


def _run(files: list[str], database: Path) -> None:
    settings = CACHE / "settings.ini"
    settings.write_text(f"[run]\ninclude = {ROOT}/batchtrain/*\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n2", "--cov", f"--cov-config={settings}", "--cov-context=test"]
    command += ["--cov-report=", *files]
    print(f"measuring which of {len(files)} test files run which lines of batchtrain", flush=True)
    environment = {**os.environ, "COVERAGE_FILE": str(database), "PYTHONPATH": str(ROOT)}
    ending = subprocess.run(command, cwd=ROOT, env=environment).returncode
    if ending not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # a test that fails counts for nothing
        sys.exit(f"pytest ended with {ending} without any change")


def _tests_by_line(area: str, databases: Mapping[str, str]) -> dict[str, dict[int, set[str]]]:
    path = ROOT / "batchtrain" / area
    found: dict[str, dict[int, set[str]]] = {}
    for database in sorted(set(databases.values())):
        data = coverage.CoverageData(str(CACHE / database))
        data.read()
        for measured in data.measured_files():
            if not Path(measured).is_relative_to(path):
                continue
            lines = found.setdefault(str(Path(measured).relative_to(ROOT)), {})
            for line, contexts in data.contexts_by_lineno(measured).items():
                names = {context.rpartition("|")[0] for context in contexts} - {""}
                lines.setdefault(line, set()).update(
                    name for name in names if databases.get(name.partition("::")[0]) == database
                )
    return found
