"""azure-mgmt-batch 17 and 19 against the emulator's stand-in of Azure Resource Manager."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from batchtrain.emulator import server, tokens, wire
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests import environments
from tests.contract.conftest import connect
from tests.emulation import FakeMachine

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "mgmt_batch.py"
ACCOUNTS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Batch/batchAccounts"
VERSION = "api-version=2024-02-01"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["17", "19"])
def test_the_account_and_pools_are_what_the_sdk_expects(tmp_path: Path, version: str) -> None:
    try:
        python = environments.prefix(f"azure-mgmt-batch-{version}") / "bin" / "python"
    except environments.Missing as missing:
        pytest.skip(str(missing))
    with Emulator(Settings(tmp_path / "data", port=0, https=True), FakeMachine.open) as emulator:
        done = subprocess.run(
            [python, SCRIPT, emulator.endpoint, emulator.account],
            env={**os.environ, **emulator.status.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        with connect(emulator, connection_verify=emulator.status.certificate) as client:
            left = client.get_pool("scaled")
    assert (left.identity.type, left.enable_auto_scale) == ("UserAssigned", True)
    assert json.loads(done.stdout) == {
        "account": ["batchtrain", "Succeeded", 2**31 - 1],
        "endpoint": emulator.endpoint.removeprefix("https://"),
        "storage": "batchtrainlocal",
        "key": emulator.key,
        "accounts": ["batchtrain"],
        "created": ["pool", "Succeeded"],
        "pool": ["a pool", "STANDARD_D2_V3", 2, "Pack", "Enabled", 1, 1, "ubuntu-hpc", "batch.node.ubuntu 22.04",
                 "DockerCompatible", "Admin", "Admin", None, ["/identities/i"]],
        "pools": ["pool"],
        "again": True,
        "other account": [404, "ResourceNotFound"],
        "scaled": ["$TargetDedicatedNodes = 0;", None],
        "no size": [400, "MissingRequiredProperty"],
        "gone": "PoolNotFound",
    }  # fmt: skip


def ask(emulator: Emulator, path: str, resource: str, verb: str = "GET", body: bytes | None = None) -> tuple[int, str]:
    """(status, error code) of a request with a token for a resource."""
    token = tokens.issue(emulator.key, emulator.account, resource, server.clock())
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{emulator.endpoint}{path}", body, headers, method=verb)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["code"]


MANAGEMENT = "https://management.azure.com/"
POOL = f"{ACCOUNTS}/batchtrain/pools/p?{VERSION}"


@pytest.mark.parametrize(
    ("path", "resource", "verb", "body", "answer"),
    [
        (f"{ACCOUNTS}/batchtrain?{VERSION}", MANAGEMENT, "GET", None, (200, "")),
        (f"{ACCOUNTS}/BatchTrain?{VERSION}", MANAGEMENT, "GET", None, (200, "")),
        (f"{ACCOUNTS}/batchtrain?{VERSION}", wire.AUDIENCE, "GET", None, (401, "InvalidAuthenticationToken")),
        (f"{ACCOUNTS}/batchtrain?api-version=1999-01-01", MANAGEMENT, "GET", None, (400, "InvalidQueryParameterValue")),
        (f"{ACCOUNTS}/batchtrain/pools?{VERSION}&maxresults=0", MANAGEMENT, "GET", None,
         (400, "InvalidQueryParameterValue")),
        (f"{ACCOUNTS}/batchtrain/nonsense?{VERSION}", MANAGEMENT, "GET", None, (501, "NotImplementedByEmulator")),
        (POOL, MANAGEMENT, "PUT", b'{"properties": {"vmsize": "x"}}', (400, "InvalidRequestBody")),
        (POOL, MANAGEMENT, "PUT", b'{"properties": {"startTask": {"nonsense": 1}}}', (400, "InvalidRequestBody")),
        (POOL, MANAGEMENT, "PUT", b'{"properties": 5}', (400, "InvalidRequestBody")),
        (POOL, MANAGEMENT, "PUT", b'{"properties": {"applicationPackages": [3]}}', (400, "InvalidRequestBody")),
        (POOL, MANAGEMENT, "PUT", b'{"identity": 7}', (400, "InvalidRequestBody")),
        (POOL, MANAGEMENT, "DELETE", None, (204, "")),
    ],
)  # fmt: skip
def test_what_it_has_and_what_it_refuses(
    emulator: Emulator, path: str, resource: str, verb: str, body: bytes | None, answer: tuple[int, str]
) -> None:
    assert ask(emulator, path, resource, verb, body) == answer
