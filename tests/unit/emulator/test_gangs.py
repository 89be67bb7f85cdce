"""Multi-instance tasks: all nodes at once, coordination everywhere, then one application command."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.emulator import control, node_reports, nodes, pools, reports, scheduler, task_environment, tasks
from batchtrain.emulator.interface import NO_WINDOWS, Exit
from batchtrain.emulator.records import Task
from tests.emulation import Stage, document, machine


def subtasks(stage: Stage) -> list[dict[str, object]]:
    found: list[dict[str, object]] = document(stage.do(tasks.list_subtasks, "job", "task"))["value"]
    return found


def running(stage: Stage, instances: int = 2, **more: object) -> Task:
    stage.gang_pool(instances)
    task = stage.gang(instances, **more)
    stage.settle()
    return task


def test_all_instances_coordinate_before_the_primary_runs_anything_else(stage: Stage) -> None:
    stage.gang_pool(3)
    task = stage.gang(3)
    assert stage.settle() == [scheduler.RunCoordination(task, 1, number) for number in range(3)]
    assert len({instance.node for instance in task.instances}) == 3
    stage.coordinated(task, 1)
    stage.coordinated(task, 0)
    assert stage.settle() == []
    stage.coordinated(task, 2)
    assert stage.settle() == [scheduler.RunApplication(task, 1)]


def test_the_primary_s_exit_ends_the_subtasks_and_is_the_task_s(stage: Stage) -> None:
    task = running(stage)
    stage.coordinated(task, 0)
    stage.coordinated(task, 1)
    stage.settle()
    reports.application_ended(stage.world, task, 1, Exit(5), stage.now)
    assert stage.settle() == [scheduler.EndScope(task, 1, number) for number in range(2)]
    assert [one["state"] for one in subtasks(stage)] == ["running"]
    for number in range(2):
        reports.scope_ended(stage.world, task, 1, number, stage.now)
    assert (task.state, task.exit_code, subtasks(stage)[0]["state"]) == ("completed", 5, "completed")


@pytest.mark.parametrize("failing", [0, 1])
def test_a_coordination_that_fails_anywhere_is_tried_again_on_all_nodes_and_then_fails_the_whole_task(
    stage: Stage, failing: int
) -> None:
    task = running(stage, constraints={"maxTaskRetryCount": 1})
    stage.coordinated(task, failing, 9)
    assert stage.end_scopes() == [scheduler.RunCoordination(task, 2, number) for number in range(2)]
    assert task.retries == 1
    stage.coordinated(task, failing, 9)
    stage.end_scopes()
    assert task.failure is not None
    assert (task.state, task.result, task.failure["code"]) == ("completed", "failure", "FailureExitCode")
    assert task.exit_code == (9 if failing == 0 else None)
    assert {node.state for node in stage.nodes()} == {"idle"}


@pytest.mark.parametrize(
    ("pool", "instances", "reason"),
    [
        ({}, 2, "enableInterNodeCommunication"),
        ({"enableInterNodeCommunication": True, "taskSlotsPerNode": 2}, 2, "taskSlotsPerNode 1"),
        ({"enableInterNodeCommunication": True}, 3, "3 nodes at once"),
    ],
)
def test_on_an_unfit_pool_a_gang_stays_active_for_ever_and_only_the_emulator_says_why(
    stage: Stage, pool: dict[str, object], instances: int, reason: str
) -> None:
    stage.pool(2, **pool)
    task = stage.gang(instances)
    assert stage.settle() == []
    assert (task.state, task.failure) == ("active", None)
    assert reason in stage.world.hints[task.seq]


def test_a_bigger_pool_lets_the_gang_start(stage: Stage) -> None:
    stage.gang_pool(2)
    task = stage.gang(3)
    stage.settle()
    stage.do(pools.resize_pool, "pool", body={"targetDedicatedNodes": 3})
    stage.boot()
    assert (task.state, stage.world.hints) == ("running", {})


def test_a_lost_node_requeues_the_whole_gang(stage: Stage) -> None:
    task = running(stage)
    lost = task.instances[1].node
    node_reports.node_lost(stage.world, lost, stage.now)
    due = stage.settle()
    assert scheduler.EndScope(task, 1, 0) in due and scheduler.EndScope(task, 1, 1) not in due
    reports.scope_ended(stage.world, task, 1, 0, stage.now)
    assert (task.state, task.requeues, task.retries) == ("active", 1, 0)
    stage.up(lost)
    stage.settle()
    assert (task.state, task.run) == ("running", 2)


def test_a_terminated_gang_ends_everywhere_and_each_node_says_which_instance_ran_there(stage: Stage) -> None:
    task = running(stage)
    stage.do(tasks.terminate_task, "job", "task")
    stage.end_scopes()
    assert (task.state, {node.state for node in stage.nodes()}) == ("completed", {"idle"})
    for number, instance in enumerate(task.instances):
        (recent,) = document(stage.do(nodes.get_node, "pool", instance.node))["recentTasks"]
        assert (recent["taskId"], recent.get("subtaskId")) == ("task", number or None)


def test_the_environment_names_the_gang_and_does_not_put_the_primary_first(stage: Stage) -> None:
    task = running(stage, 3)
    job = stage.world.jobs["job"]
    primary, second, third = (
        task_environment.coordination_run(stage.world, job, task, number).environment for number in range(3)
    )
    assert primary["AZ_BATCH_MASTER_NODE"] == "127.1.0.4:6000"
    assert primary["AZ_BATCH_HOST_LIST"] == "127.1.0.5,127.1.0.6,127.1.0.4"
    assert primary["AZ_BATCH_NODE_LIST"] == "127.1.0.5;127.1.0.6;127.1.0.4"
    assert primary["CCP_NODES"] == "3 127.1.0.4 2 127.1.0.5 2 127.1.0.6 2"
    assert primary["AZ_BATCH_TASK_SHARED_DIR"] == "/mnt/workitems/job/job-1/task"
    assert [one["AZ_BATCH_IS_CURRENT_NODE_MASTER"] for one in (primary, second, third)] == ["true", "false", "false"]


def test_an_ordinary_task_sees_nothing_of_gangs(stage: Stage) -> None:
    stage.pool_and_job(commonEnvironmentSettings=[{"name": "A", "value": "job"}, {"name": "B", "value": "job"}])
    own = [{"name": "A", "value": "task"}, {"name": "AZ_BATCH_TASK_ID", "value": "mine"}]
    task = stage.run_task(environmentSettings=own)
    found = task_environment.application_run(stage.world, stage.world.jobs["job"], task).environment
    assert (found["A"], found["B"], found["AZ_BATCH_TASK_ID"]) == ("task", "job", "task")
    assert "AZ_BATCH_HOST_LIST" not in found and "CCP_NODES" not in found
    assert found["AZ_BATCH_TASK_WORKING_DIR"] == "/mnt/workitems/job/job-1/task/wd"


def test_common_files_go_to_the_task_s_root_and_its_own_to_the_working_directory(stage: Stage) -> None:
    stage.gang_pool(1)
    settings = {
        "coordinationCommandLine": "coordinate",
        "commonResourceFiles": [{"httpUrl": "http://h/common", "filePath": "c"}],
    }
    own = [{"httpUrl": "http://h/own", "filePath": "o", "fileMode": "0644"}]
    task = stage.run_task(multiInstanceSettings=settings, resourceFiles=own)
    job = stage.world.jobs["job"]
    first = task_environment.coordination_run(stage.world, job, task, 0)
    second = task_environment.application_run(stage.world, job, task)
    assert (first.command_line, first.downloads_to, [one.path for one in first.downloads]) == ("coordinate", "", ["c"])
    assert (second.downloads_to, [(one.path, one.mode) for one in second.downloads]) == ("wd", [("o", "0644")])
    assert first.scope == second.scope


def test_gpus_of_a_node_come_from_its_size(stage: Stage) -> None:
    (node,) = stage.pool(1, vmSize="STANDARD_NC24R")
    assert task_environment.node_spec(stage.world, stage.world.pools["pool"], node).gpus == 4


WINDOWS: dict[str, Any] = machine(
    imageReference={"publisher": "microsoftwindowsserver", "offer": "windowsserver", "sku": "2022-datacenter"},
    nodeAgentSKUId="batch.node.windows amd64",
)
SIMULATED = {"metadata": [{"name": "batchtrain-nodes", "value": "simulated"}]}


@pytest.mark.parametrize(("pool", "texts"), [(WINDOWS, [NO_WINDOWS]), ({**WINDOWS, **SIMULATED}, [])])
def test_a_hint_says_that_a_windows_pool_runs_no_commands_of_windows(
    stage: Stage, pool: dict[str, Any], texts: list[str]
) -> None:
    (node,) = stage.pool(1, **pool)
    assert task_environment.node_spec(stage.world, stage.world.pools["pool"], node).windows
    stage.task()
    assert [hint["text"] for hint in control.hints(stage.world)] == texts


def test_a_hint_says_why_a_job_does_not_start(stage: Stage) -> None:
    stage.job()
    assert control.hints(stage.world) == []
    stage.task()
    assert control.hints(stage.world) == [{"jobId": "job", "taskId": "", "text": "its pool pool does not exist"}]
    stage.pool(0)
    assert control.hints(stage.world) == [{"jobId": "job", "taskId": "", "text": "pool pool has no nodes"}]
