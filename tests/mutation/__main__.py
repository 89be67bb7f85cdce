"""Break the code in small seeded ways and see whether a test fails: `python -m tests.mutation AREA [--seed N]`.

AREA is a folder or file of the package, such as `plan` or `config/check`. Each change is of one of five kinds
and the tests that run it are those that coverage names for the line (`contexts.py`). A change that no test notices
survives; one in a line that no test runs survives too. Needs the extra `mutation`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.mutation import contexts, sites
from tests.mutation.contexts import ROOT

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".cache", ".hypothesis", "__pycache__", "build", "dist", "runs.*")
ENDLESS = ("--timeout=60", "--timeout-method=thread")
"""A change can make a loop endless, also in a thread: then pytest ends."""
MOST_SECONDS = 600.0
"""For all tests of one change: it can also keep pytest from ending."""


class Outcome(NamedTuple):
    mutant: sites.Mutant
    tests: list[str]
    """The tests that run the line."""
    killer: str
    """The test that failed, or how pytest ended without a result; empty if the change survived."""

    @property
    def proof(self) -> list[str]:
        """The tests that must pass without the change."""
        return [self.killer] if self.killer in self.tests else self.tests


def main() -> int:
    arguments = _arguments()
    area = arguments.area.strip("/")
    by_line = contexts.measure(area, arguments.tests)
    weight = Counter(test for lines in by_line.values() for tests in lines.values() for test in tests)
    candidates = [site for path in _files(area) for site in sites.sites(path)]
    mutants = [sites.mutant(site) for site in sites.choose(candidates, arguments.count, arguments.seed)]
    print(f"{area}: seed {arguments.seed}, {len(mutants)} of {len(candidates):,} possible changes", flush=True)
    workspaces: queue.Queue[Path] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="mutation.") as folder:
        for number in range(arguments.jobs):
            workspaces.put(shutil.copytree(ROOT, Path(folder, str(number)), ignore=LEFT_OUT, symlinks=True))

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
        failing = _failing_anyway(outcomes, workspaces.get())
    for test in sorted(failing):
        print(f"fails without a change, so it proves nothing: {test}")
    killed = sum(bool(outcome.killer) and failing.isdisjoint(outcome.proof) for outcome in outcomes)
    print(f"{area}, seed {arguments.seed}: {killed} of {len(outcomes)} changes noticed")
    return 0 if killed >= arguments.at_least else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("area", metavar="AREA", help="a folder or file of the package, such as config/check")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: another one each time")
    parser.add_argument("--count", type=int, default=24, help="how many changes (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one per core)")
    parser.add_argument("--tests", nargs="+", default=["tests/unit"], help="which may notice (default: %(default)s)")
    parser.add_argument("--at-least", type=int, default=0, metavar="N", help="exit with 1 if fewer are noticed")
    return parser.parse_args()


def _files(area: str) -> list[Path]:
    path = ROOT / "batchtrain" / area
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        sys.exit(f"batchtrain/{area} is no folder or file with Python")
    return files


def _killer(mutant: sites.Mutant, tests: list[str], workspace: Path) -> str:
    """The first of the tests that fails in a copy of the repository with the change."""
    if not tests:
        return ""
    file = workspace / mutant.path.relative_to(ROOT)
    original = file.read_bytes()
    try:
        _write(file, mutant.text.encode())
        return next(iter(_failing(tests, workspace, "-x")), "")
    finally:
        _write(file, original)


def _write(file: Path, content: bytes) -> None:
    """Write a module so that no bytecode of an earlier content passes for it."""
    file.write_bytes(content)
    for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        cached.unlink()


def _failing_anyway(outcomes: Iterable[Outcome], workspace: Path) -> set[str]:
    """What noticed a change and fails without it too: tests, or pytest as a whole, as in an endless loop."""
    noticed = [outcome for outcome in outcomes if outcome.killer]
    failing = _failing({outcome.killer for outcome in noticed if outcome.killer in outcome.tests}, workspace)
    ended = (outcome for outcome in noticed if outcome.killer not in outcome.tests)
    return failing.union(*(outcome.proof for outcome in ended if _failing(outcome.proof, workspace, "-x")))


FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)


def _failing(tests: Iterable[str], workspace: Path, *options: str) -> set[str]:
    """The tests that fail in a copy of the repository."""
    if not (names := list(tests)):
        return set()
    listed = workspace / "mutation-tests.txt"
    listed.write_text("\n".join(names), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n0", "-rfE", *ENDLESS, *options, f"@{listed}"]
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(workspace), "COLUMNS": "1000"}
    with subprocess.Popen(
        command,
        cwd=workspace,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as pytest:
        try:
            output, _ = pytest.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(pytest.pid, signal.SIGKILL)
            return {"pytest, which did not end"}
    if pytest.returncode == 0:
        return set()
    return set(FAILED.findall(output)) or {f"pytest ended with {pytest.returncode}"}


def _tell(outcome: Outcome) -> None:
    mutant = outcome.mutant
    ending = f"by {outcome.killer}" if outcome.killer else f"{len(outcome.tests)} tests run this line"
    print(
        f"{'noticed ' if outcome.killer else 'SURVIVED'}  {mutant.path.relative_to(ROOT)}:{mutant.line}  {mutant.kind}"
    )
    print(f"          {_short(mutant.before)}  →  {_short(mutant.after)}\n          {ending}", flush=True)


def _short(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 100 else line[:99] + "…"


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
