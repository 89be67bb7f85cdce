"""A detached two-node training whose client and its state directory are gone: the service ends it, and another machine
has everything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.pipeline.transport import RequestsTransport

from batchtrain.client.client import Client, load
from batchtrain.client.detach import detach
from batchtrain.client.job import Job
from batchtrain.client.limits import Limits
from batchtrain.config.types import Credentials, Recipe, Secret, StopWhen, StorageCredentials
from batchtrain.emulator import steering
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import NotFound, ServiceError, TaskFailed
from batchtrain.runs.finished import Runs
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from tests.waiting import until

from .test_checkpoints import recipe as checkpointed

pytestmark = [pytest.mark.process, pytest.mark.slow]
MOST_REQUESTS = 40
TRAIN = (
    "for step in 1 2 3; do echo step=$step loss=0.$((9 - step)); done;"
    " [ $BATCHTRAIN_RANK != 0 ] || { mkdir -p output && echo model >output/model.pt; }"
)


class Killed(BaseException):
    """The end of the client's process."""


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        steering.turn(running.status, "stepped")
        yield running


def recipe(job: str, storage: StorageAccount) -> Recipe:
    image = {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}}
    pool = {
        "id": "p", "vm_size": "STANDARD_D2S_V5", "vm_count": {"dedicated": 2}, "vm_configuration": image,
        "inter_node_communication_enabled": True,
    }  # fmt: skip
    task = {"id": "t", "command": TRAIN, "multi_instance": {"num_instances": 2, "jax": {"processes_per_node": 1}}}
    made = msgspec.convert({"directory": "x", "pool": pool, "jobs": [{"id": job, "tasks": [task]}]}, Recipe)
    account = StorageCredentials(account=storage.account, account_key=Secret(storage.key), endpoint=storage.endpoint)
    return msgspec.structs.replace(made, credentials=Credentials(storage={"link": account}))


def client_of(emulator: Emulator, credentials: Credentials) -> Client:
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    client.credentials = credentials
    return client


def test_whenever_the_client_is_gone_no_pool_is_left_and_another_machine_has_the_training(
    emulator: Emulator, azurite: StorageAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, sent = RequestsTransport.send, 0
    last = 0

    def dying(self: Any, request: Any, **options: Any) -> Any:
        nonlocal sent
        if last and sent >= last:
            raise Killed  # a process that is gone sends nothing any more
        response = send(self, request, **options)
        sent += 1
        if sent == last:
            raise Killed
        return response

    monkeypatch.setattr(RequestsTransport, "send", dying)
    trained, has_ended = [], False
    for number in range(1, MOST_REQUESTS):
        job = f"j{number}"
        client = client_of(emulator, recipe(job, azurite).credentials)
        sent, last = 0, number
        try:
            detached(client, recipe(job, azurite), tmp_path / "runs")
            has_ended = True
        except Killed:
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        last = 0
        has_tasks = trains(client, job)
        steering.advance(emulator.status, timedelta(hours=1))
        assert client.pools.list() == ()
        assert client.jobs.state(job) in ("", "completed")
        if has_tasks:
            trained.append(fetched(client, job, tmp_path / "elsewhere"))
        if has_ended:
            break
    assert has_ended and len(trained) >= 3
    assert all(run == trained[0] for run in trained)


def detached(client: Client, made: Recipe, root: Path) -> None:
    detach(client, made, tell=lambda _: None, origin=Origin(root), limits=Limits(seconds=1800))


def trains(client: Client, job_id: str) -> bool:
    """Whether the job has tasks, which have ended then."""
    job = client.jobs.handle(job_id)
    if not client.jobs.state(job_id) or not job.tasks:
        return False
    until(lambda: not job.open)
    return True


def fetched(client: Client, job_id: str, root: Path) -> tuple[Any, ...]:
    """What a client of another machine has of a run, which must be all of it."""
    [row] = [row for row in client.account_runs() if row.job == job_id]
    run = client.fetch_run(row.run, runs_dir=root)
    assert (run.state, run.record.results) == ("completed", "complete")
    assert (run.path / "outputs/t/model.pt").read_text() == "model\n"
    assert (run.path / "report.html").is_file()
    (curve,) = run.plot("loss").figures["loss"].values()
    logs = tuple(tuple(run.logs(rank=rank)) for rank in (0, 1))
    assert all(lines == ("step=1 loss=0.8", "step=2 loss=0.7", "step=3 loss=0.6") for lines in logs)
    return curve, logs


PREEMPTED = """
import os, signal
import batchtrain_checkpoint as checkpoint

path, attempt = checkpoint.newest(), int(os.environ["BATCHTRAIN_ATTEMPT"])
for step in range(checkpoint.step_of(path) + 1, 11):
    if os.environ["RANK"] == "0":
        print("step %d/10 loss %d" % (step, 100 - step), flush=True)
        if step % 3 == 0:
            checkpoint.complete(checkpoint.begin(step))
    if attempt == 1 and step == 7:
        print("waits on", os.environ["AZ_BATCH_NODE_ID"], flush=True)
        signal.pause()
"""


@pytest.mark.parametrize("lost", ["primary", "other"])
def test_a_training_that_was_preempted_without_a_client_has_one_curve(
    lost: str, azurite: StorageAccount, tmp_path: Path
) -> None:
    gang = {"num_instances": 2, "pytorch": {"processes_per_node": 1}}
    often = {"BATCHTRAIN_UPLOAD_SECONDS": "0.1"}
    directory = checkpointed(tmp_path, PREEMPTED, multi_instance=gang, environment_variables=often)
    nodes = {"pool_specification.vm_count.low_priority": 3}
    made = load(directory, local=True, settings=nodes, ignore=("environment-launcher",))
    made = msgspec.structs.replace(made, credentials=recipe("j", azurite).credentials)
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator:
        client = client_of(emulator, made.credentials)
        detached(client, made, tmp_path / "runs")
        shutil.rmtree(tmp_path / "runs")
        job = client.jobs.handle("training")
        until(lambda: job.open and job.seen_task().state == "running")
        task = job.seen_task()
        until(lambda: b"waits on" in read_or_empty(job) and job.read().count(b"waits on") == 2)
        [other] = {line.split()[-1] for line in job.read().decode().splitlines() if "waits on" in line} - {task.node}
        if lost == "primary":
            until(lambda: printed_so_far(client, tmp_path).count("waits on") == 2)
        steering.befall(emulator.status, task.node if lost == "primary" else other, "preempt")
        until(lambda: client.jobs.state("training") == "completed")
        until(lambda: client.pools.list() == ())
        run = client.fetch_run(runs_dir=tmp_path / "elsewhere")
    assert (run.state, run.record.results) == ("completed", "complete")
    (curve,) = run.plot("loss").figures["loss"].values()
    assert curve == [(step, 100 - step) for step in range(1, 11)]
    assert [(attempt.checkpoint, attempt.step) for attempt in run.attempts] == [("", 7), ("step-6", 10)]
    logs = run.path / "logs/task-00000"
    assert "step 7/10" in (logs / "attempt-1/stdout.txt").read_text()
    assert "step 10/10" in (logs / "stdout.txt").read_text()
    assert (logs / "ranks/1.stdout.txt").is_file()
    assert list(run.path.glob("outputs/*/step-9/manifest.json"))


def printed_so_far(client: Client, root: Path) -> str:
    run = client.fetch_run(runs_dir=root / "while-it-runs")
    assert run.state == "detached"
    try:
        return "\n".join(run.logs())
    except NotFound:
        return ""


def read_or_empty(job: Job) -> bytes:
    try:
        return job.read()
    except ServiceError:  # it does not run yet
        return b""


def test_a_run_is_followed_and_stopped_from_python(azurite: StorageAccount, tmp_path: Path) -> None:
    made = recipe("j", azurite)
    hangs = msgspec.structs.replace(made.jobs[0].tasks[0], command="echo step=1 loss=0.5; sleep 86400")
    stands = msgspec.structs.replace(made, jobs=(msgspec.structs.replace(made.jobs[0], id="k", tasks=(hangs,)),))
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator:
        client = client_of(emulator, made.credentials)
        [begun] = client.detach(made, runs_dir=tmp_path / "runs", max_duration=1800)
        run = client.attach(begun.run.name[-4:], runs_dir=tmp_path / "elsewhere")
        assert (run.id, run.state) == (begun.run.name, "completed")
        [other] = client.detach(stands, runs_dir=tmp_path / "runs")
        job = client.jobs.handle("k")
        until(lambda: b"step=1" in read_or_empty(job))
        client.stop_run(other.run.name, runs_dir=tmp_path / "elsewhere")
        with pytest.raises(TaskFailed, match="task k/t"):
            client.attach(other.run.name, runs_dir=tmp_path / "elsewhere")
        assert [(row.run, row.state) for row in client.account_runs()] == [
            (begun.run.name, "completed"), (other.run.name, "completed"),
        ]  # fmt: skip


def test_a_stalled_gang_ends_with_its_cause(azurite: StorageAccount, tmp_path: Path) -> None:
    made = recipe("j", azurite)
    command = "echo step=1; [ $BATCHTRAIN_RANK != 0 ] || { sleep 1; echo step=2; }; sleep 86400"
    stalls = msgspec.structs.replace(made.jobs[0].tasks[0], command=command)
    job = msgspec.structs.replace(made.jobs[0], tasks=(stalls,), stop_when=StopWhen(silent="5s"))
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator:
        client = client_of(emulator, made.credentials)
        with pytest.raises(TaskFailed, match=r"rank 1 on .* stalled first") as caught:
            client.run(msgspec.structs.replace(made, jobs=(job,)), runs_dir=tmp_path / "runs")
        assert (caught.value.rank, caught.value.code, caught.value.cause) == (1, 124, "stalled")
        failure = Runs(tmp_path / "runs").get().record.failure
        assert failure is not None and (failure.rank, failure.cause) == (1, "stalled")
        assert client.pools.list() == ()
