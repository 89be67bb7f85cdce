"""A training that is preempted twice has three attempts in its run directory, and one curve from its first step."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import mapped_images, server, steering
from batchtrain.runs.directory import points_of
from batchtrain.runs.finished import Runs
from tests.waiting import until

from .test_checkpoints import MPICH, recipe
from .test_frameworks import started

pytestmark = [pytest.mark.process, pytest.mark.slow]
TRAINS = """
import os, signal
import batchtrain_checkpoint as checkpoint

path, attempt = checkpoint.newest(), int(os.environ["BATCHTRAIN_ATTEMPT"])
rank = os.environ.get("RANK") or os.environ.get("PMI_RANK") or "0"
for step in range(checkpoint.step_of(path) + 1, 21):
    if rank == "0":
        print("step %d/20 loss %d attempt %d" % (step, 100 - step, attempt), flush=True)
        if step % 5 == 0:
            checkpoint.complete(checkpoint.begin(step))
    if step == {1: 7, 2: 13}.get(attempt):
        print("rank", rank, "waits on", os.environ["AZ_BATCH_NODE_ID"], flush=True)
        signal.pause()
"""


def has_recorded(runs: Path, step: int) -> bool:
    """Whether the client has a metric of a step."""
    return any(point.step == step for file in runs.glob("*/metrics/*.jsonl") for point in points_of(file))


def gang(**block: Any) -> dict[str, Any]:
    return {"multi_instance": {"num_instances": 2, **block}}


@pytest.mark.parametrize(
    ("task", "ranks"),
    [
        ({}, 1),
        (gang(pytorch={"processes_per_node": 1}), 2),
        ({"docker_image": MPICH, **gang(mpi={"runtime": "mpich", "processes_per_node": 1})}, 2),
    ],
    ids=["alone", "gang", "mpi"],
)
def test_a_training_that_is_preempted_twice_has_three_attempts_and_one_curve(
    task: dict[str, Any], ranks: int, batchtrain: Any, tmp_path: Any, mpi_environment: Any
) -> None:
    """Of a gang, the node that is not the primary is preempted."""
    if "docker_image" in task:
        mapped_images.map_image(batchtrain.home, MPICH, mpi_environment("mpich"))
    directory = recipe(tmp_path, TRAINS, **task)
    pool = "pool_specification.vm_count.low_priority"
    lost: list[str] = []
    waiting: dict[str, str] = {}
    with started(batchtrain, "run", directory, "--local", "--set", f"{pool}={ranks + 2}") as process:
        for line in process.stdout:
            if match := re.search(r"rank (\d) waits on (\S+)\n", line):
                waiting[match[1]] = match[2]
            if len(waiting) == ranks:
                status = server.status(batchtrain.home)
                assert status is not None
                lost.append(waiting[max(waiting)])
                until(partial(has_recorded, batchtrain.cwd / "runs", {1: 7, 2: 13}[len(lost)]))
                steering.befall(status, lost[-1], "preempt")
                waiting.clear()
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    for number, node in enumerate(lost, 1):
        short = f"{node[:10]}…{node[-2:]}"
        assert f"attempt {number} is over: Azure preempted node {short}" in errors
    run = Runs(batchtrain.cwd / "runs").get()
    attempts = run.attempts
    assert [(one.number, one.reason, one.lost) for one in attempts] == [
        (1, "preempted", lost[0]), (2, "preempted", lost[1]), (3, "completed", ""),
    ]  # fmt: skip
    assert [(one.checkpoint, one.step) for one in attempts] == [("", 7), ("step-5", 13), ("step-10", 20)]
    assert all(one.started and one.ended and one.seconds for one in attempts)
    assert all(len(one.nodes) == ranks for one in attempts)
    (curve,) = run.plot("loss").figures["loss"].values()
    assert curve == [(step, 100 - step) for step in range(1, 21)]
    shown = batchtrain("runs", "show").stdout
    rows = [line.split() for line in shown.splitlines() if line.startswith("task-00000")]
    assert [row[1] for row in rows] == ["1", "2", "3"]
    document = json.loads(batchtrain("runs", "show", "-o", "json").stdout)
    assert document["phases"].keys() >= {"training", "restarts"}
    assert [attempt["last_step"] for attempt in document["attempts"]] == [7, 13, 20]
