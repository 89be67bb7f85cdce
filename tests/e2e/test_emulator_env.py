"""`batchtrain emulator env`: the account as a shell takes it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from azure.batch import BatchClient
from azure.core.credentials import AzureNamedKeyCredential

pytestmark = pytest.mark.process

NAMES = ("AZURE_BATCH_ENDPOINT", "AZURE_BATCH_ACCOUNT", "AZURE_BATCH_ACCESS_KEY")


def test_a_shell_that_evaluates_it_knows_the_account(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    said = batchtrain("emulator", "env").stdout
    script = f"{said}\nprintf '%s\\n' " + " ".join(f'"${name}"' for name in NAMES)
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    endpoint, account, key = shell.stdout.split()
    with BatchClient(endpoint, AzureNamedKeyCredential(account, key), retry_total=0) as client:
        assert list(client.list_pools()) == []


def test_without_an_emulator_it_says_so(batchtrain: Any) -> None:
    assert "no emulator is running" in batchtrain("emulator", "env", code=3).stderr
