"""What the official SDK sees of the embedded service. The machine is a stand-in: no processes, only the wire."""

from __future__ import annotations

import base64
import datetime
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.batch import BatchClient, models
from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from batchtrain.emulator import wire
from batchtrain.emulator.server import Emulator, clock
from tests.contract.conftest import completed, connect, eventually, idle, job, pool, task
from tests.emulation import POOL

pytestmark = pytest.mark.process

FAST = {"polling_interval": 0.01}


def code_of(error: HttpResponseError) -> str:
    assert error.error is not None
    return str(error.error.code)


def raw(
    emulator: Emulator, verb: str, path: str, body: bytes = b"", sign: bool = True, **headers: str
) -> tuple[int, dict[str, str], Any]:
    """A request the SDK would not make; answers status, headers, document."""
    where = urlsplit(emulator.endpoint)
    given = {"ocp-date": wire.http_date(clock()), **({"content-type": "application/json"} if body else {})}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    given = {name: value for name, value in given.items() if value}
    if body or verb in ("POST", "PUT"):
        given["content-length"] = str(len(body))
    bare, _, query = path.partition("?")
    if "api-version" not in query and not bare.startswith("/_emulator/"):
        query = "&".join(filter(None, ("api-version=2025-06-01", query)))
        path = f"{bare}?{query}"
    if sign:
        given["authorization"] = wire.authorization(emulator.account, emulator.key, verb, bare, query, given)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    connection.request(verb, path, body=body or None, headers=given)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    found = {name.lower(): value for name, value in response.getheaders()}
    is_json = found.get("content-type", "").startswith("application/json")
    return response.status, found, json.loads(content) if content and is_json else content


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


def test_a_pool_is_created_seen_and_deleted(client: BatchClient) -> None:
    client.create_pool(pool(nodes=2, enable_inter_node_communication=True))
    nodes = idle(client, 2)
    assert all(node.ip_address.startswith("127.") for node in nodes)
    found = client.get_pool("pool")
    assert (found.vm_size, found.allocation_state, found.current_dedicated_nodes) == ("standard_d2_v3", "steady", 2)
    assert client.pool_exists("pool")
    assert next(iter(client.list_pool_node_counts())).dedicated.idle == 2
    client.begin_delete_pool("pool", **FAST).result()
    with pytest.raises(ResourceNotFoundError) as refusal:
        client.get_pool("pool")
    assert code_of(refusal.value) == "PoolNotFound"


def test_a_missing_pool_is_404_without_a_body_to_head(client: BatchClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        client.pool_exists("nothing")


def test_a_pool_that_exists_says_so_in_the_service_s_words(client: BatchClient) -> None:
    client.create_pool(pool(nodes=0))
    with pytest.raises(ResourceExistsError) as refusal:
        client.create_pool(pool(nodes=0))
    assert code_of(refusal.value) == "PoolExists"
    text = refusal.value.error.message
    assert text.startswith("The specified pool already exists.\nRequestId:") and "\nTime:" in text


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


def test_a_failed_start_task_is_on_the_node(client: BatchClient) -> None:
    client.create_pool(pool(start_task=models.BatchStartTask(command_line="exit 5")))
    (node,) = eventually(lambda: [one for one in client.list_nodes("pool") if one.state == "starttaskfailed"])
    assert (node.start_task_info.exit_code, node.start_task_info.result) == (5, "failure")
    assert [file.name for file in client.list_node_files("pool", node.id)] == ["startup"]


def test_supported_images_can_be_filtered(client: BatchClient) -> None:
    found = list(client.list_supported_images(filter="nodeAgentSKUId eq 'batch.node.ubuntu 22.04'"))
    assert found and {image.node_agent_sku_id for image in found} == {"batch.node.ubuntu 22.04"}


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


def test_a_range_past_the_end_is_416(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job())
    client.create_task("job", task(command="print hello"))
    completed(client)
    with pytest.raises(HttpResponseError) as refusal:
        b"".join(client.download_task_file("job", "task", "stdout.txt", ocp_range="bytes=6-"))
    assert refusal.value.status_code == 416


def test_a_multi_instance_task_runs_on_two_nodes(client: BatchClient) -> None:
    client.create_pool(pool(nodes=2, enable_inter_node_communication=True))
    client.create_job(job())
    gang = models.MultiInstanceSettings(number_of_instances=2, coordination_command_line="print coordinated")
    client.create_task("job", task(command="print trained", multi_instance_settings=gang))
    found = completed(client)
    assert b"".join(client.download_task_file("job", "task", "stdout.txt")) == b"coordinated\ntrained\n"
    (subtask,) = client.list_subtasks("job", "task")
    assert (subtask.id, subtask.state, subtask.exit_code) == (1, "completed", 0)
    assert subtask.node_info.node_id != found.node_info.node_id
    name = f"{subtask.node_info.task_root_directory}/stdout.txt"
    assert b"".join(client.download_node_file("pool", subtask.node_info.node_id, name)) == b"coordinated\n"


def test_an_ordinary_task_has_no_subtasks(client: BatchClient) -> None:
    client.create_job(job())
    client.create_task("job", task())
    assert list(client.list_subtasks("job", "task")) == []


def test_a_running_task_is_terminated(client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job())
    client.create_task("job", task(command="wait"))
    eventually(lambda: client.get_task("job", "task").state == "running")
    client.terminate_task("job", "task")
    found = completed(client)
    assert (found.execution_info.result, found.execution_info.failure_info.code) == ("failure", "TaskEnded")
    assert client.get_job_task_counts("job").task_counts.failed == 1


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


def test_what_is_not_implemented_says_so(client: BatchClient) -> None:
    with pytest.raises(HttpResponseError) as refusal:
        identity = models.BatchNodeIdentityReference(resource_id="/subscriptions/x")
        file = models.ResourceFile(http_url="http://x/y", file_path="y", identity_reference=identity)
        client.create_pool(pool(start_task=models.BatchStartTask(command_line="exit 0", resource_files=[file])))
    assert (refusal.value.status_code, code_of(refusal.value)) == (501, "NotImplementedByEmulator")
    assert "managed identities" in refusal.value.error.message


# What the service does not know


@pytest.mark.parametrize(
    ("verb", "path", "body", "place"),
    [
        ("POST", "/pools", {"nonsense": 1}, "nonsense"),
        ("POST", "/jobs", {"id": "j", "poolInfo": {"poolID": "p"}}, "poolInfo/poolID"),
        ("PATCH", "/jobs/job", {"onTaskFailure": "noaction"}, "onTaskFailure"),
        ("PUT", "/jobs/job", {"poolInfo": {"poolId": "pool"}, "usesTaskDependencies": True}, "usesTaskDependencies"),
        ("PUT", "/jobs/job/tasks/task", {"commandLine": "x"}, "commandLine"),
        ("POST", "/jobs/job/tasks", {"id": "t", "commandLine": "x", "enviromentSettings": []}, "enviromentSettings"),
        ("POST", "/jobs/job/enable", {"force": True}, "force"),
        ("POST", "/pools/pool/stopresize", {"x": {}}, "x"),
    ],
)
def test_a_property_that_does_not_exist_is_named(
    emulator: Emulator, client: BatchClient, verb: str, path: str, body: object, place: str
) -> None:
    client.create_pool(pool(nodes=0))
    client.create_job(job())
    client.create_task("job", task())
    status, _, document = raw(emulator, verb, path, json.dumps(body).encode())
    assert (status, document["code"]) == (400, "InvalidRequestBody")
    assert {"key": "PropertyName", "value": place} in document["values"]
    assert f"'{place}' does not exist" in document["message"]["value"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/pools?$orderby=id", "UnsupportedQueryParameter"),
        ("/pools?timeOut=soon", "InvalidQueryParameterValue"),
        ("/pools?$select=id,nothing", "InvalidQueryParameterValue"),
        ("/pools?$expand=nodes", "InvalidQueryParameterValue"),
        ("/pools?$filter=taskSlotsPerNode%20eq%201", "InvalidQueryParameterValue"),
        ("/pools?$filter=state%20eq%20'gone'", "InvalidQueryParameterValue"),
        ("/applications?$filter=id%20eq%20'x'", "UnsupportedQueryParameter"),
    ],
)
def test_a_query_that_the_service_does_not_take_is_400(emulator: Emulator, path: str, code: str) -> None:
    status, _, document = raw(emulator, "GET", path)
    assert (status, document["code"]) == (400, code)


def test_a_body_that_does_not_call_itself_json_is_400(emulator: Emulator) -> None:
    body = json.dumps(POOL).encode()
    for kind, code in (("text/plain", "InvalidHeaderValue"), ("", "MissingRequiredHeader")):
        status, _, document = raw(emulator, "POST", "/pools", body, content_type=kind)
        assert (status, document["code"]) == (400, code)
    assert raw(emulator, "POST", "/pools", body, content_type="Application/JSON; odata=minimalmetadata")[0] == 201


# The wire itself


def test_a_wrong_key_is_403_and_nothing_happens(emulator: Emulator, client: BatchClient) -> None:
    with connect(emulator, base64.b64encode(b"wrong").decode()) as stranger:
        with pytest.raises(HttpResponseError) as refusal:
            stranger.create_pool(pool())
        assert (refusal.value.status_code, code_of(refusal.value)) == (403, "AuthenticationFailed")
        assert code_of(refusal.value) == "AuthenticationFailed"
    assert list(client.list_pools()) == []


def test_an_unsigned_request_is_403(emulator: Emulator) -> None:
    assert raw(emulator, "GET", "/pools", sign=False)[0] == 403
    assert raw(emulator, "POST", "/_emulator/reset", sign=False)[0] == 403


def test_health_needs_no_signature(emulator: Emulator) -> None:
    status, _, document = raw(emulator, "GET", "/_emulator/health", sign=False)
    assert (status, document["account"], document["pid"]) == (200, emulator.account, emulator.status.pid)


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "code"),
    [
        ("POST", "/pools", b"{", 400, "InvalidRequestBody"),
        ("POST", "/pools", b"{}", 400, "MissingRequiredProperty"),
        ("POST", "/pools", b"x" * 1_100_000, 413, "RequestBodyTooLarge"),
        ("GET", "/nothing", b"", 404, "ResourceNotFound"),
        ("PUT", "/pools", b"{}", 405, "UnsupportedHttpVerb"),
        ("GET", "/pools?maxresults=0", b"", 400, "InvalidQueryParameterValue"),
        ("GET", "/supportedimages?$skiptoken=x", b"", 400, "InvalidQueryParameterValue"),
    ],
)
def test_bad_requests_get_the_service_s_error_body(
    emulator: Emulator, verb: str, path: str, body: bytes, status: int, code: str
) -> None:
    answered, headers, document = raw(emulator, verb, path, body)
    assert (answered, document["code"]) == (status, code)
    assert headers["request-id"] in document["message"]["value"]


def test_any_api_version_and_numbers_as_strings_are_taken(emulator: Emulator) -> None:
    body = json.dumps({**pool().as_dict(), "targetDedicatedNodes": "0", "taskSlotsPerNode": "1"}).encode()
    status, headers, document = raw(emulator, "POST", "/pools?api-version=2024-02-01.19.0", body)
    assert (status, document) == (201, b"")
    assert headers["location"] == headers["dataserviceid"] == f"{emulator.endpoint}/pools/pool"
    assert not headers["etag"].startswith('"')


def test_an_unchanged_pool_is_304(emulator: Emulator, client: BatchClient) -> None:
    client.create_pool(pool(nodes=0))
    tag = client.get_pool("pool").etag
    assert raw(emulator, "GET", "/pools/pool", if_none_match=tag)[0] == 304


def test_reset_leaves_an_empty_account(emulator: Emulator, client: BatchClient) -> None:
    client.create_pool(pool())
    client.create_job(job())
    client.create_task("job", task(command="wait"))
    eventually(lambda: client.get_task("job", "task").state == "running")
    assert raw(emulator, "POST", "/_emulator/reset")[0] == 204
    assert list(client.list_pools()) == list(client.list_jobs()) == []
    client.create_pool(pool())
    idle(client)


def test_a_waiting_gang_is_explained_by_hints_alone(emulator: Emulator, client: BatchClient) -> None:
    client.create_pool(pool(nodes=1))
    client.create_job(job())
    gang = models.MultiInstanceSettings(number_of_instances=2, coordination_command_line="exit 0")
    client.create_task("job", task(multi_instance_settings=gang))
    (hint,) = eventually(lambda: raw(emulator, "GET", "/_emulator/hints")[2]["value"])
    assert (hint["jobId"], hint["taskId"]) == ("job", "task") and "enableInterNodeCommunication" in hint["text"]
    assert client.get_task("job", "task").state == "active"
