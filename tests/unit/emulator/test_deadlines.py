"""What becomes due at a time: it is about one record, and not about another of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchtrain.emulator import node_reports, pools, reports, schedules, users, wire
from batchtrain.emulator.pace import Pace
from batchtrain.emulator.world import Deadline
from tests.emulation import POOL, Stage

LONG = 40 * wire.DAY


def of_autoscale(stage: Stage) -> None:
    stage.pool(0, enableAutoScale=True, autoScaleFormula="$TargetDedicatedNodes = 0;", targetDedicatedNodes=None)


def of_a_resize(stage: Stage) -> None:
    stage.world.pace = Pace(allocation=60)
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    stage.settle()


def of_a_preempted_node(stage: Stage) -> None:
    (node,) = stage.pool(0, targetLowPriorityNodes=1)
    node_reports.node_preempted(stage.world, node.id, 60, stage.now)


def of_a_node_user(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.do(users.create_user, "pool", node.id, body={"name": "me"})


def of_a_job(stage: Stage) -> None:
    stage.job(constraints={"maxWallClockTime": "PT1H"})


def of_a_task(stage: Stage) -> None:
    stage.run_task(constraints={"maxWallClockTime": "PT1H"})


def of_files(stage: Stage) -> None:
    task = stage.run_task()
    stage.exits(task)


def of_a_retry(stage: Stage) -> None:
    task = stage.run_task(constraints={"maxTaskRetryCount": -1})
    for _ in range(6):
        stage.exits(task, 1)
    assert task.state == "active"


def of_a_preparation(stage: Stage) -> None:
    stage.pool_and_job(jobPreparationTask={"commandLine": "p", "constraints": {"maxWallClockTime": "PT1H"}})
    stage.run_task()


def of_a_schedule(stage: Stage) -> None:
    specification = {"poolInfo": {"poolId": "pool"}}
    body = {"id": "s", "schedule": {"recurrenceInterval": "PT1H"}, "jobSpecification": specification}
    stage.do(schedules.create_schedule, body=body)
    stage.settle()


def of_a_node_with_files(stage: Stage) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    stage.exits(task)
    body = {"nodeList": [node.id], "nodeDeallocationOption": "retaineddata"}
    stage.do(pools.remove_nodes, "pool", body=body)
    stage.settle()


SCENES: dict[str, Callable[[Stage], None]] = {
    "autoscale": of_autoscale,
    "resize": of_a_resize,
    "boot": of_a_preempted_node,
    "user": of_a_node_user,
    "job": of_a_job,
    "task": of_a_task,
    "files": of_files,
    "again": of_a_retry,
    "noderun": of_a_preparation,
    "schedule": of_a_schedule,
    "hold": of_a_node_with_files,
}
BY_UNIQUE_KEY = {"boot", "user", "hold"}
"""These check what is due on all nodes of a pool, or name a node, whose id is never used again."""


def changed(stage: Stage, deadline: Deadline) -> bool:
    """Whether the deadline changes anything, or makes anything due."""
    stage.settle()
    reports._TIME_UP[deadline.what](stage.world, deadline, stage.now + LONG)
    touched = stage.world.take_touched(stage.now)
    return bool(stage.world.take_changes() or touched[:3] != ((), (), ()) or touched.schedules)


def deadline_of(stage: Stage, what: str) -> Deadline:
    SCENES[what](stage)
    return next(deadline for deadline in stage.world._deadlines if deadline.what == what)


def test_every_kind_of_deadline_has_a_scene() -> None:
    assert SCENES.keys() == reports._TIME_UP.keys()


@pytest.mark.parametrize("what", SCENES)
def test_a_deadline_changes_its_record(stage: Stage, what: str) -> None:
    assert changed(stage, deadline_of(stage, what))


OTHERS: list[tuple[str, dict[str, Any]]] = [
    *((what, {"key": "gone"}) for what in SCENES),
    *((what, {"seq": 1000}) for what in SCENES if what not in BY_UNIQUE_KEY),
    *((what, {"run": -1}) for what in ("task", "files", "again", "noderun")),
    *((what, {"task": "gone"}) for what in ("task", "files", "again")),
]
"""A kind of deadline, and how one differs that is of a record that is gone, a namesake, or an earlier run."""


@pytest.mark.parametrize(("what", "other"), OTHERS)
def test_a_deadline_of_another_record_or_run_changes_nothing(stage: Stage, what: str, other: dict[str, Any]) -> None:
    assert not changed(stage, deadline_of(stage, what)._replace(**other))
