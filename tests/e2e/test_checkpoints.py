"""A training that loses a node goes on from its newest complete checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import server, steering

from .test_frameworks import COMMAND, JOB, SHARED, mapped, started

pytestmark = pytest.mark.process
LANGUAGE_MODEL = "PyTorch-Language-Model"
WEIGHTS = re.compile(r"rank (\d) of 2 host \S+ loss \S+ weights ([0-9a-f]{64})")


def preempt(home: Path, number: int) -> None:
    """Take a node of the only pool away; another one takes its place at once."""
    status = server.status(home)
    assert status is not None
    nodes = sorted(path.name for path in home.glob("nodes/*/*_p"))
    steering.befall(status, nodes[number], "preempt", 0.0)


def run(batchtrain: Any, directory: str, job: str, preempted: tuple[tuple[str, int], ...] = (), *more: str) -> str:
    """What a run prints, which must end well; at each of the lines, in this order, a node is preempted."""
    words = ("--set", f"{JOB}.id={job}", *more)
    with started(batchtrain, "run", directory, "--local", *words) as process:
        printed = []
        left = list(preempted)
        for line in process.stdout:
            printed.append(line)
            if left and left[0][0] in line:
                preempt(batchtrain.home, left.pop(0)[1])
        _, errors = process.communicate()
    assert process.returncode == 0, "".join(printed) + errors
    assert not left, printed
    return "".join(printed)


@pytest.mark.framework
def test_a_training_that_is_preempted_three_times_ends_with_the_weights_of_an_undisturbed_one(
    batchtrain: Any, framework_environment: Callable[[str], Path]
) -> None:
    directory = mapped(batchtrain.home, framework_environment, LANGUAGE_MODEL)
    command = f"{COMMAND}=python -u {SHARED}/train.py --steps 60 --save-every 10"
    undisturbed = run(batchtrain, directory, "undisturbed", (), "--set", command)
    at = (("checkpoint step 10", 1), ("step 30 ", 0), ("checkpoint step 40", 1))  # at step 30 its checkpoint is written
    preempted = run(batchtrain, directory, "preempted", at, "--set", command)
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", preempted)]
    assert begun[0] == 0
    assert begun == sorted(begun)
    assert begun[1] >= 10
    assert begun[2] in (20, 30)
    assert begun[3] >= 40
    assert len(begun) == 4
    assert sorted(WEIGHTS.findall(preempted)) == sorted(WEIGHTS.findall(undisturbed))
    assert len({weights for _, weights in WEIGHTS.findall(undisturbed)}) == 1
