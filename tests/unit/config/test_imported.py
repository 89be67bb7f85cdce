"""Recipes of the JSON of other tools: what is carried, what is named, and that nothing is lost in silence."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from batchtrain.config.imported import KINDS, Imported, imported
from batchtrain.config.importing import Result, recipe_of
from batchtrain.errors import ConfigError, UsageError
from tests.contract import wire_properties

MACHINE = {
    "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"},
    "nodeAgentSKUId": "batch.node.ubuntu 24.04",
}
POOL = {"id": "p", "vmSize": "STANDARD_D2S_V5", "virtualMachineConfiguration": MACHINE, "targetDedicatedNodes": 2}
JOB = {"id": "j", "poolInfo": {"poolId": "p"}}
RUN = {"containerRunOptions": "--rm -e 'A=b c'", "workingDirectory": "containerImageDefault"}
CONTAINER = {"imageName": "me/it:1", **RUN}
URL = "https://acct.blob.core.windows.net/out?sv=1&sig=abc"
TASK = {
    "id": "t", "commandLine": "/bin/sh -c 'python train.py'", "containerSettings": CONTAINER,
    "environmentSettings": [{"name": "N", "value": "4"}],
    "multiInstanceSettings": {"numberOfInstances": 2, "coordinationCommandLine": "true"},
    "constraints": {"maxWallClockTime": "PT26H30M", "retentionTime": "P10675199DT2H48M5.4775807S"},
    "exitConditions": {"exitCodes": [{"code": 3, "exitOptions": {"jobAction": "disable"}}]},
    "outputFiles": [{"filePattern": "out/*", "destination": {"container": {"containerUrl": URL, "path": "run"}},
                     "uploadOptions": {"uploadCondition": "taskCompletion"}}],
}  # fmt: skip


def made(*documents: Any) -> Result:
    files = {f"{number}.json": json.dumps(item).encode() for number, item in enumerate(documents)}
    return recipe_of(files, Path("/no"))


def test_a_pool_a_job_and_its_tasks_are_one_valid_recipe() -> None:
    machine = {**MACHINE, "containerConfiguration": {"type": "dockerCompatible"}}
    job = {**JOB, "onTaskFailure": "performExitOptionsJobAction", "onAllTasksComplete": "terminateJob"}
    result = made({**POOL, "virtualMachineConfiguration": machine, "enableInterNodeCommunication": True}, job, [TASK])
    recipe, (task,) = result.recipe, result.recipe.jobs[0].tasks
    assert recipe.pool is not None and recipe.pool.vm_count.dedicated == 2
    assert recipe.resources.docker_images == ("me/it:1",)
    assert recipe.jobs[0].auto_complete
    assert (task.command, task.docker_image, task.default_working_dir) == (TASK["commandLine"], "me/it:1", "container")
    assert task.additional_docker_run_options == ("--rm", "-e", "A=b c")
    assert (task.max_wall_time, task.retention_time) == ("1.02:30:00", None)
    assert task.environment_variables == {"N": "4"}
    assert task.multi_instance is not None and str(task.multi_instance.num_instances) == "2"
    assert task.exit_conditions is not None and task.exit_conditions.exit_codes[0].exit_options.job_action == "disable"
    (output,) = task.output_data.azure_storage
    assert (output.storage_account_settings, output.remote_path, output.include) == ("acct", "out/run", ("out/*",))
    assert [item.path for item in result.left] == ["outputFiles[0].destination.container.containerUrl"]


def test_no_secret_is_carried_and_each_is_named() -> None:
    secret = "c2VjcmV0"
    blob = {"accountName": "acct", "containerName": "box", "relativeMountPath": "data", "accountKey": secret}
    registry = {"registryServer": "r.io", "username": "u", "password": secret}
    document = {
        **POOL,
        "virtualMachineConfiguration": {**MACHINE, "containerConfiguration": {"containerRegistries": [registry]}},
        "mountConfiguration": [{"azureBlobFileSystemConfiguration": blob}],
        "userAccounts": [{"name": "ann", "password": secret}],
        "startTask": {
            "commandLine": "true", "userIdentity": {"autoUser": {"elevationLevel": "admin"}},
            "resourceFiles": [{"httpUrl": f"https://a.blob.core.windows.net/c/f?sig={secret}", "filePath": "f"}],
        },
    }  # fmt: skip
    result = made(document)
    assert secret not in str(result.recipe.files)
    assert [item.path.rpartition(".")[2] for item in result.left] == [
        "containerRegistries[0]", "accountKey", "password", "httpUrl",
    ]  # fmt: skip


def test_a_mount_keeps_its_options_and_its_identity_which_the_nodes_get() -> None:
    identity = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/n"
    blob = {
        "accountName": "acct", "containerName": "box", "relativeMountPath": "data",
        "blobfuseOptions": "-o attr_timeout=240 --read-only", "identityReference": {"resourceId": identity},
    }  # fmt: skip
    result = made({**POOL, "mountConfiguration": [{"azureBlobFileSystemConfiguration": blob}]})
    volume = result.recipe.resources.volumes.shared_data_volumes["data"]
    pool = result.recipe.pool
    assert pool is not None and pool.identities == (volume.identity,) == (identity,)
    assert volume.mount_options == ("-o attr_timeout=240 --read-only",)
    assert result.left == ()


def test_what_batchtrain_wrote_into_a_pool_or_a_job_is_left_out_and_named() -> None:
    metadata = [{"name": "batchtrain:run", "value": "r"}, {"name": "team", "value": "a"}]
    variables = [{"name": "BATCHTRAIN_RUN", "value": "r"}]
    result = made({**POOL, "metadata": metadata}, {**JOB, "commonEnvironmentSettings": variables})
    assert result.recipe.pool is not None and result.recipe.pool.metadata == {"team": "a"}
    assert [item.path for item in result.left] == ["metadata[0]", "commonEnvironmentSettings[0]"]


@pytest.mark.parametrize(("file", "words"), [("a.bicep", "build --file a.bicep"), ("b.bicepparam", "build-params")])
def test_a_file_of_bicep_is_to_be_compiled_first(file: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"`az bicep {words}"):
        imported({file: b"resource p 'x@2024-07-01' = {}"})


PARAMETERS = {"parameters": {"count": {"value": 3}}}


@pytest.mark.parametrize("is_bicep", [True, False])
def test_a_pool_of_a_template_is_read_with_its_parameters(is_bicep: bool) -> None:
    pool = {
        "type": "Microsoft.Batch/batchAccounts/pools",
        "name": "[format('{0}/{1}', parameters('account'), parameters('name'))]",
        "identity": {"userAssignedIdentities": {"[resourceId('a/b', 'n')]": {}}},
        "properties": {
            "vmSize": "[variables('size')]",
            "deploymentConfiguration": {"virtualMachineConfiguration": {
                "imageReference": MACHINE["imageReference"], "nodeAgentSkuId": "batch.node.ubuntu 24.04"}},
            "scaleSettings": {"fixedScale": {"targetDedicatedNodes": "[parameters('count')]"}},
            "interNodeCommunication": "Enabled",
            "taskSchedulingPolicy": {"nodeFillType": "Pack"},
            "startTask": {"commandLine": "[concat('a', variables('unknown'))]"},
        },
    }  # fmt: skip
    parameters = {"name": {"defaultValue": "from-template"}, "account": {}, "count": {"type": "int"}}
    account = {"type": "Microsoft.Batch/batchAccounts", "resources": [pool]}
    resources = {"pool": pool} if is_bicep else [account]
    variables = {"size": "STANDARD_D2S_V5"}
    result = made({"parameters": parameters, "variables": variables, "resources": resources}, PARAMETERS)
    read = result.recipe.pool
    assert read is not None
    assert (read.id, read.vm_size, read.vm_count.dedicated) == ("from-template", "STANDARD_D2S_V5", 3)
    assert read.node_fill_type == "pack"
    assert read.inter_node_communication_enabled
    lefts = {left.path: left.reason for left in result.left}
    assert lefts.keys() == {"identities[0]", "startTask.commandLine"}
    assert "resourceId" in lefts["identities[0]"] and "variables('unknown')" in lefts["startTask.commandLine"]


def test_a_template_of_az_batch_is_a_recipe_with_a_task_for_each_number_or_of_its_list() -> None:
    parameters = {"poolId": {"defaultValue": "p"}, "last": {"type": "int"}, "scene": {}}
    pool = {"type": "Microsoft.Batch/batchAccounts/pools", "properties": {
        **POOL, "id": "[parameters('poolId')]", "maxTasksPerNode": 4,
        "startTask": {"commandLine": "[concat('setup ', variables('what'))]", "runElevated": True}}}  # fmt: skip
    repeated = {"commandLine": "render --frame {0} '[parameters('scene')]'", "runElevated": True}
    steps = [{"start": 1, "end": "[parameters('last')]"}]
    sweep = {"type": "parametricSweep", "parameterSets": steps, "repeatTask": repeated}
    job = {"properties": {"id": "j", "poolInfo": {"poolId": "[parameters('poolId')]"}, "taskFactory": sweep}}
    templates = (
        {"parameters": parameters, "variables": {"what": "all"}, "pool": pool},
        {"parameters": parameters, "job": job},
    )
    result = made(*templates, {"parameters": {"last": {"value": 3}, "scene": {"value": "a.ma"}}})
    recipe, (task,) = result.recipe, result.recipe.jobs[0].tasks
    assert result.left == ()
    assert recipe.pool is not None and recipe.pool.task_slots_per_node == 4
    assert recipe.pool.additional_node_prep.commands.pre == ("setup all",)
    assert task.command == "render --frame {0} 'a.ma'"
    assert task.task_factory is not None and task.task_factory.parametric_sweep is not None
    assert [(steps.start, steps.stop) for steps in task.task_factory.parametric_sweep.product] == [(1, 4)]
    assert task.user_identity is not None and task.user_identity.auto_user is not None
    factory = {"type": "taskCollection", "tasks": [{"id": "a", "commandLine": "b"}]}
    listed = {**job["properties"], "taskFactory": factory}
    (task,) = made(POOL, {"job": listed}).recipe.jobs[0].tasks
    assert (task.id, task.command) == ("a", "b")


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"id": "[parameters('jobId')]"}, "id", "a value of `jobId`; give it in a file of parameters"),
        ({"id": "<<_ID_>>"}, "id", "the recipe has `1`"),
        ({"taskFactory": {"type": "taskPerFile"}}, "taskFactory", "`task_factory` with `file`"),
        ({"taskFactory": {"type": "parametricSweep", "parameterSets": [{"start": "[parameters('a')]", "end": 2}],
                          "repeatTask": {"commandLine": "x"}}}, "taskFactory", "a value of `a`"),
        ({"displayName": "run [parameters('b')] of [parameters('a')]"}, "displayName", "`b`, `a`"),
    ],
)  # fmt: skip
def test_a_template_without_a_value_is_a_valid_recipe_that_names_it(change: Any, path: str, words: str) -> None:
    result = made(POOL, {"parameters": {"jobId": {}}, "job": {"properties": {**JOB, **change}}})
    (left,) = result.left
    assert (left.path, words in left.reason) == (path, True), left


def test_what_a_schedule_makes_is_a_recurring_job_with_its_own_pool() -> None:
    pool = {name: value for name, value in POOL.items() if name != "id"}
    auto = {"autoPoolIdPrefix": "night", "poolLifetimeOption": "job", "pool": pool}
    manager = {"id": "m", "commandLine": "true"}
    schedule = {"recurrenceInterval": "PT24H"}
    specification = {"poolInfo": {"autoPoolSpecification": auto}, "jobManagerTask": manager}
    recipe = made({"id": "nightly", "schedule": schedule, "jobSpecification": specification}).recipe
    (job,) = recipe.jobs
    assert recipe.pool is not None and recipe.pool.id == "night"
    assert job.auto_pool is not None and job.job_manager is not None
    assert job.recurrence is not None and job.recurrence.schedule.recurrence_interval == "1.00:00:00"


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([JOB], "az batch pool show"),
        ([POOL, {**POOL, "id": "q"}], "one pool"),
        ([{"a": 1}], "no document of Azure Batch"),
        ([[1]], "no document of Azure Batch"),
    ],
)
def test_what_is_no_recipe_is_refused_with_the_next_step(documents: list[Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made(*documents)


def test_a_pool_of_cloud_services_is_refused_with_its_reason() -> None:
    with pytest.raises(ConfigError, match="retired Cloud Services"):
        made({"id": "p", "vmSize": "small", "cloudServiceConfiguration": {"osFamily": "4"}})


DEFAULTS = (
    "autoPoolIdPrefix", "uploadOptions", "uploadCondition", "poolLifetimeOption", "type", "enableAutoScale",
    "usesTaskDependencies",
)  # fmt: skip
"""Properties whose value here is the default of the language, or that the plan has by itself."""


@pytest.mark.parametrize("operation", ["create_pool", "create_job", "create_task"])
def test_each_property_of_a_request_is_carried_or_named(operation: str) -> None:
    """Without the property, the recipe or what is named is another."""
    lost = []
    for case in wire_properties.cases():
        if case.operation != operation or case.path in {(name,) for name in KINDS.values()} or case.name in DEFAULTS:
            continue
        shorter = copy.deepcopy(case.body)
        holder: Any = shorter
        for step in case.path[:-1]:
            holder = holder[step][0] if isinstance(holder[step], list) else holder[step]
        value, result = holder.pop(case.name), read(operation, case.body)
        path = ".".join(case.path).lower()
        named = [re.sub(r"\[\d+\]", "", item.path).lower() for item in result.left]
        if has_leaf(value) and result == read(operation, shorter) and not any(path.startswith(name) for name in named):
            lost.append(path)
    assert lost == []


def read(operation: str, body: Any) -> Imported:
    """What is imported of a body, beside a pool if it needs one."""
    needs_pool = operation != "create_pool" and "autoPoolSpecification" not in body.get("poolInfo", {})
    pool = {"pool.json": json.dumps(POOL).encode()} if needs_pool else {}
    return imported({**pool, "it.json": json.dumps(body).encode()})


def has_leaf(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return items is None or any(map(has_leaf, items))
