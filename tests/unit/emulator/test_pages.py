"""Every list comes in pages: each entry once, in the order of the whole list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from batchtrain.emulator import applications, jobs, nodes, pools, scheduler, schedules, tasks, usage
from batchtrain.emulator.reply import Call, Reply
from batchtrain.emulator.world import Application, World
from tests.emulation import POOL, Stage, document

Operation = Callable[[World, Call], Reply]
LISTS: dict[str, tuple[Operation, tuple[str, ...], dict[str, str]]] = {
    "pools": (pools.list_pools, (), {}),
    "node counts": (pools.list_node_counts, (), {}),
    "nodes": (nodes.list_nodes, ("pool",), {}),
    "extensions": (nodes.list_extensions, ("pool", "NODE"), {}),
    "images": (pools.list_supported_images, (), {}),
    "applications": (applications.list_applications, (), {}),
    "usage": (usage.list_usage, (), {"starttime": "2026-11-21T10:00:00Z"}),
    "jobs": (jobs.list_jobs, (), {}),
    "jobs of a schedule": (jobs.list_jobs_from_schedule, ("s",), {}),
    "schedules": (schedules.list_schedules, (), {}),
    "tasks": (tasks.list_tasks, ("job",), {}),
    "preparations": (jobs.list_preparation_and_release, ("job",), {}),
}


@pytest.fixture(scope="module")
def stage() -> Stage:
    """Two or three of everything."""
    stage = Stage()
    stage.world.applications = lambda: tuple(Application(name, ("1.0",)) for name in ("a", "b", "c"))
    extension = {"name": "mine", "publisher": "p", "type": "t"}
    machine = {**POOL["virtualMachineConfiguration"], "extensions": [extension]}  # type: ignore[dict-item]
    stage.pool(3, virtualMachineConfiguration=machine)
    for name in ("other", "third"):
        stage.do(pools.create_pool, body={**POOL, "id": name})
    preparation = {"commandLine": "true"}
    stage.job(jobPreparationTask=preparation)
    for name in ("b", "c", "a"):
        stage.task(name)
        specification = {"poolInfo": {"poolId": "other"}, "onAllTasksComplete": "terminatejob"}
        body = {"schedule": {"recurrenceInterval": "PT1H"}, "jobSpecification": specification}
        stage.do(schedules.create_schedule, body={"id": f"s{name}", **body})
    body = {"id": "s", "schedule": {"recurrenceInterval": "PT1M"}, "jobSpecification": specification}
    stage.do(schedules.create_schedule, body=body)
    assert {type(effect) for effect in stage.settle()} == {scheduler.RunOnNode}
    for _ in range(2):
        stage.later(61)
        stage.settle()
    stage.later(3600)
    return stage


def page(stage: Stage, name: str, **more: str) -> dict[str, Any]:
    operation, path, query = LISTS[name]
    where = [stage.nodes()[0].id if part == "NODE" else part for part in path]
    return document(stage.do(operation, *where, **query, **more))


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("size", ["1", "2"])
def test_pages_of_a_list_are_the_whole_list(stage: Stage, name: str, size: str) -> None:
    whole = page(stage, name)["value"]
    assert len(whole) >= 2
    entries, token = [], {}
    for _ in range(len(whole) + 1):
        some = page(stage, name, maxresults=size, **token)
        entries += some["value"]
        if "odata.nextLink" not in some:
            break
        token = {"skiptoken": unquote(some["odata.nextLink"].rpartition("skiptoken=")[2])}
    assert entries == whole
