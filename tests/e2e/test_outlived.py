"""A detached two-node training whose client and its state directory are gone: the service ends it, and another machine
has everything."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from batchtrain.client.client import Client, load
from batchtrain.client.job import Job
from batchtrain.config.types import Credentials, Secret, convert
from batchtrain.emulator import steering
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import NotFound, ServiceError
from batchtrain.service.connect import Account
from tests.azurite import section
from tests.waiting import until

from .test_checkpoints import recipe as checkpointed

pytestmark = [pytest.mark.process, pytest.mark.slow]


def client_of(emulator: Emulator, credentials: Credentials) -> Client:
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    client.credentials = credentials
    return client


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
    made = msgspec.structs.replace(made, credentials=convert(section(azurite), Credentials))
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator:
        client = client_of(emulator, made.credentials)
        client.detach(made, runs_dir=tmp_path / "runs", max_duration=1800)
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
