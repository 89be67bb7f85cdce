"""Older clients: azure-batch 14.2 (service version 2024-02-01.19.0), and every service version since 2022."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from batchtrain.emulator.server import Emulator
from tests import environments
from tests.contract.conftest import connect, pool
from tests.contract.test_sdk_against_emulator import raw

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "sdk_14.py"
VERSIONS = (
    "2022-10-01.16.0",
    "2023-05-01.17.0",
    "2023-11-01.18.0",
    "2024-02-01.19.0",
    "2024-07-01.20.0",
    "2025-06-01",
    "2026-08-01",
)


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with azure-batch 14.2."""
    try:
        return environments.prefix("azure-batch-14") / "bin" / "python"
    except environments.Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_pool_job_task_and_file_are_what_the_old_sdk_expects(emulator: Emulator, python: Path) -> None:
    done = subprocess.run(
        [python, SCRIPT, emulator.endpoint, emulator.account, emulator.key],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "api version": "2024-02-01.19.0",
        "pools": ["pool"],
        "exists": [True, False],
        "added twice": "PoolExists",
        "node": "disabled",
        "stale tag": "ConditionNotMet",
        "metadata": [["c", "d"]],
        "collection": ["success"],
        "failed": 150,
        "pages": 150,
        "exit code": 0,
        "file": "hello\n",
        "range": "ell",
        "length": 6,
        "files": ["stderr.txt", "stdout.txt", "wd"],
        "ended": "enough",
        "gone": "PoolNotFound",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_service_version_since_2022_is_understood(emulator: Emulator, version: str) -> None:
    with connect(emulator, api_version=version) as client:
        client.create_pool(pool(nodes=0))
        assert [one.id for one in client.list_pools()] == ["pool"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?api-version=", "MissingRequiredQueryParameter"),
        ("?api-version=latest", "InvalidQueryParameterValue"),
    ],
)
def test_a_request_without_a_service_version_is_refused(emulator: Emulator, query: str, code: str) -> None:
    status, _, document = raw(emulator, "GET", f"/pools{query}")
    assert (status, document["code"]) == (400, code)
    assert document["values"][0] == {"key": "QueryParameterName", "value": "api-version"}
