"""First steps with azure-batch 14.2, run by that SDK's own Python: ENDPOINT ACCOUNT KEY; prints what it saw as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from azure.batch import BatchServiceClient, models
from azure.batch.batch_auth import SharedKeyCredentials

ENDPOINT, ACCOUNT, KEY = sys.argv[1:]
batch = BatchServiceClient(SharedKeyCredentials(ACCOUNT, KEY), batch_url=ENDPOINT)
saw: dict[str, Any] = {"api version": batch.api_version}


def until(holds: Callable[[], Any]) -> Any:
    while not (found := holds()):
        time.sleep(0.02)
    return found


def refusal(ask: Callable[[], object]) -> str:
    try:
        ask()
    except models.BatchErrorException as error:
        return str(error.error.code)
    return ""


def pools() -> None:
    image = models.ImageReference(publisher="microsoft-dsvm", offer="ubuntu-hpc", sku="2204")
    machine = models.VirtualMachineConfiguration(image_reference=image, node_agent_sku_id="batch.node.ubuntu 22.04")
    wanted = models.PoolAddParameter(
        id="pool", vm_size="standard_d2_v3", target_dedicated_nodes=1, virtual_machine_configuration=machine
    )
    batch.pool.add(wanted)
    saw["pools"] = [pool.id for pool in batch.pool.list()]
    saw["exists"] = [batch.pool.exists("pool"), batch.pool.exists("nowhere")]
    saw["added twice"] = refusal(lambda: batch.pool.add(wanted))
    (node,) = until(lambda: [one for one in batch.compute_node.list("pool") if one.state == "idle"])
    batch.compute_node.disable_scheduling("pool", node.id)
    saw["node"] = batch.compute_node.get("pool", node.id).scheduling_state
    batch.compute_node.enable_scheduling("pool", node.id)
    until(lambda: batch.pool.get("pool").allocation_state == "steady")
    batch.pool.patch("pool", models.PoolPatchParameter(metadata=[models.MetadataItem(name="a", value="b")]))
    tag = batch.pool.get("pool").e_tag
    stale = models.PoolPatchOptions(if_match="0x0")
    saw["stale tag"] = refusal(lambda: batch.pool.patch("pool", models.PoolPatchParameter(), stale))
    batch.pool.patch("pool", models.PoolPatchParameter(), models.PoolPatchOptions(if_match=tag))
    whole = models.PoolUpdatePropertiesParameter(
        certificate_references=[],
        application_package_references=[],
        metadata=[models.MetadataItem(name="c", value="d")],
    )
    batch.pool.update_properties("pool", whole)
    saw["metadata"] = [(one.name, one.value) for one in batch.pool.get("pool").metadata]


def tasks() -> None:
    batch.job.add(models.JobAddParameter(id="job", pool_info=models.PoolInformation(pool_id="pool")))
    batch.task.add("job", models.TaskAddParameter(id="task", command_line="print hello"))
    many = [models.TaskAddParameter(id=f"more{number}", command_line="exit 3") for number in range(150)]
    saw["collection"] = sorted({one.status.value for one in batch.task.add_collection("job", many).value})
    until(lambda: batch.job.get_task_counts("job").task_counts.completed == 151)
    saw["failed"] = batch.job.get_task_counts("job").task_counts.failed
    options = models.TaskListOptions(filter="executionInfo/exitCode eq 3", select="id", max_results=40)
    saw["pages"] = len(list(batch.task.list("job", options)))
    saw["exit code"] = batch.task.get("job", "task").execution_info.exit_code


def files() -> None:
    saw["file"] = b"".join(batch.file.get_from_task("job", "task", "stdout.txt")).decode()
    part = models.FileGetFromTaskOptions(ocp_range="bytes=1-3")
    saw["range"] = b"".join(batch.file.get_from_task("job", "task", "stdout.txt", part)).decode()
    headers = batch.file.get_properties_from_task("job", "task", "stdout.txt", raw=True).headers
    saw["length"] = headers["Content-Length"]
    saw["files"] = [one.name for one in batch.file.list_from_task("job", "task")]


def endings() -> None:
    batch.job.disable("job", "requeue")
    until(lambda: batch.job.get("job").state == "disabled")
    batch.job.enable("job")
    batch.job.terminate("job", "enough")
    until(lambda: batch.job.get("job").state == "completed")
    saw["ended"] = batch.job.get("job").execution_info.terminate_reason
    batch.job.delete("job")
    batch.pool.resize("pool", models.PoolResizeParameter(target_dedicated_nodes=2))
    until(lambda: len(list(batch.compute_node.list("pool"))) == 2)
    batch.pool.delete("pool")
    until(lambda: not list(batch.pool.list()))
    saw["gone"] = refusal(lambda: batch.pool.get("pool"))


pools()
tasks()
files()
endings()
print(json.dumps(saw))
