"""What a pool and its tasks say of containers reaches the machine; what the machine says of them reaches clients."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import documents, job_preparation, jobs, node_reports, pools, reports, task_environment, tasks
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


def stage(**more: object) -> Stage:
    """A gang pool of two nodes with a registry, and a job."""
    made = Stage()
    machines = with_containers(containerImageNames=[IMAGE], containerRegistries=[dict(REGISTRY)])
    made.gang_pool(**machines, **more)
    made.job()
    return made


def spec(made: Stage) -> NodeSpec:
    return task_environment.node_spec(made.world, made.world.pools["pool"], made.nodes()[0])


def run_of(made: Stage, task: Task) -> Run:
    made.settle()
    return task_environment.application_run(made.world, made.world.jobs["job"], task)


def test_a_node_gets_the_images_and_logins_of_its_pool() -> None:
    assert spec(stage()).containers == Containers((IMAGE,), (Login("r.example:5000", "me", PASSWORD),))


def test_a_pool_without_container_configuration_has_none() -> None:
    made = Stage()
    made.pool()
    assert spec(made).containers is None


def test_a_pool_may_have_one_container_for_both_commands_of_a_gang() -> None:
    containers = spec(stage(metadata=[{"name": "batchtrain-gang-containers", "value": "one"}])).containers
    assert containers is not None
    assert containers.one_for_gangs


def test_no_document_has_a_password() -> None:
    made = stage()
    made.task(containerSettings={"imageName": IMAGE, "registry": dict(REGISTRY)})
    answers = [
        made.do(pools.get_pool, "pool"),
        made.do(pools.list_pools),
        made.do(jobs.get_job, "job"),
        made.do(tasks.get_task, "job", "task"),
        made.do(tasks.list_tasks, "job"),
    ]
    assert PASSWORD not in json.dumps([answer.document for answer in answers])


def test_a_task_is_run_as_its_container_settings_say() -> None:
    made = stage()
    settings = {
        "imageName": "other:1",
        "containerRunOptions": "--shm-size=1g",
        "workingDirectory": "containerImageDefault",
        "containerHostBatchBindMounts": [{"source": "Task"}, {"source": "Shared", "isReadOnly": True}],
        "registry": {**REGISTRY, "password": "another"},
    }
    mounts = (BindMount("Task"), BindMount("Shared", read_only=True))
    login = Login("r.example:5000", "me", "another")
    wanted = Container("other:1", "--shm-size=1g", image_directory=True, mounts=mounts, login=login)
    assert run_of(made, made.task(containerSettings=settings)).container == wanted


def test_bind_mounts_that_are_not_given_are_all_and_an_empty_list_is_none() -> None:
    assert task_environment.container({"containerSettings": {"imageName": "a"}}, {}) == Container("a")
    empty = {"containerSettings": {"imageName": "a", "containerHostBatchBindMounts": []}}
    assert task_environment.container(empty, {}) == Container("a", mounts=())


def test_only_the_coordination_commands_container_stays() -> None:
    made = stage()
    task = made.gang(containerSettings={"imageName": IMAGE})
    made.settle()
    assert task_environment.coordination_run(made.world, made.world.jobs["job"], task, 1).stays
    assert not run_of(made, task).stays


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


def test_container_info_is_shown_of_a_task_and_its_subtasks() -> None:
    made = stage()
    task = made.gang(containerSettings={"imageName": IMAGE})
    made.settle()
    for number in range(2):
        reports.coordination_ended(made.world, task, task.run, number, Exit(0, container=INFO), made.now)
    made.settle()
    reports.application_ended(made.world, task, task.run, Exit(1, message="memory", container=INFO), made.now)
    made.end_scopes()
    execution = documents.task_execution(task)
    assert execution["containerInfo"] == INFO
    assert execution["failureInfo"]["details"][0]["value"] == "memory"
    (subtask,) = documents.subtask_documents(made.world.jobs["job"], task, BASE)
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
