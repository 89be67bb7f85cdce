"""Queries: each document of the service becomes a value, and only what is needed is requested."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain.errors import NotFound, Unreachable
from batchtrain.plan.types import PoolFacts
from batchtrain.records import (
    Endpoint,
    Failure,
    Image,
    Job,
    JobSchedule,
    Node,
    Pool,
    RecentTask,
    Task,
    TaskNode,
    TaskRequest,
)  # fmt: skip
from batchtrain.service import clock_difference, read
from batchtrain.service.tasks import both, starting
from tests.unit.service.test_retry import EMPTY, NO_CONNECTION, NOW, Service, refusal

MISSING = refusal("JobNotFound", 404)
START, END = "2026-11-23T12:00:10Z", "2026-11-23T12:01:15Z"
STARTED, ENDED = NOW + timedelta(seconds=10), NOW + timedelta(seconds=75)
FAULT = {"code": "DiskFull", "message": "No space."}
DISK_FULL = Failure("DiskFull", "No space.")


def listed(*items: Any) -> tuple[int, Any]:
    return 200, {"value": list(items)}


# --- pools ----------------------------------------------------------------------------------------------------------

POOL = {
    "id": "p", "state": "active", "allocationState": "resizing", "vmSize": "standard_d2s_v5",
    "currentDedicatedNodes": 1, "targetDedicatedNodes": 2, "currentLowPriorityNodes": 3, "targetLowPriorityNodes": 4,
    "enableInterNodeCommunication": True, "taskSlotsPerNode": 5, "resizeErrors": [FAULT],
}  # fmt: skip
RESIZING = Pool("p", "active", "resizing", "standard_d2s_v5", 1, 2, 3, 4, True, 5, (DISK_FULL,))


def test_a_pool_is_read_with_its_counts_and_errors_or_has_no_nodes_and_one_slot() -> None:
    assert read.pool(Service((200, POOL)).client, "p") == RESIZING
    assert read.facts_of(RESIZING) == PoolFacts("p", "STANDARD_D2S_V5", 1, 3, True, 5)
    service = Service(listed({"id": "p", "state": "active", "vmSize": "d2"}))
    assert read.pools(service.client) == (Pool("p", "active", "", "d2", 0, 0, 0, 0, False, 1),)


def test_only_the_nodes_of_pools_that_have_some_are_asked_for_their_hours_and_a_pool_that_goes_is_in_no_list() -> None:
    pools = [replace(RESIZING, dedicated=0, spot=0), replace(RESIZING, dedicated=0, spot=1), replace(RESIZING, spot=0)]
    answer = listed({"id": "n", "state": "idle", "allocationTime": "2026-11-23T12:00:00Z"})
    service = Service(answer, answer, refusal("PoolNotFound", 404))
    gone = replace(RESIZING, id="gone")
    seen = read.with_node_hours(service.client, [*pools, gone], NOW + timedelta(minutes=30))
    assert [(pool.id, pool.node_hours) for pool in seen] == [("p", 0.0), ("p", 0.5), ("p", 0.5)]
    assert service.asked == [*["GET /pools/p/nodes"] * 2, "GET /pools/gone/nodes"]


# --- nodes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "text", "seconds"),
    [
        ({"state": "running", "startTime": START, "retryCount": 0}, "running", None),
        ({"state": "completed", "startTime": START, "endTime": END, "exitCode": 0, "retryCount": 0}, "ok", 65.0),
        ({"state": "completed", "startTime": START, "endTime": END, "exitCode": 7}, "exit code 7", 65.0),
    ],
)
def test_a_node_is_read_with_the_end_of_its_start_task(start: Any, text: str, seconds: float | None) -> None:
    node = {"id": "n", "state": "idle", "ipAddress": "10.0.0.4", "startTaskInfo": start, "errors": [FAULT],
            "allocationTime": START, "isDedicated": False}  # fmt: skip
    (listed_node,) = read.nodes(Service(listed(node)).client, "p")
    code = start.get("exitCode")
    assert listed_node == Node("n", "idle", "10.0.0.4", text, (DISK_FULL,), STARTED, seconds, False, code)
    assert read.node(Service((200, node)).client, "p", "n") == listed_node


def test_a_node_without_a_start_task_is_dedicated_unless_the_service_denies_it() -> None:
    assert read.nodes(Service(listed({"id": "n", "state": "creating"})).client, "p") == (Node("n", "creating", ""),)


def test_a_row_of_a_node_has_its_times_and_tasks() -> None:
    node = {
        "id": "n", "state": "running", "ipAddress": "10.0.0.4", "vmSize": "d2", "allocationTime": START,
        "lastBootTime": END, "stateTransitionTime": "2026-11-23T12:00:00Z", "runningTasksCount": 1,
        "runningTaskSlotsCount": 2, "totalTasksRun": 3, "recentTasks": [{"jobId": "j", "taskId": "t"}],
    }  # fmt: skip
    service = Service(listed(node, {"id": "m", "state": "idle"}))
    assert read.nodes(service.client, "p", read.WORKING_NODE) == (
        Node("n", "running", "10.0.0.4", allocated=STARTED, size="d2", booted=ENDED, since=NOW, running_tasks=1,
             running_slots=2, total_run=3, recent=(RecentTask("j", "t"),)),
        Node("m", "idle"),
    )  # fmt: skip
    assert service.asked == ["GET /pools/p/nodes"]


def test_nodes_of_both_kinds_are_counted_by_state() -> None:
    counts = {"poolId": "p", "dedicated": {"idle": 1, "starting": 0, "leavingPool": 2, "total": 3},
              "lowPriority": {"idle": 4, "preempted": 5, "total": 9}}  # fmt: skip
    service = Service(listed(counts, {"poolId": "q"}))
    assert read.node_counts(service.client) == {"p": {"idle": 5, "leavingpool": 2, "preempted": 5}, "q": {}}
    assert service.asked == ["GET /nodecounts"]


def test_the_outside_addresses_of_one_port_are_listed() -> None:
    def node(name: str, *endpoints: Any) -> Any:
        return {"id": name, "endpointConfiguration": {"inboundEndpoints": list(endpoints)}}

    ssh = {"name": "ssh", "protocol": "tcp", "frontendPort": 50000, "backendPort": 22}
    other = {"name": "web", "protocol": "tcp", "publicIPAddress": "1.2.3.4", "frontendPort": 50001, "backendPort": 80}
    service = Service(
        listed(
            node("a", other, {**ssh, "publicIPAddress": "1.2.3.4", "publicFQDN": "a.x"}),
            node("b", {**ssh, "publicFQDN": "b.x"}),
            node("c", ssh),
            {"id": "d"},
        )
    )
    assert read.endpoints(service.client, "p", 22) == (
        Endpoint("a", "1.2.3.4", 50000),
        Endpoint("b", "b.x", 50000),
        Endpoint("c", "", 50000),
    )


def test_an_image_is_read_with_the_end_of_its_support() -> None:
    image = {"nodeAgentSKUId": "batch.node.ubuntu 24.04", "osType": "linux", "verificationType": "verified",
             "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"},
             "capabilities": ["NvidiaDriverInstalled"], "batchSupportEndOfLife": START}  # fmt: skip
    assert read.images(Service(listed(image)).client) == (
        Image("microsoft-dsvm", "ubuntu-hpc", "2404", image["nodeAgentSKUId"], ("NvidiaDriverInstalled",), STARTED),
    )


# --- jobs -----------------------------------------------------------------------------------------------------------

JOB = {
    "id": "j", "state": "completed", "creationTime": START, "poolInfo": {"poolId": "p"},
    "executionInfo": {"startTime": START, "endTime": END, "poolId": "auto", "terminateReason": "AllDone"},
}  # fmt: skip


def test_a_job_is_read_with_its_counts() -> None:
    service = Service((200, JOB), (200, {"taskCounts": {"active": 1, "running": 2, "succeeded": 3, "failed": 4}}))
    assert read.counted_job(service.client, "j") == Job("j", "completed", "p", STARTED, ENDED, "AllDone", 1, 2, 3, 4)
    assert service.asked == ["GET /jobs/j", "GET /jobs/j/taskcounts"]


@pytest.mark.parametrize(
    ("document", "pool"),
    [
        (JOB, "p"),
        ({**JOB, "poolInfo": {"autoPoolSpecification": {"poolLifetimeOption": "job"}}}, "auto"),
        ({"id": "j", "state": "completed", "poolInfo": {}}, ""),
        ({"id": "j", "state": "completed"}, ""),
    ],
)
def test_the_pool_of_a_job_is_the_written_one_or_else_the_one_that_it_made(document: Any, pool: str) -> None:
    assert read.job(Service((200, document)).client, "j").pool == pool
    assert read.jobs(Service(listed(document)).client)[0].pool == pool


@pytest.mark.parametrize(("days", "seconds"), [(999_999, 999_999 * 86400.0), (1_000_000, None)])
def test_a_job_with_an_endless_limit_has_none(days: int, seconds: float | None) -> None:
    document = {"id": "j", "constraints": {"maxWallClockTime": f"P{days}D"}}
    assert read.job(Service((200, document)).client, "j").wall_clock == seconds


def test_a_job_that_does_not_exist_has_no_state() -> None:
    assert read.job_or_none(Service(MISSING).client, "j") is None
    assert read.pool_or_none(Service(refusal("PoolNotFound", 404)).client, "p") is None
    assert read.job_or_none(Service((200, JOB)).client, "j") == read.job(Service((200, JOB)).client, "j")


def test_jobs_that_ended_before_a_time_are_filtered_by_the_service_in_utc() -> None:
    service = Service((200, EMPTY))
    read.jobs_ended_before(service.client, datetime(2026, 11, 23, 13, tzinfo=timezone(timedelta(hours=1))))
    where = "state eq 'completed' and executionInfo/endTime lt DateTime'2026-11-23T12:00:00.000000Z'"
    assert service.queries[0]["$filter"] == where


def test_a_schedule_is_read_with_its_next_run_and_its_last_job() -> None:
    info = {"nextRunTime": START, "endTime": END, "recentJob": {"id": "s:job-1"}}
    service = Service((200, {"id": "s", "state": "active", "executionInfo": info}))
    assert read.schedule(service.client, "s") == JobSchedule("s", "active", STARTED, ENDED, "s:job-1")
    fresh = listed({"id": "s", "state": "active"}, {"id": "r", "state": "active", "executionInfo": {}})
    assert read.schedules(Service(fresh).client) == (JobSchedule("s", "active"), JobSchedule("r", "active"))


# --- tasks ----------------------------------------------------------------------------------------------------------


def where(node: str) -> dict[str, Any]:
    return {"nodeId": node, "poolId": "p", "taskRootDirectory": f"workitems/j/{node}"}


def test_a_gang_ran_on_the_node_of_its_primary_and_then_on_those_of_its_subtasks() -> None:
    task = {"id": "t", "nodeInfo": where("a"), "multiInstanceSettings": {"numberOfInstances": 3}}
    service = Service((200, task), listed({"id": 1, "nodeInfo": where("b")}, {"id": 2}, {"id": 3, "nodeInfo": {}}))
    assert read.task_nodes(service.client, "j", "t") == tuple(
        TaskNode(node, "p", f"workitems/j/{node}") for node in ("a", "b")
    )
    assert service.asked == ["GET /jobs/j/tasks/t", "GET /jobs/j/tasks/t/subtasksinfo"]


def test_an_ordinary_task_has_no_subtasks_to_ask_for() -> None:
    service = Service((200, {"id": "t", "nodeInfo": {"nodeId": "a"}}))
    assert read.task_nodes(service.client, "j", "t") == (TaskNode("a", "", ""),)
    assert read.task_nodes(Service((200, {"id": "t"})).client, "j", "t") == ()


TASK = {
    "id": "t", "state": "completed", "creationTime": "2026-11-23T12:00:00Z", "commandLine": "true",
    "nodeInfo": {"nodeId": "n", "poolId": "p"}, "multiInstanceSettings": {"numberOfInstances": 2},
    "executionInfo": {"startTime": START, "endTime": END, "exitCode": 1, "result": "Failure", "retryCount": 3,
                      "requeueCount": 4, "failureInfo": FAULT},
}  # fmt: skip
TIMED = Task(
    "t", "completed", "failure", 1, "n", 65.0, DISK_FULL, 3, 4, STARTED, NOW, "p",
    request=TaskRequest(command="true", instances=2),
)  # fmt: skip


def test_a_row_of_a_task_has_its_times_and_its_failure() -> None:
    service = Service((200, TASK))
    task = read.task(service.client, "j", "t", select="")
    assert (task, task.ended) == (TIMED, ENDED)
    assert read.task_document(service.client, "j", "t") == TASK
    assert service.asked == ["GET /jobs/j/tasks/t"] * 2


def test_a_task_that_runs_again_says_how_often_it_may_and_since_when() -> None:
    run = {"lastRetryTime": START, "lastRequeueTime": END}
    service = Service((200, {"id": "t", "executionInfo": run, "constraints": {"maxTaskRetryCount": 5}}))
    assert read.repeats(service.client, "j", "t") == (5, STARTED, ENDED)
    assert service.asked == ["GET /jobs/j/tasks/t"]


def test_the_secrets_of_a_whole_task_are_masked() -> None:
    service = Service((200, {**TASK, "commandLine": "export HF_TOKEN=correct-horse-battery"}))
    assert "correct-horse-battery" not in str(read.masked_task(service.client, "j", "t"))
    assert service.asked == ["GET /jobs/j/tasks/t"]


@pytest.mark.parametrize(
    ("options", "volumes"),
    [
        ("--rm", ()),
        ("-v /data:/in --volume=/scratch:/out:ro", (("/data", "/in"), ("/scratch", "/out"))),
        ("-v '$AZ_BATCH_NODE_MOUNTS_DIR/nfs':'/nfs'", (("nfs", "/nfs"),)),
        ("-v /same:/same -v alone --env=-v", ()),
    ],
)
def test_the_volumes_of_a_container_are_its_mounts_at_other_paths(options: str, volumes: Any) -> None:
    service = Service((200, {"id": "t", "containerSettings": {"containerRunOptions": options}}))
    assert read.task(service.client, "j", "t").request.volumes == volumes


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({}, {"maxresults": "200"}),
        ({"select": "id"}, {"$select": "id", "maxresults": "200"}),
        ({"where": "a or b"}, {"$filter": "a or b", "maxresults": "200"}),
        ({"where": starting("o'k"), "limit": 7}, {"$filter": "startswith(id,'o''k')", "maxresults": "7"}),
        ({"where": both("a", starting("b")), "skip": "x&y"},
         {"$filter": "(a) and startswith(id,'b')", "maxresults": "200", "$skiptoken": "x&y"}),
    ],
)  # fmt: skip
def test_a_page_of_tasks_is_filtered_by_the_service(asked: Any, sent: dict[str, str]) -> None:
    service = Service((200, {"value": [TASK, {"id": "u", "state": "active"}],
                             "odata.nextLink": "https://x/jobs/j/tasks?$skiptoken=a%26b&maxresults=2"}))  # fmt: skip
    page = read.task_page(service.client, "j", **{"limit": 200, **asked})
    assert page == ((TIMED, Task("u", "active")), "a&b")
    assert service.queries == [{"$select": read.TIMED_TASK, **sent}]


# --- documents of a plan --------------------------------------------------------------------------------------------


def test_only_what_a_plan_names_and_the_service_has_is_looked_up() -> None:
    document = {"id": "x", "displayName": "X"}
    service = Service(
        (200, {**document, "id": "j"}), MISSING, listed({"id": "a"}, {"id": "b"}), (200, document), (200, document)
    )
    named = [("pool", ("p",), {}), ("task", ("j", "a"), None), ("task", ("j", "b"), None), ("job", ("j",), None),
             ("job", ("gone",), None), ("task", ("gone", "a"), None), ("schedule", ("s",), None)]  # fmt: skip
    living = read.living(service.client, named)
    assert service.asked == [
        "GET /jobs/j", "GET /jobs/gone", "GET /jobs/j/tasks", "GET /pools/p", "GET /jobschedules/s",
    ]  # fmt: skip
    assert (dict(living.pools), dict(living.schedules)) == ({"p": document}, {"s": document})
    assert dict(living.jobs) == {"j": {**document, "id": "j"}}
    assert dict(living.tasks) == {("j", "a"): {"id": "a"}, ("j", "b"): {"id": "b"}}


# --- the clocks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "date", "skew"), [(200, {}, 420.0), (403, {}, 420.0), (200, {"Date": ""}, None)])
def test_the_date_of_an_answer_or_a_refusal_tells_how_far_this_machines_clock_is_ahead(
    status: int, date: dict[str, str], skew: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_difference, "now", lambda: NOW + timedelta(minutes=7))
    service = Service((status, EMPTY, date))
    assert read.clock_skew(service.client) == skew
    assert service.queries == [{"maxresults": "1"}]
    with pytest.raises(Unreachable):
        read.clock_skew(Service(NO_CONNECTION).client)


@pytest.mark.parametrize(
    "query",
    [
        lambda client: read.pool(client, "x"),
        lambda client: read.nodes(client, "x"),
        lambda client: read.counted_job(client, "x"),
        lambda client: read.schedule(client, "x"),
        lambda client: read.task_nodes(client, "x", "t"),
        lambda client: read.task(client, "x", "t"),
        lambda client: read.node(client, "x", "n"),
    ],
)
def test_a_query_about_what_does_not_exist_says_so(query: Callable[[BatchClient], object]) -> None:
    with pytest.raises(NotFound):
        query(Service(MISSING).client)
