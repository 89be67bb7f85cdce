"""Pools that size themselves, through the official SDK, with a clock that is stepped and nodes that only keep time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.core.exceptions import HttpResponseError

from batchtrain.config.types import VmCount
from batchtrain.emulator import server, steering
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.plan.autoscale import idle_to_zero
from tests.contract.conftest import connect, eventually, job, pool, task

pytestmark = pytest.mark.process

SIMULATED = [models.BatchMetadataItem(name="batchtrain-nodes", value="simulated")]
BY_TASKS = """
$wanted = $PendingTasks.GetSamplePercent(TimeInterval_Minute * 5) < 70 ? 1 : max($PendingTasks.GetSample(1));
$TargetDedicatedNodes = min(8, $wanted);
$NodeDeallocationOption = taskcompletion;
"""


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "emulator", port=0)) as running:
        steering.turn(running.status, "stepped")
        yield running


@pytest.fixture
def client(emulator: Emulator) -> Iterator[BatchClient]:
    with connect(emulator) as made:
        yield made


def scaled(client: BatchClient, formula: str = BY_TASKS) -> None:
    settings: dict[str, Any] = {"target_dedicated_nodes": None, "enable_auto_scale": True, "metadata": SIMULATED}
    interval = timedelta(minutes=5)
    client.create_pool(pool(auto_scale_formula=formula, auto_scale_evaluation_interval=interval, **settings))


def nodes(client: BatchClient) -> int:
    return client.get_pool("pool").current_dedicated_nodes or 0


def steps(emulator: Emulator, minutes: float) -> None:
    steering.advance(emulator.status, timedelta(minutes=minutes))


def test_a_pool_that_idles_to_zero_loses_its_nodes_and_a_task_brings_them_back(
    emulator: Emulator, client: BatchClient
) -> None:
    scaled(client, idle_to_zero(VmCount(dedicated=3), 1800))
    eventually(lambda: nodes(client) == 3)
    steps(emulator, 15)
    assert nodes(client) == 3
    steps(emulator, 25)
    eventually(lambda: nodes(client) == 0)
    client.create_job(job())
    client.create_task("job", task("late", command="sleep 60"))
    steps(emulator, 10)
    eventually(lambda: nodes(client) == 3)


def test_a_pool_grows_with_its_tasks_and_shrinks_after_them(emulator: Emulator, client: BatchClient) -> None:
    scaled(client)
    client.create_job(job())
    for number in range(6):
        client.create_task("job", task(f"t{number}", command="sleep 1800"))
    eventually(lambda: nodes(client) == 1)
    steps(emulator, 5)
    assert nodes(client) == 6
    steps(emulator, 60)
    counts = client.get_job_task_counts("job").task_counts
    assert (counts.completed, nodes(client)) == (6, 0)
    run = client.get_pool("pool").auto_scale_run
    assert run.error is None and "$NodeDeallocationOption=taskcompletion" in run.results


@pytest.mark.slow
def test_a_week_of_evaluations_is_no_work_to_speak_of(emulator: Emulator, client: BatchClient) -> None:
    scaled(client)
    steps(emulator, 7 * 24 * 60)
    age = client.get_pool("pool").auto_scale_run.timestamp - client.get_pool("pool").creation_time
    assert age >= timedelta(days=7) - timedelta(minutes=5)


def test_enabling_twice_within_30_seconds_is_too_much(emulator: Emulator, client: BatchClient) -> None:
    scaled(client)
    options = models.BatchPoolEnableAutoScaleOptions(auto_scale_formula="$TargetDedicatedNodes = 2;")
    with pytest.raises(HttpResponseError) as refusal:
        client.enable_pool_auto_scale("pool", options)
    assert (refusal.value.status_code, refusal.value.error.code) == (503, "TooManyEnableAutoScaleRequests")
    steps(emulator, 0.5)
    client.enable_pool_auto_scale("pool", options)
    eventually(lambda: nodes(client) == 2)


def test_an_evaluation_says_what_is_wrong(emulator: Emulator, client: BatchClient) -> None:
    scaled(client)
    wrong = models.BatchPoolEvaluateAutoScaleOptions(auto_scale_formula="$TargetDedicatedNodes = $NoSuch;")
    run = client.evaluate_pool_auto_scale("pool", wrong)
    assert run.error.code == "AutoScalingFormulaEvaluationError"
    assert "NoSuch" in run.error.error_values[0].value


def test_core_hours_are_listed(emulator: Emulator, client: BatchClient) -> None:
    scaled(client, "$TargetDedicatedNodes = 2;")
    eventually(lambda: nodes(client) == 2)
    start = client.get_pool("pool").creation_time
    steps(emulator, 180)
    found = list(client.list_pool_usage_metrics(start_time=start, filter="poolId eq 'pool'"))
    assert sum(one.total_core_hours for one in found) == pytest.approx(12, abs=0.1)


def test_quotas_are_the_settings(tmp_path: Path) -> None:
    quotas = server.quotas_of(["pools=1", "dedicated-cores=4", "active-jobs=1", "nodes=10"])
    with Emulator(Settings(tmp_path / "e", port=0, quotas=quotas)) as running, connect(running) as client:
        known = {"pools": 1, "dedicated_cores": 4, "active_jobs": 1, "nodes": 10}
        assert steering.account(running.status)["quotas"] == known
        client.create_pool(pool(nodes=5, metadata=SIMULATED))
        eventually(lambda: client.get_pool("pool").allocation_state == "steady")
        found = client.get_pool("pool")
        assert (found.current_dedicated_nodes, found.resize_errors[0].code) == (2, "AccountCoreQuotaReached")
        client.create_job(job())
        for make, code in (
            (lambda: client.create_pool(pool("other")), "PoolQuotaReached"),
            (lambda: client.create_job(job("other")), "ActiveJobAndScheduleQuotaReached"),
        ):
            with pytest.raises(HttpResponseError) as refusal:
                make()
            assert refusal.value.error.code == code


@pytest.mark.parametrize("text", ["pools", "pools=", "pools=-1", "pools=x", "cores=1", "pools=99999999999"])
def test_a_quota_that_cannot_be_says_which_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="dedicated-cores"):
        server.quotas_of([text])
