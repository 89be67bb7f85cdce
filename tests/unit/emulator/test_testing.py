"""The service for tests of any project: its clock, its faults and its reset, without processes of nodes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.batch.models import BatchTaskAddStatus
from azure.core.exceptions import ResourceNotFoundError, ServiceRequestError, ServiceResponseError

from batchtrain.emulator import mapped_images, server, serving, steering
from batchtrain.emulator.machine import azurite
from batchtrain.emulator.testing import SIMULATED, BatchService, emulated_batch
from tests.emulation import POOL, FakeMachine
from tests.waiting import until


@pytest.fixture(scope="module")
def only() -> Iterator[BatchService]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "_process_machine", FakeMachine.open)
        with emulated_batch(account="mine") as service:
            yield service


@pytest.fixture
def service(only: BatchService) -> Iterator[BatchService]:
    yield only
    only.reset()


def with_spot_node(service: BatchService) -> str:
    """A pool of one simulated spot node, which is idle; returns its id."""
    pool = {**POOL, "targetLowPriorityNodes": 1, "metadata": [SIMULATED]}
    service.client.create_pool(pool)
    return node(service)[0]


def node(service: BatchService) -> tuple[str, str]:
    """The id and the state of the only node, once it has left the states in which it boots."""
    passing = ("creating", "starting", "rebooting")

    def settled() -> list[tuple[str, str]]:
        states = [(one.id, getattr(one.state, "value", str(one.state))) for one in service.client.list_nodes("pool")]
        return [pair for pair in states if pair[1] not in passing]

    return until(settled)[0]


def test_the_account_has_a_name_a_key_and_an_endpoint(service: BatchService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azurite, "needed", lambda: "npm")  # on any machine
    assert (service.account, service.environment["AZURE_BATCH_ACCOUNT"]) == ("mine", "mine")
    assert service.environment["AZURE_BATCH_ACCESS_KEY"] == service.key
    assert service.endpoint.startswith("http://127.0.0.1:")
    assert [pool.id for pool in service.client.list_pools()] == []


def test_a_stopped_clock_moves_only_when_it_is_advanced(service: BatchService) -> None:
    service.clock.stop()
    before = service.clock.now
    assert service.clock.now == before
    service.clock.advance(timedelta(hours=3), patience=0.0)
    service.clock.advance(5)
    assert service.clock.now - before == timedelta(hours=3, seconds=5)
    for wrong, words in ((-1, "never goes back"), ("5", "a number of seconds, not '5'")):
        with pytest.raises(ValueError, match=words):
            service.clock.advance(wrong)  # type: ignore[arg-type]
    service.clock.run(1000.0)
    with pytest.raises(server.Refused):
        service.clock.run(-1.0)
    with pytest.raises(server.Refused, match="a clock is real, scaled, stepped, not backwards"):
        steering.turn(service.status, "backwards")


def test_a_fault_is_added_listed_and_removed(service: BatchService) -> None:
    from azure.core.exceptions import HttpResponseError

    first = service.faults.add("error", code="ServerBusy", operation="get_pool", count=5)
    second = service.faults.add("error", code="OperationTimedOut", operation="list_jobs")
    assert [fault["id"] for fault in service.faults.added()] == [first, second]
    with service.connect(retry_total=0) as client, pytest.raises(HttpResponseError, match="ServerBusy"):
        client.get_pool("pool")
    assert service.faults.added()[0]["struck"] == 1
    service.faults.remove(first)
    assert [fault["id"] for fault in service.faults.added()] == [second]
    service.faults.remove()
    assert service.faults.added() == []


def test_a_node_is_preempted_lost_or_broken(service: BatchService) -> None:
    name = with_spot_node(service)
    service.faults.lose(name)
    assert node(service) == (name, "idle"), "it has booted again"
    service.clock.stop()
    service.faults.preempt(name, seconds=60.0)
    for seconds, state in ((0, "preempted"), (59, "preempted"), (2, "idle")):
        service.clock.advance(seconds)
        assert node(service) == (name, state)
    service.faults.break_node(name)
    assert node(service) == (name, "unusable")


def test_a_task_of_a_simulated_node_has_empty_files(service: BatchService) -> None:
    name = with_spot_node(service)
    service.client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}})
    service.client.create_task("job", {"id": "task", "commandLine": "echo x"})
    until(lambda: service.client.get_task("job", "task").state == "completed")
    for file in ("stdout.txt", "stderr.txt"):
        assert b"".join(service.client.download_task_file("job", "task", file)) == b""
        assert service.client.get_task_file_properties("job", "task", file).content_length == 0
    assert [row.name for row in service.client.list_task_files("job", "task")] == ["stderr.txt", "stdout.txt", "wd"]
    directory = service.status.data_dir / "nodes" / name
    assert directory.exists()
    service.client.begin_delete_pool("pool", polling_interval=0.01).wait()
    until(lambda: not directory.exists())


def test_the_sdk_has_the_defects_that_the_page_of_clients_names(service: BatchService) -> None:
    name = with_spot_node(service)
    with pytest.raises(ValueError, match="No value for given attribute"):
        service.client.disable_node_scheduling("pool", name)
    service.client.disable_node_scheduling("pool", name, {"nodeDisableSchedulingOption": "requeue"})
    with pytest.raises(ResourceNotFoundError):
        service.client.pool_exists("none")
    with pytest.raises(ResourceNotFoundError) as caught:
        service.client.download_node_file("pool", name, "none.txt")
    assert (caught.value.error, caught.value.status_code) == (None, 404)
    service.client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}})
    tasks = {"value": [{"id": "a", "commandLine": "true"}]}
    (added,) = service.client.create_task_collection("job", tasks)["value"]  # type: ignore[call-overload]
    assert (added["status"], BatchTaskAddStatus.SUCCESS.value) == ("Success", "success")


@pytest.mark.parametrize("needed", ["365 MB", ""])
def test_the_environment_has_the_storage_that_is_installed(
    service: BatchService, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    monkeypatch.setattr(azurite, "needed", lambda: needed)
    monkeypatch.setattr(BatchService, "storage_connection_string", "AccountName=x")
    assert (service.environment.get("AZURE_STORAGE_CONNECTION_STRING") is None) == bool(needed)


def test_a_task_that_depends_on_a_failed_one_has_a_hint(service: BatchService) -> None:
    with_spot_node(service)
    service.client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}, "usesTaskDependencies": True})
    service.client.create_task("job", {"id": "a", "commandLine": "exit 1"})
    service.client.create_task("job", {"id": "b", "commandLine": "true", "dependsOn": {"taskIds": ["a"]}})
    until(lambda: service.client.get_task("job", "a").state == "completed")
    (hint,) = service.hints()
    assert hint.text == "1 of its tasks depend on tasks that failed or do not exist"


def test_a_dropped_answer_is_no_error_of_the_log(service: BatchService, caplog: pytest.LogCaptureFixture) -> None:
    service.faults.add("drop", operation="list_pools")
    with service.connect(retry_total=0) as client, pytest.raises((ServiceRequestError, ServiceResponseError)):
        list(client.list_pools())
    errors = [record for record in caplog.records if record.levelno > logging.INFO]  # requests may be logged, too
    assert [record.message for record in errors if record.name.startswith("uvicorn")] == []


def test_an_error_in_a_collection_has_the_id_of_its_request(service: BatchService) -> None:
    service.client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}})
    tasks = {"value": [{"id": "a", "commandLine": "true"}] * 2}
    _, refused = service.client.create_task_collection("job", tasks)["value"]  # type: ignore[call-overload]
    assert re.search(r"RequestId:[0-9a-f-]{36}\n", refused["error"]["message"]["value"])


def test_a_reset_forgets_pools_faults_mapped_images_and_the_clock(service: BatchService, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    before = service.clock.now
    service.clock.stop()
    service.clock.advance(timedelta(days=2), patience=0.0)
    service.client.create_pool(POOL)
    service.faults.add("error", code="ServerBusy", operation="get_pool")
    service.map_image("train", tmp_path)
    assert mapped_images.prefix_of(service.status.data_dir, "train") == str(tmp_path)
    service.reset()
    assert list(service.client.list_pools()) == []
    assert service.faults.added() == []
    assert mapped_images.prefix_of(service.status.data_dir, "train") is None
    assert service.clock.now - before < timedelta(days=1)


def test_pollers_of_its_clients_ask_often_unless_told_otherwise(service: BatchService) -> None:
    service.client.create_pool(POOL)
    service.client.begin_delete_pool("pool").wait()
    assert list(service.client.list_pools()) == []


def test_without_a_directory_no_data_is_kept_and_its_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_process_machine", FakeMachine.open)
    with emulated_batch() as service:
        home = service.status.data_dir
        assert home.is_dir()
        assert list(service.client.list_pools()) == []
    assert not home.parent.exists()
    with pytest.raises(ValueError, match="HTTP transport has already been closed"):
        list(service.client.list_pools())


def test_data_is_kept_in_a_directory_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_process_machine", FakeMachine.open)
    with emulated_batch(tmp_path / "data") as service:
        service.client.create_pool(POOL)
    with emulated_batch(tmp_path / "data") as service:
        assert [pool.id for pool in service.client.list_pools()] == ["pool"]
