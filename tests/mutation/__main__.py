"""Break the code in small seeded ways and see whether a test fails: `python -m tests.mutation AREA [--seed N]`.

AREA is a folder or file of the package, such as `plan` or `config/check`. Each change is of one of five kinds
and the tests that run it are those that coverage names for the line (`contexts.py`). A change that no test notices
survives; one in a line that no test runs survives too. Needs the extra `mutation`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import difflib
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.mutation import contexts, forks, sites
from tests.mutation.contexts import ROOT

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".cache", ".hypothesis", "__pycache__", "build", "dist")
ENDLESS = ("--timeout=60", "--timeout-method=thread")
"""A change can make a loop endless, also in a thread: then pytest ends."""


class Outcome(NamedTuple):
    mutant: sites.Mutant
    tests: list[str]
    """The tests that run the line."""
    killer: str
    """The test that failed, or did not end; empty if the change survived."""


def main() -> int:
    arguments = _arguments()
    area = arguments.area.strip("/")
    by_line = contexts.measure(area, arguments.tests or contexts.judges(area))
    weight = Counter(test for lines in by_line.values() for tests in lines.values() for test in tests)
    candidates = [site for path in _files(area) for site in sites.sites(path)]
    mutants = [sites.mutant(site) for site in sites.choose(candidates, arguments.count, arguments.seed)]
    print(f"{area}: seed {arguments.seed}, {len(mutants)} of {len(candidates):,} possible changes", flush=True)
    workspaces: queue.Queue[Workspace] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="mutation.", ignore_cleanup_errors=True) as folder:
        for number in range(arguments.jobs):
            workspaces.put(Workspace(Path(folder, str(number))))

        def attempt(mutant: sites.Mutant) -> Outcome:
            names = by_line.get(str(mutant.path.relative_to(ROOT)), {}).get(mutant.line, set())
            tests = sorted(names, key=weight.__getitem__)
            workspace = workspaces.get()
            try:
                return Outcome(mutant, tests, _killer(mutant, tests, workspace))
            finally:
                workspaces.put(workspace)

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes = []
            for outcome in pool.map(attempt, mutants):
                outcomes.append(outcome)
                _tell(outcome)
        failing = _failing_anyway(outcomes, workspaces.queue[0])
        for workspace in workspaces.queue:
            workspace.close()
    for test in sorted(failing):
        print(f"fails without a change, so it proves nothing: {test}")
    killed = sum(bool(outcome.killer) and outcome.killer not in failing for outcome in outcomes)
    if arguments.patches:
        _write_patches(arguments.patches, outcomes)
    print(f"{area}, seed {arguments.seed}: {killed} of {len(outcomes)} changes noticed")
    return 0 if killed >= arguments.at_least else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("area", metavar="AREA", help="a folder or file of the package, such as config/check")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: another one each time")
    parser.add_argument("--count", type=int, default=24, help="how many changes (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one per core)")
    parser.add_argument("--tests", nargs="+", help="which may notice (default: those of the area, see contexts.JUDGES)")
    parser.add_argument("--at-least", type=int, default=0, metavar="N", help="exit with 1 if fewer are noticed")
    parser.add_argument("--patches", type=Path, metavar="DIR", help="write each change that survives as a patch")
    return parser.parse_args()


def _files(area: str) -> list[Path]:
    path = ROOT / "batchtrain" / area
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        sys.exit(f"batchtrain/{area} is no folder or file with Python")
    return files


def _killer(mutant: sites.Mutant, tests: list[str], workspace: Workspace) -> str:
    """The first of the tests that fails in a copy of the repository with the change."""
    if not tests:
        return ""
    file = workspace.path / mutant.path.relative_to(ROOT)
    original = file.read_bytes()
    try:
        _write(file, mutant.text.encode())
        return next(iter(workspace.failing(tests, "-x")), "")
    finally:
        _write(file, original)


def _write(file: Path, content: bytes) -> None:
    """Write a module so that no bytecode of an earlier content passes for it."""
    file.write_bytes(content)
    for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        cached.unlink()


def _failing_anyway(outcomes: Iterable[Outcome], workspace: Workspace) -> set[str]:
    """The tests that noticed a change and fail without it too."""
    return workspace.failing({outcome.killer for outcome in outcomes} - {"", forks.ITSELF})


FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)


class Workspace:
    """A copy of the repository, and the process that runs pytest there."""

    def __init__(self, path: Path) -> None:
        self.path = shutil.copytree(ROOT, path, ignore=LEFT_OUT, symlinks=True)
        environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(path), "COLUMNS": "1000"}
        command = [sys.executable, str(Path(forks.__file__).resolve())]
        self._forks = subprocess.Popen(
            command, cwd=path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def failing(self, tests: Iterable[str], *options: str) -> set[str]:
        """The tests that fail here, or the one that did not end."""
        if not (names := list(tests)):
            return set()
        listed = self.path / "mutation-tests.txt"
        listed.write_text("\n".join(names), encoding="utf-8")
        assert self._forks.stdin is not None and self._forks.stdout is not None
        arguments = ["-n0", "-rfE", *ENDLESS, *options, f"@{listed}"]
        self._forks.stdin.write(json.dumps(arguments) + "\n")
        self._forks.stdin.flush()
        code = int(self._forks.stdout.readline())
        if code == 0:
            return set()
        output = (self.path / forks.OUTPUT).read_text(encoding="utf-8", errors="replace")
        summary = output.partition("= short test summary info =")[2]  # before it, lines of logs look the same
        return set(FAILED.findall(summary)) or {(self.path / forks.CURRENT).read_text(encoding="utf-8")}

    def close(self) -> None:
        """Let the process end."""
        self._forks.communicate()


def _tell(outcome: Outcome) -> None:
    mutant = outcome.mutant
    ending = f"by {outcome.killer}" if outcome.killer else f"{len(outcome.tests)} tests run this line"
    print(
        f"{'noticed ' if outcome.killer else 'SURVIVED'}  {mutant.path.relative_to(ROOT)}:{mutant.line}  {mutant.kind}"
    )
    print(f"          {_short(mutant.before)}  →  {_short(mutant.after)}\n          {ending}", flush=True)


def _write_patches(directory: Path, outcomes: Iterable[Outcome]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for mutant in (outcome.mutant for outcome in outcomes if not outcome.killer):
        name = str(mutant.path.relative_to(ROOT))
        before = mutant.path.read_text(encoding="utf-8").splitlines(keepends=True)
        after = mutant.text.splitlines(keepends=True)
        file = f"{name.replace('/', '.')}-{mutant.line}-{mutant.kind.replace(' ', '-')}.patch"
        patch = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
        (directory / file).write_text("".join(patch), encoding="utf-8")


def _short(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 100 else line[:99] + "…"


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
