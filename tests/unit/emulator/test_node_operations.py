"""What a client does to single nodes: down and up again, users, log-in, extensions, logs; without a machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import (
    endpoints,
    job_preparation,
    node_reports,
    nodes,
    pools,
    recovery,
    scheduler,
    states,
    users,
)
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.interface import Exit, NodeUp
from batchtrain.emulator.records import Node
from batchtrain.emulator.reply import Call, Reply
from batchtrain.emulator.world import World
from tests.emulation import POOL, Stage, document, machine, network

Operation = Callable[[World, Call], Reply]


def nat_pool(first: int = 40000, **more: object) -> dict[str, object]:
    ports = {"backendPort": 22, "frontendPortRangeStart": first, "frontendPortRangeEnd": first + 99}
    return {"name": "ssh", "protocol": "tcp", **ports, **more}


NETWORK = {"endpointConfiguration": {"inboundNATPools": [nat_pool()]}}
RETAINED = {"nodeDeallocationOption": "retaineddata"}


def code(stage: Stage, operation: Operation, *path: str, body: object = None) -> str:
    return stage.refusal(operation, "pool", *path, body=body).code


def kinds(effects: list[scheduler.Effect]) -> list[type]:
    return [type(effect) for effect in effects]


# Down and up again ---------------------------------------------------------------------------------------------------


def test_a_node_counts_its_tasks_and_names_the_running_ones_first(stage: Stage) -> None:
    """azure-rest-api-specs, BatchNode: tasks whose state has recently changed."""
    (node,) = stage.pool(1, taskSlotsPerNode=2)
    for name, exit_code in (("good", 0), ("bad", 1)):
        stage.exits(stage.run_task(name), exit_code)
    stage.run_task("runs")
    shown = document(stage.do(nodes.get_node, "pool", node.id))
    recent = [(recent["taskId"], recent["taskState"]) for recent in shown["recentTasks"]]
    assert recent == [("runs", "running"), ("bad", "completed"), ("good", "completed")]
    assert (shown["totalTasksRun"], shown["totalTasksSucceeded"]) == (2, 1)


def test_a_reimaged_node_is_wiped_and_starts_as_new(stage: Stage) -> None:
    (node,) = stage.pool(1, startTask={"commandLine": "prepare"})
    node_reports.start_task_ended(stage.world, node.id, 1, Exit(0), stage.now)
    stage.settle()
    stage.do(users.create_user, "pool", node.id, body={"name": "me"})
    assert stage.do(nodes.reimage_node, "pool", node.id, body={}).status == 202
    assert node.state == "reimaging"
    assert kinds(stage.settle()) == [scheduler.WipeNode]
    assert not node.users
    node_reports.node_wiped(stage.world, node.id, stage.now)
    assert kinds(stage.boot()) == [scheduler.RunStartTask]
    assert node.state == "waitingforstarttask"


def test_a_deallocated_node_stays_listed_until_it_is_started(stage: Stage) -> None:
    node, _ = stage.pool(2)
    assert code(stage, nodes.start_node, node.id) == "OperationNotValidOnNode"
    assert stage.do(nodes.deallocate_node, "pool", node.id, body={}).status == 202
    assert node.state == "deallocating"
    assert kinds(stage.settle()) == [scheduler.ShutdownNode]
    node_reports.node_down(stage.world, node.id, stage.now)
    assert stage.settle() == []
    (counts,) = document(stage.do(pools.list_node_counts))["value"]
    assert [counts["dedicated"][name] for name in ("deallocated", "idle", "total")] == [1, 1, 2]
    assert (node.state, counts["lowPriority"]["total"]) == ("deallocated", 0)
    assert stage.do(nodes.start_node, "pool", node.id).status == 202
    assert node.state == "starting"
    stage.boot()
    assert node.state == "idle"


def test_a_deallocated_node_takes_no_task_and_can_leave(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.take_down(node, nodes.deallocate_node)
    task = stage.task()
    assert (stage.settle(), task.state) == ([], "active")
    stage.do(pools.remove_nodes, "pool", body={"nodeList": [node.id]})
    assert kinds(stage.settle()) == [scheduler.RemoveNode]


@pytest.mark.parametrize("kind", ["Reboot", "Reimage", "Deallocate", "DisableScheduling"])
@pytest.mark.parametrize(
    ("option", "state"), [("requeue", "active"), ("terminate", "completed"), ("taskcompletion", "running")]
)
def test_an_option_says_what_becomes_of_a_running_task(stage: Stage, kind: str, option: str, state: str) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    name = "disable_scheduling" if kind == "DisableScheduling" else f"{kind.lower()}_node"
    stage.do(getattr(nodes, name), "pool", node.id, body={f"node{kind}Option": option})
    is_shut_down = stage.end_scopes() != []
    assert (task.state, is_shut_down) == (state, state != "running" and kind != "DisableScheduling")
    if state == "running":
        stage.exits(task)
        assert (task.state, task.result) == ("completed", "success")


def test_a_node_without_scheduling_is_offline_when_its_task_has_ended_until_it_is_enabled(stage: Stage) -> None:
    task = stage.run_task()
    (node,) = stage.nodes()
    body = {"nodeDisableSchedulingOption": "taskcompletion"}
    stage.do(nodes.disable_scheduling, "pool", node.id, body=body)
    assert (stage.settle(), node.state) == ([], "running")
    stage.exits(task)
    assert (node.state, node.scheduling) == ("offline", False)
    waiting = stage.run_task("waiting")
    assert waiting.state == "active"
    stage.do(nodes.enable_scheduling, "pool", node.id)
    assert (node.state, node.scheduling) == ("idle", True)
    stage.settle()
    assert waiting.state == "running"
    assert code(stage, nodes.enable_scheduling, node.id) == "NodeAlreadyInTargetSchedulingState"


@pytest.mark.parametrize(("restarts", "effect"), [(False, scheduler.ShutdownNode), (True, scheduler.RemoveNode)])
def test_with_retaineddata_a_node_waits_for_what_its_tasks_retain(
    stage: Stage, *, restarts: bool, effect: type
) -> None:
    task = stage.run_task(constraints={"retentionTime": "PT1H"})
    (node,) = stage.nodes()
    if restarts:
        stage.do(pools.remove_nodes, "pool", body={"nodeList": [node.id], **RETAINED})
    else:
        stage.do(nodes.reboot_node, "pool", node.id, body={"nodeRebootOption": "retaineddata"})
    assert stage.settle() == []
    stage.exits(task)
    if restarts:
        stage.world._deadlines.clear()
        recovery.recover(stage.world, stage.now)
    for seconds, due in ((0, []), (3599, []), (1, [effect])):
        stage.later(seconds)
        assert kinds(stage.settle()) == due


def test_with_retaineddata_a_node_without_data_goes_at_once(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.do(pools.remove_nodes, "pool", body={"nodeList": [node.id], **RETAINED})
    assert kinds(stage.settle()) == [scheduler.RemoveNode]


def test_a_pool_that_is_deleted_waits_for_no_data(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.exits(stage.run_task())
    stage.do(pools.remove_nodes, "pool", body={"nodeList": [node.id], **RETAINED})
    assert stage.settle() == []
    stage.do(pools.delete_pool, "pool")
    assert kinds(stage.settle()) == [scheduler.RemoveNode]


@pytest.mark.parametrize(
    ("operation", "due", "state"),
    [
        (nodes.reboot_node, [], "idle"),
        (nodes.reimage_node, [scheduler.WipeNode], "idle"),
        (nodes.deallocate_node, [scheduler.ShutdownNode], "deallocated"),
    ],
)
@pytest.mark.parametrize("first", ["it breaks", "it is asked"])
def test_a_node_that_is_down_by_itself_goes_on_its_way_too(
    stage: Stage, operation: Operation, due: list[type], state: str, first: str
) -> None:
    (node,) = stage.pool(1)
    if first == "it breaks":
        node_reports.node_broken(stage.world, node.id, stage.now)
        stage.do(operation, "pool", node.id, body={})
    else:
        stage.do(operation, "pool", node.id, body={})
        node_reports.node_lost(stage.world, node.id, stage.now)
    found = stage.boot()
    assert kinds(found) == due
    for effect in found:
        down = node_reports.node_wiped if isinstance(effect, scheduler.WipeNode) else node_reports.node_down
        down(stage.world, node.id, stage.now)
    stage.boot()
    assert node.state == state


@pytest.mark.parametrize(("act", "state"), [("preempt", "preempted"), ("lose", "unknown"), ("break", "unusable")])
def test_a_node_that_is_struck_loses_its_task_and_is_shut_down(stage: Stage, act: str, state: str) -> None:
    (node,) = stage.pool(0, targetLowPriorityNodes=1)
    stage.job(jobPreparationTask={"commandLine": "true"})
    task = stage.task()
    (prepare,) = stage.settle()
    assert isinstance(prepare, scheduler.RunOnNode)
    job_preparation.ended(stage.world, prepare.job_node, "preparation", 1, Exit(0), stage.now)
    stage.settle()
    node_reports.node_struck(stage.world, node.id, act, 60, stage.now)
    stage.settle()
    assert (task.state, task.requeues, node.state, node.phase) == ("active", 1, state, "stopping")
    assert (node.id in stage.world.jobs_of_node) == (act != "preempt"), "only a preemption loses its disk"


def test_a_struck_node_that_is_down_already_is_not_shut_down_again(stage: Stage) -> None:
    (node,) = stage.pool(0, targetLowPriorityNodes=1)
    node_reports.node_preempted(stage.world, node.id, 60, stage.now)
    node_reports.node_struck(stage.world, node.id, "break", None, stage.now)
    assert node.phase == "down"


def test_a_node_whose_scheduling_was_disabled_comes_back_offline(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.disable_node(node)
    stage.take_down(node, nodes.reboot_node)
    stage.boot()
    assert node.state == "offline"


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (node_reports.node_failed, ["no such file"]),
        (node_reports.node_unfit, ["ApplicationPackageError", "no such file"]),
        (node_reports.node_up, [NodeUp(Path("/node"), "/mnt", {}, "process")]),
    ],
)
def test_a_node_that_leaves_while_it_boots_is_removed(stage: Stage, report: Any, reason: list[object]) -> None:
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    (boot,) = stage.settle()
    stage.do(pools.delete_pool, "pool")
    assert stage.settle() == []
    report(stage.world, boot.node, *reason, stage.now)  # type: ignore[attr-defined]
    assert kinds(stage.settle()) == [scheduler.RemoveNode]


def test_a_node_that_is_reimaged_while_it_is_shut_down_is_wiped_all_the_same(stage: Stage) -> None:
    (node,) = stage.pool(1)
    node_reports.node_struck(stage.world, node.id, "break", None, stage.now)
    stage.do(nodes.reimage_node, "pool", node.id, body={})
    assert stage.settle() == []
    node_reports.node_down(stage.world, node.id, stage.now)
    assert kinds(stage.settle()) == [scheduler.WipeNode]


@pytest.mark.parametrize("event", ["reboot", "reimage", "deallocate"])
def test_a_node_goes_on_its_way_after_a_restart(stage: Stage, event: str) -> None:
    (node,) = stage.pool(1)
    stage.do(getattr(nodes, f"{event}_node"), "pool", node.id, body={})
    stage.settle()
    recovery.recover(stage.world, stage.now)
    for effect in stage.boot():
        assert isinstance(effect, scheduler.WipeNode)
        node_reports.node_wiped(stage.world, node.id, stage.now)
    stage.boot()
    assert node.state == ("deallocated" if event == "deallocate" else "idle")


@pytest.mark.parametrize(("seconds", "away"), [(60, 60), (None, 10)])
def test_a_preempted_node_comes_back_after_a_while_also_after_a_restart(
    stage: Stage, seconds: float | None, away: int
) -> None:
    (node,) = stage.pool(0, targetLowPriorityNodes=1)
    node_reports.node_preempted(stage.world, node.id, seconds, stage.now)
    other = stage.restarted()
    other.later(away - 1)
    other.boot()
    assert other.nodes()[0].state == "preempted"
    other.later(1)
    other.boot()
    assert other.nodes()[0].state == "idle"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("creating", "NodeBeingCreated"),
        ("starting", "NodeBeingStarted"),
        ("rebooting", "NodeBeingRebooted"),
        ("reimaging", "NodeBeingReimaged"),
        ("leavingpool", "OperationNotValidOnNode"),
        ("preempted", "OperationNotValidOnNode"),
    ],
)
def test_a_node_says_why_it_cannot(stage: Stage, state: str, expected: str) -> None:
    (node,) = stage.pool(1)
    node.state = state
    stage.world.save_node(node)
    for operation in (nodes.reboot_node, nodes.reimage_node, nodes.deallocate_node, nodes.disable_scheduling):
        assert code(stage, operation, node.id, body={}) == expected
    assert code(stage, users.create_user, node.id, body={"name": "me"}) == expected


def test_an_unusable_node_has_no_users_but_can_be_rebooted(stage: Stage) -> None:
    (node,) = stage.pool(1)
    node.state = "unusable"
    stage.world.save_node(node)
    assert code(stage, users.create_user, node.id, body={"name": "me"}) == "NodeStateUnusable"
    assert states.allows(states.NODE, "unusable", "reboot")


# Users ---------------------------------------------------------------------------------------------------------------


def test_users_are_made_once_changed_and_deleted_and_their_secrets_not_kept(stage: Stage) -> None:
    (node,) = stage.pool(1)
    body = {"name": "me", "password": "hush", "sshPublicKey": "hush"}
    assert stage.do(users.create_user, "pool", node.id, body=body).status == 201
    assert "hush" not in str(node.users)
    assert code(stage, users.create_user, node.id, body={"name": "me"}) == "NodeUserExists"
    assert stage.do(users.replace_user, "pool", node.id, "me", body={"sshPublicKey": "key"}).status == 200
    assert stage.do(users.delete_user, "pool", node.id, "me").status == 200
    assert code(stage, users.delete_user, node.id, "me") == "NodeUserNotFound"
    assert code(stage, users.replace_user, node.id, "me", body={}) == "NodeUserNotFound"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("expiry", "seconds"), [({}, 86_400), ({"expiryTime": "2026-11-21T10:01:00Z"}, 60)])
def test_a_user_goes_when_its_time_is_over(
    stage: Stage, expiry: dict[str, str], seconds: int, *, restarts: bool
) -> None:
    (node,) = stage.pool(1)
    stage.do(users.create_user, "pool", node.id, body={"name": "me", **expiry})
    stage = stage.restarted() if restarts else stage
    for later, users_ in ((seconds - 1, ["me"]), (1, [])):
        stage.later(later)
        stage.boot()
        assert list(stage.nodes()[0].users) == users_


def test_a_user_whose_time_is_over_is_refused(stage: Stage) -> None:
    (node,) = stage.pool(1)
    body = {"name": "me", "expiryTime": "2020-01-01"}
    assert code(stage, users.create_user, node.id, body=body) == "InvalidPropertyValue"


# Log-in and endpoints ------------------------------------------------------------------------------------------------


def test_each_node_has_an_address_and_a_frontend_port_of_its_own_that_are_used_again(stage: Stage) -> None:
    first, second = stage.pool(2, networkConfiguration=NETWORK)
    assert [_ports(stage, node) for node in (first, second)] == [[40000], [40001]]
    stage.do(pools.remove_nodes, "pool", body={"nodeList": [first.id]})
    stage.settle()
    node_reports.node_removed(stage.world, first.id, stage.now)
    stage.settle()
    stage.do(pools.resize_pool, "pool", body={"targetDedicatedNodes": 2})
    stage.boot()
    assert [_ports(stage, node) for node in stage.nodes()] == [[40001], [40000]]
    assert {node.address for node in stage.nodes()} == {"127.1.0.4", "127.1.0.5"}


@pytest.mark.parametrize(
    ("agent", "mapped", "port"),
    [
        ("batch.node.windows amd64", {22: 40_000, 3389: 41_000}, 41_000),
        ("batch.node.ubuntu 22.04", {22: 40_000, 3389: 41_000}, 40_000),
        ("batch.node.ubuntu 22.04", {3389: 41_000}, 41_000),
        ("batch.node.ubuntu 22.04", {}, 22),
        ("batch.node.windows amd64", {80: 40_000}, 3389),
    ],
)
def test_log_in_goes_by_the_system_s_own_port(stage: Stage, agent: str, mapped: dict[int, int], port: int) -> None:
    ports = [nat_pool(first, name=f"p{backend}", backendPort=backend) for backend, first in mapped.items()]
    windows = {"publisher": "microsoftwindowsserver", "offer": "windowsserver", "sku": "2022-datacenter"}
    image = windows if "windows" in agent else POOL["virtualMachineConfiguration"]["imageReference"]
    endpoints_ = network(endpointConfiguration={"inboundNATPools": ports}) if ports else {}
    (node,) = stage.pool(1, **machine(imageReference=image, nodeAgentSKUId=agent), **endpoints_)
    found = document(stage.do(users.remote_login_settings, "pool", node.id))
    shown = {name: value for name, value in found.items() if not name.startswith("odata")}
    assert shown == {"remoteLoginIPAddress": node.address, "remoteLoginPort": port}


DUAL = {**NETWORK, "publicIPAddressConfiguration": {"ipFamilies": ["IPv6", "IPv4"]}}


def rule(priority: int) -> dict[str, object]:
    return {"priority": priority, "access": "allow", "sourceAddressPrefix": "*"}


def test_a_node_of_a_dual_stack_pool_has_addresses_and_endpoints_of_both_families(stage: Stage) -> None:
    (node,) = stage.pool(1, networkConfiguration=DUAL)
    found = document(stage.do(nodes.get_node, "pool", node.id))
    login = document(stage.do(users.remote_login_settings, "pool", node.id))
    endpoints_ = found["endpointConfiguration"]["inboundEndpoints"]
    assert [ipaddress.ip_address(found[name]).version for name in ("ipAddress", "ipv6Address")] == [4, 6]
    assert [one["publicIPAddress"] for one in endpoints_] == [found["ipAddress"], found["ipv6Address"]]
    assert (login["ipv6RemoteLoginIPAddress"], login["ipv6RemoteLoginPort"]) == (found["ipv6Address"], 40000)
    assert len(endpoints.forwards(stage.world.pools["pool"], node)) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (nat_pool(name=""), None),
        (nat_pool(name="x" * 78), None),
        (nat_pool(backendPort=29876), None),
        (nat_pool(backendPort=0), None),
        (nat_pool(frontendPortRangeEnd=40038), None),
        (nat_pool(49980, frontendPortRangeEnd=50020), None),
        (nat_pool(65500, frontendPortRangeEnd=65535), None),
        (nat_pool(networkSecurityGroupRules=[rule(149)]), None),
        (nat_pool(networkSecurityGroupRules=[rule(150)] * 2), None),
        (nat_pool(), nat_pool(41000, backendPort=80)),
        (nat_pool(), nat_pool(41000, name="web")),
        (nat_pool(), nat_pool(40099, name="web", backendPort=80)),
    ],
)
def test_nat_pools_have_their_limits_and_share_no_name_no_port_and_no_range(
    stage: Stage, first: dict[str, object], second: dict[str, object] | None
) -> None:
    nat_pools = [first] if second is None else [first, second]
    body = {**POOL, **network(endpointConfiguration={"inboundNATPools": nat_pools})}
    assert stage.refusal(pools.create_pool, body=body).code == "InvalidPropertyValue"


# Extensions and logs -------------------------------------------------------------------------------------------------


def test_a_node_has_its_pools_extensions_without_their_secrets(stage: Stage) -> None:
    extension = {"name": "x", "publisher": "p", "type": "t", "settings": {"a": "b"}}
    extension["protectedSettings"] = {"key": "hush"}
    (node,) = stage.pool(1, **machine(extensions=[extension]))
    listed, own = document(stage.do(nodes.list_extensions, "pool", node.id))["value"]
    found = document(stage.do(nodes.get_extension, "pool", node.id, "x"))
    assert found.items() >= listed.items()
    assert (found["vmExtension"]["settings"], found["provisioningState"]) == ({"a": "b"}, "Succeeded")
    assert "hush" not in str(found)
    assert code(stage, nodes.get_extension, node.id, "y") == "NodeExtensionNotFound"
    assert document(stage.do(nodes.get_extension, "pool", node.id, "batchNodeExtension")).items() >= own.items()


def test_logs_are_promised_and_asked_for(stage: Stage) -> None:
    (node,) = stage.pool(1)
    body = {"containerUrl": "https://x/logs?sig=hush", "startTime": "2026-11-21"}
    answer = document(stage.do(nodes.upload_logs, "pool", node.id, body=body))
    (wanted,) = stage.world.log_uploads
    assert wanted[:3] == (node.id, body["containerUrl"], answer["virtualDirectoryName"])
    assert answer["numberOfFilesUploaded"] == 2


@pytest.mark.parametrize("change", [{"containerUrl": "logs"}, {"endTime": "2026-11-20"}])
def test_logs_that_cannot_be_uploaded_are_refused(stage: Stage, change: dict[str, str]) -> None:
    (node,) = stage.pool(1)
    body = {"containerUrl": "https://x/logs", "startTime": "2026-11-21", **change}
    assert code(stage, nodes.upload_logs, node.id, body=body) == "InvalidPropertyValue"
    assert not stage.world.log_uploads


# Resizing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "count", "code"),
    [("allocation-refused", 0, "AllocationFailed"), ("allocation-partial", 2, "AllocationTimedOut")],
)
def test_an_allocation_is_refused_or_partial(stage: Stage, kind: str, count: int, code: str) -> None:
    stage.world.injections.add(Injection(kind=kind, resource="pools/pool"))
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 4})
    stage.boot()
    found = document(stage.do(pools.get_pool, "pool"))
    assert (found["allocationState"], found["currentDedicatedNodes"]) == ("steady", count)
    assert [error["code"] for error in found["resizeErrors"]] == [code]


def test_a_resize_that_takes_too_long_is_given_up(stage: Stage) -> None:
    _slow(stage, 3600)
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 2, "resizeTimeout": "PT5M"})
    assert stage.settle() == []
    stage.later(300)
    assert kinds(stage.settle()) == [scheduler.RemoveNode] * 2
    found = document(stage.do(pools.get_pool, "pool"))
    assert (found["allocationState"], found["resizeErrors"][0]["code"]) == ("steady", "AllocationTimedOut")


def test_a_later_resize_that_takes_too_long_is_given_up_too(stage: Stage) -> None:
    stage.pool(1)
    _slow(stage, 3600)
    stage.do(pools.resize_pool, "pool", body={"targetDedicatedNodes": 2, "resizeTimeout": "PT6M"})
    stage.settle()
    stage.later(360)
    stage.settle()
    found = document(stage.do(pools.get_pool, "pool"))
    assert (found["currentDedicatedNodes"], found["resizeErrors"][0]["code"]) == (1, "AllocationTimedOut")


def test_a_resize_that_comes_in_time_is_not_given_up(stage: Stage) -> None:
    _slow(stage, 200)
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1, "resizeTimeout": "PT5M"})
    stage.settle()
    stage.later(200)
    stage.boot()
    stage.later(100)
    assert stage.settle() == []
    found = document(stage.do(pools.get_pool, "pool"))
    assert (found["currentDedicatedNodes"], "resizeErrors" in found) == (1, False)


# Support -------------------------------------------------------------------------------------------------------------


def _ports(stage: Stage, node: Node) -> list[int]:
    found = document(stage.do(nodes.get_node, "pool", node.id))
    return [endpoint["frontendPort"] for endpoint in found["endpointConfiguration"]["inboundEndpoints"]]


def _slow(stage: Stage, seconds: float) -> None:
    stage.world.injections.add(Injection(kind="allocation-slow", seconds=seconds))
