"""python -m tests.simulation.survivors [AREA ...] [--seed N] [--seeds FROM:TO] [--patches DIR]: the share of the
changes that the unit tests do not notice which the simulation finds.

`tests.mutation` changes each area, and writes what survives as patches. The seeds run with each patch until an
invariant names it. A number of seeds, and not a time, bounds the search, so the share does not depend on how busy the
machine is. `tests/simulation/survivors.md` has the last result, and what the changes are that are not found.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
AREAS = ("service", "runs", "storage", "emulator")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.survivors")
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"of the package (default: {', '.join(AREAS)})")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    parser.add_argument("--count", default="24", help="how many changes of each area (default: %(default)s)")
    parser.add_argument("--seeds", default="0:60", metavar="FROM:TO", help="of the simulation (default: %(default)s)")
    parser.add_argument("--patches", type=Path, metavar="DIR", help="take the patches that are there, and add others")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="survivors-") as folder:
        patches: Path = options.patches or Path(folder)
        for area in options.areas or AREAS:
            if not (patches / area).is_dir():
                command = [sys.executable, "-m", "tests.mutation", area, "--count", options.count]
                subprocess.run([*command, "--seed", str(options.seed), "--patches", patches / area], check=False)
        return _measure(patches, options.areas or AREAS, options.seeds)


def _measure(patches: Path, areas: Sequence[str], seeds: str) -> int:
    found: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for area in areas:
        for patch in sorted((patches / area).glob("*.patch")):
            before = _processor_time()
            violation = search(patch, "--seeds", seeds, "--minutes", "60")
            total[area] += 1
            found[area] += bool(violation)
            took = _processor_time() - before
            print(f"| {area} | {patch.stem} | {violation or 'not found'} | {took:.0f} s |", flush=True)
    for area in areas:
        print(f"{area}: {found[area]} of {total[area]} found")
    print(f"{found.total()} of {total.total()} found, with the seeds {seeds}")
    return 0


def _processor_time() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def search(patch: Path, *options: str) -> str:
    """The first violation with a patch; empty if there is none. options: of the simulation."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        for name in ("batchtrain", "tests", "pyproject.toml"):
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, Path(folder) / name)
        subprocess.run(["git", "apply", str(patch.absolute())], cwd=folder, check=True)
        command = [sys.executable, "-m", "tests.simulation", "--first-violation", *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        line = re.search(r"^seed \d+ .*$", done.stdout, re.MULTILINE)
        return line[0] if line else ""


if __name__ == "__main__":
    sys.exit(main())
