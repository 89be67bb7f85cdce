"""A training that loses a node continues from its newest complete checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchtrain.emulator import mapped_images, server, steering
from tests import trained_models

from .test_frameworks import COMMAND, JOB, SHARED, befall, interrupted, mapped, recorded, started

pytestmark = pytest.mark.process
LANGUAGE_MODEL = "PyTorch-Language-Model"
MPICH = "example/mpich:digits"
WEIGHTS = re.compile(r"rank (\d) of 2 host \S+ loss \S+ weights ([0-9a-f]{64})")


@pytest.mark.framework
def test_a_training_that_is_preempted_ends_with_the_weights_of_an_undisturbed_one(
    batchtrain: Any, framework_environment: Callable[[str], Path]
) -> None:
    """`test_attempts.py` preempts a training twice, with a program that imports nothing."""
    directory = mapped(batchtrain.home, framework_environment, LANGUAGE_MODEL)
    command = (COMMAND, f"python -u {SHARED}/train.py --steps 60 --save-every 10")
    undisturbed = interrupted(batchtrain, directory, (command, (f"{JOB}.id", "undisturbed")), ())
    fault = ("checkpoint step 10", "preempt", 1)
    preempted = interrupted(batchtrain, directory, (command, (f"{JOB}.id", "preempted")), (fault,))
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", preempted)]
    assert len(begun) == 2
    assert begun[0] == 0
    assert begun[1] >= 10
    assert sorted(WEIGHTS.findall(preempted)) == sorted(WEIGHTS.findall(undisturbed))
    assert len({weights for _, weights in WEIGHTS.findall(undisturbed)}) == 1
    assert recorded(batchtrain.cwd / "runs/latest") >= {"loss", "perplexity", "total_samples_per_second"}
    (loss,) = re.findall(r"rank 0 of 2 host \S+ loss (\S+) ", preempted)
    trained_models.check(LANGUAGE_MODEL, framework_environment("pytorch"), batchtrain.cwd, float(loss))


def recipe(directory: Path, script: str, **task: Any) -> str:
    """A task on two spot nodes that runs a Python script with checkpoints."""
    checkpoint = {"volume": "shared", **task.pop("checkpoint", {})}
    volumes = {"shared_data_volumes": {"shared": {"volume_driver": "nfs", "source": "server:/shared"}}}
    pool = {
        "id": "spot",
        "vm_size": "STANDARD_D4DS_V5",
        "vm_count": {"low_priority": 2},
        "inter_node_communication_enabled": True,
        "vm_configuration": {
            "platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"},
        },
    }
    train = {"command": f"python3 {SHARED}/train.py", "source": "src", "checkpoint": checkpoint, **task}
    files = {
        "config": {
            "global_resources": {"volumes": volumes, "docker_images": [MPICH] if "docker_image" in task else []}
        },
        "pool": {"pool_specification": pool},
        "jobs": {"job_specifications": [{"id": "training", "auto_complete": True, "tasks": [train]}]},
    }
    (directory / "recipe" / "src").mkdir(parents=True)
    (directory / "recipe" / "src" / "train.py").write_text(script)
    for name, content in files.items():
        (directory / "recipe" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return str(directory / "recipe")


HALF_WRITTEN = """
import os, signal
import batchtrain_checkpoint as checkpoint

path = checkpoint.newest()
if path is None:
    done = checkpoint.begin(1)
    open(os.path.join(done, "weights"), "w").write("whole")
    checkpoint.complete(done)
    half = checkpoint.begin(2)
    open(os.path.join(half, "weights"), "w").write("ha")
    open(os.path.join(half, "manifest.json"), "w").write('{"version": 1, "files": {"weights": 4')
    print("writing", flush=True)
    signal.pause()
print("." * 80)  # what the first attempt printed is passed over in the file of the second
print("continues from", os.path.basename(path), "of", *sorted(os.listdir(checkpoint.directory())))
print(open(os.path.join(path, "weights")).read())
"""


def test_a_checkpoint_that_was_half_written_at_the_kill_is_not_continued_from(batchtrain: Any, tmp_path: Path) -> None:
    printed, waits = [], True
    with started(batchtrain, "run", recipe(tmp_path, HALF_WRITTEN), "--local") as process:
        for line in process.stdout:
            printed.append(line.strip())
            if waits and "writing" in line:
                waits = False
                for number in (0, 1):  # it runs on one of them
                    befall(batchtrain.home, "preempt", number)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert printed[-2:] == ["continues from step-1 of step-1 step-2", "whole"], printed
    (result,) = (batchtrain.cwd / "runs/latest/outputs").glob("*/*/weights")  # as there are no other results
    assert (result.parent.name, result.read_text()) == ("step-1", "whole")


HEARS = """
import signal
import batchtrain_checkpoint as checkpoint

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
print("heard", 0 < checkpoint.preempted() <= 3600)
"""


@pytest.mark.parametrize(
    ("task", "hearing", "announced"),
    [
        ({}, 1, 2),
        ({"multi_instance": {"num_instances": 2, "pytorch": {"processes_per_node": 1}}}, 2, 1),
        ({"multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich", "processes_per_node": 2}}}, 4, 2),
    ],
    ids=["alone", "gang", "mpi"],
)
def test_an_announced_preemption_reaches_every_process_of_the_task(
    task: dict[str, Any], hearing: int, announced: int, batchtrain: Any, tmp_path: Path, mpi_environment: Any
) -> None:
    """Of an MPI, it reaches the ranks of the announced nodes."""
    if hearing == 4:
        mapped_images.map_image(batchtrain.home, MPICH, mpi_environment("mpich"))
        task = {**task, "docker_image": MPICH}
    directory = recipe(tmp_path, HEARS, checkpoint={"signal": "SIGUSR1"}, **task)
    with started(batchtrain, "run", directory, "--local") as process:
        printed: list[str] = []
        for line in process.stdout:
            printed.append(line)
            if "ready" in line and sum("ready" in one for one in printed) == hearing:
                announce(batchtrain.home, announced)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert sum("heard True" in line for line in printed) == hearing, printed
    if hearing == 2:
        assert re.search(r"Azure announces the preemption of node tvmps_", errors), errors


def announce(home: Path, nodes: int) -> None:
    """So many nodes of the only pool are to be preempted in an hour."""
    status = server.status(home)
    assert status is not None
    for path in sorted(home.glob("nodes/*/*_p"))[-nodes:]:
        steering.befall(status, path.name, "preempt", notice=3600)
