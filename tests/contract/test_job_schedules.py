"""Job schedules and pools made for jobs, through the official SDK; time is the emulator's, which is turned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.core.exceptions import (
    HttpResponseError,
)

from batchtrain.emulator import steering
from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import eventually, pool

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


# Pools made for jobs
