"""What the official SDK sees of the embedded service. The machine is a stand-in: no processes, only the wire."""

from __future__ import annotations

import datetime

import pytest
from azure.batch import BatchClient, models
from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError

from tests.contract.conftest import completed, job, pool, task
from tests.waiting import until

pytestmark = pytest.mark.process


# What was got is sent back


def test_what_the_service_shows_can_be_sent_back_as_it_is(client: BatchClient) -> None:
    client.create_pool(pool(nodes=0))
    client.create_job(job(metadata=[models.BatchMetadataItem(name="a", value="b")]))
    client.create_task("job", task())
    specification = models.BatchJobSpecification(pool_info=models.BatchPoolInfo(pool_id="pool"))
    times = models.BatchJobScheduleConfiguration(recurrence_interval=datetime.timedelta(days=1))
    client.create_job_schedule(
        models.BatchJobScheduleCreateOptions(id="nightly", schedule=times, job_specification=specification)
    )
    client.replace_job("job", client.get_job("job"))
    client.replace_task("job", "task", client.get_task("job", "task"))
    client.replace_job_schedule("nightly", client.get_job_schedule("nightly"))
    assert client.get_job("job").metadata[0].value == "b"


# Pools


def test_a_pool_is_patched_under_its_etag(client: BatchClient) -> None:
    client.create_pool(pool(nodes=0))
    tag = client.get_pool("pool").etag
    change = models.BatchPoolUpdateOptions(metadata=[models.BatchMetadataItem(name="a", value="b")])
    client.update_pool("pool", change, etag=tag, match_condition=MatchConditions.IfNotModified)
    assert client.get_pool("pool").metadata[0].value == "b"
    with pytest.raises(ResourceModifiedError):
        client.update_pool("pool", change, etag=tag, match_condition=MatchConditions.IfNotModified)


# Jobs and tasks


def test_create_tasks_adds_hundreds(client: BatchClient) -> None:
    client.create_job(job())
    client.create_tasks("job", [task(f"t{number}") for number in range(450)], max_concurrency=2)
    assert client.get_job_task_counts("job").task_counts.active == 450
    assert len({one.id for one in client.list_tasks("job", max_results=200)}) == 450


def test_create_tasks_halves_what_is_too_large(client: BatchClient) -> None:
    client.create_job(job())
    big = [models.EnvironmentSetting(name="BIG", value="x" * 30_000)]
    client.create_tasks("job", [task(f"t{number}", environment_settings=big) for number in range(100)])
    assert client.get_job_task_counts("job").task_counts.active == 100


def test_infinite_durations_and_times_are_read_by_the_sdk(client: BatchClient) -> None:
    client.create_job(job())
    found = client.get_job("job")
    assert found.constraints.max_wall_clock_time > datetime.timedelta(days=10_000_000)
    assert abs(found.creation_time - datetime.datetime.now(datetime.timezone.utc)) < datetime.timedelta(minutes=1)


def test_a_job_s_tasks_and_files_are_reached_by_the_job_s_name_with_a_colon(client: BatchClient) -> None:
    client.create_pool(pool())
    manager = models.BatchJobManagerTask(id="manager", command_line="print hello")
    made = models.BatchJobSpecification(pool_info=models.BatchPoolInfo(pool_id="pool"), job_manager_task=manager)
    times = models.BatchJobScheduleConfiguration()
    client.create_job_schedule(
        models.BatchJobScheduleCreateOptions(id="nightly", schedule=times, job_specification=made)
    )
    until(lambda: list(client.list_jobs_from_schedule("nightly")))
    completed(client, "manager", "nightly:job-1")
    assert b"".join(client.download_task_file("nightly:job-1", "manager", "stdout.txt")) == b"hello\n"
