"""The passwords of registries reach the commands that need them, through every kind of task, and no document."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.emulator import jobs, pools, schedules, task_environment, tasks
from batchtrain.emulator.records import Task
from tests.emulation import POOL, Stage, document, machine

PASSWORD = "not for everybody"
CONTAINERS = machine(containerConfiguration={"type": "dockerCompatible"})


def settings() -> dict[str, Any]:
    registry = {"registryServer": "example.azurecr.io", "username": "me", "password": PASSWORD}
    return {"containerSettings": {"imageName": "example.azurecr.io/train", "registry": registry}}


def special(name: str) -> dict[str, Any]:
    """A special task that needs a password; a release task is nothing without preparation."""
    found = {name: {"id": name, "commandLine": "x", **settings()}}
    return {"jobPreparationTask": {"commandLine": "x", **settings()}, **found}


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.pool(1, **CONTAINERS)
    return found


def password(stage: Stage, task: Task) -> str:
    job = stage.world.job_of[task.job]
    run = task_environment.application_run(stage.world, job, task)
    assert run.container is not None and run.container.login is not None
    return run.container.login.password


def started(stage: Stage, job_id: str, task_id: str) -> Task:
    stage.settle()
    task = stage.world.jobs[job_id].tasks[task_id]
    assert task.instances, "it did not start"
    return task


def test_a_task_logs_in_with_its_own(stage: Stage) -> None:
    stage.task(**settings())
    assert password(stage, started(stage, "job", "task")) == PASSWORD


def test_a_job_manager_task_logs_in_with_its_own(stage: Stage) -> None:
    stage.job(jobManagerTask={"id": "manager", "commandLine": "x", **settings()})
    assert password(stage, started(stage, "job", "manager")) == PASSWORD


def test_the_job_manager_of_a_scheduled_job_does_too(stage: Stage) -> None:
    body = {
        "id": "schedule",
        "schedule": {},
        "jobSpecification": {
            "poolInfo": {"poolId": "pool"},
            "jobManagerTask": {"id": "manager", "commandLine": "x", **settings()},
        },
    }
    stage.do(schedules.create_schedule, body=body)
    assert password(stage, started(stage, "schedule:job-1", "manager")) == PASSWORD
    shown = document(stage.do(schedules.get_schedule, "schedule"))
    assert PASSWORD not in msgspec.json.encode(shown).decode()


def test_preparation_and_release_log_in_with_theirs(stage: Stage) -> None:
    stage.job(**special("jobReleaseTask"))
    stage.task(**settings())
    stage.settle()
    job = stage.world.jobs["job"]
    (place,) = job.nodes.values()
    run = task_environment.node_run(stage.world, job, place, "preparation")
    assert run.container is not None and run.container.login is not None
    assert run.container.login.password == PASSWORD


def test_the_start_task_of_a_pool_logs_in_with_its_own_after_a_change_and_in_a_pool_of_a_job(stage: Stage) -> None:
    body = {"startTask": {"commandLine": "x", **settings()}, "metadata": [], "applicationPackageReferences": []}
    stage.do(pools.replace_pool_properties, "pool", body=body)
    assert stage.world.pools["pool"].record.logins == {"example.azurecr.io": PASSWORD}
    pool = {"vmSize": POOL["vmSize"], **CONTAINERS, "startTask": body["startTask"]}
    stage.job(poolInfo={"autoPoolSpecification": {"poolLifetimeOption": "job", "pool": pool}})
    auto_pool = stage.world.pools[stage.world.jobs["job"].record.auto_pool.lower()]
    assert auto_pool.record.logins == {"example.azurecr.io": PASSWORD}
    assert PASSWORD not in msgspec.json.encode(document(stage.do(jobs.get_job, "job"))).decode()


def test_no_document_shows_a_password(stage: Stage) -> None:
    stage.job(jobManagerTask={"id": "manager", "commandLine": "x", **settings()})
    shown = [stage.do(jobs.get_job, "job"), stage.do(jobs.list_jobs), stage.do(tasks.get_task, "job", "manager")]
    assert all(PASSWORD not in msgspec.json.encode(document(one)).decode() for one in shown)
