"""The JavaScript SDK (@azure/batch, service version 2022-10-01.16.0) against the embedded service."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.serving import Emulator
from tests import environments, javascript

pytestmark = [pytest.mark.process, pytest.mark.slow]

SCRIPT = Path(__file__).parent / "javascript" / "first_steps.cjs"


@pytest.fixture(scope="module")
def modules() -> Path:
    """A node_modules with the SDK, or the test is skipped with the reason."""
    try:
        return javascript.modules()
    except environments.Missing as missing:
        pytest.skip(str(missing))


def test_pool_job_task_and_file_are_what_the_sdk_expects(emulator: Emulator, modules: Path) -> None:
    where = {"endpoint": emulator.endpoint, "account": emulator.account, "key": emulator.key}
    done = subprocess.run(
        ["node", str(SCRIPT), json.dumps(where)],
        env={**os.environ, "NODE_PATH": str(modules)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
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
