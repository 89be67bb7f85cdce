"""Each operation answers with the status that the clients of the service expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchtrain.emulator import autoscale, jobs, nodes, pools, schedules, tasks, users
from batchtrain.emulator.records import Node
from batchtrain.emulator.reply import Call, Reply, Steps
from batchtrain.emulator.world import World
from tests.emulation import POOL, Stage

Operation = Callable[[World, Call], "Reply | Steps"]
Step = tuple[Operation, tuple[str, ...], Any, int]
FORMULA = "$TargetDedicatedNodes=1;"
JOB = {"poolInfo": {"poolId": "pool"}}


def of_pools(node: Node) -> Iterator[Step]:
    yield pools.create_pool, (), POOL | {"id": "other"}, 201
    yield pools.pool_exists, ("pool",), None, 200
    yield pools.update_pool, ("pool",), {"metadata": []}, 200
    yield autoscale.enable, ("pool",), {"autoScaleFormula": FORMULA}, 200
    yield autoscale.evaluate, ("pool",), {"autoScaleFormula": FORMULA}, 200
    yield autoscale.disable, ("pool",), None, 200
    yield pools.delete_pool, ("other",), None, 202


def of_nodes(node: Node) -> Iterator[Step]:
    yield users.create_user, ("pool", node.id), {"name": "me"}, 201
    yield users.replace_user, ("pool", node.id, "me"), {"password": "p"}, 200
    yield users.delete_user, ("pool", node.id, "me"), None, 200
    yield nodes.disable_scheduling, ("pool", node.id), {}, 200
    yield nodes.enable_scheduling, ("pool", node.id), None, 200
    yield nodes.reboot_node, ("pool", node.id), {}, 202


def of_jobs(node: Node) -> Iterator[Step]:
    yield jobs.create_job, (), {"id": "job", **JOB}, 201
    yield jobs.update_job, ("job",), {"priority": 1}, 200
    yield jobs.replace_job, ("job",), JOB, 200
    yield jobs.disable_job, ("job",), {"disableTasks": "wait"}, 202
    yield jobs.enable_job, ("job",), None, 202
    yield tasks.create_task, ("job",), {"id": "a", "commandLine": "true"}, 201
    yield tasks.create_task_collection, ("job",), {"value": [{"id": "b", "commandLine": "true"}]}, 200
    yield tasks.replace_task, ("job", "a"), {"constraints": {"maxTaskRetryCount": 1}}, 200
    yield tasks.list_subtasks, ("job", "a"), None, 200
    yield tasks.terminate_task, ("job", "b"), None, 204
    yield tasks.reactivate_task, ("job", "b"), None, 204
    yield tasks.delete_task, ("job", "a"), None, 200
    yield jobs.terminate_job, ("job",), None, 202
    yield jobs.delete_job, ("job",), None, 202


def of_schedules(node: Node) -> Iterator[Step]:
    body = {"schedule": {"recurrenceInterval": "PT1H"}, "jobSpecification": JOB}
    yield schedules.create_schedule, (), {"id": "s", **body}, 201
    yield schedules.schedule_exists, ("s",), None, 200
    yield schedules.update_schedule, ("s",), {"schedule": {"recurrenceInterval": "PT2H"}}, 200
    yield schedules.replace_schedule, ("s",), body, 200
    yield schedules.disable_schedule, ("s",), None, 204
    yield schedules.enable_schedule, ("s",), None, 204
    yield schedules.terminate_schedule, ("s",), None, 202
    yield schedules.delete_schedule, ("s",), None, 202


@pytest.mark.parametrize("steps", [of_pools, of_nodes, of_jobs, of_schedules])
def test_an_operation_answers_with_its_status(stage: Stage, steps: Callable[[Node], Iterator[Step]]) -> None:
    (node,) = stage.pool(1)
    for operation, path, body, status in steps(node):
        assert (operation.__name__, stage.do(operation, *path, body=body).status) == (operation.__name__, status)
        stage.later()
        stage.boot()
