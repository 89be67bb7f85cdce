"""`batchtrain emulator env` and `token`: the account as a shell takes it; and `emulator start` where one runs."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.batch import BatchClient
from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.blob import BlobServiceClient

from batchtrain.cli import run
from batchtrain.emulator import server
from batchtrain.emulator.server import Settings
from tests.azurite import require

pytestmark = pytest.mark.process

NAMES = ("AZURE_BATCH_ENDPOINT", "AZURE_BATCH_ACCOUNT", "AZURE_BATCH_ACCESS_KEY")


def test_a_shell_that_evaluates_it_knows_the_account(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0", "--quota", "pools=1", "--nodes-max", "3")
    said = batchtrain("emulator", "env").stdout
    script = f"{said}\nprintf '%s\\n' " + " ".join(f'"${name}"' for name in NAMES)
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    endpoint, account, key = shell.stdout.split()
    with BatchClient(endpoint, AzureNamedKeyCredential(account, key), retry_total=0) as client:
        assert list(client.list_pools()) == []


def test_a_printed_token_opens_the_account_to_curl_s_like(batchtrain: Any) -> None:
    started = json.loads(batchtrain("emulator", "start", "--port", "0", "--https", "-o", "json").stdout)
    made = batchtrain("emulator", "token").stdout.strip()
    script = (
        "import os, urllib.request as u; print(u.urlopen(u.Request(os.environ['URL'], headers={'Authorization':"
        " 'Bearer ' + os.environ['TOKEN']})).status)"
    )
    said = batchtrain("emulator", "env").stdout
    url = f"{started['endpoint']}/pools?api-version=2025-06-01"
    shell = f"{said}\nTOKEN={made} URL='{url}' python3 -c \"{script}\""
    assert subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout == "200\n"


def test_a_directory_that_only_an_option_names_is_told_to_other_commands(batchtrain: Any, tmp_path: Path) -> None:
    own = str(tmp_path / "own")
    told = f"export BATCHTRAIN_EMULATOR_DIR={own}"
    for _ in range(2):  # at the start, and where it runs
        started = batchtrain("emulator", "start", "--port", "0", "--data-dir", own).stdout
        assert f"\nother commands use it after `{told}`" in started
    assert told in batchtrain("emulator", "env", "--data-dir", own).stdout.splitlines()
    ways = "(of another directory: `--data-dir DIR`, or BATCHTRAIN_EMULATOR_DIR=DIR for all commands)"
    assert [ways in batchtrain("emulator", verb, code=3).stderr for verb in ("status", "env")] == [True] * 2
    assert ways in batchtrain("emulator", "stop").stdout
    batchtrain("emulator", "stop", "--data-dir", own)


def test_it_has_the_storage_of_the_emulator(batchtrain: Any) -> None:
    require()
    batchtrain("emulator", "start", "--port", "0")
    document = json.loads(batchtrain("emulator", "env", "-o", "json", timeout=120).stdout)
    with BlobServiceClient.from_connection_string(document["AZURE_STORAGE_CONNECTION_STRING"]) as storage:
        assert list(storage.list_containers()) == []


def test_entra_prints_an_application_and_keeps_its_token_private(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0", "--https")
    document = json.loads(batchtrain("emulator", "env", "--entra", "-o", "json").stdout)
    assert document["AZURE_AUTHORITY_HOST"] == document["AZURE_BATCH_ENDPOINT"]
    assert document["AZURE_CLIENT_SECRET"] and document["AZURE_TENANT_ID"]
    assert stat.S_IMODE(Path(document["AZURE_FEDERATED_TOKEN_FILE"]).stat().st_mode) == 0o600


def test_entra_needs_https(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    assert "--https" in batchtrain("emulator", "env", "--entra", code=2).stderr


def test_a_start_keeps_an_emulator_that_another_command_would_stop_and_says_how_it_differs(
    batchtrain: Any,
) -> None:
    server.spawn(Settings(batchtrain.home, port=0))
    text = batchtrain("emulator", "start", "--pace", "azure", "--quota", "pools=3").stdout
    assert "and stays; but quotas is not set, not pools=3; pace is instant, not azure: " in text
    run._stop_emulator(SimpleNamespace(account=SimpleNamespace(home=batchtrain.home)))  # type: ignore[arg-type]
    assert server.status(batchtrain.home) is not None
    server.stop(batchtrain.home)
    assert not server.is_kept(batchtrain.home)
