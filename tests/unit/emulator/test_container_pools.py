"""What a pool and its tasks say of containers reaches the machine; what the machine says of them reaches clients."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import (
    documents,
    job_preparation,
    jobs,
    node_reports,
    pools,
    reports,
    schedules,
    task_environment,
    tasks,
)
from batchtrain.emulator.interface import BindMount, Container, Containers, Exit, Login, NodeSpec, NodeUp, Run
from batchtrain.emulator.machine import handover
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.records import Task
from tests.emulation import BASE, POOL, Stage, machine

PASSWORD = "s3cret"
REGISTRY = {"registryServer": "r.example:5000", "username": "me", "password": PASSWORD}
IMAGE = "r.example:5000/a-b/c:v1"


def with_containers(**more: object) -> dict[str, Any]:
    return machine(containerConfiguration={"type": "dockerCompatible", **more})


@pytest.fixture
def stage() -> Stage:
    """A gang pool of two nodes with a registry."""
    stage = Stage()
    stage.gang_pool(**with_containers(containerImageNames=[IMAGE], containerRegistries=[dict(REGISTRY)]))
    return stage


def spec(made: Stage) -> NodeSpec:
    return task_environment.node_spec(made.world, made.world.pools["pool"], made.nodes()[0])


def run_of(made: Stage, task: Task) -> Run:
    made.settle()
    return task_environment.application_run(made.world, made.world.jobs["job"], task)


def test_a_node_gets_the_images_and_logins_of_its_pool(stage: Stage) -> None:
    assert spec(stage).containers == Containers((IMAGE,), (Login("r.example:5000", "me", PASSWORD),))
    plain = Stage()
    plain.pool()
    assert spec(plain).containers is None


def test_a_pool_may_have_one_container_for_both_commands_of_a_gang() -> None:
    made = Stage()
    made.gang_pool(**with_containers(), metadata=[{"name": "batchtrain-gang-containers", "value": "one"}])
    assert spec(made).containers == Containers(one_for_gangs=True)


def test_a_task_is_run_as_its_container_settings_say(stage: Stage) -> None:
    settings = {
        "imageName": "other:1",
        "containerRunOptions": "--shm-size=1g",
        "workingDirectory": "containerImageDefault",
        "containerHostBatchBindMounts": [{"source": "Task"}, {"source": "Shared", "isReadOnly": True}],
        "registry": {**REGISTRY, "password": "another"},
    }
    mounts = (BindMount("Task"), BindMount("Shared", read_only=True))
    login = Login("r.example:5000", "me", "another")
    expected = Container("other:1", "--shm-size=1g", image_directory=True, mounts=mounts, login=login)
    assert run_of(stage, stage.task(containerSettings=settings)).container == expected


def test_bind_mounts_that_are_not_given_are_all_and_an_empty_list_is_none() -> None:
    assert task_environment.container({"containerSettings": {"imageName": "a"}}, {}) == Container("a")
    empty = {"containerSettings": {"imageName": "a", "containerHostBatchBindMounts": []}}
    assert task_environment.container(empty, {}) == Container("a", mounts=())


def test_only_the_coordination_commands_container_stays(stage: Stage) -> None:
    task = stage.gang(containerSettings={"imageName": IMAGE})
    stage.settle()
    assert task_environment.coordination_run(stage.world, stage.world.jobs["job"], task, 1).stays
    assert not run_of(stage, task).stays


def test_a_nodes_own_address_takes_the_place_of_the_one_it_was_given() -> None:
    made = Stage()
    made.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    made.settle()
    (node,) = made.nodes()
    up = NodeUp(Path("/nodes", node.id), "/mnt", {}, "docker", "10.7.0.4")
    node_reports.node_up(made.world, node.id, up, made.now)
    assert node.address == "10.7.0.4"
    assert next(made.world.free_addresses()).endswith(".0.5")


INFO = {"containerId": "c" * 64, "state": "exited", "error": "why"}


def test_container_info_is_shown_of_a_task_and_its_subtasks(stage: Stage) -> None:
    task = stage.gang(containerSettings={"imageName": IMAGE})
    stage.settle()
    for number in range(2):
        reports.coordination_ended(stage.world, task, task.run, number, Exit(0, container=INFO), stage.now)
    stage.settle()
    reports.application_ended(stage.world, task, task.run, Exit(1, message="memory", container=INFO), stage.now)
    stage.end_scopes()
    execution = documents.task_execution(task)
    assert execution["containerInfo"] == INFO
    assert execution["failureInfo"]["details"][0]["value"] == "memory"
    (subtask,) = documents.subtask_documents(stage.world.jobs["job"], task, BASE)
    assert subtask["containerInfo"] == INFO


def test_container_info_is_shown_of_a_start_task() -> None:
    made = Stage()
    made.pool(startTask={"commandLine": "true"})
    (node,) = made.nodes()
    node_reports.start_task_ended(made.world, node.id, node.boots, Exit(0, container=INFO), made.now)
    assert node.start["containerInfo"] == INFO


def test_container_info_is_shown_of_a_preparation_task() -> None:
    made = Stage()
    made.pool()
    made.job(jobPreparationTask={"commandLine": "true"})
    made.task()
    made.settle()
    entry = made.world.jobs["job"]
    (place,) = entry.nodes.values()
    job_preparation.ended(
        made.world, place, job_preparation.PREPARATION, place.preparation.run, Exit(0, container=INFO), 0
    )
    assert place.preparation.container == INFO


def test_directories_of_others_are_found_and_packed_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    assert handover.foreign(RootedPath(tmp_path)) == []
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    found = handover.foreign(RootedPath(tmp_path))
    assert [folder.path for folder in found] == ["a", "a/b"]
    assert [folder.path for folder in handover.foreign(RootedPath(tmp_path), "a")] == ["a/b"]
    packed = handover.archive(found[:1])
    assert b"0011147" in packed  # 4711, as tar writes it


# --- passwords of registries -----------------------------------------------------------------------------------------


def settings() -> dict[str, Any]:
    registry = {"registryServer": "example.azurecr.io", "username": "me", "password": PASSWORD}
    return {"containerSettings": {"imageName": "example.azurecr.io/train", "registry": registry}}


MANAGER = {"jobManagerTask": {"id": "manager", "commandLine": "x", **settings()}}


def password(run: Run) -> str:
    assert run.container is not None and run.container.login is not None
    return run.container.login.password


def shown(stage: Stage, operation: Any, *path: str) -> str:
    return json.dumps(stage.do(operation, *path).document)


def test_a_task_and_a_job_manager_log_in_with_their_own_and_no_document_shows_it(stage: Stage) -> None:
    stage.job(**MANAGER)
    stage.task(**settings())
    stage.settle()
    for task in stage.world.jobs["job"].tasks.values():
        assert password(run_of(stage, task)) == PASSWORD
    for operation in (pools.get_pool, pools.list_pools, jobs.get_job, jobs.list_jobs, tasks.list_tasks):
        path = {pools.get_pool: ["pool"], jobs.get_job: ["job"], tasks.list_tasks: ["job"]}.get(operation, [])
        assert PASSWORD not in shown(stage, operation, *path)
    for task_id in ("task", "manager"):
        assert PASSWORD not in shown(stage, tasks.get_task, "job", task_id)


def test_the_job_manager_of_a_scheduled_job_does_too(stage: Stage) -> None:
    specification = {"poolInfo": {"poolId": "pool"}, **MANAGER}
    stage.do(schedules.create_schedule, body={"id": "s", "schedule": {}, "jobSpecification": specification})
    stage.settle()
    job = stage.world.jobs["s:job-1"]
    assert password(task_environment.application_run(stage.world, job, job.tasks["manager"])) == PASSWORD
    assert PASSWORD not in shown(stage, schedules.get_schedule, "s")


def test_a_preparation_task_logs_in_with_its_own(stage: Stage) -> None:
    stage.job(jobPreparationTask={"commandLine": "x", **settings()}, jobReleaseTask={"commandLine": "x", **settings()})
    stage.task(**settings())
    stage.settle()
    job = stage.world.jobs["job"]
    (place,) = job.nodes.values()
    assert password(task_environment.node_run(stage.world, job, place, "preparation")) == PASSWORD


def test_the_start_task_of_a_pool_logs_in_with_its_own_after_a_change_and_in_a_pool_of_a_job(stage: Stage) -> None:
    start, logins = {"commandLine": "x", **settings()}, {"example.azurecr.io": PASSWORD}
    body = {"startTask": start, "metadata": [], "applicationPackageReferences": []}
    stage.do(pools.replace_pool_properties, "pool", body=body)
    assert logins.items() <= stage.world.pools["pool"].record.logins.items()
    pool = {"vmSize": POOL["vmSize"], **with_containers(), "startTask": start}
    stage.job(poolInfo={"autoPoolSpecification": {"poolLifetimeOption": "job", "pool": pool}})
    auto_pool = stage.world.pools[stage.world.jobs["job"].record.auto_pool.lower()]
    assert auto_pool.record.logins == logins
    assert PASSWORD not in shown(stage, jobs.get_job, "job")
