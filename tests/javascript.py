"""Packages of npm for the tests, and the format of the JavaScript: `python -m tests.javascript [--write]`.

Without `--write`, it prints what the formatter would change and exits with 1 if that is anything.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from tests.environments import ROOT, Missing

SDK = "@azure/batch@10.2.0"
FORMATTER = "@biomejs/biome@2.6.8"


def modules(package: str = SDK) -> Path:
    """A node_modules with the package, installed below .cache/ at first use. Raises Missing."""
    if shutil.which("npm") is None:
        raise Missing("npm is not installed (on Debian: apt-get install nodejs and npm)")
    home = ROOT / ".cache" / "javascript" / package.replace("/", "-")
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "lock"):
        if not (home / "node_modules" / package.rpartition("@")[0] / "package.json").exists():
            done = subprocess.run(["npm", "install", "--silent", "--prefix", home, package], capture_output=True)
            if done.returncode:
                raise Missing(f"npm cannot install {package}: {done.stderr.decode(errors='replace')}")
    return home / "node_modules"


def main() -> int:
    try:
        biome = modules(FORMATTER) / ".bin" / "biome"
    except Missing as missing:
        print(f"the JavaScript is not checked: {missing}")
        return 0
    return subprocess.run([biome, "format", *sys.argv[1:]], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
