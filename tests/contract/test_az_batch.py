"""`az batch` of azure-cli against the embedded service: no login, a shared key, plain http."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import sign_in
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests import environments
from tests.emulation import FakeMachine

pytestmark = [pytest.mark.process, pytest.mark.slow]

IMAGE = ("--image", "microsoft-dsvm:ubuntu-hpc:2204", "--node-agent-sku-id", "batch.node.ubuntu 22.04")


class Az:
    """Runs `az batch …` in a directory of its own, for one account."""

    def __init__(self, process: subprocess.Popen[str], home: Path, emulator: Emulator) -> None:
        self.process, self.home = process, home
        self.environment = {
            "AZURE_BATCH_ACCOUNT": emulator.account,
            "AZURE_BATCH_ACCESS_KEY": emulator.key,
            "AZURE_BATCH_ENDPOINT": emulator.endpoint,
        }

    def __call__(self, *words: str, code: int = 0) -> Any:
        """What it prints, read as JSON; what it complains of where it must end with another code than 0."""
        assert self.process.stdin is not None and self.process.stdout is not None
        command = [["batch", *words, "--output", "json"], self.environment, str(self.home)]
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        ended_with, out, err = json.loads(self.process.stdout.readline())
        assert ended_with == code, f"{words}: {ended_with}\n{out}\n{err}"
        if code:
            return err
        return json.loads(out) if out.strip() else None

    def write(self, name: str, document: object) -> str:
        """A file for `--json-file`."""
        (self.home / name).write_text(json.dumps(document), encoding="utf-8")
        return name


@pytest.fixture(scope="module")
def program() -> Path:
    """The Python of an environment with azure-cli."""
    try:
        return environments.prefix("azure-cli") / "bin" / "python"
    except environments.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def process(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """What runs the commands of all tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURE_")}
    config = {"AZURE_CONFIG_DIR": str(tmp_path_factory.mktemp("az")), "AZURE_CORE_COLLECT_TELEMETRY": "no"}
    words, pipe = [program, Path(__file__).with_name("az_commands.py")], subprocess.PIPE
    with subprocess.Popen(words, env={**environment, **config}, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


@pytest.fixture
def az(process: subprocess.Popen[str], tmp_path: Path) -> Iterator[Az]:
    with Emulator(Settings(tmp_path / "data", port=0), FakeMachine.open) as emulator:
        (tmp_path / "home").mkdir()
        yield Az(process, tmp_path / "home", emulator)


@pytest.fixture
def pool(az: Az) -> str:
    """A pool with one node."""
    az("pool", "create", "--id", "pool", "--vm-size", "standard_d2_v3", "--target-dedicated-nodes", "1", *IMAGE)
    return "pool"


@pytest.fixture
def job(az: Az, pool: str) -> str:
    """A job on that pool."""
    az("job", "create", "--id", "job", "--pool-id", pool)
    return "job"


@pytest.fixture
def node(az: Az, pool: str) -> str:
    (found,) = az("node", "list", "--pool-id", pool)
    return str(found["id"])


def test_a_pool_is_created_listed_resized_shown_and_deleted(az: Az, pool: str) -> None:
    assert [one["id"] for one in az("pool", "list")] == ["pool"]
    az("pool", "resize", "--pool-id", pool, "--target-dedicated-nodes", "3")
    assert len(az("node", "list", "--pool-id", pool)) == 3
    assert az("pool", "show", "--pool-id", pool)["targetDedicatedNodes"] == 3
    az("pool", "delete", "--pool-id", pool, "--yes")
    assert az("pool", "list") == []


def test_flags_name_the_account_as_well_as_variables_do(az: Az, pool: str) -> None:
    names = {"name": "ACCOUNT", "key": "ACCESS_KEY", "endpoint": "ENDPOINT"}
    flags = [
        word
        for flag, name in names.items()
        for word in (f"--account-{flag}", az.environment.pop(f"AZURE_BATCH_{name}"))
    ]
    assert az("pool", "show", "--pool-id", pool, *flags)["id"] == "pool"


def test_a_pool_is_created_from_a_file(az: Az) -> None:
    image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"}
    machine = {"imageReference": image, "nodeAgentSKUId": "batch.node.ubuntu 22.04"}
    wanted = {
        "id": "gang",
        "vmSize": "standard_d2_v3",
        "virtualMachineConfiguration": machine,
        "targetDedicatedNodes": 2,
        "enableInterNodeCommunication": True,
        "taskSlotsPerNode": 1,
    }
    az("pool", "create", "--json-file", az.write("pool.json", wanted))
    found = az("pool", "show", "--pool-id", "gang")
    assert (found["enableInterNodeCommunication"], found["targetDedicatedNodes"]) == (True, 2)


def test_a_pool_is_changed(az: Az, pool: str) -> None:
    az("pool", "set", "--pool-id", pool, "--metadata", "a=b")
    assert az("pool", "show", "--pool-id", pool)["metadata"] == [{"name": "a", "value": "b"}]
    whole = {"applicationPackageReferences": [], "metadata": [{"name": "c", "value": "d"}]}
    az("pool", "reset", "--pool-id", pool, "--json-file", az.write("properties.json", whole))
    assert az("pool", "show", "--pool-id", pool)["metadata"] == [{"name": "c", "value": "d"}]


def test_many_tasks_are_created_from_one_file(az: Az, job: str) -> None:
    many = [{"id": f"t{number}", "commandLine": f"exit {number % 2}"} for number in range(150)]
    answers = az("task", "create", "--job-id", job, "--json-file", az.write("tasks.json", many))
    assert {answer["status"].lower() for answer in answers} == {"success"}
    assert len(az("task", "list", "--job-id", job)) == 150


def test_a_node_is_shown_taken_from_service_and_rebooted(az: Az, pool: str, node: str) -> None:
    where = ("--pool-id", pool, "--node-id", node)
    az("node", "scheduling", "disable", *where)
    assert az("node", "show", *where)["schedulingState"] == "disabled"
    az("node", "scheduling", "enable", *where)
    az("node", "reboot", *where)
    assert az("node", "show", *where)["state"] in ("rebooting", "starting", "idle")


def test_a_pool_sizes_itself(az: Az, pool: str) -> None:
    formula = "$TargetDedicatedNodes = 2;"
    az("pool", "autoscale", "enable", "--pool-id", pool, "--auto-scale-formula", formula)
    tried = az("pool", "autoscale", "evaluate", "--pool-id", pool, "--auto-scale-formula", formula)
    assert "$TargetDedicatedNodes=2" in tried["results"]
    az("pool", "autoscale", "disable", "--pool-id", pool)
    assert az("pool", "show", "--pool-id", pool)["enableAutoScale"] is False


def test_what_the_account_has_is_listed(az: Az, pool: str, node: str) -> None:
    assert [one["poolId"] for one in az("pool", "node-counts", "list")] == [pool]
    assert az("pool", "usage-metrics", "list") == []
    assert "batch.node.ubuntu 22.04" in [one["nodeAgentSkuId"] for one in az("pool", "supported-images", "list")]
    assert az("application", "summary", "list") == []


def test_a_schedule_is_created_changed_and_ended(az: Az, pool: str) -> None:
    az("job-schedule", "create", "--id", "daily", "--pool-id", pool, "--recurrence-interval", "P1D")
    assert [one["id"] for one in az("job-schedule", "list")] == ["daily"]
    az("job-schedule", "set", "--job-schedule-id", "daily", "--recurrence-interval", "P2D")
    az("job-schedule", "disable", "--job-schedule-id", "daily")
    assert az("job-schedule", "show", "--job-schedule-id", "daily")["state"] == "disabled"
    az("job-schedule", "enable", "--job-schedule-id", "daily")
    assert [one["id"] for one in az("job", "list", "--job-schedule-id", "daily")] == ["daily:job-1"]
    az("job-schedule", "stop", "--job-schedule-id", "daily")
    az("job-schedule", "delete", "--job-schedule-id", "daily", "--yes")
    assert az("job-schedule", "list") == []


def test_a_task_is_changed_stopped_and_started_again(az: Az, job: str) -> None:
    where = ("--job-id", job, "--task-id", "task")
    az("task", "create", *where, "--command-line", "wait")
    az("task", "reset", *where, "--max-task-retry-count", "2")
    assert az("task", "show", *where)["constraints"]["maxTaskRetryCount"] == 2
    assert az("task", "subtask", "list", *where) == []
    az("task", "stop", *where)
    assert az("task", "show", *where)["state"] == "completed"
    az("task", "reactivate", *where)
    az("task", "delete", *where, "--yes")
    refused = az("job", "prep-release-status", "list", "--job-id", job, code=1)
    assert "(JobPreparationTaskOrReleaseTaskNotSpecified)" in refused


def test_a_node_has_users_and_files(az: Az, job: str, node: str) -> None:
    where = ("--pool-id", "pool", "--node-id", node)
    az("node", "user", "create", *where, "--name", "ann", "--password", "s3cret!")
    az("node", "user", "reset", *where, "--user-name", "ann", "--password", "an0ther!")
    az("node", "user", "delete", *where, "--user-name", "ann", "--yes")
    az("task", "create", "--job-id", job, "--task-id", "task", "--command-line", "print hello")
    file = ("--file-path", "workitems/job/job-1/task/stdout.txt")
    assert file[1] in [one["name"] for one in az("node", "file", "list", *where, "--recursive")]
    az("node", "file", "download", *where, *file, "--destination", "./hello.txt")
    assert (az.home / "hello.txt").read_text() == "hello\n"
    az("node", "file", "delete", *where, *file, "--yes")


def test_what_does_not_exist_is_said_in_the_services_words(az: Az) -> None:
    assert "(PoolNotFound) The specified pool does not exist." in az("pool", "show", "--pool-id", "none", code=3)


def test_a_wrong_key_is_said(az: Az) -> None:
    az.environment["AZURE_BATCH_ACCESS_KEY"] = "d3Jvbmc="
    assert "AuthenticationFailed" in az("pool", "list", code=1)


def test_az_signs_in_as_an_application_and_finds_the_account(program: Path, tmp_path: Path) -> None:
    """The commands of "Client secrets and federated tokens" in docs/how-to/other-clients.md."""
    with Emulator(Settings(tmp_path / "data", port=0, https=True), FakeMachine.open) as emulator:
        values = sign_in.variables(emulator.endpoint, emulator.key, "")
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
