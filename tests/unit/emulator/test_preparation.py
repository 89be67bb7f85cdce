"""Job preparation and release tasks, without a clock or a machine."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.emulator import (
    control,
    job_preparation,
    jobs,
    node_reports,
    nodes,
    scheduler,
    task_environment,
    tasks,
    wire,
)
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.records import Node, Task
from tests.emulation import BASE, Stage, document

PREPARE = {"commandLine": "prepare"}
RELEASE = {"commandLine": "release"}
PREPARED = {"jobPreparationTask": PREPARE}


def job(stage: Stage, **preparing: object) -> None:
    stage.job(jobPreparationTask={**PREPARE, **preparing}, jobReleaseTask=RELEASE)


def status(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(stage.do(jobs.list_preparation_and_release, "job"))["value"]
    return found


def on_node(stage: Stage, node: Node, kind: str, code: int | None = 0) -> list[scheduler.Effect]:
    """A preparation or release task ends, with all it left behind; returns what is due then."""
    place = stage.world.jobs_of_node[node.id][stage.world.jobs["job"].record.seq]
    number = job_preparation.run_of(place, kind).run
    outcome = Exit(code) if code is not None else Exit(None, "BlobNotFound", "no such blob")
    job_preparation.ended(stage.world, place, kind, number, outcome, stage.now)
    others = [effect for effect in stage.settle() if not isinstance(effect, scheduler.EndOnNode)]
    job_preparation.scope_ended(stage.world, place, kind, number, stage.now)
    return others + stage.settle()


def prepared(stage: Stage, node: Node, code: int | None = 0) -> list[scheduler.Effect]:
    return on_node(stage, node, "preparation", code)


def names(effects: list[scheduler.Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def prepares(stage: Stage, **preparing: object) -> tuple[Node, Task]:
    """A node that is prepared for a task of the job."""
    (node,) = stage.pool(1)
    job(stage, **preparing)
    return node, stage.run_task()


def ran(stage: Stage, nodes: int = 1, **preparing: object) -> Node:
    """The first node; the first task of a prepared job has ended on it."""
    stage.pool(nodes)
    job(stage, **preparing)
    task = stage.run_task()
    prepared(stage, stage.nodes()[0])
    stage.exits(task)
    return stage.nodes()[0]


def test_a_job_fills_in_the_defaults_of_its_special_tasks(stage: Stage) -> None:
    job(stage)
    found = document(stage.do(jobs.get_job, "job"))
    before, after = found["jobPreparationTask"], found["jobReleaseTask"]
    assert before["id"] == "jobpreparation"
    assert before["waitForSuccess"] and before["rerunOnNodeRebootAfterSuccess"]
    assert before["constraints"] == {"maxWallClockTime": wire.INFINITE, "retentionTime": "P7D", "maxTaskRetryCount": 0}
    assert (after["id"], after["maxWallClockTime"], after["retentionTime"]) == ("jobrelease", "PT15M", "P7D")


def test_a_node_is_prepared_before_the_first_task_runs_there(stage: Stage) -> None:
    (node,) = stage.pool(1)
    job(stage)
    task = stage.task()
    (effect,) = stage.settle()
    assert isinstance(effect, scheduler.RunOnNode) and effect.kind == "preparation"
    found = document(stage.do(tasks.get_task, "job", "task"))
    assert (found["state"], found["nodeInfo"]["nodeId"]) == ("preparing", node.id)
    assert document(stage.do(jobs.task_counts, "job"))["taskCounts"]["running"] == 1
    assert names(prepared(stage, node)) == ["RunApplication"]
    found = document(stage.do(tasks.get_task, "job", "task"))
    assert (found["state"], found["previousState"], task.state) == ("running", "preparing", "running")


def test_a_node_is_prepared_once_for_all_tasks_of_a_job(stage: Stage) -> None:
    (node,) = stage.pool(1, taskSlotsPerNode=2)
    job(stage)
    for name in ("a", "b", "c"):
        stage.task(name)
    assert names(stage.settle()) == ["RunOnNode"]
    assert names(prepared(stage, node)) == ["RunApplication", "RunApplication"]
    stage.exits(stage.world.jobs["job"].tasks["a"])
    assert stage.world.jobs["job"].tasks["c"].state == "running"


def test_a_task_s_wall_clock_begins_after_the_preparation(stage: Stage) -> None:
    (node,) = stage.pool(1)
    job(stage)
    task = stage.run_task(constraints={"maxWallClockTime": "PT1M"})
    stage.later(120)
    stage.settle()
    prepared(stage, node)
    stage.later(59)
    assert names(stage.settle()) == [] and task.state == "running"
    stage.later(2)
    assert names(stage.settle()) == ["EndScope"]


def test_a_failed_preparation_is_tried_again_as_often_as_it_may(stage: Stage) -> None:
    node, _ = prepares(stage, constraints={"maxTaskRetryCount": 1})
    assert names(prepared(stage, node, 1)) == ["RunOnNode"]
    assert names(prepared(stage, node, 0)) == ["RunApplication"]
    info = status(stage)[0]["jobPreparationTaskExecutionInfo"]
    assert (info["retryCount"], info["exitCode"], info["result"]) == (1, 0, "success")


def test_a_node_whose_preparation_failed_takes_no_task_of_the_job_and_another_does(stage: Stage) -> None:
    first, second = stage.pool(2)
    job(stage)
    task = stage.run_task()
    (bad,) = {first.id, second.id} & set(stage.world.jobs_of_node)
    bad_node, good_node = (first, second) if bad == first.id else (second, first)
    prepared(stage, bad_node, 1)
    assert (task.state, task.instances[0].node, task.requeues) == ("preparing", good_node.id, 0)
    prepared(stage, good_node, 1)
    assert (task.state, bad_node.state, good_node.state) == ("active", "idle", "idle")


def test_a_preparation_that_need_not_succeed_lets_the_task_pass(stage: Stage) -> None:
    node, _ = prepares(stage, waitForSuccess=False)
    assert names(prepared(stage, node, 1)) == ["RunApplication"]
    assert status(stage)[0]["jobPreparationTaskExecutionInfo"]["failureInfo"]["code"] == "FailureExitCode"


def test_a_preparation_past_its_wall_clock_is_ended_and_has_failed(stage: Stage) -> None:
    node, task = prepares(stage, constraints={"maxWallClockTime": "PT1M"})
    stage.later(61)
    assert names(stage.settle()) == ["EndOnNode"]
    place = stage.world.jobs["job"].nodes[node.id]
    job_preparation.scope_ended(stage.world, place, "preparation", 1, stage.now)
    stage.settle()
    assert (task.state, job_preparation.barred(stage.world.jobs["job"], node)) == ("active", True)


@pytest.mark.parametrize(("again", "effect"), [(True, "RunOnNode"), (False, "RunApplication")])
def test_after_a_reboot_a_preparation_runs_again_if_it_is_to(stage: Stage, again: bool, effect: str) -> None:
    node = ran(stage, rerunOnNodeRebootAfterSuccess=again)
    stage.take_down(node, nodes.reboot_node)
    stage.boot()
    stage.task("next")
    assert names(stage.settle()) == [effect]


def test_the_emulator_says_where_a_job_cannot_be_prepared(stage: Stage) -> None:
    node, _ = prepares(stage)
    prepared(stage, node, 1)
    (hint,) = control.hints(stage.world)
    assert hint["text"] == "its preparation task failed on 1 of 1 nodes of pool pool"


def test_a_barred_node_has_another_chance_after_a_reboot(stage: Stage) -> None:
    node, task = prepares(stage)
    prepared(stage, node, 1)
    stage.take_down(node, nodes.reboot_node)
    assert "RunOnNode" in names(stage.boot()) and task.state == "preparing"


def test_a_node_that_dies_while_it_is_prepared_requeues_the_task(stage: Stage) -> None:
    node, task = prepares(stage)
    node_reports.node_lost(stage.world, node.id, stage.now)
    assert "RunOnNode" in names(stage.boot())
    assert (task.state, task.requeues) == ("preparing", 1)


def test_a_gang_starts_when_all_its_nodes_are_prepared(stage: Stage) -> None:
    first, second = stage.gang_pool(2)
    job(stage)
    stage.gang()
    assert names(stage.settle()) == ["RunOnNode", "RunOnNode"]
    assert prepared(stage, first) == []
    assert [one["state"] for one in document(stage.do(tasks.list_subtasks, "job", "task"))["value"]] == ["preparing"]
    assert names(prepared(stage, second)) == ["RunCoordination", "RunCoordination"]


def test_a_job_is_completed_when_it_was_released_everywhere(stage: Stage) -> None:
    node = ran(stage, 2)
    stage.do(jobs.terminate_job, "job")
    (effect,) = stage.settle()
    assert isinstance(effect, scheduler.RunOnNode) and effect.kind == "release"
    assert stage.world.jobs["job"].record.state == "terminating"
    on_node(stage, node, "release", 3)
    assert stage.world.jobs["job"].record.state == "completed"
    info = status(stage)[0]["jobReleaseTaskExecutionInfo"]
    assert (info["exitCode"], info["result"]) == (3, "failure")
    assert info["taskRootDirectory"] == "workitems/job/job-1/jobrelease"


def test_a_completed_job_is_not_released_again_when_it_is_deleted(stage: Stage) -> None:
    node = ran(stage)
    stage.do(jobs.terminate_job, "job")
    stage.settle()
    on_node(stage, node, "release")
    stage.do(jobs.delete_job, "job")
    assert (stage.settle(), stage.world.jobs) == ([], {})


def test_a_release_ends_after_its_wall_clock(stage: Stage) -> None:
    node = ran(stage)
    stage.do(jobs.terminate_job, "job")
    stage.settle()
    stage.later(15 * 60 + 1)
    assert names(stage.settle()) == ["EndOnNode"]
    job_preparation.scope_ended(stage.world, stage.world.jobs["job"].nodes[node.id], "release", 1, stage.now)
    stage.settle()
    assert stage.world.jobs["job"].record.state == "completed"


def test_a_job_that_ends_during_its_preparation_ends_that_first_and_then_releases(stage: Stage) -> None:
    node, task = prepares(stage)
    stage.do(jobs.terminate_job, "job")
    assert names(stage.end_scopes()) == ["EndOnNode"]
    assert task.state == "completed"
    place = stage.world.jobs["job"].nodes[node.id]
    job_preparation.scope_ended(stage.world, place, "preparation", 1, stage.now)
    assert [effect.kind for effect in stage.settle() if isinstance(effect, scheduler.RunOnNode)] == ["release"]


def test_a_node_that_is_gone_needs_no_release(stage: Stage) -> None:
    node = ran(stage)
    stage.do(nodes.reboot_node, "pool", node.id, body={})
    stage.settle()
    stage.do(jobs.terminate_job, "job")
    stage.settle()
    assert stage.world.jobs["job"].record.state == "terminating"  # the node is coming back: it is waited for
    stage.world.drop_node(stage.world.pools["pool"], node)
    stage.settle()
    assert stage.world.jobs["job"].record.state == "completed"


def test_force_does_not_wait_for_the_release(stage: Stage) -> None:
    ran(stage)
    stage.do(jobs.terminate_job, "job", force="true")
    assert (stage.settle(), stage.world.jobs["job"].record.state) == ([], "completed")


def test_the_status_is_empty_before_anything_ran(stage: Stage) -> None:
    stage.pool(1)
    job(stage)
    assert status(stage) == []


def test_the_status_says_where_and_how_the_preparation_runs(stage: Stage) -> None:
    node, _ = prepares(stage)
    (row,) = status(stage)
    info = row["jobPreparationTaskExecutionInfo"]
    assert (row["poolId"], row["nodeId"], info["state"], "endTime" in info) == ("pool", node.id, "running", False)
    assert row["nodeUrl"] == f"{BASE}/pools/pool/nodes/{node.id}"
    assert info["taskRootDirectoryUrl"].endswith(f"/nodes/{node.id}/files/workitems/job/job-1/jobpreparation")
    stage.later()
    prepared(stage, node)
    assert status(stage)[0]["jobPreparationTaskExecutionInfo"]["endTime"] == wire.timestamp(stage.now)


@pytest.mark.parametrize("special", ["jobpreparation", "JobRelease"])
def test_a_task_cannot_have_the_id_of_a_special_task(stage: Stage, special: str) -> None:
    job(stage)
    with pytest.raises(Fault, match="TaskIdSameAsJob"):
        stage.task(special)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"jobReleaseTask": RELEASE}, "MissingRequiredProperty"),
        ({"jobPreparationTask": {**PREPARE, "id": "a b"}}, "InvalidPropertyValue"),
        ({"jobPreparationTask": {"commandLine": " "}}, "InvalidPropertyValue"),
        ({"jobPreparationTask": {**PREPARE, "resourceFiles": [{}]}}, "InvalidPropertyValue"),
        ({**PREPARED, "jobReleaseTask": {"commandLine": " "}}, "InvalidPropertyValue"),
        ({**PREPARED, "jobReleaseTask": {**RELEASE, "id": "jobPreparation"}}, "InvalidPropertyValue"),
        ({**PREPARED, "jobReleaseTask": {**RELEASE, "resourceFiles": [{}]}}, "InvalidPropertyValue"),
    ],
)
def test_special_tasks_that_cannot_be_are_refused(stage: Stage, more: dict[str, object], code: str) -> None:
    with pytest.raises(Fault) as refusal:
        stage.job(**more)
    assert (refusal.value.code, stage.world.jobs) == (code, {})


def test_tasks_and_the_release_find_the_preparation_s_directory(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.job(
        jobPreparationTask={**PREPARE, "environmentSettings": [{"name": "B", "value": "2"}]},
        jobReleaseTask=RELEASE,
        commonEnvironmentSettings=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
    )
    stage.run_task()
    entry = stage.world.jobs["job"]
    place = entry.nodes[node.id]
    run = task_environment.node_run(stage.world, entry, place, "preparation")
    directory = f"{node.root_inside}/workitems/job/job-1/jobpreparation"
    assert (run.command_line, run.directory) == ("prepare", "workitems/job/job-1/jobpreparation")
    assert (run.environment["A"], run.environment["B"]) == ("1", "2")
    assert run.environment["AZ_BATCH_TASK_ID"] == "jobpreparation"
    prepared(stage, node)
    task = task_environment.application_run(stage.world, entry, entry.tasks["task"])
    assert task.environment["AZ_BATCH_JOB_PREP_DIR"] == directory
    assert task.environment["AZ_BATCH_JOB_PREP_WORKING_DIR"] == f"{directory}/wd"


def test_after_a_restart_a_preparation_that_ran_runs_again_and_one_that_was_done_only_where_it_is_to(
    stage: Stage,
) -> None:
    node, task = prepares(stage, rerunOnNodeRebootAfterSuccess=False)
    stage.restart()
    assert "RunOnNode" in names(stage.boot())
    prepared(stage, node)
    stage.restart()
    assert names(stage.boot()) == ["RunApplication"]
    assert (task.state, task.requeues) == ("running", 2)
