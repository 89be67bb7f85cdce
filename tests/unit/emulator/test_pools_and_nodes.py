"""Life of pools and nodes, without a clock, a machine or a socket."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.emulator import control, node_reports, nodes, pools, reports, scheduler
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.world import Quotas
from tests.emulation import POOL, Stage, document

START_TASK = {"commandLine": "prepare"}


def pool_of(stage: Stage) -> dict[str, Any]:
    return document(stage.do(pools.get_pool, "pool"))


def test_a_new_pool_has_the_service_s_defaults(stage: Stage) -> None:
    reply = stage.do(pools.create_pool, body=POOL)
    assert (reply.status, reply.document) == (201, None)
    assert set(reply.headers) == {"ETag", "Last-Modified", "Location", "DataServiceId"}
    found = pool_of(stage)
    defaults = {
        "vmSize": "standard_d2_v3",
        "resizeTimeout": "PT15M",
        "taskSlotsPerNode": 1,
        "enableAutoScale": False,
        "enableInterNodeCommunication": False,
        "taskSchedulingPolicy": {"nodeFillType": "Spread"},
        "allocationState": "resizing",
        "currentDedicatedNodes": 0,
    }
    assert found | defaults == found


def test_allocation_settles_without_touching_the_etag(stage: Stage) -> None:
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    before = pool_of(stage)
    stage.later()
    stage.boot()
    after = pool_of(stage)
    assert (before["allocationState"], after["allocationState"]) == ("resizing", "steady")
    assert (before["eTag"], before["lastModified"]) == (after["eTag"], after["lastModified"])


def test_nodes_are_named_and_addressed_as_in_the_service(stage: Stage) -> None:
    dedicated, spot = stage.pool(1, targetLowPriorityNodes=1)
    assert dedicated.id.startswith("tvmps_") and len(dedicated.id) == 6 + 64 + 2 and dedicated.id.endswith("_d")
    assert spot.id.endswith("_p")
    assert [dedicated.address, spot.address] == ["127.1.0.4", "127.1.0.5"]
    assert dedicated.hostname != spot.hostname


def test_an_inter_node_pool_cannot_mix_dedicated_and_spot_later(stage: Stage) -> None:
    stage.gang_pool(1)
    assert stage.refusal(pools.resize_pool, "pool", body={"targetLowPriorityNodes": 1}).code == "InvalidPropertyValue"


def test_ids_keep_their_case_and_ignore_it(stage: Stage) -> None:
    stage.do(pools.create_pool, body={**POOL, "id": "Pool"})
    assert pool_of(stage)["id"] == "Pool"
    assert stage.refusal(pools.create_pool, body=POOL).code == "PoolExists"


def test_a_resize_needs_a_steady_pool(stage: Stage) -> None:
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    assert stage.refusal(pools.resize_pool, "pool", body={"targetDedicatedNodes": 2}).code == "PoolBeingResized"


def test_a_smaller_target_gives_up_idle_nodes_first(stage: Stage) -> None:
    stage.pool(2)
    task = stage.run_task()
    busy = task.instances[0].node
    stage.do(pools.resize_pool, "pool", body={"targetDedicatedNodes": 1})
    due = stage.settle()
    assert [type(effect) for effect in due] == [scheduler.RemoveNode]
    assert due[0].node != busy


def test_a_node_that_leaves_requeues_its_task_and_waits_for_its_end(stage: Stage) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    stage.do(pools.resize_pool, "pool", body={"targetDedicatedNodes": 0})
    assert [type(effect) for effect in stage.settle()] == [scheduler.EndScope]
    reports.scope_ended(stage.world, task, 1, 0, stage.now)
    assert [type(effect) for effect in stage.settle()] == [scheduler.RemoveNode]
    assert (task.state, task.requeues) == ("active", 1)
    assert stage.world.pool("pool").record.allocation == "resizing"
    node_reports.node_removed(stage.world, node.id, stage.now)
    stage.settle()
    assert stage.world.pool("pool").record.allocation == "steady"


def test_a_deleted_pool_is_deleting_until_its_nodes_are_gone(stage: Stage) -> None:
    (node,) = stage.pool(1)
    assert stage.do(pools.delete_pool, "pool").status == 202
    assert pool_of(stage)["state"] == "deleting"
    assert stage.refusal(pools.create_pool, body=POOL).code == "PoolBeingDeleted"
    stage.settle()
    node_reports.node_removed(stage.world, node.id, stage.now)
    stage.settle()
    assert stage.refusal(pools.get_pool, "pool").code == "PoolNotFound"


def test_two_pools_that_grow_at_once_keep_to_the_quota(stage: Stage) -> None:
    """Several are due at once after the service could not store them for a time."""
    stage.world.quotas = Quotas(nodes=3)
    for pool_id in ("a", "b"):
        stage.do(pools.create_pool, body={**POOL, "id": pool_id, "targetDedicatedNodes": 2})
    stage.boot()
    assert [len(stage.world.pools[pool_id].nodes) for pool_id in ("a", "b")] == [2, 1]
    assert [error["code"] for error in stage.world.pools["b"].record.resize_errors] == ["AccountCoreQuotaReached"]


def test_a_hint_says_which_pools_hold_the_quota_that_a_pool_reached(stage: Stage) -> None:
    stage.world.quotas = Quotas(nodes=2)
    stage.do(pools.create_pool, body={**POOL, "id": "first", "targetDedicatedNodes": 2})
    stage.boot()
    stage.pool(1)
    stage.task()
    (hint,) = control.hints(stage.world)
    assert hint["text"] == (
        "pool pool got 0 of 1 nodes: AccountCoreQuotaReached: The specified account has reached its quota of 2 nodes.;"
        " nodes of the account's other pools: first has 2"
    )


@pytest.mark.parametrize(("more", "code", "result"), [({}, 0, "success"), ({"waitForSuccess": False}, 1, "failure")])
def test_a_node_waits_for_its_start_task_and_without_wait_for_success_a_failed_one_will_do(
    stage: Stage, more: dict[str, object], code: int, result: str
) -> None:
    (node,) = stage.pool(1, startTask={**START_TASK, **more})
    assert (node.state, node.start["state"]) == ("waitingforstarttask", "running")
    node_reports.start_task_ended(stage.world, node.id, 1, Exit(code), stage.now)
    assert (node.state, node.start["result"], node.start["exitCode"]) == ("idle", result, code)


def test_a_start_task_is_tried_again_and_then_given_up(stage: Stage) -> None:
    (node,) = stage.pool(1, startTask={**START_TASK, "maxTaskRetryCount": 1})
    node_reports.start_task_ended(stage.world, node.id, 1, Exit(1), stage.now)
    assert [type(effect) for effect in stage.settle()] == [scheduler.RunStartTask]
    assert node.start["retryCount"] == 1
    assert node.start["lastRetryTime"] == node.start["startTime"]
    node_reports.start_task_ended(stage.world, node.id, 1, Exit(1), stage.now)
    assert stage.settle() == []
    assert (node.state, node.start["failureInfo"]["code"]) == ("starttaskfailed", "FailureExitCode")


def test_a_start_task_that_its_pool_has_no_longer_is_not_tried_again(stage: Stage) -> None:
    (node,) = stage.pool(1, startTask=START_TASK)
    body = {"metadata": [], "applicationPackageReferences": []}
    stage.do(pools.replace_pool_properties, "pool", body=body)
    node_reports.start_task_ended(stage.world, node.id, 1, Exit(1), stage.now)
    assert stage.settle() == []
    assert node.state == "starttaskfailed"


def test_a_rebooted_node_shuts_down_boots_and_starts_again(stage: Stage) -> None:
    (node,) = stage.pool(1)
    assert stage.do(nodes.reboot_node, "pool", node.id, body={}).status == 202
    assert node.state == "rebooting"
    assert [type(effect) for effect in stage.settle()] == [scheduler.ShutdownNode]
    node_reports.node_down(stage.world, node.id, stage.now)
    stage.boot()
    assert node.state == "idle"


def test_a_node_that_dies_requeues_its_task_and_boots_again(stage: Stage) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    node_reports.node_lost(stage.world, node.id, stage.now)
    assert (task.state, task.requeues, task.retries) == ("active", 1, 0)
    assert stage.boot() == [scheduler.RunApplication(task, 2)]
    assert (node.state, task.state, task.run) == ("running", "running", 2)


def test_a_node_that_keeps_dying_is_given_up(stage: Stage) -> None:
    (node,) = stage.pool(1)
    for _ in range(node_reports.MAX_LOSSES + 1):
        node_reports.node_lost(stage.world, node.id, stage.now)
        stage.boot()
    assert node.state == "unusable"


def test_deaths_with_work_done_between_them_are_not_in_a_row(stage: Stage) -> None:
    (node,) = stage.pool(1)
    for number in range(node_reports.MAX_LOSSES + 1):
        task = stage.run_task(f"t{number}")
        stage.exits(task)
        node_reports.node_lost(stage.world, node.id, stage.now)
        stage.boot()
    assert node.state == "idle"


def test_a_node_that_waits_for_its_task_is_hurried_when_its_pool_is_deleted(stage: Stage) -> None:
    task = stage.run_task()
    body = {"targetDedicatedNodes": 0, "nodeDeallocationOption": "taskcompletion"}
    stage.do(pools.resize_pool, "pool", body=body)
    stage.settle()
    assert task.verdict == ""
    stage.do(pools.delete_pool, "pool")
    assert task.verdict == "requeue"


@pytest.mark.parametrize(("succeeds", "hints"), [(False, ["1 of 2 nodes of pool pool take no tasks: "]), (True, [])])
def test_nodes_whose_start_task_failed_are_the_reason_why_tasks_wait(
    stage: Stage, *, succeeds: bool, hints: list[str]
) -> None:
    first, second = stage.pool(2, startTask={"commandLine": "x", "waitForSuccess": True})
    for node, code in ((first, 0), (second, 0 if succeeds else 1)):
        node_reports.start_task_ended(stage.world, node.id, 1, Exit(code), stage.now)
    for name in ("a", "b", "c"):
        stage.task(name)
    stage.settle()
    assert control.hints(stage.world) == [
        {"jobId": "job", "taskId": "", "text": f"{text}starttaskfailed"} for text in hints
    ]
