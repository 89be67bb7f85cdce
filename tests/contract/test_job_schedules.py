"""Job schedules and pools made for jobs, through the official SDK; time is the emulator's, which is turned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from batchtrain.emulator import steering
from batchtrain.emulator.server import Emulator
from batchtrain.service import read
from tests.contract.conftest import eventually, job, pool

pytestmark = pytest.mark.process

FAST = {"polling_interval": 0.01}
SPECIFICATION = models.BatchJobSpecification(pool_info=models.BatchPoolInfo(pool_id="pool"))


def schedule(client: BatchClient, specification: models.BatchJobSpecification = SPECIFICATION, **times: Any) -> None:
    config = models.BatchJobScheduleConfiguration(**times)
    client.create_job_schedule(
        models.BatchJobScheduleCreateOptions(id="nightly", schedule=config, job_specification=specification)
    )


def made(client: BatchClient) -> list[str]:
    return [one.id for one in client.list_jobs_from_schedule("nightly")]


def code_of(error: HttpResponseError) -> str:
    assert error.error is not None
    return str(error.error.code)


def end(client: BatchClient, job_id: str) -> None:
    client.begin_terminate_job(job_id, {"terminateReason": "done"}, **FAST).result()


def test_a_schedule_makes_a_job_each_interval_by_the_account_s_clock(emulator: Emulator, client: BatchClient) -> None:
    steering.turn(emulator.status, "stepped")
    schedule(client, recurrence_interval=timedelta(hours=1))
    for number in (1, 2, 3):
        assert eventually(lambda: made(client))[-1] == f"nightly:job-{number}"
        end(client, f"nightly:job-{number}")
        steering.advance(emulator.status, timedelta(hours=1))
    found = client.get_job_schedule("nightly")
    assert (found.state, found.execution_info.recent_job.id) == ("active", "nightly:job-4")
    recent = client.get_job("nightly:job-4")
    assert found.execution_info.next_run_time - recent.creation_time == timedelta(hours=1)


def test_a_schedule_is_listed_found_and_missed(client: BatchClient) -> None:
    schedule(client)
    assert [one.id for one in client.list_job_schedules(filter="state eq 'active'", select=["id"])] == ["nightly"]
    assert list(client.list_job_schedules(filter="startswith(id,'x')")) == []
    assert client.job_schedule_exists("nightly")
    with pytest.raises(ResourceNotFoundError):
        client.job_schedule_exists("daily")
    with pytest.raises(ResourceNotFoundError) as refusal:
        client.get_job_schedule("daily")
    assert code_of(refusal.value) == "JobScheduleNotFound"
    with pytest.raises(ResourceExistsError) as taken:
        schedule(client)
    assert code_of(taken.value) == "JobScheduleExists"


def test_a_schedule_is_changed_under_its_etag(client: BatchClient) -> None:
    schedule(client)
    tag = client.get_job_schedule("nightly").etag
    change = models.BatchJobScheduleUpdateOptions(metadata=[models.BatchMetadataItem(name="a", value="b")])
    unless = {"etag": tag, "match_condition": MatchConditions.IfNotModified}
    client.update_job_schedule("nightly", change, **unless)
    found = client.get_job_schedule("nightly")
    assert found.metadata[0].value == "b"
    for act in (
        lambda: client.update_job_schedule("nightly", change, **unless),
        lambda: client.replace_job_schedule("nightly", found, **unless),
        lambda: client.disable_job_schedule("nightly", **unless),
        lambda: client.enable_job_schedule("nightly", **unless),
        lambda: client.begin_terminate_job_schedule("nightly", **unless),
        lambda: client.begin_delete_job_schedule("nightly", **unless),
    ):
        with pytest.raises(ResourceModifiedError):
            act()
    found.job_specification.priority = 5
    client.replace_job_schedule("nightly", found)
    assert client.get_job_schedule("nightly").job_specification.priority == 5


def test_a_schedule_is_disabled_enabled_terminated_and_deleted(emulator: Emulator, client: BatchClient) -> None:
    steering.turn(emulator.status, "stepped")
    schedule(client, recurrence_interval=timedelta(minutes=10))
    eventually(lambda: made(client))
    client.disable_job_schedule("nightly")
    assert client.get_job_schedule("nightly").state == "disabled"
    end(client, "nightly:job-1")
    steering.advance(emulator.status, timedelta(minutes=30))
    assert made(client) == ["nightly:job-1"]
    client.enable_job_schedule("nightly")
    eventually(lambda: len(made(client)) == 2)
    client.begin_terminate_job_schedule("nightly", **FAST).result()
    assert client.get_job_schedule("nightly").state == "completed"
    assert client.get_job("nightly:job-2").execution_info.termination_reason == "TerminateJobSchedule"
    with pytest.raises(HttpResponseError) as refusal:
        client.enable_job_schedule("nightly")
    assert code_of(refusal.value) == "JobScheduleCompleted"
    client.begin_delete_job_schedule("nightly", **FAST).result()
    assert list(client.list_jobs()) == list(client.list_job_schedules()) == []


def test_a_job_s_tasks_and_files_are_reached_by_the_job_s_name_with_a_colon(client: BatchClient) -> None:
    client.create_pool(pool())
    manager = models.BatchJobManagerTask(id="manager", command_line="print hello")
    schedule(
        client,
        models.BatchJobSpecification(pool_info=models.BatchPoolInfo(pool_id="pool"), job_manager_task=manager),
    )
    task = eventually(
        lambda: next((one for one in client.list_tasks("nightly:job-1") if one.state == "completed"), None)
    )
    assert task.node_info.task_root_directory == "workitems/nightly/job-1/manager"
    assert b"".join(client.download_task_file("nightly:job-1", "manager", "stdout.txt")) == b"hello\n"
    eventually(lambda: client.get_job("nightly:job-1").state == "completed")
    assert client.get_job("nightly:job-1").execution_info.termination_reason == "JMComplete"


def test_statistics_come_with_expand(client: BatchClient) -> None:
    schedule(client)
    eventually(lambda: made(client))
    found = client.get_job_schedule("nightly", expand=["stats"])
    assert (found.job_schedule_statistics.succeeded_tasks_count, found.job_schedule_statistics.wall_clock_time) == (
        0,
        timedelta(0),
    )
    assert client.get_job("nightly:job-1", expand=["stats"]).job_statistics.failed_tasks_count == 0


# Pools made for jobs


def auto_pool(lifetime: str, keep_alive: bool = False) -> models.BatchPoolInfo:
    made_pool = pool(nodes=1)
    specification = models.BatchPoolSpecification(
        vm_size=made_pool.vm_size,
        virtual_machine_configuration=made_pool.virtual_machine_configuration,
        target_dedicated_nodes=1,
    )
    return models.BatchPoolInfo(
        auto_pool_specification=models.BatchAutoPoolSpecification(
            auto_pool_id_prefix="mine", pool_lifetime_option=lifetime, keep_alive=keep_alive, pool=specification
        )
    )


def test_a_job_s_own_pool_comes_and_goes_with_it(client: BatchClient) -> None:
    client.create_job(models.BatchJobCreateOptions(id="job", pool_info=auto_pool("job")))
    client.create_task("job", models.BatchTaskCreateOptions(id="task", command_line="exit 0"))
    task = eventually(lambda: (one := client.get_task("job", "task")).state == "completed" and one)
    assert task.node_info.pool_id == client.get_job("job").execution_info.pool_id
    job = read.job(client, "job")
    assert (job.state, job.pool) == ("active", task.node_info.pool_id)
    assert task.node_info.pool_id.startswith("mine")
    end(client, "job")
    eventually(lambda: list(client.list_pools()) == [])


def test_only_a_schedule_s_jobs_can_share_a_pool(client: BatchClient) -> None:
    with pytest.raises(HttpResponseError) as refusal:
        client.create_job(models.BatchJobCreateOptions(id="job", pool_info=auto_pool("jobschedule")))
    assert (refusal.value.status_code, code_of(refusal.value)) == (400, "InvalidPropertyValue")
    assert list(client.list_pools()) == []


def test_jobs_and_schedules_cannot_have_the_same_id(client: BatchClient) -> None:
    schedule(client)
    with pytest.raises(HttpResponseError) as refusal:
        client.create_job(job("nightly"))
    assert (refusal.value.status_code, code_of(refusal.value)) == (409, "JobScheduleWithSameIdExists")
