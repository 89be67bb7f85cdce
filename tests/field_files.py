"""Kinds of files that people wrote for Batch Shipyard, each reduced, and what they lead to here: one table for the test
and for `docs/how-to/from-batch-shipyard.md`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.config import load
from batchtrain.errors import Problem

Part = dict[str, Any]
NOTHING: Part = {}


class Kind(NamedTuple):
    """Parts of files, and the rule and words of the problem that they lead to; without a rule they load as they are."""

    name: str
    rule: str = ""
    words: str = ""
    level: str = "warning"
    pool: Part = NOTHING
    job: Part = NOTHING
    task: Part = NOTHING
    config: Part = NOTHING
    credentials: Part = NOTHING


POOL: Part = {
    "id": "p", "vm_size": "STANDARD_D2S_V5", "vm_count": {"dedicated": 1}, "inter_node_communication_enabled": True,
    "vm_configuration": {"platform_image": {
        "publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404", "native": True}},
}  # fmt: skip
IMAGE = POOL["vm_configuration"]["platform_image"]
STORAGE: Part = {"storage": {"s": {"account": "a1b2c3", "account_key": "a2V5"}}}
STORED: Part = {"storage_account_settings": "s", "remote_path": "results"}
NETWORK: Part = {"name": "n", "resource_group": "g", "subnet": {"name": "b", "address_prefix": "10.1.7.0/24"}}
SHARE: Part = {"volume_driver": "azurefile", "container_path": "/data", "storage_account_settings": "s",
               "azure_file_share_name": "files"}  # fmt: skip


def volume(**properties: Any) -> Part:
    return {"volumes": {"shared_data_volumes": {"vol": {"container_path": "/data", **properties}}}}


def stored(direction: str, **properties: Any) -> Part:
    return {direction: {"azure_storage": [{**STORED, **properties}]}}


def account(**properties: str) -> Part:
    url = "https://a.westeurope.batch.azure.com"
    return {"batch": {"account_service_url": url, "account_key": "a2V5", **properties}}


KINDS = (
    Kind("a network to create", "network-by-name", "az network vnet subnet show",
         pool={"virtual_network": {**NETWORK, "create_nonexistant": True}}),
    Kind("output of a command in options of docker", "shell-text", "no shell reads", "error",
         task={"additional_docker_run_options": ["-v $(pwd)/web:/web"]}),
    Kind("`filemode` of an azurefile volume", config=volume(**SHARE, mount_options=["filemode=0777"]),
         credentials=STORAGE),
    Kind("a registry without a login", "registry-login", "counts as public",
         config={"additional_registries": {"docker": ["public.example.org"]}}),
    Kind("the host path of a mount", "mount-path", "$AZ_BATCH_NODE_MOUNTS_DIR", "error",
         config=volume(**SHARE), credentials=STORAGE,
         task={"command": "/mnt/batch/tasks/mounts/azfile-a1b2c3-files/run.sh"}),
    Kind("an invented key", "placeholder", "only needed to reach the service",
         credentials=account(account_key="yourbatchaccountkey==")),
    Kind("a URL with brackets or stars", "placeholder", "`account_service_url` is a placeholder",
         credentials=account(account_service_url="https://[account].**.batch.azure.com")),
    Kind("the name of a value in its place", "placeholder", "`account` is a placeholder",
         credentials={"storage": {"s": {"account": "storage_account_name", "account_key": "a2V5"}}}),
    Kind("a key that is no key", "account-key", "`account_key` is not base64",
         credentials=account(account_key="01234...")),
    Kind("a container by its name of 2.x", "renamed", "`container` is called `remote_path`", credentials=STORAGE,
         task={"input_data": {"azure_storage": [{"storage_account_settings": "s", "container": "data"}]}}),
    Kind("the number of nodes by itself", "renamed", "its `dedicated`", pool={"vm_count": 2}),
    Kind("an image beside `vm_size`", "renamed", "vm_configuration.platform_image.publisher",
         pool={**{name: IMAGE[name] for name in ("publisher", "offer", "sku")}, "vm_configuration": None}),
    Kind("`gpu: true`", "renamed", "`gpu: true` is written `gpus: all`", pool={"vm_size": "STANDARD_NC4AS_T4_V3"},
         task={"gpu": True}),
    Kind("the end of a gang's job by its name of 1.x", "renamed", "`auto_complete`",
         job={"multi_instance_auto_complete": True}),
    Kind("a file share as output", "file-share", "uploads to a container, not to a share", "error",
         task=stored("output_data", is_file_share=True), credentials=STORAGE),
    Kind("a file share as input", "file-share", "downloads blobs, not files of a share", "error",
         task=stored("input_data", is_file_share=True), credentials=STORAGE),
    Kind("output files to leave out", "filter-approximate", "narrow `include`", "error",
         task=stored("output_data", exclude=["*.tmp"]), credentials=STORAGE),
    Kind("an output with an empty `source` of 2.x", task=stored("output_data", source=None), credentials=STORAGE),
    Kind("files for the nodes' disks", "copy-to-nodes", "remove `method`, `ssh_private_key`", "error",
         config={"files": [{"source": {"path": "."}, "destination": {
             "relative_destination_path": "r", "data_transfer": {"method": "rsync+ssh", "ssh_private_key": "k"}}}]}),
    Kind("a command on a GlusterFS volume", "volume-gone", "not mounted any more", "error",
         config=volume(volume_driver="glusterfs_on_compute"), task={"command": "/data/run.sh"}),
    Kind("a recurrence with several tasks", "recurrence-tasks", "jobs add", "error",
         job={"recurrence": {"schedule": {"recurrence_interval": "12:00:00"}},
              "tasks": [{"command": "a", "docker_image": "a/b"}] * 2}),
    Kind("permutations of the letters of a text", task={"command": "echo {0}", "task_factory": {
        "parametric_sweep": {"permutations": {"iterable": "ABC", "length": 2}}}}),
    Kind("the command of a job", "unknown-key", "belongs to the task", "error", job={"command": "echo"}),
    Kind("a key that Batch Shipyard never had", "unknown-key", "Known: publisher, offer", "error",
         pool={"vm_configuration": {"platform_image": {**IMAGE, "urn": "a:b:c"}}}),
    Kind("a size that is gone", "size-retired", "4.35 USD an hour instead of 3.60 USD",
         pool={"vm_size": "STANDARD_NC24"}),
    Kind("a size whose successor costs much more", "size-retired", "choose a size yourself",
         pool={"vm_size": "STANDARD_NC24R"}),
)  # fmt: skip


def problems(kind: Kind) -> tuple[Problem, ...]:
    """The problems of the files of a kind."""
    task = {"command": "echo", "docker_image": "a/b", **kind.task}
    files = {
        "pool": {"pool_specification": {**POOL, **kind.pool}},
        "jobs": {"job_specifications": [
            {"id": "j", "allow_run_on_missing_image": True, "tasks": [task], **kind.job}]},
        "config": {"global_resources": kind.config},
        "credentials": {"credentials": kind.credentials},
    }  # fmt: skip
    contents = {f"{name}.yaml": json.dumps(data).encode() for name, data in files.items()}
    return load.examine(Path("somewhere"), contents).problems
