"""The JavaScript SDK for the tests, installed below .cache/ at first use."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from tests.environments import ROOT, Missing

PACKAGE = "@azure/batch@10.2.0"


def modules() -> Path:
    """A node_modules with the SDK. Raises Missing."""
    if shutil.which("npm") is None:
        raise Missing("npm is not installed (on Debian: apt-get install nodejs and npm)")
    home = ROOT / ".cache" / "javascript"
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "lock"):
        if not (home / "node_modules" / "@azure" / "batch" / "package.json").exists():
            done = subprocess.run(["npm", "install", "--silent", "--prefix", home, PACKAGE], capture_output=True)
            if done.returncode:
                raise Missing(f"npm cannot install {PACKAGE}: {done.stderr.decode(errors='replace')}")
    return home / "node_modules"
