"""Life of jobs and tasks, without a clock, a machine or a socket."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.emulator import jobs, node_reports, pools, reports, scheduler, tasks, wire
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.records import Task
from tests.emulation import POOL, Stage, document


def task_of(stage: Stage, task_id: str = "task") -> dict[str, Any]:
    return document(stage.do(tasks.get_task, "job", task_id))


def job_of(stage: Stage) -> dict[str, Any]:
    return document(stage.do(jobs.get_job, "job"))


def code(task: Task) -> str:
    assert task.failure is not None
    return str(task.failure["code"])


def counts(stage: Stage) -> dict[str, int]:
    found: dict[str, int] = document(stage.do(jobs.task_counts, "job"))["taskCounts"]
    return found


# Ordinary tasks


def test_a_new_task_has_the_service_s_defaults(stage: Stage) -> None:
    stage.task()
    found = task_of(stage)
    defaults = {
        "state": "active",
        "requiredSlots": 1,
        "userIdentity": {"autoUser": {"scope": "pool", "elevationLevel": "nonadmin"}},
        "constraints": {"maxWallClockTime": wire.INFINITE, "retentionTime": "P7D", "maxTaskRetryCount": 0},
        "executionInfo": {"retryCount": 0, "requeueCount": 0},
    }
    assert found | defaults == found
    assert "nodeInfo" not in found and "previousState" not in found


def test_a_task_without_constraints_takes_its_retries_from_the_job(stage: Stage) -> None:
    stage.job(constraints={"maxTaskRetryCount": 3}, jobManagerTask={"id": "manager", "commandLine": "manage"})
    stage.task("a")
    stage.task("b", constraints={"retentionTime": "P1D"})
    retries = {task.id: task.max_retries for task in stage.world.jobs["job"].tasks.values()}
    assert retries == {"manager": 3, "a": 3, "b": 0}


def test_a_task_runs_completes_and_says_how(stage: Stage) -> None:
    (node,) = stage.pool(1)
    task = stage.task()
    assert stage.settle() == [scheduler.RunApplication(task, 1)]
    assert (node.state, counts(stage)["running"]) == ("running", 1)
    stage.later()
    stage.exits(task)
    found = task_of(stage)
    assert (found["state"], found["previousState"], node.state) == ("completed", "running", "idle")
    assert (found["executionInfo"]["exitCode"], found["executionInfo"]["result"]) == (0, "success")
    assert found["nodeInfo"]["taskRootDirectory"] == "workitems/job/job-1/task"
    assert counts(stage) == {"active": 0, "running": 0, "completed": 1, "succeeded": 1, "failed": 0}


@pytest.mark.parametrize("code", [0, 7])
def test_the_end_of_a_run_is_visible_when_all_it_left_behind_is_gone(stage: Stage, code: int) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    reports.application_ended(stage.world, task, 1, Exit(code), stage.now)
    assert [type(effect) for effect in stage.settle()] == [scheduler.EndScope]
    found = task_of(stage)
    assert (found["state"], node.state) == ("running", "running")
    assert not {"exitCode", "endTime", "failureInfo", "result"} & set(found["executionInfo"])
    for ended in ("executionInfo/exitCode ge 0", "executionInfo/endTime ne null"):
        assert document(stage.do(tasks.list_tasks, "job", filter=ended))["value"] == []
    reports.scope_ended(stage.world, task, 1, 0, stage.now)
    found = task_of(stage)
    assert (found["state"], found["executionInfo"]["exitCode"], node.state) == ("completed", code, "idle")


def test_a_failed_task_is_tried_again_as_often_as_it_may(stage: Stage) -> None:
    task = stage.run_task(constraints={"maxTaskRetryCount": 2})
    for attempt in range(3):
        assert (task.state, task.retries, task.run) == ("running", attempt, attempt + 1)
        stage.exits(task, 1)
    failure = task_of(stage)["executionInfo"]["failureInfo"]
    assert (task.state, task.result, task.retries) == ("completed", "failure", 2)
    assert (failure["category"], failure["code"]) == ("UserError", "FailureExitCode")


def test_a_task_that_waits_for_its_retry_shows_nothing_of_the_run_before(stage: Stage) -> None:
    """`startTime` is "present only for Tasks that are in the running or completed state", as the service documents."""
    task = stage.run_task(constraints={"maxTaskRetryCount": 1})
    stage.do(jobs.disable_job, "job", body={"disableTasks": "wait"})
    stage.exits(task, 1)
    shown = task_of(stage)
    assert (shown["state"], "nodeInfo" in shown) == ("active", False)
    assert set(shown["executionInfo"]) == {"retryCount", "requeueCount", "lastRetryTime"}


def test_a_report_of_an_earlier_run_changes_nothing(stage: Stage) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    node_reports.node_lost(stage.world, node.id, stage.now)
    stage.boot()
    reports.application_ended(stage.world, task, 1, Exit(0), stage.now)
    reports.scope_ended(stage.world, task, 1, 0, stage.now)
    reports.run_lost(stage.world, task, 1, 0, stage.now)
    assert (task.state, task.run, task.verdict, task.instances[0].phase) == ("running", 2, "", "running")


def test_a_task_that_lost_its_node_gets_the_next_one_and_a_retry_queues_again(stage: Stage) -> None:
    stage.pool(1)
    first, second = stage.task("a", constraints={"maxTaskRetryCount": 1}), stage.task("b")
    stage.settle()
    reports.run_lost(stage.world, first, 1, 0, stage.now)
    stage.settle()
    assert (first.state, first.requeues, second.state) == ("running", 1, "active")
    stage.exits(first, 1)
    assert (first.state, first.retries, second.state) == ("active", 1, "running")


def test_a_job_that_ends_at_the_very_moment_starts_nothing_more(stage: Stage) -> None:
    stage.pool_and_job(constraints={"maxWallClockTime": "PT5S"})
    task = stage.task()
    stage.later(5)
    assert stage.settle() == []
    assert (job_of(stage)["state"], task.state) == ("completed", "active")


def test_a_job_gets_a_wall_clock_time_later(stage: Stage) -> None:
    stage.job()
    assert stage.world.next_deadline() is None
    stage.later(2)
    stage.do(jobs.update_job, "job", body={"constraints": {"maxWallClockTime": "PT5S"}})
    stage.later(3)
    stage.settle()
    assert job_of(stage)["executionInfo"]["terminateReason"] == "MaxWallClockTimeExpiry"


def test_a_task_past_its_wall_clock_is_ended(stage: Stage) -> None:
    task = stage.run_task(constraints={"maxWallClockTime": "PT5S", "maxTaskRetryCount": 3})
    assert stage.world.next_deadline() == stage.now + 5 * wire.SECOND
    stage.later(4.9)
    assert stage.settle() == []
    stage.later(0.1)
    stage.end_scopes()
    assert (task.state, code(task)) == ("completed", "TaskEnded")


def test_a_terminated_task_ends_as_a_failure_and_one_that_waits_completes_at_once(stage: Stage) -> None:
    stage.pool_and_job(onTaskFailure="performexitoptionsjobaction")
    running, waiting = stage.run_task("a"), stage.task("b")
    for task_id in ("b", "a"):
        assert stage.do(tasks.terminate_task, "job", task_id).status == 204
    assert (running.state, waiting.state) == ("running", "completed")
    stage.end_scopes()
    assert (running.state, running.result, code(running)) == ("completed", "failure", "TaskEnded")
    assert stage.refusal(tasks.terminate_task, "job", "a").code == "TaskCompleted"
    assert stage.world.jobs["job"].record.reason == "TaskFailed"


def test_only_a_failed_task_can_be_reactivated(stage: Stage) -> None:
    task = stage.run_task()
    assert stage.refusal(tasks.reactivate_task, "job", "task").code == "TaskNotCompleted"
    stage.exits(task, 1)
    assert stage.do(tasks.reactivate_task, "job", "task").status == 204
    stage.settle()
    stage.exits(task, 0)
    assert stage.refusal(tasks.reactivate_task, "job", "task").code == "TaskSucceeded"


def test_a_deleted_running_task_is_gone_at_once_and_its_node_freed_after(stage: Stage) -> None:
    stage.run_task()
    (node,) = stage.nodes()
    stage.do(tasks.delete_task, "job", "task")
    assert stage.refusal(tasks.get_task, "job", "task").code == "TaskNotFound"
    assert node.state == "running"
    stage.end_scopes()
    assert node.state == "idle"
    assert stage.world.rubbish == [(node.root, "workitems/job/job-1/task")]
    assert counts(stage)["running"] == 0


def test_slots_are_shared_and_never_oversold(stage: Stage) -> None:
    stage.pool(1, taskSlotsPerNode=4)
    big, small, other = stage.task("big", requiredSlots=3), stage.task("small"), stage.task("other")
    stage.settle()
    assert [task.state for task in (big, small, other)] == ["running", "running", "active"]
    stage.exits(small)
    assert other.state == "running"


def test_a_task_behind_many_that_never_fit_gets_the_last_free_slot(stage: Stage) -> None:
    stage.pool(1)
    for number in range(scheduler.LOOK_AHEAD + 1):
        stage.task(f"large{number}", requiredSlots=2)
    last = stage.run_task("last")
    assert last.state == "running"


@pytest.mark.parametrize(("fill", "nodes"), [("spread", 2), ("pack", 1)])
def test_tasks_are_spread_or_packed(stage: Stage, fill: str, nodes: int) -> None:
    stage.pool(2, taskSlotsPerNode=2, taskSchedulingPolicy={"nodeFillType": fill})
    placed = [stage.task("a"), stage.task("b")]
    stage.settle()
    assert len({task.instances[0].node for task in placed}) == nodes


def test_the_more_urgent_job_comes_first(stage: Stage) -> None:
    stage.pool(1)
    waiting = stage.task()
    stage.do(jobs.create_job, body={"id": "urgent", "priority": 10, "poolInfo": {"poolId": "POOL"}})
    stage.do(tasks.create_task, "urgent", body={"id": "t", "commandLine": "true"})
    stage.settle()
    assert (waiting.state, stage.world.jobs["urgent"].tasks["t"].state) == ("active", "running")


def test_a_task_waits_for_those_it_depends_on(stage: Stage) -> None:
    stage.pool_and_job(2, usesTaskDependencies=True)
    last = stage.task("last", dependsOn={"taskIds": ["A"], "taskIdRanges": [{"start": 1, "end": 2}]})
    first, one, two = stage.task("a"), stage.task("01"), stage.task("2")
    stage.settle()
    for task in (first, one, two):
        assert last.state == "active"
        stage.exits(task)
    assert last.state == "running"


def test_a_task_that_was_terminated_while_it_waited_does_not_run(stage: Stage) -> None:
    stage.pool_and_job(usesTaskDependencies=True)
    first, waiting = stage.task("a"), stage.task("b", dependsOn={"taskIds": ["a"]})
    stage.settle()
    stage.do(tasks.terminate_task, "job", "b")
    stage.settle()
    stage.exits(first)
    assert (waiting.state, waiting.run) == ("completed", 0)


@pytest.mark.parametrize("operation", [tasks.terminate_task, tasks.delete_task])
def test_a_job_that_ends_with_its_tasks_ends_when_the_last_one_is_withdrawn(stage: Stage, operation: Any) -> None:
    stage.pool_and_job(usesTaskDependencies=True)
    first = stage.task("a")
    stage.run_task("b", dependsOn={"taskIds": ["never"]})
    stage.exits(first)
    stage.do(jobs.update_job, "job", body={"onAllTasksComplete": "terminatejob"})
    stage.settle()
    assert job_of(stage)["state"] == "active"
    stage.do(operation, "job", "b")
    stage.settle()
    assert job_of(stage)["state"] == "completed"


@pytest.mark.parametrize("operation", [tasks.terminate_task, tasks.delete_task])
def test_the_reason_why_a_task_waits_goes_with_it(stage: Stage, operation: Any) -> None:
    stage.pool(1)
    stage.gang(2)
    stage.settle()
    assert len(stage.world.hints) == 1
    stage.do(operation, "job", "task")
    assert stage.world.hints == {}


def test_a_failed_dependency_blocks_unless_its_exit_condition_says_otherwise(stage: Stage) -> None:
    stage.pool_and_job(2, usesTaskDependencies=True)
    lenient = {"exitCodes": [{"code": 3, "exitOptions": {"dependencyAction": "satisfy"}}]}
    bad, fine = stage.task("bad"), stage.task("fine", exitConditions=lenient)
    blocked = stage.task("blocked", dependsOn={"taskIds": ["bad"]})
    free = stage.run_task("free", dependsOn={"taskIds": ["fine"]})
    stage.exits(bad, 3)
    stage.exits(fine, 3)
    assert (blocked.state, free.state) == ("active", "running")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"dependsOn": {"taskIds": ["x"]}}, "UnsupportedProperty"),
        ({"commandLine": " "}, "InvalidPropertyValue"),
        ({"resourceFiles": [{"filePath": "x"}]}, "InvalidPropertyValue"),
        ({"resourceFiles": [{"httpUrl": "http://x"}]}, "MissingRequiredProperty"),
        ({"resourceFiles": [{"httpUrl": "http://x", "filePath": "x", "blobPrefix": "y"}]}, "InvalidPropertyValue"),
        ({"resourceFiles": [{"storageContainerUrl": "ftp://x/y"}]}, "InvalidPropertyValue"),
        ({"resourceFiles": [{"autoStorageContainerName": "x", "httpUrl": "http://x"}]}, "InvalidPropertyValue"),
        ({"userIdentity": {}}, "InvalidPropertyValue"),
        ({"userIdentity": {"username": "me", "autoUser": {}}}, "InvalidPropertyValue"),
        ({"resourceFiles": [{"httpUrl": "http://x", "filePath": "x", "fileMode": "rwx"}]}, "InvalidPropertyValue"),
        ({"exitConditions": {"default": {"jobAction": "terminate"}}}, "InvalidPropertyValue"),
        ({"multiInstanceSettings": {"numberOfInstances": 2}}, "MissingRequiredProperty"),
        ({"multiInstanceSettings": {"coordinationCommandLine": "x"}, "requiredSlots": 2}, "InvalidPropertyValue"),
    ],
)
def test_a_task_that_cannot_be_is_refused(stage: Stage, more: dict[str, object], code: str) -> None:
    stage.job()
    assert stage.refusal(tasks.create_task, "job", body={"id": "t", "commandLine": "x", **more}).code == code
    assert not stage.world.jobs["job"].tasks


def test_a_task_s_user_must_be_an_account_of_its_pool_once_a_node_would_start_it(stage: Stage) -> None:
    stage.pool(1, userAccounts=[{"name": "ann", "password": "p"}])
    known, unknown = (stage.task(name, userIdentity={"username": name}) for name in ("ann", "bob"))
    stage.settle()
    assert (known.state, unknown.state) == ("running", "active")
    stage.exits(known)
    assert (unknown.state, code(unknown)) == ("completed", "CommandLaunchFailed")


def test_a_task_and_its_pool_must_agree_on_containers_once_a_node_would_start_it(stage: Stage) -> None:
    first = stage.run_task("first")
    second = stage.run_task("second", containerSettings={"imageName": "ubuntu"})
    assert (first.state, second.state) == ("running", "active")
    stage.exits(first)
    assert (second.state, code(second)) == ("completed", "ContainerPoolNotSupported")


# Collections


def test_each_task_of_a_collection_succeeds_or_fails_by_itself(stage: Stage) -> None:
    stage.job()
    entries = [{"id": "a", "commandLine": "x"}, {"id": "a", "commandLine": "x"}, {"id": "b"}]
    results = document(stage.do(tasks.create_task_collection, "job", body={"value": entries}))["value"]
    assert [one["status"] for one in results] == ["Success", "clienterror", "clienterror"]
    assert [one["error"]["code"] for one in results[1:]] == ["TaskExists", "MissingRequiredProperty"]


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (5, "value[1]"),
        ({"id": "b", "commandLine": "x", "maxTaskRetryCounts": 1}, "value[1]/maxTaskRetryCounts"),
        ({"id": "b", "commandLine": "x", "constraints": {"retries": 1}}, "value[1]/constraints/retries"),
    ],
)
def test_a_collection_that_is_not_well_formed_adds_no_task(stage: Stage, entry: object, place: str) -> None:
    stage.job()
    body = {"value": [{"id": "a", "commandLine": "x"}, entry]}
    refusal = stage.refusal(tasks.create_task_collection, "job", body=body)
    assert (refusal.code, refusal.details["PropertyName"]) == ("InvalidRequestBody", place)
    assert not stage.world.jobs["job"].tasks


# Jobs


def test_a_job_has_the_service_s_defaults_and_its_pool_need_not_exist(stage: Stage) -> None:
    stage.job()
    found = job_of(stage)
    assert found["constraints"] == {"maxWallClockTime": wire.INFINITE, "maxTaskRetryCount": 0}
    assert (found["state"], found["onAllTasksComplete"], found["maxParallelTasks"]) == ("active", "noaction", -1)
    assert "previousState" not in found


def test_a_terminating_job_ends_its_running_tasks_and_leaves_the_others_active(stage: Stage) -> None:
    stage.pool(1)
    running, waiting = stage.task("a"), stage.task("b")
    stage.settle()
    stage.do(jobs.terminate_job, "job", body={"terminateReason": "enough"})
    assert job_of(stage)["state"] == "terminating"
    stage.end_scopes()
    found = job_of(stage)
    assert (found["state"], found["executionInfo"]["terminateReason"]) == ("completed", "enough")
    assert (running.state, waiting.state) == ("completed", "active")
    assert stage.refusal(tasks.create_task, "job", body={"id": "c", "commandLine": "x"}).code == "JobCompleted"


@pytest.mark.parametrize(
    ("action", "state", "requeues"), [("requeue", "active", 1), ("terminate", "completed", 0), ("wait", "running", 0)]
)
def test_a_disabled_job_requeues_ends_or_waits(stage: Stage, action: str, state: str, requeues: int) -> None:
    task = stage.run_task()
    stage.do(jobs.disable_job, "job", body={"disableTasks": action})
    assert job_of(stage)["state"] == "disabling"
    stage.end_scopes()
    assert (task.state, task.requeues) == (state, requeues)
    assert job_of(stage)["state"] == ("disabling" if action == "wait" else "disabled")
    if action == "wait":
        stage.exits(task)
    assert (job_of(stage)["state"], job_of(stage)["previousState"]) == ("disabled", "active")


def test_an_enabled_job_goes_on(stage: Stage) -> None:
    stage.pool_and_job()
    stage.do(jobs.disable_job, "job", body={"disableTasks": "wait"})
    task = stage.run_task()
    assert task.state == "active"
    stage.do(jobs.enable_job, "job")
    stage.settle()
    assert (job_of(stage)["state"], task.state) == ("active", "running")


def test_a_job_that_ends_with_its_tasks_ends_only_with_the_last(stage: Stage) -> None:
    stage.pool(2)
    first, second = stage.task("a"), stage.task("b")
    stage.do(jobs.update_job, "job", body={"onAllTasksComplete": "terminatejob"})
    stage.settle()
    stage.exits(first)
    assert job_of(stage)["state"] == "active"
    stage.exits(second, 1)
    found = job_of(stage)
    assert (found["state"], found["executionInfo"]["terminateReason"]) == ("completed", "AllTasksComplete")


def test_a_deleted_job_is_gone_when_nothing_of_it_runs(stage: Stage) -> None:
    stage.run_task()
    (node,) = stage.nodes()
    stage.do(jobs.delete_job, "job")
    assert job_of(stage)["state"] == "deleting"
    stage.end_scopes()
    assert stage.refusal(jobs.get_job, "job").code == "JobNotFound"
    assert node.state == "idle"
    stage.job()


def test_a_job_moves_to_another_pool_only_while_disabled(stage: Stage) -> None:
    stage.do(pools.create_pool, body={**POOL, "id": "other"})
    stage.job()
    move = {"poolInfo": {"poolId": "other"}}
    assert stage.refusal(jobs.update_job, "job", body=move).code == "OperationInvalidForCurrentState"
    stage.do(jobs.disable_job, "job", body={"disableTasks": "wait"})
    stage.settle()
    stage.do(jobs.update_job, "job", body=move)
    assert (list(stage.world.jobs_of_pool["other"]), stage.world.jobs_of_pool["pool"]) == (["job"], {})


def test_changes_by_users_change_the_etag_and_transitions_do_not(stage: Stage) -> None:
    stage.job()
    tags = [job_of(stage)["eTag"]]
    stage.do(jobs.disable_job, "job", body={"disableTasks": "wait"})
    tags.append(job_of(stage)["eTag"])
    stage.settle()
    assert job_of(stage)["state"] == "disabled"
    assert (tags[0] != tags[1], job_of(stage)["eTag"]) == (True, tags[1])


# Changes of mind


@pytest.mark.parametrize("action", ["requeue", "retry"])
def test_a_task_that_was_to_run_again_can_still_be_terminated(stage: Stage, action: str) -> None:
    task = stage.run_task(constraints={"maxTaskRetryCount": 1})
    if action == "requeue":
        stage.do(jobs.disable_job, "job", body={"disableTasks": "requeue"})
    else:
        reports.application_ended(stage.world, task, 1, Exit(1), stage.now)
    assert task.verdict == action
    stage.do(tasks.terminate_task, "job", "task")
    stage.end_scopes()
    assert (task.state, code(task)) == ("completed", "TaskEnded")


def test_a_running_task_s_wall_clock_can_be_set_longer_and_shorter(stage: Stage) -> None:
    task = stage.run_task(constraints={"maxWallClockTime": "PT5S"})
    stage.do(tasks.replace_task, "job", "task", body={"constraints": {"maxWallClockTime": "PT1H"}})
    stage.later(6)
    stage.settle()
    assert task.verdict == ""
    stage.do(tasks.replace_task, "job", "task", body={"constraints": {"maxWallClockTime": "PT8S"}})
    stage.later(2)
    stage.settle()
    assert task.verdict == "terminate"


def test_a_reactivated_task_waits_for_its_dependencies_each_counted_once(stage: Stage) -> None:
    stage.pool_and_job(3, usesTaskDependencies=True)
    last = stage.task("last", dependsOn={"taskIds": ["a", "b"], "taskIdRanges": [{"start": 1, "end": 1}]})
    stage.do(tasks.terminate_task, "job", "last")
    stage.do(tasks.reactivate_task, "job", "last")
    waited_for = [stage.task(name) for name in ("a", "b", "1")]
    stage.settle()
    for task in waited_for:
        assert last.state == "active"
        stage.exits(task)
    assert last.state == "running"


@pytest.mark.parametrize("options", [{}, {"exitConditions": {"default": {"jobAction": "terminate"}}}])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_task_that_never_ran_can_be_terminated_and_reactivated_without_a_word_to_its_job(
    stage: Stage, prepared: bool, options: dict[str, object]
) -> None:
    stage.pool(0 if prepared else 1)
    stage.job(
        onTaskFailure="performexitoptionsjobaction",
        **({} if prepared else {"jobPreparationTask": {"commandLine": "true"}}),
    )
    task = stage.run_task(**options)
    stage.do(tasks.terminate_task, "job", "task")
    stage.end_scopes()
    assert (task.state, stage.world.jobs["job"].record.state) == ("completed", "active")
    stage.do(tasks.reactivate_task, "job", "task")
    assert task.state == "active"


def test_a_user_s_terminate_is_no_preprocessing_error(stage: Stage) -> None:
    stage.job(usesTaskDependencies=True)
    options = {"preProcessingError": {"dependencyAction": "satisfy"}}
    task = stage.task(exitConditions=options)
    stage.do(tasks.terminate_task, "job", "task")
    assert not task.satisfies


def test_a_task_made_anew_waits_until_the_deleted_one_has_left_their_directory(stage: Stage) -> None:
    stage.pool(1, taskSlotsPerNode=2)
    stage.run_task()
    stage.do(tasks.delete_task, "job", "task")
    again, other = stage.task(), stage.task("other")
    (end, run) = stage.settle()
    assert isinstance(end, scheduler.EndScope) and run == scheduler.RunApplication(other, 1)
    reports.scope_ended(stage.world, end.task, end.run, 0, stage.now)
    assert stage.settle() == [scheduler.RunApplication(again, 1)]
