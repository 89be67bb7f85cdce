"""What may be asked of jobs and tasks, what follows from how tasks end, and how long their files stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchtrain.emulator import autoscale, documents, files, jobs, pools, reports, schedules, tasks
from batchtrain.emulator.faults import Fault, NotModified
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.records import Document, Task
from batchtrain.emulator.reply import Call, Reply
from batchtrain.emulator.world import World
from tests.emulation import Stage, call, document

ACTING = {"onTaskFailure": "performexitoptionsjobaction", "usesTaskDependencies": True}


def job_state(stage: Stage) -> str:
    return stage.world.jobs["job"].record.state


def ended(stage: Stage, outcome: Exit, **more: object) -> Task:
    """A task that ended so, in a job that acts on it."""
    stage.pool_and_job(**ACTING)
    task = stage.run_task(**more)
    reports.application_ended(stage.world, task, task.run, outcome, stage.now)
    stage.end_scopes()
    return task


# How tasks end

UPLOAD = Exit(0, "FileUploadContainerNotFound", "no such container")
DOWNLOAD = Exit(None, "BlobNotFound", "no such blob")
CONDITIONS: Document = {
    "exitCodes": [{"code": 7, "exitOptions": {"jobAction": "disable", "dependencyAction": "satisfy"}}],
    "exitCodeRanges": [{"start": 10, "end": 12, "exitOptions": {"jobAction": "none"}}],
    "preProcessingError": {"jobAction": "none", "dependencyAction": "satisfy"},
    "fileUploadError": {"jobAction": "disable", "dependencyAction": "block"},
    "default": {"jobAction": "terminate", "dependencyAction": "satisfy"},
}


@pytest.mark.parametrize(
    ("outcome", "state", "satisfies"),
    [
        (Exit(0), "active", True),
        (Exit(7), "disabled", True),
        (Exit(10), "active", False),
        (Exit(12), "active", False),
        (Exit(13), "completed", True),
        (DOWNLOAD, "active", True),
        (UPLOAD, "disabled", False),
        (Exit(7, "FileUploadAccessDenied", "no"), "disabled", True),
    ],
)
def test_each_way_to_end_has_its_own_consequence(stage: Stage, outcome: Exit, state: str, satisfies: bool) -> None:
    task = ended(stage, outcome, exitConditions=CONDITIONS)
    assert (job_state(stage), task.satisfies) == (state, satisfies)


@pytest.mark.parametrize("outcome", [Exit(1), DOWNLOAD, UPLOAD])
def test_without_a_rule_of_its_own_a_failure_falls_to_the_default_and_then_to_the_service_s(
    stage: Stage, outcome: Exit
) -> None:
    task = ended(stage, outcome, exitConditions={"default": {"dependencyAction": "satisfy"}})
    assert (job_state(stage), task.satisfies) == ("completed", True)
    assert stage.world.jobs["job"].record.reason == "TaskFailed"


def test_success_too_can_end_the_job(stage: Stage) -> None:
    ended(stage, Exit(0), exitConditions={"exitCodes": [{"code": 0, "exitOptions": {"jobAction": "terminate"}}]})
    assert job_state(stage) == "completed"


@pytest.mark.parametrize("outcome", [UPLOAD, DOWNLOAD])
def test_what_could_not_be_downloaded_or_uploaded_is_not_tried_again(stage: Stage, outcome: Exit) -> None:
    task = ended(stage, outcome, constraints={"maxTaskRetryCount": 3})
    assert (task.state, task.result, task.retries, task.exit_code) == ("completed", "failure", 0, outcome.code)
    assert task.failure is not None and task.failure["code"] == outcome.failure


def test_a_dependency_stays_met_when_its_task_is_deleted_and_the_emulator_starts_again(stage: Stage) -> None:
    stage.pool_and_job(usesTaskDependencies=True)
    first = stage.run_task("1")
    stage.exits(first)
    stage.do(tasks.delete_task, "job", "1")
    stage.task("ranged", dependsOn={"taskIdRanges": [{"start": 1, "end": 1}]})
    stage.do(tasks.create_task, "job", body={"id": "later", "commandLine": "x", "dependsOn": {"taskIds": ["01", "2"]}})
    entry = stage.restarted().world.jobs["job"]
    assert [entry.tasks.at(seq).id for seq in entry.ready] == ["ranged"]
    assert list(entry.unmet.values()) == [1]


# Files


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("retention", "seconds"), [({}, 7 * 86400), ({"retentionTime": "PT1H"}, 3600)])
def test_a_task_s_files_go_when_its_retention_time_is_over_by_default_after_seven_days(
    stage: Stage, retention: dict[str, str], seconds: int, *, restarts: bool
) -> None:
    stage.exits(stage.run_task(constraints=retention))
    stage = stage.restarted() if restarts else stage
    directory = (stage.nodes()[0].root, "workitems/job/job-1/task")
    for later, rubbish in ((seconds - 1, []), (2, [directory])):
        stage.later(later)
        stage.boot()
        assert stage.world.rubbish == rubbish
    assert stage.refusal(files.of_task(files.list_), "job", "task").code == "TaskFilesCleanedup"


def test_a_task_that_runs_again_keeps_its_files(stage: Stage) -> None:
    task = stage.run_task(constraints={"retentionTime": "PT1H"})
    stage.exits(task, 1)
    stage.do(tasks.reactivate_task, "job", "task")
    stage.settle()
    stage.later(3601)
    stage.settle()
    assert (task.state, task.cleaned, stage.world.rubbish) == ("running", False, [])


def test_nodes_that_only_keep_time_have_no_files_to_remember(stage: Stage) -> None:
    stage.pool(1, metadata=[{"name": "batchtrain-nodes", "value": "simulated"}])
    task = stage.run_task()
    before = stage.world.next_deadline()
    stage.exits(task)
    assert stage.world.next_deadline() == before


# Jobs


@pytest.mark.parametrize(
    "more", [{"priority": 1001}, {"maxParallelTasks": 0}, {"constraints": {"maxTaskRetryCount": -2}}]
)
def test_a_job_out_of_bounds_is_refused_when_it_is_changed(stage: Stage, more: dict[str, object]) -> None:
    stage.job()
    assert stage.refusal(jobs.update_job, "job", body=more).code == "InvalidPropertyValue"


def test_a_job_that_is_to_end_with_its_tasks_cannot_be_told_otherwise(stage: Stage) -> None:
    stage.pool(1)
    stage.task()
    stage.do(jobs.update_job, "job", body={"onAllTasksComplete": "terminatejob"})
    for operation, body in ((jobs.update_job, {"onAllTasksComplete": "noaction"}), (jobs.replace_job, POOL_INFO)):
        assert stage.refusal(operation, "job", body=body).code == "InvalidPropertyValue"


def test_a_disabled_job_can_be_disabled_again_and_a_waiting_one_told_not_to_wait(stage: Stage) -> None:
    task = stage.run_task()
    stage.do(jobs.disable_job, "job", body={"disableTasks": "wait"})
    assert (stage.settle(), job_state(stage)) == ([], "disabling")
    stage.do(jobs.disable_job, "job", body={"disableTasks": "requeue"})
    stage.end_scopes()
    assert (job_state(stage), task.state) == ("disabled", "active")
    stage.do(jobs.disable_job, "job", body={"disableTasks": "terminate"})
    found = document(stage.do(jobs.get_job, "job"))
    assert (found["state"], found["previousState"]) == ("disabled", "active")


def test_force_ends_a_job_at_once_and_its_slots_are_free_when_the_node_is_done(stage: Stage) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    stage.do(jobs.delete_job, "job")
    stage.settle()
    stage.do(jobs.delete_job, "job", force="true")
    stage.settle()
    assert (stage.world.jobs, node.state) == ({}, "running")
    reports.scope_ended(stage.world, task, task.run, 0, stage.now)
    assert (node.state, stage.world.job_of) == ("idle", {})


def test_a_forced_termination_does_not_wait_for_tasks(stage: Stage) -> None:
    task = stage.run_task()
    stage.do(jobs.terminate_job, "job")
    stage.settle()
    assert job_state(stage) == "terminating"
    stage.do(jobs.terminate_job, "job", force="true")
    stage.settle()
    assert (job_state(stage), task.state) == ("completed", "running")
    reports.scope_ended(stage.world, task, task.run, 0, stage.now)
    assert task.state == "completed"


@pytest.mark.parametrize(
    ("name", "items", "code"),
    [
        ("taskIds", ["x" * 64] * 1000 + ["y"], "TaskDependencyListTooLong"),
        ("taskIdRanges", [{"start": number, "end": number} for number in (100_000, *range(10_000, 15_818))],
         "TaskDependencyRangesTooLong"),
    ],
)  # fmt: skip
def test_dependencies_have_at_most_64_000_characters(stage: Stage, name: str, items: list[Any], code: str) -> None:
    stage.job(usesTaskDependencies=True)
    stage.task("fits", dependsOn={name: items[:-1]})
    with pytest.raises(Fault, match=code):
        stage.task("long", dependsOn={name: items})


@pytest.mark.parametrize("name", documents.TASK_PARTS)
def test_a_property_of_a_task_is_the_same_whether_it_is_asked_for_alone_or_not(stage: Stage, name: str) -> None:
    task = stage.run_task()
    stage.exits(task)
    whole = document(stage.do(tasks.list_tasks, "job"))["value"][0]
    assert document(stage.do(tasks.list_tasks, "job", select=name))["value"] == [{name: whole[name]}]
    kept = document(stage.do(tasks.list_tasks, "job", select=name, filter="id eq 'task'"))["value"]
    assert kept == [{name: whole[name]}]


# Conditions and states


def scene(stage: Stage) -> None:
    stage.pool(1)
    stage.task()
    body = {"id": "s", "schedule": {}, "jobSpecification": {"poolInfo": {"poolId": "pool"}}}
    stage.do(schedules.create_schedule, body=body)
    stage.settle()


POOL_INFO = {"poolInfo": {"poolId": "pool"}}
FORMULA = {"autoScaleFormula": "$TargetDedicatedNodes = 1;"}
NODE = World(seed="seed").new_node_id(2, dedicated=True)
CONDITIONAL: dict[Callable[[World, Call], Reply], tuple[tuple[str, ...], object]] = {
    jobs.update_job: (("job",), {"priority": 1}),
    jobs.replace_job: (("job",), POOL_INFO),
    jobs.disable_job: (("job",), {"disableTasks": "wait"}),
    jobs.enable_job: (("job",), None),
    jobs.terminate_job: (("job",), None),
    jobs.delete_job: (("job",), None),
    tasks.replace_task: (("job", "task"), {"constraints": {}}),
    tasks.terminate_task: (("job", "task"), None),
    tasks.reactivate_task: (("job", "task"), None),
    tasks.delete_task: (("job", "task"), None),
    schedules.update_schedule: (("s",), {"metadata": []}),
    schedules.replace_schedule: (("s",), {"jobSpecification": POOL_INFO}),
    schedules.disable_schedule: (("s",), None),
    schedules.enable_schedule: (("s",), None),
    schedules.terminate_schedule: (("s",), None),
    schedules.delete_schedule: (("s",), None),
    pools.update_pool: (("pool",), {"metadata": []}),
    pools.replace_pool_properties: (("pool",), {"metadata": [], "applicationPackageReferences": []}),
    pools.resize_pool: (("pool",), {"targetDedicatedNodes": 2}),
    pools.stop_pool_resize: (("pool",), None),
    pools.remove_nodes: (("pool",), {"nodeList": [NODE]}),
    pools.delete_pool: (("pool",), None),
    autoscale.enable: (("pool",), FORMULA),
    autoscale.disable: (("pool",), None),
    autoscale.evaluate: (("pool",), FORMULA),
}
BEFORE: dict[Callable[[World, Call], Reply], Callable[[Stage], object]] = {
    jobs.enable_job: lambda stage: stage.do(jobs.disable_job, "job", body={"disableTasks": "wait"}),
    schedules.enable_schedule: lambda stage: stage.do(schedules.disable_schedule, "s"),
    tasks.reactivate_task: lambda stage: stage.exits(stage.world.task("job", "task")[1], 1),
    pools.stop_pool_resize: lambda stage: stage.do(pools.resize_pool, "pool", body={"targetDedicatedNodes": 2}),
    autoscale.disable: lambda stage: stage.do(autoscale.enable, "pool", body=FORMULA),
}
"""What makes a change possible."""
STAMPING = [operation for operation in CONDITIONAL if operation not in (autoscale.evaluate, tasks.delete_task)]
READING: dict[Callable[[World, Call], Reply], tuple[str, ...]] = {
    jobs.get_job: ("job",),
    tasks.get_task: ("job", "task"),
    schedules.get_schedule: ("s",),
    schedules.schedule_exists: ("s",),
    pools.get_pool: ("pool",),
    pools.pool_exists: ("pool",),
}
LONG_AGO, SOON = "Sat, 21 Nov 2020 10:00:00 GMT", "Wed, 21 Nov 2035 10:00:00 GMT"


@pytest.mark.parametrize("operation", CONDITIONAL, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize(
    "headers",
    [{"if-match": '"0x1"'}, {"if-none-match": "*"}, {"if-unmodified-since": LONG_AGO}, {"if-modified-since": SOON}],
    ids=lambda headers: next(iter(headers)),
)
def test_a_change_is_made_only_on_its_conditions(
    stage: Stage, operation: Callable[[World, Call], Reply], headers: dict[str, str]
) -> None:
    scene(stage)
    path, body = CONDITIONAL[operation]
    with pytest.raises(Fault, match="ConditionNotMet"):
        operation(stage.world, call(*path, body=body, now=stage.now, headers=headers))


@pytest.mark.parametrize("operation", STAMPING, ids=lambda operation: operation.__name__)
def test_a_change_by_the_user_gives_a_new_etag_of_its_time(
    stage: Stage, operation: Callable[[World, Call], Reply]
) -> None:
    scene(stage)
    BEFORE.get(operation, Stage.settle)(stage)
    path, body = CONDITIONAL[operation]
    owners = {"pool": stage.world.pools, "job": stage.world.jobs, "s": stage.world.schedules}
    record = stage.world.task(*path)[1] if len(path) == 2 else owners[path[0]][path[0]].record
    tag = record.etag
    stage.later()
    reply = stage.do(operation, *path, body=body)
    assert tag != record.etag == reply.headers.get("ETag", record.etag)
    assert record.modified == stage.now
    stage.settle()


@pytest.mark.parametrize("operation", READING, ids=lambda operation: operation.__name__)
def test_what_the_client_has_already_is_not_sent_again(stage: Stage, operation: Callable[[World, Call], Reply]) -> None:
    scene(stage)
    path = READING[operation]
    tag = operation(stage.world, call(*path, now=stage.now)).headers["ETag"]
    for headers in ({"if-none-match": tag}, {"if-modified-since": SOON}):
        with pytest.raises(NotModified):
            operation(stage.world, call(*path, now=stage.now, headers=headers))


TASK = {"id": "new", "commandLine": "x"}
ALWAYS = (jobs.delete_job, schedules.delete_schedule, tasks.replace_task, tasks.terminate_task, tasks.delete_task)
"""What is possible although a job or a schedule is over."""


@pytest.mark.parametrize(
    ("end", "owner", "steps", "code"),
    [
        (jobs.terminate_job, "job", 0, "JobBeingTerminated"),
        (jobs.terminate_job, "job", 1, "JobCompleted"),
        (jobs.delete_job, "job", 0, "JobBeingDeleted"),
        (schedules.terminate_schedule, "s", 0, "JobScheduleBeingTerminated"),
        (schedules.terminate_schedule, "s", 1, "JobScheduleCompleted"),
        (schedules.delete_schedule, "s", 0, "JobScheduleBeingDeleted"),
    ],
)
def test_a_job_or_a_schedule_that_is_over_takes_no_change(
    stage: Stage, end: Callable[[World, Call], Reply], owner: str, steps: int, code: str
) -> None:
    scene(stage)
    stage.do(end, owner)
    for _ in range(steps):
        stage.end_scopes()
    for operation, (path, body) in {**CONDITIONAL, tasks.create_task: (("job",), TASK)}.items():
        if path[0] == owner and (operation not in ALWAYS or operation is end):
            assert stage.refusal(operation, *path, body=body).code == code


@pytest.mark.parametrize(("waiting", "state"), [((), "completed"), (("waits",), "disabled")])
def test_a_disabled_job_with_auto_complete_ends_with_its_last_task(
    stage: Stage, waiting: tuple[str, ...], state: str
) -> None:
    """Azure/batch-shipyard issue 227."""
    stage.pool_and_job(onTaskFailure="performexitoptionsjobaction", onAllTasksComplete="terminatejob")
    task = stage.task("fails", exitConditions={"default": {"jobAction": "disable"}})
    for task_id in waiting:
        stage.task(task_id)
    stage.settle()
    stage.exits(task, 1)
    stage.settle()
    assert job_state(stage) == state
