"""python -m tests.simulation.planted [NAME ...] [--seconds S]: the share of the planted bugs that are found.

Each patch of `tests/simulation/bugs` is applied to a copy of the working tree, in which seeds run until an invariant
names the bug.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUGS = Path(__file__).parent / "bugs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--first", default="0", help="the first seed")
    options = parser.parse_args()
    patches = [path for path in sorted(BUGS.glob("*.patch")) if not options.names or path.stem in options.names]
    found = 0
    for patch in patches:
        began = time.monotonic()
        violation = search(patch, "--seeds", f"{options.first}:", "--minutes", str(options.seconds / 60))
        found += bool(violation)
        print(f"{patch.stem}: {violation or 'not found'} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{found} of {len(patches)} found")
    return 0 if found >= 0.8 * len(patches) else 1


def search(patch: Path, *options: str) -> str:
    """The first violation with a planted bug; empty if there is none. options: of the simulation."""
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
