"""The clock that can be turned, the nodes that only keep time, and the faults on request, seen through the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError, IncompleteReadError, ServiceRequestError, ServiceResponseError

from batchtrain.emulator import steering
from batchtrain.emulator.server import Emulator, Refused, Settings
from tests.emulation import POOL
from tests.waiting import until

SIMULATED = {**POOL, "metadata": [{"name": "batchtrain-nodes", "value": "simulated"}]}


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "emulator", port=0)) as running:
        yield running


def connect(emulator: Emulator, **options: Any) -> BatchClient:
    return BatchClient(emulator.endpoint, AzureNamedKeyCredential(emulator.account, emulator.key), **options)


@pytest.fixture
def client(emulator: Emulator) -> BatchClient:
    return connect(emulator, retry_total=0)


def pool(client: BatchClient, nodes: int = 1, spot: int = 0) -> None:
    client.create_pool({**SIMULATED, "targetDedicatedNodes": nodes, "targetLowPriorityNodes": spot})
    until(lambda: [node.state for node in client.list_nodes("pool")] == ["idle"] * (nodes + spot))


def job(client: BatchClient, **more: object) -> None:
    client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}, **more})


def task(client: BatchClient, command: str, task_id: str = "task", **more: object) -> None:
    client.create_task("job", {"id": task_id, "commandLine": command, **more})


def state(client: BatchClient, task_id: str = "task") -> str:
    return str(client.get_task("job", task_id).state.value)


def test_an_hour_of_work_takes_no_time_when_the_clock_is_turned(emulator: Emulator, client: BatchClient) -> None:
    steering.turn(emulator.status, "stepped")
    pool(client)
    job(client)
    task(client, "/bin/bash -c 'sleep 3600; exit 3'", constraints={"maxTaskRetryCount": 2})
    until(lambda: state(client) == "running")
    steering.advance(emulator.status, timedelta(hours=3, minutes=1))
    info = client.get_task("job", "task").execution_info
    assert (info.exit_code, info.retry_count) == (3, 2)
    assert info.end_time - info.start_time == timedelta(hours=1)  # the last of three runs, by the account's clock


def test_a_scaled_clock_brings_the_end_sooner(emulator: Emulator, client: BatchClient) -> None:
    pool(client)
    job(client)
    steering.turn(emulator.status, "scaled", 1000)
    task(client, "sleep 100")
    until(lambda: state(client) == "completed")


def test_a_job_outlives_its_wall_clock_only_until_the_clock_says_so(emulator: Emulator, client: BatchClient) -> None:
    pool(client)
    job(client, constraints={"maxWallClockTime": "P1D"})
    task(client, "sleep 7d")
    until(lambda: state(client) == "running")
    steering.advance(emulator.status, timedelta(hours=23))
    assert client.get_job("job").state == "active"
    steering.advance(emulator.status, timedelta(hours=2))
    assert client.get_job("job").execution_info.termination_reason == "MaxWallClockTimeExpiry"


def test_signatures_are_judged_by_the_clients_time(emulator: Emulator, client: BatchClient) -> None:
    steering.advance(emulator.status, timedelta(days=30))
    assert list(client.list_pools()) == []


def test_the_clock_is_where_it_was_after_a_restart(tmp_path: Path) -> None:
    with Emulator(Settings(tmp_path / "emulator", port=0)) as first:
        steering.advance(first.status, timedelta(days=3))
        before = steering.clock(first.status)["now"]
    with Emulator(Settings(tmp_path / "emulator", port=0)) as second:
        assert steering.clock(second.status)["now"] >= before


def test_a_clock_that_cannot_be_turned_so_says_why(emulator: Emulator) -> None:
    with pytest.raises(Refused, match="a clock is real, scaled, stepped, not backwards"):
        steering.turn(emulator.status, "backwards")


def test_a_refusal_carries_the_services_code_and_when_to_come_again(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "error", code="TooManyRequests", retry_after=30, operation="list_pools", count=1)
    with pytest.raises(HttpResponseError) as caught:
        list(client.list_pools())
    assert caught.value.status_code == 429
    assert caught.value.response is not None
    assert caught.value.response.headers["Retry-After"] == "30"
    assert list(client.list_jobs()) == []
    assert list(client.list_pools()) == []


def test_the_sdk_tries_again_after_a_busy_server(emulator: Emulator) -> None:
    number = steering.fault(emulator.status, "error", code="ServerBusy", count=2)
    client = connect(emulator, retry_backoff_factor=0.01)
    assert list(client.list_pools()) == []
    (seen,) = steering.faults(emulator.status)
    assert (seen["id"], seen["struck"]) == (number, 2)


def test_an_answer_that_is_dropped_was_still_done(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "drop", operation="create_pool", count=1)
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        client.create_pool(SIMULATED)
    assert client.get_pool("pool").id == "pool"


def test_half_an_answer_is_no_answer(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "truncate", operation="list_pools", count=1)
    with pytest.raises((ServiceResponseError, IncompleteReadError)):
        list(client.list_pools())
    assert list(client.list_pools()) == []


def test_an_answer_with_latency_is_not_there_before(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "latency", seconds=3, count=1)
    with pytest.raises(ServiceResponseError, match="timed out"):
        list(client.list_pools(read_timeout=0.3))
    assert list(client.list_pools()) == []


def test_a_clock_that_is_off_is_refused(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "skew", seconds=3600, count=1)
    with pytest.raises(HttpResponseError) as caught:
        list(client.list_pools())
    assert caught.value.status_code == 403


def test_an_allocation_that_is_refused_leaves_the_pool_empty(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "allocation-refused", resource="pools/pool")
    client.create_pool({**SIMULATED, "targetDedicatedNodes": 3})
    until(lambda: client.get_pool("pool").allocation_state == "steady")
    (error,) = client.get_pool("pool").resize_errors
    assert (error.code, client.get_pool("pool").current_dedicated_nodes) == ("AllocationFailed", 0)


def test_an_allocation_can_be_partial(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "allocation-partial", fraction=0.5)
    client.create_pool({**SIMULATED, "targetDedicatedNodes": 4})
    until(lambda: client.get_pool("pool").allocation_state == "steady")
    assert client.get_pool("pool").current_dedicated_nodes == 2
    assert [error.code for error in client.get_pool("pool").resize_errors] == ["AllocationTimedOut"]


def test_an_allocation_can_be_slow_by_the_accounts_clock(emulator: Emulator, client: BatchClient) -> None:
    steering.turn(emulator.status, "stepped")
    steering.fault(emulator.status, "allocation-slow", seconds=300)
    client.create_pool({**SIMULATED, "targetDedicatedNodes": 1})
    until(lambda: [node.state for node in client.list_nodes("pool")] == ["creating"])
    steering.advance(emulator.status, timedelta(seconds=301))
    until(lambda: [node.state for node in client.list_nodes("pool")] == ["idle"])


def test_a_start_task_can_be_made_to_fail(emulator: Emulator, client: BatchClient) -> None:
    steering.fault(emulator.status, "start-task-fails", exit_code=9, count=1)
    client.create_pool({**SIMULATED, "targetDedicatedNodes": 1, "startTask": {"commandLine": "true"}})
    until(lambda: [node.state for node in client.list_nodes("pool")] == ["starttaskfailed"])
    (node,) = client.list_nodes("pool")
    assert node.start_task_info.exit_code == 9


def test_a_preempted_node_stays_listed_and_its_task_runs_again(emulator: Emulator, client: BatchClient) -> None:
    steering.turn(emulator.status, "stepped")
    pool(client, nodes=0, spot=1)
    job(client)
    task(client, "sleep 60")
    until(lambda: state(client) == "running")
    (node,) = client.list_nodes("pool")
    steering.befall(emulator.status, node.id, "preempt", seconds=600)
    until(lambda: state(client) == "active")
    assert [(one.id, one.state) for one in client.list_nodes("pool")] == [(node.id, "preempted")]
    steering.advance(emulator.status, timedelta(seconds=700))
    info = client.get_task("job", "task").execution_info
    assert (info.exit_code, info.requeue_count) == (0, 1)


def test_a_dedicated_node_is_never_preempted(emulator: Emulator, client: BatchClient) -> None:
    pool(client)
    (node,) = client.list_nodes("pool")
    with pytest.raises(Refused, match="only a spot node"):
        steering.befall(emulator.status, node.id, "preempt")


def test_a_broken_node_is_unusable_until_it_is_rebooted(emulator: Emulator, client: BatchClient) -> None:
    pool(client)
    (node,) = client.list_nodes("pool")
    steering.befall(emulator.status, node.id, "break")
    until(lambda: client.get_node("pool", node.id).state == "unusable")
    client.begin_reboot_node("pool", node.id, {"nodeRebootOption": "requeue"})
    until(lambda: client.get_node("pool", node.id).state == "idle")


def test_a_lost_node_boots_again_and_its_task_is_requeued(emulator: Emulator, client: BatchClient) -> None:
    steering.turn(emulator.status, "stepped")
    pool(client)
    job(client)
    task(client, "sleep 60")
    until(lambda: state(client) == "running")
    (node,) = client.list_nodes("pool")
    steering.befall(emulator.status, node.id, "lose")
    until(lambda: client.get_task("job", "task").execution_info.requeue_count == 1)
    steering.advance(emulator.status, timedelta(seconds=61))
    assert state(client) == "completed"


def test_the_status_tells_what_runs(emulator: Emulator, client: BatchClient) -> None:
    pool(client, nodes=2)
    seen = steering.account(emulator.status)
    assert (seen["pools"], seen["nodes"], seen["jobs"]) == (1, 2, 0)
    assert seen["memoryMb"] > 1


def test_a_pool_that_lacked_nodes_gets_them_from_more_capacity(emulator: Emulator, client: BatchClient) -> None:
    size = SIMULATED["vmSize"]
    limits = steering.limit(emulator.status, {size: 1, "dedicated-cores": 100})
    assert limits["quotas"]["dedicated_cores"] == 100
    client.create_pool({**SIMULATED, "targetDedicatedNodes": 2})
    until(lambda: client.get_pool("pool").allocation_state.value == "steady")
    assert [error.code for error in client.get_pool("pool").resize_errors] == ["AllocationFailed"]
    steering.limit(emulator.status, {size: 2})
    client.begin_resize_pool("pool", {"targetDedicatedNodes": 2}, polling_interval=0.05).result()
    until(lambda: [node.state for node in client.list_nodes("pool")] == ["idle", "idle"])


def test_the_capacity_of_an_unknown_size_is_refused(emulator: Emulator) -> None:
    with pytest.raises(Refused, match="neither a quota nor a VM size"):
        steering.limit(emulator.status, {"STANDARD_NOPE": 1})
