"""A detached run with a controller, whose pool loses its nodes for good: another machine has one curve of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from batchtrain.client.client import load
from batchtrain.config.types import Credentials, convert
from batchtrain.emulator import steering
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests import azurite as azurite_program
from tests.azurite import section
from tests.waiting import until

from .conftest import Shell
from .test_checkpoints import recipe as checkpointed
from .test_outlived import PREEMPTED, client_of, printed_so_far

pytestmark = [pytest.mark.process, pytest.mark.slow]
CANDIDATES = '{"alternatives": [{"vm_size": "STANDARD_D8DS_V5"}], "patience": "1s", "recover": true}'


def test_a_job_without_a_client_moves_to_the_next_candidate_and_has_one_curve(
    azurite: StorageAccount, tmp_path: Path
) -> None:
    gang = {"num_instances": 2, "pytorch": {"processes_per_node": 1}}
    often = {"BATCHTRAIN_UPLOAD_SECONDS": "0.1"}
    directory = checkpointed(tmp_path, PREEMPTED, multi_instance=gang, environment_variables=often)
    made = load(
        directory,
        local=True,
        settings={"pool_specification.candidates": CANDIDATES},
        ignore=("environment-launcher",),
    )
    made = msgspec.structs.replace(made, credentials=convert(section(azurite), Credentials))
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator:
        client = client_of(emulator, made.credentials)
        [begun] = client.detach(made, runs_dir=tmp_path / "runs", max_duration=1800, controller=True)
        shutil.rmtree(tmp_path / "runs")
        until(lambda: client.jobs.handle("training").seen_task().state == "running")
        until(lambda: printed_so_far(client, tmp_path).count("waits on") == 2)
        steering.limit(emulator.status, {"STANDARD_D4DS_V5": 0})
        steering.befall(emulator.status, client.jobs.handle("training").seen_task().node, "preempt")
        until(lambda: client.jobs.state("training") == "completed")
        until(lambda: client.jobs.state("training-controller") == "completed")
        assert [row.run for row in client.account_runs()] == [begun.run.name]
        run = client.fetch_run(runs_dir=tmp_path / "elsewhere")
        until(lambda: client.pools.list() == ())
    assert (run.state, run.record.results) == ("completed", "complete")
    (curve,) = run.plot("loss").figures["loss"].values()
    assert curve == [(step, 100 - step) for step in range(1, 11)]
    assert [(attempt.checkpoint, attempt.step) for attempt in run.attempts] == [("", 7), ("step-6", 10)]
    assert list(run.path.glob("outputs/*/step-9/manifest.json"))


def test_a_controller_is_named_with_its_price_and_ends_when_the_run_is_stopped(
    batchtrain: Shell, tmp_path: Path
) -> None:
    azurite_program.require()
    directory = checkpointed(tmp_path, "import signal; signal.pause()")
    command = ("run", directory, "--local", "--set", f"pool_specification.candidates={CANDIDATES}", "--controller")
    refused = batchtrain(*command, code=2)
    assert "--controller moves the job of a detached run; give --detach, too" in refused.stderr
    said = batchtrain(*command, "--detach", "--max-duration", "30m", "--runs-dir", "first")
    assert "1 node hours of STANDARD_D2LS_V5 (1 dedicated, 0 spot)" in said.stderr
    for job in ("training", "training-controller"):
        tasks = ("jobs", "tasks", job, "--local", "-o", "json")
        until(lambda tasks=tasks: '"running"' in batchtrain(*tasks).stdout)  # type: ignore[misc]
    batchtrain("runs", "stop", "--local", "--runs-dir", "other", "-y")
    until(lambda: batchtrain("pool", "list", "--local", "-o", "json").stdout.strip() == "[]")
    until(lambda: "training-controller" not in batchtrain("jobs", "list", "--local", "-o", "json").stdout)
