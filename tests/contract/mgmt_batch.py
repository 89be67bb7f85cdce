"""First steps with azure-mgmt-batch, any version: ENDPOINT ACCOUNT KEY; prints what it saw as JSON.

Signs in with the managed identity that `emulator env` exports.
"""

import json
import sys
import time

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential
from azure.mgmt.batch import BatchManagementClient, models

ENDPOINT, ACCOUNT, KEY = sys.argv[1:]
GROUP = "group"
client = BatchManagementClient(DefaultAzureCredential(), "subscription", base_url=ENDPOINT, polling_interval=1)
where = (GROUP, ACCOUNT)
saw = {}


def until(holds):
    while not (found := holds()):
        time.sleep(0.02)
    return found


def code(operation, *arguments):
    try:
        operation(*arguments)
    except HttpResponseError as error:
        return [error.status_code, error.error.code]


account = client.batch_account.get(*where)
keys = client.batch_account.get_keys(*where)
saw["account"] = [account.name, account.provisioning_state, account.pool_quota]
saw["endpoint"] = account.account_endpoint.partition(":")[0]
saw["storage"] = account.auto_storage.storage_account_id.rpartition("/")[2]
saw["key"] = keys.primary == KEY
saw["accounts"] = [one.name for one in client.batch_account.list()]

image = models.ImageReference(publisher="microsoft-dsvm", offer="ubuntu-hpc", sku="2204", version="latest")
machine = models.VirtualMachineConfiguration(
    image_reference=image,
    node_agent_sku_id="batch.node.ubuntu 22.04",
    container_configuration=models.ContainerConfiguration(type="DockerCompatible", container_image_names=["me/it:1"]),
)
wanted = models.Pool(
    display_name="a pool",
    vm_size="STANDARD_D2_V3",
    deployment_configuration=models.DeploymentConfiguration(virtual_machine_configuration=machine),
    scale_settings=models.ScaleSettings(fixed_scale=models.FixedScaleSettings(target_dedicated_nodes=1)),
    task_slots_per_node=2,
    task_scheduling_policy=models.TaskSchedulingPolicy(node_fill_type="Pack"),
    inter_node_communication="Enabled",
    metadata=[models.MetadataItem(name="batchtrain-nodes", value="simulated")],
    start_task=models.StartTask(
        command_line="true",
        user_identity=models.UserIdentity(
            auto_user=models.AutoUserSpecification(elevation_level="Admin", scope="Pool")
        ),
    ),
    user_accounts=[models.UserAccount(name="me", password="secret", elevation_level="Admin")],
    identity=models.BatchPoolIdentity(
        type="UserAssigned", user_assigned_identities={"/identities/i": models.UserAssignedIdentities()}
    ),
)
created = client.pool.create(*where, "pool", wanted)
saw["created"] = [created.name, created.provisioning_state]
until(lambda: client.pool.get(*where, "pool").allocation_state == "Steady")
pool = client.pool.get(*where, "pool")
configuration = pool.deployment_configuration.virtual_machine_configuration
saw["pool"] = [
    pool.display_name,
    pool.vm_size,
    pool.task_slots_per_node,
    pool.task_scheduling_policy.node_fill_type,
    pool.inter_node_communication,
    pool.current_dedicated_nodes,
    pool.scale_settings.fixed_scale.target_dedicated_nodes,
    configuration.image_reference.offer,
    configuration.node_agent_sku_id,
    configuration.container_configuration.type,
    pool.start_task.user_identity.auto_user.elevation_level,
    pool.user_accounts[0].elevation_level,
    pool.user_accounts[0].password,
    list(pool.identity.user_assigned_identities),
]
saw["pools"] = [one.name for one in client.pool.list_by_batch_account(*where)]
saw["again"] = client.pool.create(*where, "pool", wanted).etag == pool.etag
saw["other account"] = code(client.batch_account.get, GROUP, "other")
formula = models.AutoScaleSettings(formula="$TargetDedicatedNodes = 0;")
wanted.scale_settings = models.ScaleSettings(auto_scale=formula)
scaled = client.pool.create(*where, "scaled", wanted).scale_settings
saw["scaled"] = [scaled.auto_scale.formula, scaled.fixed_scale]
wanted.vm_size = None
saw["no size"] = code(client.pool.create, *where, "none", wanted)
client.pool.begin_delete(*where, "pool").result()
try:
    client.pool.get(*where, "pool")
except ResourceNotFoundError as error:
    saw["gone"] = error.error.code
json.dump(saw, sys.stdout)
