"""The JavaScript SDK (@azure/batch, service version 2022-10-01.16.0) against the embedded service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from batchtrain.emulator.server import Emulator

pytestmark = [pytest.mark.process, pytest.mark.slow]

PACKAGE = "@azure/batch@10.2.0"
SCRIPT = Path(__file__).parent / "javascript" / "first_steps.cjs"


@pytest.fixture(scope="module")
def modules(root: Path) -> Path:
    """A node_modules with the SDK, installed below .cache/ at first use."""
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("node and npm are not installed, and the JavaScript SDK comes from npm")
    home = root / ".cache" / "javascript"
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "lock"):
        if not (home / "node_modules" / "@azure" / "batch" / "package.json").exists():
            done = subprocess.run(["npm", "install", "--silent", "--prefix", home, PACKAGE], capture_output=True)
            if done.returncode:
                pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.decode(errors='replace')}")
    return home / "node_modules"


def test_pool_job_task_and_file_are_what_the_sdk_expects(emulator: Emulator, modules: Path) -> None:
    where = {"endpoint": emulator.endpoint, "account": emulator.account, "key": emulator.key}
    done = subprocess.run(
        ["node", str(SCRIPT), json.dumps(where)],
        env={**os.environ, "NODE_PATH": str(modules)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    saw: dict[str, Any] = json.loads(done.stdout)
    assert saw == {
        "apiVersion": "2022-10-01.16.0",
        "pools": ["pool"],
        "exists": True,
        "poolExists": [409, "PoolExists"],
        "nodeIsShown": True,
        "metadata": [{"name": "a", "value": "b"}],
        "poolNotFound": [404, "PoolNotFound"],
        "collection": ["success"] * 3,
        "counts": [1, 3],
        "exitCode": 0,
        "page": ["more1", "more2"],
        "nextPage": ["more3"],
        "file": "hello\n",
        "range": "ell",
        "length": 6,
        "files": ["stderr.txt", "stdout.txt", "wd"],
        "ended": "enough",
        "resized": True,
        "left": True,
    }
