"""Other people's programs, each in an environment of its own, run unmodified against an emulator; what they called.

`python -m tests.contract.clients` runs all that this machine can have and writes docs/reference/clients.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import urlsplit

from azure.batch import BatchClient
from azure.core.credentials import AzureNamedKeyCredential
from filelock import FileLock

from batchtrain.emulator import http, identity, mapped_images, resource_manager, routes, server
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.server import Settings, Status
from batchtrain.emulator.serving import Emulator
from tests import environments, javascript, tunnel
from tests.contract import test_all_operations as operations
from tests.contract.ways import SyncWay
from tests.emulation import POOL, FakeMachine

HERE, PAGE = Path(__file__).parent, environments.ROOT / "docs" / "reference" / "clients.md"
OF_THE_SHELL = ("AZURE_", "IDENTITY_", "AIRFLOW_", "REQUESTS_", "SSL_", "NODE_", "HTTP_", "HTTPS_", "NO_PROXY")
"""Variables that a program must not find by chance."""
NAMES = ("batchtrain.eastus.batch.azure.com", "management.azure.com")
TOKEN = "managed_identity_token"
BOTH = ("http", "https")

Calls = Mapping[str, int]
"""By operation: the least status with which it was answered."""


class Failed(Exception):
    """A program did not end well; the message has what it printed."""


class Running(NamedTuple):
    """An emulator for one program."""

    status: Status
    home: Path
    """The program's working directory, empty."""

    def run(self, *command: str | Path, **variables: str) -> str:
        """What a program prints; it finds what `emulator env` exports. Raises Failed."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.home,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Failed(f"{command[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def environment(self, **variables: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.upper().startswith(OF_THE_SHELL)}
        return {**own, **self.status.environment, **variables}

    @property
    def account(self) -> tuple[str, str, str]:
        return self.status.endpoint, self.status.account, self.status.key


class Client(NamedTuple):
    """A program and what it does here."""

    name: str
    story: Callable[[Running], None]
    signs: str
    """How it signs in."""
    schemes: tuple[str, ...] = BOTH
    really_runs: bool = False
    """Its tasks are real commands."""
    polled: tuple[str, ...] = ()
    """What the SDK asks in the background until something is gone: whether it is asked at all is a matter of time."""


# What each does ------------------------------------------------------------------------------------------------------


def _every_operation(running: Running) -> None:
    """One row after the other of the test that has a row for each operation."""
    endpoint, account, key = running.account
    verify = running.status.certificate or True
    package = running.status.data_dir / "applications" / "solver"
    package.mkdir(parents=True)
    (package / "1.0.zip").touch()
    credential = AzureNamedKeyCredential(account, key)
    with BatchClient(endpoint, credential, retry_total=0, connection_verify=verify) as client:
        way = SyncWay(client, lambda: server.reset(running.status.data_dir))
        for row in (row for row in operations.ROWS if row.operation in operations.HAVE):
            way.reset()
            answer, scene = operations.ask_row(way.ask, row.operation, row.happy)
            if not row.holds(answer, scene):
                raise Failed(f"{row.operation}: {answer}")


def _python(environment: str, script: str) -> Callable[[Running], None]:
    """A script of these tests, with an SDK on its own Python."""

    def story(running: Running) -> None:
        python = environments.prefix(environment) / "bin" / "python"
        _check(environment, running.run(python, HERE / script, *running.account))

    return story


def _check(name: str, printed: str) -> None:
    """A script of these tests prints what it saw, which is in a golden file. Raises Failed."""
    expected = environments.ROOT / "tests" / "golden" / "clients" / f"{name}.json"
    if json.loads(printed) != json.loads(expected.read_text(encoding="utf-8")):
        raise Failed(f"{name} saw {printed}")


def _az(running: Running) -> None:
    """Each line of AZ: the command's own variables, the command, and what it prints or its exit code and complaint."""
    for name, document in AZ_FILES.items():
        (running.home / name).write_text(json.dumps(document), encoding="utf-8")
    endpoint, account, key = running.account
    flags = f"--account-name {account} --account-key {key} --account-endpoint {endpoint}"
    meaning = {**AZ_WORDS, "FLAGS": flags}
    command = [environments.prefix("azure-cli") / "bin" / "python", HERE / "az_commands.py"]
    own = running.environment(AZURE_CONFIG_DIR=str(running.home / "config"), AZURE_CORE_COLLECT_TELEMETRY="no")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=running.home, env=own, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin and process.stdout
        for line in AZ.strip().splitlines():
            asked, _, expected = line.partition(" -> ")
            for name, words in meaning.items():
                asked = asked.replace(name, words)
            words = shlex.split(asked)
            variables = [word for word in words if word.startswith("AZURE_")]
            request = ["batch", *words[len(variables) :], "--output", "json"]
            print(json.dumps([request, dict(one.split("=") for one in variables), "."]), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline())
            if expected == "NODE":
                meaning["NODE"] = f"--pool-id pool --node-id {json.loads(answer[1])}"
            elif not _as_expected(expected, *answer):
                raise Failed(f"az batch {asked}: {answer}")
    if (running.home / "hello.txt").read_text() != "hello\n":
        raise Failed("the node's file is another one")


def _as_expected(expected: str, code: int, out: str, complaint: str) -> bool:
    if code:
        return expected.startswith(f"{code} ") and expected.partition(" ")[2] in complaint
    return not expected or json.loads(expected) == json.loads(out)


AZ_WORDS = {
    "IMAGE": "--image microsoft-dsvm:ubuntu-hpc:2204 --node-agent-sku-id 'batch.node.ubuntu 22.04'",
    "FORMULA": "--pool-id pool --auto-scale-formula '$TargetDedicatedNodes = 2;'",
}
AZ_FILES = {
    "gang.json": {
        "id": "gang", "vmSize": "standard_d2_v3", "targetDedicatedNodes": 2, "taskSlotsPerNode": 1,
        "enableInterNodeCommunication": True, "virtualMachineConfiguration": POOL["virtualMachineConfiguration"],
    },
    "properties.json": {"applicationPackageReferences": [], "metadata": [{"name": "c", "value": "d"}]},
    "tasks.json": [{"id": f"t{number}", "commandLine": f"exit {number % 2}"} for number in range(150)],
}  # fmt: skip
AZ = """
pool create --id pool --vm-size standard_d2_v3 --target-dedicated-nodes 1 IMAGE
pool list --query [].id -> ["pool"]
pool show --pool-id none -> 3 (PoolNotFound) The specified pool does not exist.
AZURE_BATCH_ACCESS_KEY=d3Jvbmdz pool list -> 1 AuthenticationFailed
AZURE_BATCH_ACCESS_KEY=d3Jvbmdz AZURE_BATCH_ACCOUNT=none pool show --pool-id pool FLAGS --query id -> "pool"
pool set --pool-id pool --metadata a=b
pool show --pool-id pool --query metadata -> [{"name": "a", "value": "b"}]
pool reset --pool-id pool --json-file properties.json
pool show --pool-id pool --query metadata -> [{"name": "c", "value": "d"}]
pool node-counts list --query [].poolId -> ["pool"]
pool usage-metrics list -> []
pool supported-images list --query "length([?nodeAgentSkuId=='batch.node.ubuntu 22.04']) > `0`" -> true
application summary list -> []
node list --pool-id pool --query [0].id -> NODE
node scheduling disable NODE
node show NODE --query schedulingState -> "disabled"
node scheduling enable NODE
node user create NODE --name ann --password s3cret!
node user reset NODE --user-name ann --password an0ther!
node user delete NODE --user-name ann --yes
job create --id job --pool-id pool
job list --query [].id -> ["job"]
job set --job-id job --priority 5
task create --job-id job --task-id task --command-line "print hello"
task list --job-id job --query [].id -> ["task"]
task show --job-id job --task-id task --query commandLine -> "print hello"
task file list --job-id job --task-id task --query [].name -> ["stderr.txt", "stdout.txt", "wd"]
task file download --job-id job --task-id task --file-path stdout.txt --destination ./out.txt
node file list NODE --recursive --query "contains([].name, 'workitems/job/job-1/task/stdout.txt')" -> true
node file download NODE --file-path workitems/job/job-1/task/stdout.txt --destination ./hello.txt
node file delete NODE --file-path workitems/job/job-1/task/stdout.txt --yes
task create --job-id job --json-file tasks.json --query "length([?status=='Success'])" -> 150
task list --job-id job --query length(@) -> 151
job task-counts show --job-id job
task create --job-id job --task-id waits --command-line wait
task reset --job-id job --task-id waits --max-task-retry-count 2
task show --job-id job --task-id waits --query constraints.maxTaskRetryCount -> 2
task subtask list --job-id job --task-id waits -> []
task stop --job-id job --task-id waits
task show --job-id job --task-id waits --query state -> "completed"
task reactivate --job-id job --task-id waits
task delete --job-id job --task-id waits --yes
job prep-release-status list --job-id job -> 1 (JobPreparationTaskOrReleaseTaskNotSpecified)
job disable --job-id job --disable-tasks requeue
job enable --job-id job
job stop --job-id job
job delete --job-id job --yes
node reboot NODE
node show NODE --query 'contains(`["rebooting", "starting", "idle"]`, state)' -> true
pool resize --pool-id pool --target-dedicated-nodes 3
node list --pool-id pool --query length(@) -> 3
pool show --pool-id pool --query targetDedicatedNodes -> 3
pool autoscale enable FORMULA
pool autoscale evaluate FORMULA --query "contains(results, '$TargetDedicatedNodes=2')" -> true
pool autoscale disable --pool-id pool
pool show --pool-id pool --query enableAutoScale -> false
job-schedule create --id daily --pool-id pool --recurrence-interval P1D
job-schedule list --query [].id -> ["daily"]
job-schedule set --job-schedule-id daily --recurrence-interval P2D
job-schedule disable --job-schedule-id daily
job-schedule show --job-schedule-id daily --query state -> "disabled"
job-schedule enable --job-schedule-id daily
job list --job-schedule-id daily --query [].id -> ["daily:job-1"]
job-schedule stop --job-schedule-id daily
job-schedule delete --job-schedule-id daily --yes
job-schedule list -> []
pool create --json-file gang.json
pool show --pool-id gang --query [enableInterNodeCommunication,targetDedicatedNodes] -> [true, 2]
pool delete --pool-id gang --yes
pool delete --pool-id pool --yes
pool list -> []
"""


def _javascript(running: Running) -> None:
    where = dict(zip(("endpoint", "account", "key"), running.account, strict=True))
    script = HERE / "javascript" / "first_steps.cjs"
    _check(script.name, running.run("node", script, json.dumps(where), NODE_PATH=str(javascript.modules())))


def _airflow(running: Running) -> None:
    """By key over http, with the managed identity over https."""
    endpoint, account, key = running.account
    signing = {} if running.status.certificate else {"login": account, "password": key}
    connection = {"conn_type": "azure_batch", "extra": {"account_url": endpoint}, **signing}
    python = environments.prefix("airflow") / "bin" / "python"
    running.run(python, HERE / "airflow_task.py", AIRFLOW_HOME=str(running.home / "airflow"),
                AIRFLOW_CONN_AZURE_BATCH_DEFAULT=json.dumps(connection))  # fmt: skip


SNAKEFILE = """
rule all:
    input: "hello.txt"

rule hello:
    output: "hello.txt"
    shell: "echo hello > {output}"
"""


def _snakemake(running: Running) -> None:
    """It knows Resource Manager by its public name alone; its nodes see no file below this machine's /tmp."""
    if shutil.which("rsync") is None:
        raise environments.Missing("rsync is not installed, with which Snakemake's storage copies files")
    prefix, image = environments.prefix("snakemake"), "snakemake/snakemake:v9.27.1"
    mapped_images.map_image(running.status.data_dir, image, prefix)
    (running.home / "Snakefile").write_text(SNAKEFILE)
    where = urlsplit(running.status.endpoint)
    (environments.ROOT / ".cache").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=environments.ROOT / ".cache") as storage,
        tunnel.serve(NAMES, (where.hostname or "", where.port or 0)) as proxy,
    ):
        running.run(
            prefix / "bin" / "snakemake", "--executor", "azure-batch", "--jobs", "1", "--container-image", image,
            "--azure-batch-account-url", f"https://{NAMES[0]}", "--azure-batch-resource-group-name", "group",
            "--azure-batch-subscription-id", "subscription", "--default-storage-provider", "fs",
            "--default-storage-prefix", storage, HTTPS_PROXY=proxy, NO_PROXY="127.0.0.1",
            PATH=f"{prefix / 'bin'}{os.pathsep}{os.environ['PATH']}",
        )  # fmt: skip
        if Path(storage, "hello.txt").read_text() != "hello\n":
            raise Failed("the rule wrote no file")


SAMPLE, SAMPLE_DIGEST = (
    "batch_samples_hello_world.py",
    "317ca48fc13dd43afb0d91cf440366364d050282a99cf18b6e8ae0375b9c386e",
)


def _sample(running: Running) -> None:
    """Microsoft's, out of the SDK's source package; it prints every refusal and goes on."""
    shutil.copy(_sample_file(), running.home)
    (running.home / "samples.cfg").write_text(f"[Batch]\nBATCH_ACCOUNT_ENDPOINT = {running.status.endpoint}\n")
    if printed := running.run(sys.executable, SAMPLE):
        raise Failed(printed)


def _sample_file() -> Path:
    """Fetched from PyPI once, and exactly the one that was looked at."""
    place = environments.home() / "azure-batch-15.1.0-samples"
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        if not (place / SAMPLE).exists():
            pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "azure-batch")
            done = subprocess.run([*pip, "-d", place, "azure-batch==15.1.0"], capture_output=True, text=True)
            if done.returncode:
                raise environments.Missing(f"the SDK's source package cannot be had: {done.stderr}")
            with tarfile.open(place / "azure_batch-15.1.0.tar.gz") as archive:
                found = archive.extractfile(f"azure_batch-15.1.0/samples/{SAMPLE}")
                assert found is not None
                (place / SAMPLE).write_bytes(found.read())
    if hashlib.sha256((place / SAMPLE).read_bytes()).hexdigest() != SAMPLE_DIGEST:
        raise Failed(f"{place / SAMPLE} was changed")
    return place / SAMPLE


KEY, IDENTITY = "shared key", "managed identity"
CLIENTS = (
    Client("azure-batch 15.1", _every_operation, KEY),
    Client("azure-batch 14.2", _python("azure-batch-14", "sdk_14.py"), KEY),
    Client("azure-batch 9.0", _python("azure-batch-9", "sdk_8.py"), KEY),
    Client("azure-batch 8.0", _python("azure-batch-8", "sdk_8.py"), KEY),
    Client("az batch 2.91", _az, KEY),
    Client("@azure/batch 10.2", _javascript, KEY),
    Client("azure-mgmt-batch 17.3", _python("azure-mgmt-batch-17", "mgmt_batch.py"), IDENTITY, ("https",)),
    Client("azure-mgmt-batch 19.0", _python("azure-mgmt-batch-19", "mgmt_batch.py"), IDENTITY, ("https",)),
    Client("Airflow 3.3 AzureBatchOperator", _airflow, f"{KEY} over http, {IDENTITY} over https", polled=("get_job",)),
    Client("Snakemake 9.27 azure-batch 0.3", _snakemake, IDENTITY, ("https",), really_runs=True),
    Client("sample of azure-batch 15.1", _sample, IDENTITY, ("https",), polled=("get_job", "get_pool")),
)


# What they called ----------------------------------------------------------------------------------------------------


def called(client: Client, scheme: str, place: Path) -> Calls:
    """Run it over one scheme. Raises Failed, environments.Missing."""
    settings = Settings(place / "data", port=0, https=scheme == "https", names=NAMES)
    (place / "home").mkdir(parents=True)
    calls: dict[str, int] = {}
    with _recording(calls), Emulator(settings, None if client.really_runs else FakeMachine.open) as emulator:
        client.story(Running(emulator.status, place / "home"))
    return calls


@contextlib.contextmanager
def _recording(calls: dict[str, int]) -> Iterator[None]:
    """Note each answer of the emulators of this process."""
    send = http._send

    async def noting(reply: Any, request: Any, *rest: Any) -> None:
        if name := _operation(request.verb, request.raw_path):
            calls[name] = min(reply.status, calls.get(name, reply.status))
        await send(reply, request, *rest)

    with mock.patch.object(http, "_send", noting):
        yield


def _operation(verb: str, path: str) -> str:
    if path == identity.PATH:
        return TOKEN
    for route_verb, pattern, operation, _ in resource_manager.ROUTES:
        if route_verb == verb and pattern.fullmatch(path):
            return f"management_{operation.__name__.lstrip('_')}"
    try:
        return routes.find(verb, path)[0].name
    except Fault:
        return ""


# The page ------------------------------------------------------------------------------------------------------------

HEAD = """# Clients of the emulator

Programs that other people wrote, run unmodified against the emulator over http and https, and every operation that they
called. A test runs each of them and holds this page to what the emulator answered:
`python -m pytest --all tests/contract/test_clients.py`. `python -m tests.contract.clients` writes the page.
[Point other clients at the emulator](../how-to/other-clients.md) says how to do it.

"""
NOTES = """
Tokens need https: the SDKs refuse to send them over http. `@azure-rest/batch` is not on npm (404), so JavaScript's
newer client could not be tried. The sample is `batch_samples_hello_world.py` of the source package of azure-batch
15.1.0.

azure-batch 15.1 has these defects of its own, with any service:

- `begin_terminate_job`, `begin_reboot_node` and `disable_node_scheduling` fail without options (`ValueError: No value
  for given attribute`): give them `{"terminateReason": "done"}`, `{"nodeRebootOption": "requeue"}` and
  `{"nodeDisableSchedulingOption": "requeue"}`.
- `pool_exists` and `job_schedule_exists` raise `ResourceNotFoundError` if there is none, instead of returning False.
- An error of `download_task_file` or `download_node_file` has neither the code nor the message of the service, and the
  SDK logs that it could not read the answer: `error.error` is None. `error.status_code` and `error.reason` are right.
- `BatchTaskAddStatus.SUCCESS` is `success`, but the service answers `Success`: compare `status.lower()`.

## Operations

✓ means that the operation was answered with success at least once over each scheme that the client was run with. `http`
or `https` means over this one only. A number is the HTTP status of an operation whose every answer was a refusal. In an
empty cell, the client's run did not call the operation. `management_…` are operations of Azure Resource Manager.

"""


def cells(client: Client, over: Mapping[str, Calls]) -> dict[str, str]:
    """A client's column: by operation."""
    found = {}
    for name in {name for calls in over.values() for name in calls} - set(client.polled):
        good = [scheme for scheme in client.schemes if over[scheme].get(name, 599) < 400]
        statuses = [calls[name] for calls in over.values() if name in calls]
        found[name] = "✓" if good == list(client.schemes) else ", ".join(good) or str(min(statuses))
    return found


def page(columns: Mapping[str, Mapping[str, str]]) -> str:
    """The whole page."""
    clients = [client for client in CLIENTS if client.name in columns]
    lines = ["| client | signs in with | http | https |", "|---|---|---|---|"]
    for client in clients:
        marks = " | ".join("✓" if scheme in client.schemes else "–" for scheme in BOTH)
        lines.append(f"| {client.name} | {client.signs} | {marks} |")
    called = {name for column in columns.values() for name in column}
    management = [f"management_{operation.__name__.lstrip('_')}" for _, _, operation, _ in resource_manager.ROUTES]
    order = dict.fromkeys([*(route.name for route in routes.ROUTES), *sorted(called - {TOKEN, *management}), TOKEN,
                           *management])  # fmt: skip
    table = [f"| operation | {' | '.join(client.name for client in clients)} |", "|---" * (len(clients) + 1) + "|"]
    table += [
        f"| `{name}` | {' | '.join(columns[client.name].get(name, '') for client in clients)} |"
        for name in order
        if name in called
    ]
    return HEAD + "\n".join(lines) + "\n" + NOTES + "\n".join(table) + "\n"


def columns_of(text: str) -> dict[str, dict[str, str]]:
    """The columns of a page."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    start = next(index for index, row in enumerate(rows) if row[0] == "operation")
    head, body = rows[start], rows[start + 2 :]
    return {
        name: {row[0].strip("`"): row[number] for row in body if row[number]}
        for number, name in enumerate(head)
        if number
    }


def main() -> None:
    """Run all and write the page."""
    former = columns_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    columns = {client.name: _column(client) or former.get(client.name, {}) for client in CLIENTS}
    PAGE.write_text(page(columns), encoding="utf-8")


def _column(client: Client) -> dict[str, str]:
    """Empty for a client that this machine cannot have: it keeps its former column."""
    try:
        with tempfile.TemporaryDirectory() as place:
            over = {scheme: called(client, scheme, Path(place, scheme)) for scheme in client.schemes}
    except environments.Missing as missing:
        print(f"{client.name}: {missing}", file=sys.stderr)
        return {}
    print(f"{client.name}: {len(over[client.schemes[0]])} operations", file=sys.stderr)
    return cells(client, over)


if __name__ == "__main__":
    main()
