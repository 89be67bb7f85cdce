"""A detached two-node training whose client and its state directory are gone: the service ends it, and another machine
has everything."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from batchtrain.client.client import Client, load
from batchtrain.client.detach import detach
from batchtrain.client.job import Job
from batchtrain.client.limits import Limits
from batchtrain.config.types import Credentials, Recipe, Secret, StopWhen
from batchtrain.emulator import steering
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import JobStopped, NotFound, ServiceError, TaskFailed
from batchtrain.runs.finished import Runs
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from tests.azurite import section
from tests.unit.plan import jobs
from tests.waiting import until

from .test_checkpoints import recipe as checkpointed

pytestmark = [pytest.mark.process, pytest.mark.slow]
TRAIN = (
    "for step in 1 2 3; do echo step=$step loss=0.$((9 - step)); done;"
    " [ $BATCHTRAIN_RANK != 0 ] || { mkdir -p output && echo model >output/model.pt; }"
)


def recipe(job: str, storage: StorageAccount) -> Recipe:
    task = {"id": "t", "command": TRAIN, "multi_instance": {"num_instances": 2, "jax": {"processes_per_node": 1}}}
    return jobs.recipe({"id": job}, task, credentials=section(storage))


def client_of(emulator: Emulator, credentials: Credentials) -> Client:
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    client.credentials = credentials
    return client


def detached(client: Client, made: Recipe, root: Path) -> None:
    detach(client, made, tell=lambda _: None, origin=Origin(root), limits=Limits(seconds=1800))


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
        with pytest.raises(JobStopped, match="job k was terminated by a user"):
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
