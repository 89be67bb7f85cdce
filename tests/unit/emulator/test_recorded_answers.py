"""Answers of the service that were recorded. N: azure-sdk-for-node, `test/recordings/batchservice-tests`
(2020-03-01.11.0); F: azure-sdk-for-java and azure-batch-cli-extensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from batchtrain.emulator import applications, autoscale, jobs, nodes, pools, schedules, tasks, users
from batchtrain.emulator.records import Node
from batchtrain.emulator.reply import Call, Reply, Steps
from batchtrain.emulator.world import World
from tests.emulation import BASE, POOL, Stage, call, document, machine

AUTO = {"enableAutoScale": True, "autoScaleFormula": "$TargetDedicatedNodes=2;"}
ETAG, MODIFIED, ACTION = "ETag", "Last-Modified", "DataServiceId"


def ask(stage: Stage, operation: Any, path: str, body: object = None) -> Reply:
    """A request with its path, as the HTTP side passes it on."""
    names = tuple(path.split("/")[2::2])
    request: Call = call(*names, body=body, now=stage.now)._replace(raw_path=path)
    reply: Reply = operation(stage.world, request)
    return reply


def test_the_status_of_a_job_without_preparation_is_409(stage: Stage) -> None:
    """N; also 2024, F."""
    stage.job()
    fault = stage.refusal(jobs.list_preparation_and_release, "job")
    assert (fault.status, fault.code) == (409, "JobPreparationTaskOrReleaseTaskNotSpecified")
    assert fault.text == "The specified job does not have either job preparation task or job release task."


def test_a_bad_formula_is_evaluated_with_the_present_targets_and_an_error(stage: Stage) -> None:
    """N."""
    stage.do(pools.create_pool, body={**POOL, **AUTO})
    run = document(stage.do(autoscale.evaluate, "pool", body={"autoScaleFormula": "something_useless"}))
    assert run["odata.metadata"] == f"{BASE}/$metadata#Microsoft.Azure.Batch.Protocol.Entities.AutoScaleRun"
    assert run["results"] == "$TargetDedicatedNodes=2;$TargetLowPriorityNodes=0;$NodeDeallocationOption=requeue"
    assert run["error"] == {
        "code": "AutoScalingFormulaEvaluationError",
        "message": "The specified auto-scaling formula has evaluation error",
        "values": [{"name": "Message", "value": "Line 1, Col 1: Undefined symbol: something_useless"}],
    }


def test_a_data_disk_is_shown_with_its_defaults(stage: Stage) -> None:
    """N."""
    stage.do(pools.create_pool, body={**POOL, **machine(dataDisks=[{"lun": 1, "diskSizeGB": 4}])})
    (disk,) = document(stage.do(pools.get_pool, "pool"))["virtualMachineConfiguration"]["dataDisks"]
    managed = {"storageAccountType": "standard_lrs"}
    assert disk == {"lun": 1, "diskSizeGB": 4, "caching": "none", "managedDisk": managed}


def test_a_negative_page_size_is_refused_in_the_services_words(stage: Stage) -> None:
    """N."""
    assert stage.refusal(pools.list_pools, maxresults="-5").details == {
        "QueryParameterName": "maxresults",
        "QueryParameterValue": "-5",
        "Reason": "MaxResults cannot be less than 1",
    }


def test_pools_jobs_schedules_and_nodes_are_listed_by_id(stage: Stage) -> None:
    """N."""
    stage.pool(3)
    schedule = {"schedule": {"recurrenceInterval": "P1D"}, "jobSpecification": {"poolInfo": {"poolId": "pool"}}}
    for name in ("b", "a"):
        stage.do(pools.create_pool, body={**POOL, "id": name})
        stage.do(jobs.create_job, body={"id": name, "poolInfo": {"poolId": "pool"}})
        stage.do(schedules.create_schedule, body={"id": f"s{name}", **schedule})
    lists = (pools.list_pools, pools.list_node_counts, jobs.list_jobs, schedules.list_schedules, nodes.list_nodes)
    for operation in lists:
        path = ["pool"] if operation is nodes.list_nodes else []
        ids = [entry.get("id", entry.get("poolId")) for entry in document(stage.do(operation, *path))["value"]]
        assert ids == sorted(ids) and len(ids) > 1
        first = document(stage.do(operation, *path, maxresults="1"))
        assert f"skiptoken={ids[0]}" in unquote(first["odata.nextLink"])


def test_a_node_shows_the_exact_version_of_its_image(stage: Stage) -> None:
    """F."""
    (node,) = stage.pool(1)
    shown = document(stage.do(nodes.get_node, "pool", node.id))["virtualMachineInfo"]["imageReference"]
    assert (shown["version"], shown["exactVersion"] != "latest") == ("latest", True)


def test_the_kinds_of_answers_have_the_services_names(stage: Stage) -> None:
    """N."""
    stage.gang_pool(2)
    stage.gang()
    for operation, path, kind in (
        (applications.list_applications, (), "listapplicationsummariesresponses"),
        (tasks.list_subtasks, ("job", "task"), "subtaskinfo"),
        (jobs.task_counts, ("job",), "taskcountsresult/@Element"),
    ):
        metadata = document(stage.do(operation, *path))["odata.metadata"]
        assert metadata == f"{BASE}/$metadata#{kind}"
    old = jobs.task_counts(stage.world, call("job")._replace(revision=11))
    assert document(old)["odata.metadata"] == f"{BASE}/$metadata#taskcounts/@Element"


def kinds_of(reply: Reply) -> set[str]:
    return reply.headers.keys() & {ETAG, MODIFIED, ACTION, "Location"}


def test_an_answer_has_the_headers_of_its_kind(stage: Stage) -> None:
    """N."""
    (node,) = stage.pool(1)
    of_node = f"/pools/pool/nodes/{node.id}"
    schedule = {"schedule": {"recurrenceInterval": "P1D"}, "jobSpecification": {"poolInfo": {"poolId": "pool"}}}
    stage.do(schedules.create_schedule, body={"id": "s", **schedule})
    stage.task()
    all_of = {ETAG, MODIFIED, ACTION}
    for operation, path, body, headers in (
        (pools.get_pool, "/pools/pool", None, {ETAG, MODIFIED}),
        (jobs.get_job, "/jobs/job", None, {ETAG, MODIFIED}),
        (pools.list_pools, "/pools", None, set[str]()),
        (nodes.get_node, of_node, None, set[str]()),
        (jobs.task_counts, "/jobs/job/taskcounts", None, set[str]()),
        (pools.update_pool, "/pools/pool", {"metadata": []}, all_of),
        (jobs.disable_job, "/jobs/job/disable", {"disableTasks": "requeue"}, all_of),
        (schedules.disable_schedule, "/jobschedules/s/disable", None, all_of),
        (tasks.terminate_task, "/jobs/job/tasks/task/terminate", None, all_of),
        (pools.resize_pool, "/pools/pool/resize", {"targetDedicatedNodes": 1}, all_of),
        (nodes.disable_scheduling, f"{of_node}/disablescheduling", {}, {ACTION}),
        (nodes.reboot_node, f"{of_node}/reboot", {}, {ACTION}),
        (jobs.delete_job, "/jobs/job", None, set[str]()),
        (schedules.delete_schedule, "/jobschedules/s", None, set[str]()),
        (pools.delete_pool, "/pools/pool", None, set[str]()),
    ):
        reply = ask(stage, operation, path, body)
        assert kinds_of(reply) == headers, path
        if ACTION in headers:
            assert reply.headers[ACTION] == f"{BASE}{path}"


def test_a_node_user_has_a_location_and_no_etag(stage: Stage) -> None:
    """N."""
    (node,) = stage.pool(1)
    path = f"/pools/pool/nodes/{node.id}/users"
    assert kinds_of(ask(stage, users.create_user, path, {"name": "ann"})) == {"Location", ACTION}
    answer = ask(stage, users.create_user, path, {"name": "名前"})
    assert answer.headers["Location"].endswith("/users/%E5%90%8D%E5%89%8D")


# The status of each operation

Operation = Callable[[World, Call], "Reply | Steps"]
Step = tuple[Operation, tuple[str, ...], Any, int]
FORMULA = "$TargetDedicatedNodes=1;"
JOB = {"poolInfo": {"poolId": "pool"}}


def of_pools(node: Node) -> Iterator[Step]:
    yield pools.create_pool, (), POOL | {"id": "other"}, 201
    yield pools.pool_exists, ("pool",), None, 200
    yield pools.update_pool, ("pool",), {"metadata": []}, 200
    yield autoscale.enable, ("pool",), {"autoScaleFormula": FORMULA}, 200
    yield autoscale.evaluate, ("pool",), {"autoScaleFormula": FORMULA}, 200
    yield autoscale.disable, ("pool",), None, 200
    yield pools.delete_pool, ("other",), None, 202


def of_nodes(node: Node) -> Iterator[Step]:
    yield users.create_user, ("pool", node.id), {"name": "me"}, 201
    yield users.replace_user, ("pool", node.id, "me"), {"password": "p"}, 200
    yield users.delete_user, ("pool", node.id, "me"), None, 200
    yield nodes.disable_scheduling, ("pool", node.id), {}, 200
    yield nodes.enable_scheduling, ("pool", node.id), None, 200
    yield nodes.reboot_node, ("pool", node.id), {}, 202


def of_jobs(node: Node) -> Iterator[Step]:
    yield jobs.create_job, (), {"id": "job", **JOB}, 201
    yield jobs.update_job, ("job",), {"priority": 1}, 200
    yield jobs.replace_job, ("job",), JOB, 200
    yield jobs.disable_job, ("job",), {"disableTasks": "wait"}, 202
    yield jobs.enable_job, ("job",), None, 202
    yield tasks.create_task, ("job",), {"id": "a", "commandLine": "true"}, 201
    yield tasks.create_task_collection, ("job",), {"value": [{"id": "b", "commandLine": "true"}]}, 200
    yield tasks.replace_task, ("job", "a"), {"constraints": {"maxTaskRetryCount": 1}}, 200
    yield tasks.list_subtasks, ("job", "a"), None, 200
    yield tasks.terminate_task, ("job", "b"), None, 204
    yield tasks.reactivate_task, ("job", "b"), None, 204
    yield tasks.delete_task, ("job", "a"), None, 200
    yield jobs.terminate_job, ("job",), None, 202
    yield jobs.delete_job, ("job",), None, 202


def of_schedules(node: Node) -> Iterator[Step]:
    body = {"schedule": {"recurrenceInterval": "PT1H"}, "jobSpecification": JOB}
    yield schedules.create_schedule, (), {"id": "s", **body}, 201
    yield schedules.schedule_exists, ("s",), None, 200
    yield schedules.update_schedule, ("s",), {"schedule": {"recurrenceInterval": "PT2H"}}, 200
    yield schedules.replace_schedule, ("s",), body, 200
    yield schedules.disable_schedule, ("s",), None, 204
    yield schedules.enable_schedule, ("s",), None, 204
    yield schedules.terminate_schedule, ("s",), None, 202
    yield schedules.delete_schedule, ("s",), None, 202


@pytest.mark.parametrize("steps", [of_pools, of_nodes, of_jobs, of_schedules])
def test_an_operation_answers_with_its_status(stage: Stage, steps: Callable[[Node], Iterator[Step]]) -> None:
    (node,) = stage.pool(1)
    for operation, path, body, status in steps(node):
        assert (operation.__name__, stage.do(operation, *path, body=body).status) == (operation.__name__, status)
        stage.later()
        stage.boot()
