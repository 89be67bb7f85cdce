"""What the official SDK sees of the embedded service. The machine is a stand-in: no processes, only the wire."""

from __future__ import annotations

import base64
import datetime

import pytest
from azure.batch import BatchClient, models
from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import completed, connect, eventually, idle, job, pool, task

pytestmark = pytest.mark.process

FAST = {"polling_interval": 0.01}


def code_of(error: HttpResponseError) -> str:
    assert error.error is not None
    return str(error.error.code)


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


def test_a_missing_pool_is_404_without_a_body_to_head(client: BatchClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        client.pool_exists("nothing")


def test_a_poller_sees_the_resize_to_its_end(client: BatchClient) -> None:
    client.create_pool(pool(nodes=1))
    idle(client, 1)
    eventually(lambda: client.get_pool("pool").allocation_state == "steady")
    client.begin_resize_pool("pool", models.BatchPoolResizeOptions(target_dedicated_nodes=3), **FAST).result()
    assert client.get_pool("pool").current_dedicated_nodes == 3
    node = next(iter(client.list_nodes("pool")))
    client.begin_remove_nodes("pool", models.BatchNodeRemoveOptions(node_ids=[node.id]), **FAST).result()
    assert node.id not in [one.id for one in client.list_nodes("pool")]


def test_a_pool_is_patched_under_its_etag(client: BatchClient) -> None:
    client.create_pool(pool(nodes=0))
    tag = client.get_pool("pool").etag
    change = models.BatchPoolUpdateOptions(metadata=[models.BatchMetadataItem(name="a", value="b")])
    client.update_pool("pool", change, etag=tag, match_condition=MatchConditions.IfNotModified)
    assert client.get_pool("pool").metadata[0].value == "b"
    with pytest.raises(ResourceModifiedError):
        client.update_pool("pool", change, etag=tag, match_condition=MatchConditions.IfNotModified)


# Jobs and tasks


def test_a_task_runs_and_its_output_is_read(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job())
    client.create_task("job", task(command="print hello"))
    found = completed(client)
    assert (found.execution_info.exit_code, found.execution_info.result) == (0, "success")
    assert found.node_info.task_root_directory == "workitems/job/job-1/task"
    assert b"".join(client.download_task_file("job", "task", "stdout.txt")) == b"hello\n"
    part = client.download_task_file("job", "task", "stdout.txt", ocp_range="bytes=1-3")
    assert b"".join(part) == b"ell"
    properties = client.get_task_file_properties("job", "task", "stdout.txt")
    assert (properties.content_length, properties.is_directory, properties.file_mode) == (6, False, "0o100644")
    by_node = client.download_node_file(
        "pool", found.node_info.node_id, f"{found.node_info.task_root_directory}/stdout.txt"
    )
    assert b"".join(by_node) == b"hello\n"
    assert [file.name for file in client.list_task_files("job", "task")] == ["stderr.txt", "stdout.txt", "wd"]


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


def test_lists_take_filter_and_select(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job())
    client.create_task("job", task("good"))
    client.create_task("job", task("bad", "exit 3"))
    completed(client, "good")
    completed(client, "bad")
    found = list(client.list_tasks("job", filter="executionInfo/exitCode ne 0 and state eq 'completed'", select=["id"]))
    assert [(one.id, one.state) for one in found] == [("bad", None)]
    with pytest.raises(HttpResponseError) as refusal:
        list(client.list_tasks("job", filter="nonsense"))
    assert (refusal.value.status_code, code_of(refusal.value)) == (400, "InvalidQueryParameterValue")


def test_a_job_goes_through_its_life_under_pollers(client: BatchClient) -> None:
    client.create_job(job())
    client.begin_disable_job("job", models.BatchJobDisableOptions(disable_tasks="requeue"), **FAST).result()
    found = client.get_job("job")
    assert (found.state, found.previous_state) == ("disabled", "active")
    client.begin_enable_job("job", **FAST).result()
    assert client.get_job("job").state == "active"
    client.update_job("job", models.BatchJobUpdateOptions(priority=7))
    assert client.get_job("job").priority == 7
    client.begin_terminate_job("job", {"terminateReason": "enough"}, **FAST).result()
    found = client.get_job("job")
    assert (found.state, found.execution_info.termination_reason) == ("completed", "enough")
    with pytest.raises(ResourceExistsError) as refusal:
        client.create_task("job", task())
    assert code_of(refusal.value) == "JobCompleted"
    client.begin_delete_job("job", **FAST).result()
    with pytest.raises(ResourceNotFoundError):
        client.get_job("job")


def test_infinite_durations_and_times_are_read_by_the_sdk(client: BatchClient) -> None:
    client.create_job(job())
    found = client.get_job("job")
    assert found.constraints.max_wall_clock_time > datetime.timedelta(days=10_000_000)
    assert abs(found.creation_time - datetime.datetime.now(datetime.timezone.utc)) < datetime.timedelta(minutes=1)


def test_a_wrong_key_is_403_and_nothing_happens(emulator: Emulator, client: BatchClient) -> None:
    with connect(emulator, base64.b64encode(b"wrong").decode()) as stranger:
        with pytest.raises(HttpResponseError) as refusal:
            stranger.create_pool(pool())
        assert (refusal.value.status_code, code_of(refusal.value)) == (403, "AuthenticationFailed")
        assert code_of(refusal.value) == "AuthenticationFailed"
    assert list(client.list_pools()) == []
