"""Three candidates: the first account has no quota, the second no capacity, and the third runs the job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import mapped_images, server, steering
from batchtrain.runs.finished import Runs

from .conftest import Shell
from .test_checkpoints import recipe as training
from .test_frameworks import started

pytestmark = [pytest.mark.process, pytest.mark.slow]
POOL = """\
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D4S_V5
  vm_count: {dedicated: 2}
  candidates:
    patience: 1s
    alternatives:
    - {account: west, vm_size: STANDARD_D2S_V5}
    - {account: east, spot: true}
"""
JOBS = "job_specifications: [{id: j, tasks: [{id: t, command: echo done}]}]\n"
ACCOUNTS = ((), ("--batch-account", "west"), ("--batch-account", "east"))


@pytest.fixture
def recipe(batchtrain: Shell, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "recipe"
    place.mkdir()
    (place / "pool.yaml").write_text(POOL, encoding="utf-8")
    (place / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain("emulator", "start", "--port", "0", "--quota", "dedicated-cores=0")
    for account in ("west", "east"):
        batchtrain("emulator", "start", "--account", account)
    batchtrain("emulator", "capacity", "--account", "west", "STANDARD_D2S_V5=1")
    yield place
    for account in ("west", "east"):
        server.stop(mapped_images.account_dir(batchtrain.home, account))


def pools(batchtrain: Shell) -> list[Any]:
    return [json.loads(batchtrain("pool", "list", "--local", *to, "-o", "json").stdout) for to in ACCOUNTS]


def test_a_run_goes_to_the_first_candidate_with_nodes_and_leaves_nothing(batchtrain: Shell, recipe: Path) -> None:
    result = batchtrain("run", str(recipe), "--local")
    assert result.stdout.splitlines() == ["done"]
    assert "candidate 1 of 3, 2 dedicated STANDARD_D4S_V5, has no nodes after" in result.stderr
    assert "candidate 2 of 3, 2 dedicated STANDARD_D2S_V5 in account west, has no nodes after" in result.stderr
    assert "candidate 3 of 3, 2 spot STANDARD_D4S_V5 in account east, has the nodes" in result.stderr
    record = json.loads((batchtrain.cwd / "runs" / "latest" / "run.json").read_bytes())
    assert [(one["account"], one.get("code", "")) for one in record["candidates"]] == [
        ("batchtrain", "AccountCoreQuotaReached"),
        ("west", "AllocationFailed"),
        ("east", ""),
    ]
    assert (record["account"], record["state"]) == ("east", "completed")
    assert pools(batchtrain) == [[], [], []]


TRAINS = """
import os, signal
import batchtrain_checkpoint as checkpoint

path = checkpoint.newest()
for step in range(checkpoint.step_of(path) + 1, 21):
    print("step %d/20 loss %d" % (step, 100 - step), flush=True)
    if step % 5 == 0:
        checkpoint.complete(checkpoint.begin(step))
    if step == 7 and not path:
        print("waits on", os.environ["AZ_BATCH_NODE_ID"], flush=True)
        signal.pause()
"""


def test_a_job_whose_pool_does_not_get_its_nodes_back_continues_at_the_next_candidate(
    batchtrain: Shell, tmp_path: Path
) -> None:
    directory = training(tmp_path, TRAINS)
    candidates = '{"alternatives": [{"vm_size": "STANDARD_D8DS_V5"}], "patience": "1s", "recover": true}'
    values = (f"pool_specification.candidates={candidates}", "pool_specification.vm_count.low_priority=1")
    more = [word for value in values for word in ("--set", value)]
    with started(batchtrain, "run", directory, "--local", *more) as process:
        for line in process.stdout:
            if match := re.search(r"waits on (\S+)\n", line):
                status = server.status(batchtrain.home)
                assert status is not None
                steering.limit(status, {"STANDARD_D4DS_V5": 0})
                steering.befall(status, match[1], "preempt", 0)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "the job moves to the next candidate" in errors
    run = Runs(batchtrain.cwd / "runs").get()
    assert [(one.number, one.checkpoint, one.step) for one in run.attempts] == [(1, "", 7), (2, "step-5", 20)]
    (curve,) = run.plot("loss").figures["loss"].values()
    assert curve == [(step, 100 - step) for step in range(1, 21)]
    record = json.loads((run.path / "run.json").read_bytes())
    assert [(one["vm_size"], one.get("code", "")) for one in record["candidates"]] == [
        ("STANDARD_D4DS_V5", ""),
        ("STANDARD_D4DS_V5", "NodesLost"),
        ("STANDARD_D8DS_V5", ""),
    ]
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []
