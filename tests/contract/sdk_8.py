"""First steps with azure-batch 8.0 or 9.0, run by an old Python: ENDPOINT ACCOUNT KEY; prints what it saw as JSON."""

import json
import sys
import time

from azure.batch import BatchServiceClient, models
from azure.batch.batch_auth import SharedKeyCredentials

ENDPOINT, ACCOUNT, KEY = sys.argv[1:]
batch = BatchServiceClient(SharedKeyCredentials(ACCOUNT, KEY), batch_url=ENDPOINT)
saw = {"api version": batch.api_version, "missing": {}}


def until(holds):
    while not (found := holds()):
        time.sleep(0.02)
    return found


def whole(name, value):
    """Note which attributes of a model the service left out, at any depth."""
    missing = []
    for attribute in value._attribute_map:
        inner = getattr(value, attribute)
        if inner is None:
            missing.append(attribute)
        elif hasattr(inner, "_attribute_map"):
            whole(f"{name}.{attribute}", inner)
    saw["missing"][name] = sorted(missing)


def pools():
    image = models.ImageReference(publisher="microsoft-dsvm", offer="ubuntu-hpc", sku="2204", version="latest")
    machine = models.VirtualMachineConfiguration(
        image_reference=image,
        node_agent_sku_id="batch.node.ubuntu 22.04",
        data_disks=[models.DataDisk(lun=1, disk_size_gb=4, storage_account_type="premium_lrs")],
    )
    wanted = models.PoolAddParameter(
        id="pool",
        display_name="a pool",
        vm_size="standard_d2_v3",
        target_dedicated_nodes=1,
        max_tasks_per_node=2,
        virtual_machine_configuration=machine,
        certificate_references=[],
        metadata=[models.MetadataItem(name="a", value="b")],
    )
    batch.pool.add(wanted)
    until(lambda: [one for one in batch.compute_node.list("pool") if one.state == models.ComputeNodeState.idle])
    pool = batch.pool.get("pool", models.PoolGetOptions(expand="stats"))
    whole("pool", pool)
    saw["slots"] = pool.max_tasks_per_node
    saw["disk"] = pool.virtual_machine_configuration.data_disks[0].storage_account_type.value
    saw["certificates"] = pool.certificate_references  # recorded: the service shows them only after an update
    selected = batch.pool.list(models.PoolListOptions(select="id,maxTasksPerNode", filter="state eq 'active'"))
    saw["listed"] = [(one.id, one.max_tasks_per_node, one.vm_size) for one in selected]
    whole("node", next(iter(batch.compute_node.list("pool"))))
    (counts,) = batch.account.list_pool_node_counts()
    whole("node counts", counts)
    saw["idle"] = counts.dedicated.idle
    whole("all pools", batch.pool.get_all_lifetime_statistics())


def jobs():
    batch.job.add(models.JobAddParameter(id="job", pool_info=models.PoolInformation(pool_id="pool")))
    batch.task.add("job", models.TaskAddParameter(id="good", command_line="print hello"))
    batch.task.add_collection("job", [models.TaskAddParameter(id="bad", command_line="exit 3")])
    until(lambda: batch.job.get_task_counts("job").completed == 2)
    counts = batch.job.get_task_counts("job")
    whole("task counts", counts)
    saw["counts"] = [counts.active, counts.running, counts.completed, counts.succeeded, counts.failed]
    whole("job", batch.job.get("job", models.JobGetOptions(expand="stats")))
    whole("task", batch.task.get("job", "good", models.TaskGetOptions(expand="stats")))
    statistics = batch.job.get_all_lifetime_statistics()
    whole("all jobs", statistics)
    saw["all jobs"] = [statistics.num_succeeded_tasks, statistics.num_failed_tasks]


pools()
jobs()
print(json.dumps(saw))
