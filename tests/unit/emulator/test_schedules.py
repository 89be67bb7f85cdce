"""Job schedules, by an argument clock."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.emulator import control, documents, jobs, pools, recovery, scheduler, schedules, tasks, wire
from batchtrain.emulator.wire import SECOND
from tests.emulation import POOL, START, Stage, document

MINUTE = 60
POOL_INFO: dict[str, Any] = {"poolInfo": {"poolId": "pool"}}
SCHEDULE: dict[str, Any] = {"id": "s", "schedule": {}, "jobSpecification": POOL_INFO}


def at(seconds: float) -> str:
    return wire.timestamp(START + int(seconds * SECOND))


def schedule(stage: Stage, job: dict[str, object] | None = None, **times: object) -> None:
    stage.do(
        schedules.create_schedule, body={**SCHEDULE, "schedule": times, "jobSpecification": POOL_INFO | (job or {})}
    )
    stage.settle()


def of(stage: Stage) -> dict[str, Any]:
    return document(stage.do(schedules.get_schedule, "s"))


def made(stage: Stage) -> list[str]:
    found = document(stage.do(jobs.list_jobs_from_schedule, "s"))["value"]
    return [job["id"] for job in found]


def at_last(stage: Stage, seconds: float) -> None:
    """It is so many seconds after the start."""
    stage.now = START + int(seconds * SECOND)
    stage.settle()


def end(stage: Stage, job_id: str) -> None:
    stage.do(jobs.terminate_job, job_id)
    stage.settle()


def test_a_schedule_without_times_makes_one_job_at_once_and_ends_with_it(stage: Stage) -> None:
    schedule(stage)
    assert made(stage) == ["s:job-1"]
    found = of(stage)
    assert (found["state"], found["executionInfo"]["recentJob"]["id"]) == ("active", "s:job-1")
    assert "nextRunTime" not in found["executionInfo"]
    stage.later()
    end(stage, "s:job-1")
    found = of(stage)
    assert (found["state"], found["executionInfo"]["endTime"]) == ("completed", wire.timestamp(stage.now))


def test_a_recurrence_makes_one_job_each_time_if_the_last_is_over(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    assert of(stage)["executionInfo"]["nextRunTime"] == at(600)
    for number in (1, 2, 3):
        assert made(stage)[-1] == f"s:job-{number}"
        end(stage, f"s:job-{number}")
        assert len(made(stage)) == number
        at_last(stage, number * 600)
    assert of(stage)["state"] == "active"


def test_no_job_is_made_while_the_last_one_runs_and_one_as_soon_as_it_ends(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    at_last(stage, 25 * MINUTE)
    assert made(stage) == ["s:job-1"]
    end(stage, "s:job-1")
    assert made(stage) == ["s:job-1", "s:job-2"]
    assert of(stage)["executionInfo"]["nextRunTime"] == at(1800)


def test_a_schedule_that_is_added_after_its_start_window_loses_it(stage: Stage) -> None:
    schedule(stage, doNotRunUntil=at(-300), startWindow="PT2M", recurrenceInterval="PT10M")
    assert (made(stage), of(stage)["executionInfo"]["nextRunTime"]) == ([], at(300))
    at_last(stage, 300)
    assert made(stage) == ["s:job-1"]


def test_nothing_is_made_before_do_not_run_until(stage: Stage) -> None:
    schedule(stage, doNotRunUntil=at(3600), recurrenceInterval="P1D")
    assert (made(stage), of(stage)["executionInfo"]["nextRunTime"]) == ([], at(3600))
    at_last(stage, 3600)
    assert made(stage) == ["s:job-1"]
    assert of(stage)["executionInfo"]["nextRunTime"] == at(3600 + 86400)


def test_after_do_not_run_after_the_schedule_ends_with_its_last_job(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M", doNotRunAfter=at(11 * MINUTE))
    end(stage, "s:job-1")
    at_last(stage, 10 * MINUTE)
    assert made(stage) == ["s:job-1", "s:job-2"]
    assert "nextRunTime" not in of(stage)["executionInfo"]
    at_last(stage, 12 * MINUTE)
    assert of(stage)["state"] == "active"
    end(stage, "s:job-2")
    assert of(stage)["state"] == "completed"


def test_a_disabled_schedule_makes_no_job_and_leaves_the_one_there_is(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    assert stage.do(schedules.disable_schedule, "s").status == 204
    end(stage, "s:job-1")
    at_last(stage, 35 * MINUTE)
    assert (of(stage)["state"], made(stage)) == ("disabled", ["s:job-1"])
    assert stage.do(schedules.enable_schedule, "s").status == 204
    stage.settle()
    assert made(stage) == ["s:job-1", "s:job-2"]
    assert of(stage)["executionInfo"]["nextRunTime"] == at(2400)


def test_terminating_a_schedule_ends_its_job_and_then_itself(stage: Stage) -> None:
    stage.pool(1)
    schedule(stage, {"jobManagerTask": {"id": "m", "commandLine": "x"}})
    stage.do(schedules.terminate_schedule, "s")
    assert of(stage)["state"] == "terminating"
    stage.end_scopes()
    found = document(stage.do(jobs.get_job, "s:job-1"))
    assert (found["state"], found["executionInfo"]["terminateReason"]) == ("completed", "TerminateJobSchedule")
    assert of(stage)["state"] == "completed"
    assert stage.refusal(schedules.enable_schedule, "s").code == "JobScheduleCompleted"


def test_deleting_a_schedule_deletes_all_its_jobs(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT1M")
    end(stage, "s:job-1")
    at_last(stage, 60)
    assert len(made(stage)) == 2
    stage.do(schedules.delete_schedule, "s")
    assert of(stage)["state"] == "deleting"
    stage.settle()
    assert (stage.world.jobs, stage.world.schedules) == ({}, {})


def test_the_job_s_files_lie_below_its_schedule_s_name(stage: Stage) -> None:
    stage.pool(1)
    schedule(stage, {"jobManagerTask": {"id": "m", "commandLine": "x"}})
    entry = stage.world.jobs["s:job-1"]
    task = entry.tasks["m"]
    found = document(stage.do(jobs.get_job, "s:job-1"))
    assert found["executionInfo"]["poolId"] == "pool"
    assert documents.task_directory(entry.record, task) == "workitems/s/job-1/m"


def test_a_deleted_job_of_a_schedule_takes_its_own_files_only(stage: Stage) -> None:
    (node,) = stage.pool(1)
    schedule(stage, recurrenceInterval="PT1M")
    end(stage, "s:job-1")
    at_last(stage, 60)
    stage.do(jobs.delete_job, "s:job-1")
    stage.settle()
    assert stage.world.rubbish == [(node.root, "workitems/s/job-1")]
    stage.do(schedules.delete_schedule, "s")
    stage.settle()
    assert stage.world.rubbish[-1] == (node.root, "workitems/s")


def test_a_schedule_s_job_has_what_its_specification_says_and_the_defaults(stage: Stage) -> None:
    schedule(stage, {"priority": 7, "displayName": "nightly"})
    found = document(stage.do(jobs.get_job, "s:job-1"))
    assert (found["priority"], found["displayName"], found["maxParallelTasks"]) == (7, "nightly", -1)
    assert of(stage)["jobSpecification"]["onAllTasksComplete"] == "noaction"


def test_an_update_changes_the_next_jobs_only(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    more = {"schedule": {"recurrenceInterval": "PT20M"}, "jobSpecification": {**POOL_INFO, "priority": 3}}
    stage.do(schedules.update_schedule, "s", body=more)
    assert of(stage)["executionInfo"]["nextRunTime"] == at(1200)
    end(stage, "s:job-1")
    at_last(stage, 600)
    assert made(stage) == ["s:job-1"]
    at_last(stage, 1200)
    priorities = [stage.world.jobs[f"s:job-{number}"].record.spec["priority"] for number in (1, 2)]
    assert priorities == [0, 3]


def test_a_replacement_without_a_schedule_or_metadata_removes_them(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    stage.do(schedules.update_schedule, "s", body={"metadata": [{"name": "a", "value": "b"}]})
    assert of(stage)["schedule"] == {"recurrenceInterval": "PT10M"}
    stage.do(schedules.replace_schedule, "s", body={"jobSpecification": {"poolInfo": {"poolId": "pool"}}})
    assert not {"schedule", "metadata"} & set(of(stage))
    end(stage, "s:job-1")
    assert of(stage)["state"] == "completed"


@pytest.mark.parametrize("times", [{"doNotRunAfter": at(-1)}, {"doNotRunUntil": at(60), "doNotRunAfter": at(60)}])
def test_times_that_cannot_be_are_refused(stage: Stage, times: dict[str, object]) -> None:
    refusal = stage.refusal(schedules.create_schedule, body={**SCHEDULE, "schedule": times})
    assert (refusal.code, refusal.details["PropertyName"]) == ("InvalidPropertyValue", "doNotRunAfter")


def test_jobs_and_schedules_share_their_ids(stage: Stage) -> None:
    schedule(stage)
    assert stage.refusal(schedules.create_schedule, body=SCHEDULE).code == "JobScheduleExists"
    assert stage.refusal(jobs.create_job, body={"id": "S", **POOL_INFO}).code == "JobScheduleWithSameIdExists"
    stage.job()
    assert stage.refusal(schedules.create_schedule, body={**SCHEDULE, "id": "job"}).code == "JobWithSameIdExists"
    assert stage.refusal(schedules.schedule_exists, "nothing").code == "JobScheduleNotFound"


@pytest.mark.parametrize(
    ("job", "code"), [({}, "MissingRequiredProperty"), ({**POOL_INFO, "priority": 1001}, "InvalidPropertyValue")]
)
def test_a_wrong_job_is_refused_with_the_schedule(stage: Stage, job: dict[str, object], code: str) -> None:
    assert stage.refusal(schedules.create_schedule, body={**SCHEDULE, "jobSpecification": job}).code == code


def test_statistics_are_shown_when_they_are_asked_for(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    assert "stats" not in of(stage)
    assert "stats" in document(stage.do(schedules.get_schedule, "s", expand="stats"))


def test_keep_alive_can_be_changed_later_without_the_pool(stage: Stage) -> None:
    stage.do(jobs.create_job, body={"id": "job", **auto("job", keepAlive=False)})
    change = {"poolInfo": {"autoPoolSpecification": {"poolLifetimeOption": "job", "keepAlive": True}}}
    assert stage.do(jobs.update_job, "job", body=change).status == 200
    shown = document(stage.do(jobs.get_job, "job"))["poolInfo"]["autoPoolSpecification"]
    assert (shown["keepAlive"], "pool" in shown) == (True, True)
    end(stage, "job")
    assert len(stage.world.pools) == 1


def test_a_schedules_own_changes_do_not_change_its_etag(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    tag = of(stage)["eTag"]
    end(stage, "s:job-1")
    at_last(stage, 600)
    assert of(stage)["eTag"] == tag


def test_a_schedule_that_was_down_makes_the_latest_job_only(stage: Stage) -> None:
    schedule(stage, recurrenceInterval="PT10M")
    end(stage, "s:job-1")
    stage.now = START + 95 * MINUTE * SECOND
    recovery.recover(stage.world, stage.now)
    stage.settle()
    assert made(stage) == ["s:job-1", "s:job-2"]
    assert of(stage)["executionInfo"]["nextRunTime"] == at(6000)


def test_a_week_of_recurrences_is_a_week_of_jobs(stage: Stage) -> None:
    schedule(stage, {"onAllTasksComplete": "terminatejob"}, recurrenceInterval="PT6H")
    while stage.now < START + 7 * wire.DAY:
        stage.now = min(stage.world.next_deadline() or 0, START + 7 * wire.DAY)
        stage.settle()
    assert len(made(stage)) == 7 * 4 + 1


# Pools made for jobs


AUTO: dict[str, Any] = {
    "autoPoolIdPrefix": "auto", "pool": {key: value for key, value in POOL.items() if key != "id"},
}  # fmt: skip


def auto(lifetime: str, **more: object) -> dict[str, object]:
    return {"poolInfo": {"autoPoolSpecification": {**AUTO, "poolLifetimeOption": lifetime, **more}}}


def test_a_job_s_own_pool_is_made_with_it(stage: Stage) -> None:
    stage.do(jobs.create_job, body={"id": "job", **auto("job")})
    pool_id = document(stage.do(jobs.get_job, "job"))["executionInfo"]["poolId"]
    assert pool_id.startswith("auto") and len(pool_id) == 40
    assert document(stage.do(pools.get_pool, pool_id))["vmSize"] == "standard_d2_v3"


@pytest.mark.parametrize("act", [jobs.terminate_job, jobs.delete_job])
@pytest.mark.parametrize("kept", [True, False])
def test_a_pool_that_is_to_be_kept_is_kept_and_any_other_goes_at_once(stage: Stage, act: Any, kept: bool) -> None:
    stage.do(jobs.create_job, body={"id": "job", **auto("job", keepAlive=kept)})
    stage.do(act, "job")
    stage.settle()
    assert len(stage.world.pools) == kept


def test_nothing_else_of_a_jobs_own_pool_can_be_changed_later(stage: Stage) -> None:
    stage.do(jobs.create_job, body={"id": "job", **auto("job")})
    stage.do(jobs.update_job, "job", body=auto("job"))
    other = auto("job", pool={**AUTO["pool"], "vmSize": "standard_d4_v3"})
    refusal = stage.refusal(jobs.update_job, "job", body=other)
    assert (refusal.code, refusal.property_path) == ("InvalidPropertyValue", "poolInfo/autoPoolSpecification/pool")


def test_each_job_of_a_schedule_has_a_pool_of_its_own_or_all_share_one(stage: Stage) -> None:
    schedule(stage, auto("job"), recurrenceInterval="PT10M")
    first = set(stage.world.pools)
    end(stage, "s:job-1")
    at_last(stage, 600)
    assert len(first) == 1 and not first & set(stage.world.pools)
    stage.do(schedules.delete_schedule, "s")
    stage.settle()
    schedule(stage, auto("jobschedule"), recurrenceInterval="PT10M")
    shared = set(stage.world.pools)
    end(stage, "s:job-1")
    at_last(stage, 1200)
    assert len(shared) == 1 and set(stage.world.pools) == shared
    stage.do(schedules.terminate_schedule, "s")
    stage.settle()
    assert stage.world.pools == {}


def test_tasks_run_on_the_pool_made_for_their_job_and_a_restart_boots_no_node_of_one_that_goes(stage: Stage) -> None:
    stage.do(jobs.create_job, body={"id": "job", **auto("job", pool={**AUTO["pool"], "targetDedicatedNodes": 1})})
    task = stage.task()
    stage.boot()
    assert (task.state, task.node_pool) == ("running", stage.world.jobs["job"].record.auto_pool)
    stage.do(jobs.delete_job, "job")
    stage.restart()
    assert scheduler.RemoveNode in [type(effect) for effect in stage.end_scopes()]
    assert scheduler.BootNode not in [type(effect) for effect in stage.settle()]


def test_a_pool_that_cannot_be_had_is_the_scheduling_error_of_a_schedule_s_job(stage: Stage) -> None:
    schedule(stage, auto("job"), recurrenceInterval="PT10M")
    end(stage, "s:job-1")
    stage.world.quotas = stage.world.quotas._replace(pools=0)
    at_last(stage, 600)
    error = document(stage.do(jobs.get_job, "s:job-2"))["executionInfo"]["schedulingError"]
    assert (error["code"], error["category"]) == ("PoolQuotaReached", "UserError")
    stage.do(tasks.create_task, "s:job-2", body={"id": "t", "commandLine": "x"})
    assert control.hints(stage.world)[0]["text"].startswith("it could not be started: The specified account has")


def test_active_jobs_and_schedules_count_towards_one_quota(stage: Stage) -> None:
    stage.world.quotas = stage.world.quotas._replace(active_jobs=3)
    schedule(stage)
    stage.job()
    for operation, body in ((jobs.create_job, POOL_INFO), (schedules.create_schedule, SCHEDULE)):
        refusal = stage.refusal(operation, body={**body, "id": "more"})
        assert refusal.code == "ActiveJobAndScheduleQuotaReached"


@pytest.mark.parametrize(
    ("info", "code"),
    [
        (auto("jobschedule"), "InvalidPropertyValue"),
        (auto("job", autoPoolIdPrefix="a" * 21), "InvalidPropertyValue"),
        (auto("job", autoPoolIdPrefix="a b"), "InvalidPropertyValue"),
        ({"poolInfo": {"autoPoolSpecification": {"poolLifetimeOption": "job"}}}, "MissingRequiredProperty"),
        ({"poolInfo": {"poolId": "p", "autoPoolSpecification": {"poolLifetimeOption": "job"}}}, "InvalidPropertyValue"),
        (auto("job", pool={"vmSize": "x"}), "MissingRequiredProperty"),
    ],
)
def test_a_pool_that_cannot_be_made_is_refused_with_its_job(stage: Stage, info: dict[str, object], code: str) -> None:
    refusal = stage.refusal(jobs.create_job, body={"id": "job", **info})
    assert (refusal.code, stage.world.jobs, stage.world.pools) == (code, {}, {})


def test_no_secret_of_a_pool_made_for_a_job_is_shown_or_kept(stage: Stage) -> None:
    account = {"name": "me", "password": "hush", "linuxUserConfiguration": {"sshPrivateKey": "hush"}}
    blob = {"accountName": "a", "containerName": "c", "accountKey": "hush", "relativeMountPath": "m"}
    mounts = [{"azureBlobFileSystemConfiguration": blob}]
    pool = {**AUTO["pool"], "userAccounts": [account], "mountConfiguration": mounts}
    schedule(stage, auto("job", pool=pool), recurrenceInterval="PT10M")
    end(stage, "s:job-1")
    at_last(stage, 600)
    (pool_id,) = stage.world.pools
    assert len(made(stage)) == 2
    shown = document(stage.do(jobs.get_job, "s:job-2")), of(stage), document(stage.do(pools.get_pool, pool_id))
    kept = [entry.record.spec for entry in stage.world.jobs.values()], stage.world.schedules["s"].record.spec
    assert "hush" not in str((shown, kept)) and "password" not in str(shown)
