"""The clock that can be turned, the nodes that only keep time, and the faults on request, seen through the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.batch import BatchClient
from azure.core.exceptions import ServiceResponseError

from batchtrain.config.types import VmCount
from batchtrain.emulator import server, serving, steering
from batchtrain.emulator.testing import SIMULATED, BatchService, emulated_batch
from batchtrain.plan.autoscale import idle_to_zero
from tests.emulation import POOL, FakeMachine
from tests.waiting import until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def only() -> Iterator[BatchService]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "_process_machine", FakeMachine.open)
        with emulated_batch() as service:
            yield service


@pytest.fixture
def service(only: BatchService) -> Iterator[BatchService]:
    yield only
    only.reset()


@pytest.fixture
def client(service: BatchService) -> Iterator[BatchClient]:
    """A client that tries each request once."""
    with service.connect(retry_total=0) as made:
        yield made


def pool(client: BatchClient, nodes: int = 1, spot: int = 0) -> None:
    client.create_pool({**POOL, "metadata": [SIMULATED], "targetDedicatedNodes": nodes, "targetLowPriorityNodes": spot})


def running(client: BatchClient, command: str, **more: object) -> None:
    """A task that runs on a node of the pool."""
    until(lambda: [node.state for node in client.list_nodes("pool")] == ["idle"])
    client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}})
    client.create_task("job", {"id": "task", "commandLine": command, **more})
    until(lambda: state(client) == "running")


def state(client: BatchClient) -> str:
    return str(client.get_task("job", "task").state.value)


def steady(client: BatchClient) -> tuple[int, list[str]]:
    """The number of nodes of the pool and the errors of its resize, once that has ended."""
    until(lambda: client.get_pool("pool").allocation_state == "steady")
    found = client.get_pool("pool")
    return found.current_dedicated_nodes, [error.code for error in found.resize_errors or []]


def test_a_pool_that_idles_to_zero_loses_its_nodes_and_a_task_brings_them_back(
    service: BatchService, client: BatchClient
) -> None:
    def nodes() -> int:
        return client.get_pool("pool").current_dedicated_nodes or 0

    service.clock.stop()
    settings = {"autoScaleFormula": idle_to_zero(VmCount(dedicated=3), 1800), "autoScaleEvaluationInterval": "PT5M"}
    unscaled = {name: value for name, value in POOL.items() if not name.startswith("target")}
    client.create_pool({**unscaled, "metadata": [SIMULATED], "enableAutoScale": True, **settings})
    until(lambda: nodes() == 3)
    service.clock.advance(timedelta(minutes=15))
    assert nodes() == 3
    service.clock.advance(timedelta(minutes=25))
    until(lambda: nodes() == 0)
    client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}})
    client.create_task("job", {"id": "late", "commandLine": "sleep 60"})
    service.clock.advance(timedelta(minutes=10))
    until(lambda: nodes() == 3)


def test_an_answer_with_latency_is_not_there_before(service: BatchService, client: BatchClient) -> None:
    service.faults.add("latency", seconds=60, count=1)
    with pytest.raises(ServiceResponseError, match="timed out"):
        list(client.list_pools(read_timeout=0.1))
    assert list(client.list_pools()) == []


def test_an_allocation_that_is_refused_leaves_the_pool_empty(service: BatchService, client: BatchClient) -> None:
    service.faults.add("allocation-refused", resource="pools/pool")
    pool(client, 3)
    assert steady(client) == (0, ["AllocationFailed"])


def test_an_allocation_can_be_partial(service: BatchService, client: BatchClient) -> None:
    service.faults.add("allocation-partial", fraction=0.5)
    pool(client, 4)
    assert steady(client) == (2, ["AllocationTimedOut"])


def test_a_preempted_node_stays_listed_and_its_task_runs_again(service: BatchService, client: BatchClient) -> None:
    service.clock.stop()
    pool(client, nodes=0, spot=1)
    running(client, "sleep 60")
    (node,) = client.list_nodes("pool")
    service.faults.preempt(node.id, seconds=600)
    until(lambda: state(client) == "active")
    assert [(one.id, one.state) for one in client.list_nodes("pool")] == [(node.id, "preempted")]
    service.clock.advance(timedelta(seconds=700))
    info = client.get_task("job", "task").execution_info
    assert (info.exit_code, info.requeue_count) == (0, 1)


def test_a_pool_that_lacked_nodes_gets_them_from_more_capacity() -> None:
    with emulated_batch() as service:  # a reset keeps the capacity
        limits = steering.limit(service.status, {POOL["vmSize"]: 1, "dedicated-cores": 100})
        assert limits["quotas"]["dedicated_cores"] == 100
        pool(service.client, 2)
        assert steady(service.client)[1] == ["AllocationFailed"]
        steering.limit(service.status, {POOL["vmSize"]: 2})
        service.client.begin_resize_pool("pool", {"targetDedicatedNodes": 2}).result()
        until(lambda: [node.state for node in service.client.list_nodes("pool")] == ["idle", "idle"])
        with pytest.raises(server.Refused, match="neither a quota nor a VM size"):
            steering.limit(service.status, {"STANDARD_NOPE": 1})
