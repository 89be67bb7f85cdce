"""Job manager, preparation and release tasks and what else belongs to jobs, through the official SDK."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.core.exceptions import HttpResponseError

from batchtrain.emulator import steering
from batchtrain.emulator.server import Emulator, Settings
from tests.contract.conftest import completed, connect, eventually, idle, job, pool, task
from tests.emulation import POOL, FakeMachine

pytestmark = pytest.mark.process

FAST = {"polling_interval": 0.01}


def code_of(error: HttpResponseError) -> str:
    assert error.error is not None
    return str(error.error.code)


def prepared_job(prepare: str = "print prepared", release: str = "print released", **more: Any) -> Any:
    return job(
        job_preparation_task=models.BatchJobPreparationTask(command_line=prepare, **more),
        job_release_task=models.BatchJobReleaseTask(command_line=release),
    )


def status(client: BatchClient) -> list[models.BatchJobPreparationAndReleaseTaskStatus]:
    return list(client.list_job_preparation_and_release_task_status("job"))


def end(client: BatchClient, **more: Any) -> None:
    client.begin_terminate_job("job", {"terminateReason": "done"}, **more, **FAST).result()


def test_a_node_is_prepared_and_released_and_the_list_says_so(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(prepared_job())
    assert status(client) == []
    client.create_task("job", task())
    assert completed(client).execution_info.exit_code == 0
    (row,) = status(client)
    assert row.job_preparation_task_execution_info.result == "success"
    assert row.job_release_task_execution_info is None
    end(client)
    (row,) = status(client)
    assert row.job_release_task_execution_info.result == "success"
    (node,) = idle(client)
    assert row.node_id == node.id
    for name in ("prepared", "released"):
        directory = {"prepared": "jobpreparation", "released": "jobrelease"}[name]
        text = client.download_node_file("pool", node.id, f"workitems/job/job-1/{directory}/stdout.txt")
        assert b"".join(text) == f"{name}\n".encode()


def test_a_task_shows_that_it_waits_for_the_preparation(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(prepared_job(prepare="wait"))
    client.create_task("job", task())
    eventually(lambda: client.get_task("job", "task").state == "preparing")
    assert client.get_job_task_counts("job").task_counts.running == 1
    (row,) = status(client)
    assert row.job_preparation_task_execution_info.state == "running"
    end(client)
    assert client.get_task("job", "task").execution_info.failure_info.code == "TaskEnded"


def test_a_failed_preparation_keeps_tasks_from_its_node(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(prepared_job(prepare="exit 3"))
    client.create_task("job", task())
    info = eventually(lambda: status(client) and status(client)[0].job_preparation_task_execution_info)
    eventually(lambda: status(client)[0].job_preparation_task_execution_info.state == "completed")
    info = status(client)[0].job_preparation_task_execution_info
    assert (info.exit_code, info.failure_info.code) == (3, "FailureExitCode")
    assert client.get_task("job", "task").state == "active"
    client.create_job(job("other"))
    client.create_task("other", task())
    assert completed(client, job_id="other").execution_info.exit_code == 0


def test_without_a_preparation_task_there_is_no_such_list(client: BatchClient) -> None:
    client.create_job(job())
    with pytest.raises(HttpResponseError) as refusal:
        status(client)
    assert (refusal.value.status_code, code_of(refusal.value)) == (409, "JobPreparationTaskOrReleaseTaskNotSpecified")


def test_a_job_manager_ends_its_job(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job(job_manager_task=models.BatchJobManagerTask(id="manager", command_line="exit 0")))
    assert completed(client, "manager").execution_info.exit_code == 0
    eventually(lambda: client.get_job("job").state == "completed")
    found = client.get_job("job")
    assert (found.execution_info.termination_reason, found.job_manager_task.run_exclusive) == ("JMComplete", True)


def test_a_forced_end_does_not_wait_for_a_release_that_hangs(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(prepared_job(release="wait"))
    client.create_task("job", task())
    completed(client)
    client.begin_terminate_job("job", {"terminateReason": "done"}, **FAST)
    eventually(lambda: status(client)[0].job_release_task_execution_info)
    assert client.get_job("job").state == "terminating"
    client.begin_delete_job("job", force=True, **FAST).result()
    assert list(client.list_jobs()) == []


def test_a_more_urgent_job_s_task_takes_the_slot_of_one_that_yields(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job("low", allow_task_preemption=True))
    client.create_task("low", task(command="wait"))
    eventually(lambda: client.get_task("low", "task").state == "running")
    client.create_job(job("high", priority=10))
    client.create_task("high", task())
    assert completed(client, job_id="high").execution_info.exit_code == 0
    assert client.get_task("low", "task").execution_info.requeue_count == 1


def test_files_go_when_their_retention_time_is_over(emulator: Emulator, client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job())
    client.create_task("job", task(constraints=models.BatchTaskConstraints(retention_time=timedelta(hours=2))))
    completed(client)
    (node,) = idle(client)
    assert [one.name for one in client.list_task_files("job", "task")]
    steering.advance(emulator.status, timedelta(hours=3))
    with pytest.raises(HttpResponseError) as refusal:
        list(client.list_task_files("job", "task"))
    assert (refusal.value.status_code, code_of(refusal.value)) == (409, "TaskFilesCleanedup")
    names = {one.name for one in client.list_node_files("pool", node.id, recursive=True)}
    assert "workitems/job/job-1/task" not in names


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Emulator]:
    """Its nodes really run commands, or only keep time."""
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        yield running


def test_preparation_and_release_really_run_on_process_nodes(real: Emulator) -> None:
    with connect(real) as client:
        client.create_pool(pool())
        client.create_job(
            prepared_job(
                prepare="/bin/sh -c 'echo data > made; sleep 100 & echo $AZ_BATCH_TASK_ID'",
                release="/bin/sh -c 'cat $AZ_BATCH_JOB_PREP_WORKING_DIR/made'",
            )
        )
        client.create_task("job", task(command="/bin/sh -c 'cat $AZ_BATCH_JOB_PREP_WORKING_DIR/made'"))
        assert completed(client).execution_info.exit_code == 0
        assert b"".join(client.download_task_file("job", "task", "stdout.txt")) == b"data\n"
        end(client)
        (row,) = status(client)
        texts = [
            b"".join(client.download_node_file("pool", row.node_id, f"{info.task_root_directory}/stdout.txt"))
            for info in (row.job_preparation_task_execution_info, row.job_release_task_execution_info)
        ]
        assert texts == [b"jobpreparation\n", b"data\n"]


def test_preparation_and_release_take_their_time_on_simulated_nodes(real: Emulator) -> None:
    steering.turn(real.status, "stepped")
    with connect(real) as client:
        client.create_pool(
            {**POOL, "targetDedicatedNodes": 3, "metadata": [{"name": "batchtrain-nodes", "value": "simulated"}]}
        )
        client.create_job(prepared_job(prepare="sleep 60", release="sleep 30"))
        for number in range(3):
            client.create_task("job", task(f"t{number}", "sleep 10"))
        eventually(lambda: {one.state for one in client.list_tasks("job")} == {"preparing"})
        steering.advance(real.status, timedelta(seconds=61))
        eventually(lambda: {one.state for one in client.list_tasks("job")} == {"running"})
        steering.advance(real.status, timedelta(seconds=10))
        client.begin_terminate_job("job", {"terminateReason": "done"}, **FAST)
        eventually(lambda: all(row.job_release_task_execution_info for row in status(client)))
        assert client.get_job("job").state == "terminating"
        steering.advance(real.status, timedelta(seconds=30))
        assert client.get_job("job").state == "completed"
        rows = status(client)
        times = {
            row.job_release_task_execution_info.end_time - row.job_release_task_execution_info.start_time
            for row in rows
        }
        assert (len(rows), times) == (3, {timedelta(seconds=30)})


def test_a_restart_goes_on_with_schedules_preparations_and_dependencies(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "data", port=0)
    with Emulator(settings, FakeMachine.open) as first, connect(first) as client:
        client.create_pool(pool())
        dependent = prepared_job(release="wait")
        dependent.uses_task_dependencies = True
        client.create_job(dependent)
        client.create_task("job", task("1"))
        completed(client, "1")
        client.delete_task("job", "1")
        config = models.BatchJobScheduleConfiguration(recurrence_interval=timedelta(hours=1))
        specification = models.BatchJobSpecification(pool_info=models.BatchPoolInfo(pool_id="pool"))
        client.create_job_schedule(
            models.BatchJobScheduleCreateOptions(id="hourly", schedule=config, job_specification=specification)
        )
        eventually(lambda: list(client.list_jobs_from_schedule("hourly")))
    with Emulator(settings, FakeMachine.open) as second, connect(second) as client:
        needs = models.BatchTaskDependencies(task_ids=["1"])
        client.create_task("job", task("2", depends_on=needs))
        assert completed(client, "2").execution_info.exit_code == 0
        assert len(status(client)) == 1
        client.begin_terminate_job("hourly:job-1", {"terminateReason": "done"}, **FAST).result()
        steering.advance(second.status, timedelta(hours=1))
        eventually(lambda: [one.id for one in client.list_jobs_from_schedule("hourly")][-1] == "hourly:job-2")
