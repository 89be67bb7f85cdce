"""`az login` and Azure Resource Manager of the embedded service; tests/contract/clients.py has `az batch`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import identity
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests import environments
from tests.emulation import FakeMachine


@pytest.mark.process
@pytest.mark.slow
def test_az_signs_in_as_an_application_and_finds_the_account(tmp_path: Path) -> None:
    """The commands of "Client secrets and federated tokens" in docs/how-to/other-clients.md."""
    try:
        program = environments.prefix("azure-cli") / "bin" / "python"
    except environments.Missing as missing:
        pytest.skip(str(missing))
    with Emulator(Settings(tmp_path / "data", port=0, https=True), FakeMachine.open) as emulator:
        values = identity.application(emulator.endpoint, emulator.key, "")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AZURE_")},
            **emulator.status.environment,
            "AZURE_CONFIG_DIR": str(tmp_path / "config"),
            "AZURE_CORE_COLLECT_TELEMETRY": "no",
            "AZURE_CORE_INSTANCE_DISCOVERY": "false",
        }

        def az(*words: str) -> Any:
            command = [program, "-m", "azure.cli", *words, "--output", "json"]
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            assert not done.returncode, f"{words}: {done.stdout}\n{done.stderr}"
            return json.loads(done.stdout) if done.stdout.strip() else None

        here = [
            f"--endpoint-{name}={emulator.endpoint}" for name in ("active-directory", "resource-manager", "management")
        ]
        others = {
            "active-directory": "management.core.windows.net",
            "active-directory-graph": "graph.windows.net",
            "microsoft-graph": "graph.microsoft.com",
        }
        ids = [f"--endpoint-{name}-resource-id=https://{host}/" for name, host in others.items()]
        az("cloud", "register", "--name", "emulator", "--skip-endpoint-discovery", *here, *ids)
        az("cloud", "set", "--name", "emulator")
        az("login", "--service-principal", "--username", values["AZURE_CLIENT_ID"], "--password",
           values["AZURE_CLIENT_SECRET"], "--tenant", values["AZURE_TENANT_ID"])  # fmt: skip
        account = az("batch", "account", "show", "--resource-group", "any", "--name", "batchtrain")
        assert (account["name"], account["poolAllocationMode"]) == ("batchtrain", "BatchService")
