"""A value at the end of its range is accepted, and the next one is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchtrain.emulator import autoscale, jobs, pools, schedules, tasks, users
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.world import Application
from tests.emulation import POOL, Stage

Request = Callable[[Stage, Any], object]
FORMULA = {"enableAutoScale": True, "autoScaleFormula": "$TargetDedicatedNodes = 0;"}
TOGETHER = {"enableInterNodeCommunication": True}
INTERVAL = "autoScaleEvaluationInterval"
INTERVALS = (("PT5M", "P7D"), ("PT4M59S", "P7DT1S"))
SCHEDULE = {"id": "s", "jobSpecification": {"poolInfo": {"poolId": "pool"}}}
PREPARED = {"jobPreparationTask": {"commandLine": "true"}}


def pool(name: str, **more: object) -> Request:
    """A new pool with a property."""
    return lambda stage, value: stage.do(pools.create_pool, body={**POOL, **more, name: value})


def job(name: str, **more: object) -> Request:
    return lambda stage, value: stage.job(**more, **{name: value})


def constraint(name: str) -> Request:
    return lambda stage, value: stage.job(constraints={name: value})


def task(name: str) -> Request:
    def make(stage: Stage, value: object) -> None:
        stage.job()
        stage.do(tasks.create_task, "job", body={"id": "task", "commandLine": "true", name: value})

    return make


def task_constraint(stage: Stage, value: int) -> None:
    task("constraints")(stage, {"maxTaskRetryCount": value})


def account(stage: Stage, length: int) -> None:
    pool("userAccounts")(stage, [{"name": "x" * length, "password": "secret"}])


def node_user(stage: Stage, length: int) -> None:
    (node,) = stage.pool(1)
    stage.do(users.create_user, "pool", node.id, body={"name": "x" * length})


def start_task(stage: Stage, retries: int) -> None:
    pool("startTask")(stage, {"commandLine": "true", "maxTaskRetryCount": retries})


def release_task(stage: Stage, wall_clock: str) -> None:
    stage.job(**PREPARED, jobReleaseTask={"commandLine": "true", "maxWallClockTime": wall_clock})


def preparation(stage: Stage, retries: int) -> None:
    stage.job(jobPreparationTask={"commandLine": "true", "constraints": {"maxTaskRetryCount": retries}})


def packages(stage: Stage, count: int) -> None:
    names = [f"solver{number}" for number in range(count)]
    stage.world.applications = lambda: tuple(Application(name, ("1.0",), "1.0") for name in names)
    references = [{"applicationId": name, "version": "1.0"} for name in names]
    pool("applicationPackageReferences")(stage, references)


def mounts(stage: Stage, count: int) -> None:
    shares = [{"source": "10.0.0.9:/home", "relativeMountPath": f"nfs{number}"} for number in range(count)]
    pool("mountConfiguration")(stage, [{"nfsMountConfiguration": share} for share in shares])


def collection(stage: Stage, count: int) -> None:
    stage.job()
    bodies = [{"id": f"t{number}", "commandLine": "true"} for number in range(count)]
    stage.do(tasks.create_task_collection, "job", body={"value": bodies})


def recurrence(name: str) -> Request:
    return lambda stage, value: stage.do(schedules.create_schedule, body={**SCHEDULE, "schedule": {name: value}})


def resize(stage: Stage, timeout: str) -> None:
    stage.pool(1)
    stage.do(pools.resize_pool, "pool", body={"targetDedicatedNodes": 1, "resizeTimeout": timeout})


def removal(stage: Stage, timeout: str) -> None:
    (node,) = stage.pool(1)
    stage.do(pools.remove_nodes, "pool", body={"nodeList": [node.id], "resizeTimeout": timeout})


def interval(stage: Stage, value: str) -> None:
    stage.pool(0)
    body = {"autoScaleFormula": FORMULA["autoScaleFormula"], INTERVAL: value}
    stage.do(autoscale.enable, "pool", body=body)


def gang(stage: Stage, instances: int) -> None:
    task("multiInstanceSettings")(stage, {"numberOfInstances": instances, "coordinationCommandLine": "true"})


def terminated(stage: Stage, seconds: int) -> None:
    stage.job()
    stage.do(jobs.update_job, "job", body={"constraints": {"maxTaskRetryCount": seconds}})


LIMITS: dict[str, tuple[str, Request, tuple[Any, ...], tuple[Any, ...]]] = {
    "the id of a pool": ("id", pool("id"), ("x", "x" * 64), ("", "x" * 65)),
    "slots of a node with two cores": ("taskSlotsPerNode", pool("taskSlotsPerNode"), (1, 8), (0, 9)),
    "dedicated nodes": ("targetDedicatedNodes", pool("targetDedicatedNodes"), (0, 2**31 - 1), (-1, 2**31)),
    "spot nodes": ("targetLowPriorityNodes", pool("targetLowPriorityNodes"), (0,), (-1,)),
    "nodes that communicate": ("targetDedicatedNodes", pool("targetDedicatedNodes", **TOGETHER), (100,), (101,)),
    "the resize timeout of a pool": ("resizeTimeout", pool("resizeTimeout"), ("PT5M",), ("PT4M59S",)),
    "the resize timeout of a resize": ("resizeTimeout", resize, ("PT5M",), ("PT4M59S",)),
    "the resize timeout of a removal": ("resizeTimeout", removal, ("PT5M",), ("PT4M59S",)),
    "the name of an account": ("name", account, (1, 20), (0, 21)),
    "the name of a user of a node": ("name", node_user, (1, 20), (0, 21)),
    "the interval of a formula": (INTERVAL, pool(INTERVAL, **FORMULA), *INTERVALS),
    "a later interval of a formula": (INTERVAL, interval, *INTERVALS),
    "packages of a pool": ("applicationPackageReferences", packages, (10,), (11,)),
    "mounts of a pool": ("mountConfiguration", mounts, (10,), (11,)),
    "retries of a start task": ("maxTaskRetryCount", start_task, (-1, 0), (-2,)),
    "the id of a job": ("id", job("id"), ("x", "x" * 64), ("", "x" * 65)),
    "the priority of a job": ("priority", job("priority"), (-1000, 1000), (-1001, 1001)),
    "the display name of a job": ("displayName", job("displayName"), ("x" * 1024,), ("x" * 1025,)),
    "parallel tasks of a job": ("maxParallelTasks", job("maxParallelTasks"), (-1, 1), (-2, 0)),
    "retries of tasks of a job": ("maxTaskRetryCount", constraint("maxTaskRetryCount"), (-1, 0), (-2,)),
    "retries of tasks of a job that is changed": ("maxTaskRetryCount", terminated, (-1, 0), (-2,)),
    "retries of a preparation": ("maxTaskRetryCount", preparation, (-1, 0), (-2,)),
    "the wall clock time of a release": ("maxWallClockTime", release_task, ("PT1S", "PT15M"), ("PT0S", "PT15M1S")),
    "the id of a task": ("id", task("id"), ("x", "x" * 64), ("", "x" * 65)),
    "slots of a task": ("requiredSlots", task("requiredSlots"), (1,), (0,)),
    "retries of a task": ("maxTaskRetryCount", task_constraint, (-1, 0), (-2,)),
    "instances of a gang": ("numberOfInstances", gang, (1,), (0,)),
    "tasks of a collection": ("value", collection, (100,), (101,)),
    "a recurrence": ("recurrenceInterval", recurrence("recurrenceInterval"), ("PT1M",), ("PT59S",)),
    "a start window": ("startWindow", recurrence("startWindow"), ("PT1M",), ("PT59S",)),
}
"""Property, request, accepted and refused values."""
ACCEPTED = [(name, value) for name, (_, _, accepted, _) in LIMITS.items() for value in accepted]
REFUSED = [(name, value) for name, (*_, refused) in LIMITS.items() for value in refused]


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_the_end_of_a_range_is_accepted(name: str, value: object) -> None:
    LIMITS[name][1](Stage(), value)


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_past_the_end_of_a_range_is_refused(name: str, value: object) -> None:
    leaf, request, *_ = LIMITS[name]
    with pytest.raises(Fault) as refusal:
        request(Stage(), value)
    code = "InvalidRequestBody" if value == 2**31 else "InvalidPropertyValue"
    assert (refusal.value.status, refusal.value.code, refusal.value.details["PropertyName"]) == (400, code, leaf)
