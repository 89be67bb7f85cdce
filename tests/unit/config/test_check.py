"""Each check: a recipe that it speaks of, at which place and in which words, and a neighbour that it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.catalog.sizes import VmSize
from batchtrain.config import check
from batchtrain.config.schema import dotted
from batchtrain.config.travel import Survey
from batchtrain.config.types import (
    GONE,
    Credentials,
    DataReplication,
    GlobalResources,
    Job,
    Pool,
    Recipe,
    Settings,
    convert,
    read_path,
)
from batchtrain.plan import plan_jobs, plan_pool
from tests import examples

Parts = dict[str, Any]

UBUNTU_HPC = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404", "native": True}
UBUNTU_GEN1 = {"publisher": "canonical", "offer": "ubuntu-24_04-lts", "sku": "server-gen1"}
UBUNTU_16 = {"publisher": "Canonical", "offer": "UbuntuServer", "sku": "16.04-LTS"}
UBUNTU = {"publisher": "canonical", "offer": "ubuntu-24_04-lts", "sku": "server"}
JAMMY = {"publisher": "canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts"}
AZURE_LINUX = {"publisher": "azure-hpc", "offer": "azurelinux-hpc", "sku": "3"}
ROCM = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404-rocm"}
CENTOS = {"publisher": "OpenLogic", "offer": "CentOS-HPC", "sku": "7.3"}
WINDOWS = {"publisher": "MicrosoftWindowsServer", "offer": "WindowsServer", "sku": "2022-datacenter"}
ID = "/subscriptions/s/resourceGroups/g/providers/"
IDENTITY = f"{ID}Microsoft.ManagedIdentity/userAssignedIdentities/reader"
SUBNET = f"{ID}Microsoft.Network/virtualNetworks/v/subnets/s"
ADDRESS = f"{ID}Microsoft.Network/publicIPAddresses/a"
ARTIFACT = f"{ID}Microsoft.Compute/galleries/g/serviceArtifacts/a/vmArtifactsProfiles/p"
ENCRYPTION_SET = f"{ID}Microsoft.Compute/diskEncryptionSets/d"
MINE = {"arm_image_id": f"{ID}Microsoft.Compute/galleries/g/images/i", "node_agent": "batch.node.ubuntu 24.04"}
H100, T4, HB = "STANDARD_ND96ISR_H100_V5", "STANDARD_NC4AS_T4_V3", "STANDARD_HB120RS_V3"
GANG = {"num_instances": 2, "mpi": {"runtime": "openmpi", "processes_per_node": 2}}

BASE: Parts = {
    "pool": {
        "id": "p",
        "vm_configuration": {"platform_image": UBUNTU_HPC},
        "vm_size": "STANDARD_D4S_V5",
        "vm_count": {"dedicated": 2},
        "inter_node_communication_enabled": True,
    },
    "job": {"id": "j"},
    "task": {"command": "x", "docker_image": "a/b"},
    "global": {"docker_images": ["a/b"]},
    "credentials": {},
    "settings": {},
}


SCRIPTS = Survey(("a.py", "lib/b.py"))
UNSENT = Survey(("a.py",), unsent={"runs/x": "a rule", "data/a": "a rule"})
BROKEN = Survey(("b.py", "bb.py"), syntax_errors=(("b.py", "line 2: invalid syntax"),))


PRICED: Parts = {"prices": (Prices("westus", "USD", {"Standard_D4as_v5": 0.2}),)}


class Case(NamedTuple):
    """One rule: where it speaks, what is in the message, the recipe that has it, and the neighbour that has not."""

    rule: str
    at: str
    says: str
    bad: Parts
    good: Parts
    sources: Mapping[str, Survey] = {}
    good_sources: Mapping[str, Survey] | None = None
    """If not those of the bad recipe."""


def pair(rule: str, at: str, says: str, parts: Callable[[Any], Parts], bad: Any, good: Any) -> Case:
    """A case whose recipes differ in one value."""
    return Case(rule, at, says, parts(bad), parts(good))


def values(rule: str, at: str, says: str, bad: Any, good: Any, *around: Parts) -> Case:
    """A case whose recipes differ in the value of the property at `at`; both have the parts `around`."""
    return Case(rule, at, says, both(*around, with_value(at, bad)), both(*around, with_value(at, good)))


def with_value(at: str, value: Any) -> Parts:
    """A recipe that sets one property; of a list, its only item."""
    head, *steps = read_path(at)
    for step in reversed(steps):
        value = [value] if step == 0 else {step: value}
    return {"settings" if head == "batchtrain" else str(head): value}


def fixed_by(rule: str, at: str, says: str, bad: Parts, fix: Parts) -> Case:
    """A case whose good recipe is the bad one with a change."""
    return Case(rule, at, says, bad, both(bad, fix))


def broken_by(rule: str, at: str, says: str, good: Parts, mistake: Parts) -> Case:
    """A case whose bad recipe is the good one with a change."""
    return Case(rule, at, says, both(good, mistake), good)


def recipe(parts: Parts) -> Recipe:
    """The base, with `parts` laid over it; None takes something out."""
    whole = {name: laid(BASE[name], parts.get(name, {})) for name in BASE}
    job = whole["job"] | {"tasks": parts.get("tasks", [whole["task"]])}
    return Recipe(
        directory=".",
        catalog=Catalog(prices=parts.get("prices", ())),
        pool=convert(whole["pool"], Pool) if parts.get("pool", {}) is not None else None,
        jobs=convert([job, *parts.get("jobs", [])], tuple[Job, ...]),
        resources=convert(whole["global"], GlobalResources),
        credentials=convert(whole["credentials"], Credentials),
        settings=convert(whole["settings"], Settings),
        replication=convert(parts["replication"], DataReplication) if "replication" in parts else None,
    )


def laid(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    merged = {name: laid(below.get(name), value) for name, value in above.items()}
    return {name: value for name, value in (below | merged).items() if value is not None}


def image(wanted: Parts, **more: Any) -> Parts:
    return {"vm_configuration": {"platform_image": wanted | {"native": None}} | more}


def vm(**more: Any) -> Parts:
    return {"pool": {"vm_configuration": more}}


BOTH_DISKS = ("osdisk", "temporarydisk")


def encrypted(key_url: str, *targets: str) -> Parts:
    key = {"key_url": key_url, "identity": IDENTITY}
    return both(vm(disk_encryption={"targets": [*targets], "customer_managed_key": key}), pool(identities=[IDENTITY]))


def pool(**more: Any) -> Parts:
    return {"pool": more}


def scaled(most: int) -> Parts:
    """A formula with a maximum, which replaces `vm_count`."""
    return pool(autoscale={"formula": f"$TargetDedicatedNodes = min({most}, $PendingTasks.GetSample(1));"})


def scenario(more: Parts) -> Parts:
    """A pool that scales by a scenario, which has more settings."""
    return pool(autoscale={"scenario": SCENARIO | more})


def candidates(*alternatives: Parts, **more: Any) -> Parts:
    return pool(candidates={"alternatives": list(alternatives), **more})


def network(**more: Any) -> Parts:
    return pool(network=more)


def nat(*given: Parts) -> Parts:
    usual = {"name": "n", "backend_port": 8888, "frontend_port_range": [1000, 1100]}
    return network(inbound_nat_pools=[usual | one for one in given])


def accounts(**more: Any) -> Parts:
    return {"credentials": more}


def settings(**more: Any) -> Parts:
    return {"settings": more}


def resources(**more: Any) -> Parts:
    return {"global": more}


def data_volumes(**volumes: Any) -> Parts:
    return resources(volumes={"data_volumes": volumes})


def task(**more: Any) -> Parts:
    return {"task": more}


def job(**more: Any) -> Parts:
    return {"job": more}


def uploaded(options: str) -> Parts:
    transfer = {"remote_path": "x", "blobxfer_extra_options": options}
    destination = {"storage_account_settings": "link", "data_transfer": transfer}
    return {"global": {"files": [{"source": {"path": "."}, "destination": destination}]}}


def gang(num_instances: int | str = 2, **mpi: Any) -> Parts:
    return task(multi_instance={"num_instances": num_instances, "mpi": {"runtime": "openmpi", **mpi}})


def launched(name: str, *, nodes: int | str = 2, **options: Any) -> Parts:
    return task(multi_instance={"num_instances": nodes, name: options})


def both(*given: Parts) -> Parts:
    merged: Parts = {}
    for one in given:
        merged = laid(merged, one)
    return merged


def on_host(parts: Parts) -> Parts:
    """The same task without a container, on an HPC image."""
    container = {"task": {**parts["task"], "docker_image": None}, "global": {"docker_images": None}}
    return {**container, **pool(**image(UBUNTU_HPC))}


def shared(**volume: Any) -> Parts:
    return {"global": {"volumes": {"shared_data_volumes": {"v": {"container_path": "/v"} | volume}}}}


def swept(command: str, **values: Any) -> Parts:
    return task(command=command, task_factory={"parametric_sweep": values})


def made_of_files(command: str, remote_path: str = "data") -> Parts:
    place = {"storage_account_settings": "mine", "remote_path": remote_path}
    return task(command=command, task_factory={"file": {"azure_storage": place}})


def brought(path: str) -> Parts:
    return {"azure_storage": [{"storage_account_settings": "mine", "remote_path": "data", "local_path": path}]}


def environment(**variables: str) -> Parts:
    return task(environment_variables=variables)


OUT: Parts = {"output_data": {"azure_storage": [{"storage_account_settings": "link", "remote_path": "box/out"}]}}
"""A task that uploads."""
IN: Parts = {"input_data": {"azure_storage": [{"storage_account_settings": "link", "remote_path": "box/in"}]}}
FILES = task(resource_files=[{"file_path": "in.csv", "blob_source": "https://example.org/in.csv"}])
KEYLESS: Parts = {"credentials": {"storage": {"link": {"account": "a"}}}}
KEY: Parts = {"credentials": {"storage": {"link": {"account": "a", "account_key": "a2V5"}}}}


UPLOAD = "task.output_data.azure_storage[0]"


def after(days: int) -> Parts:
    """A task that uploads, and waits for another one."""
    first, second = {"id": "a", "max_wall_time": f"{days}.00:00:00"}, {"max_wall_time": "10.00:00:00", **OUT}
    return {"tasks": [first, {"depends_on": ["a"], **second}]}


def lasting(days: int, **more: Any) -> Parts:
    """A task with a time limit."""
    return task(max_wall_time=f"{days}.00:00:00", **more)


NFS = shared(volume_driver="nfs", source="server:/export")
PREPARED = {"job_preparation": {"command": "x"}}
FILE = {"file_path": "f", "blob_source": "https://example.com/f"}
STORED = {"storage_account_settings": "link", "remote_path": "box/in"}
KNOWN_LINK = {"credentials": {"storage": {"link": {"account": "a"}}}}
GLUSTER: Parts = {
    "global": {
        "volumes": {"shared_data_volumes": {"v": {"volume_driver": "glusterfs_on_compute", "container_path": "/gfs"}}}
    }
}
FACTORY = task(id=None, task_factory={"repeat": 2})
SWEPT = task(task_factory={"grid": {"lr": [1, 2]}})
SCENARIO = {"name": "pending_tasks", "maximum_vm_count": {"dedicated": 4}}
SPOT = {"dedicated": 0, "low_priority": 2}
MIDNIGHT = {"do_not_run_until": "2027-01-01T02:00:00+02:00"}
COUNTED = {"id": "c", "task_factory": {"repeat": 6, "autogenerated_task_id": {"prefix": "1", "zfill_width": 2}}}
"""Its tasks are 100 to 105."""
EXIT: Parts = {"exit_codes": [{"code": 1, "exit_options": {"job_action": "terminate"}}]}
ONE_NODE_REDUCE = (
    "--variable_update=distributed_all_reduce --controller_host=c:1 --all_reduce_spec=nccl --worker_hosts="
)
BENCH = "python tf_cnn_benchmarks.py "
COLLECTIVE = f"{BENCH}--variable_update=collective_all_reduce --all_reduce_spec=collective"
BLOB_VOLUME: Parts = {
    "global": {"volumes": {"shared_data_volumes": {"v": {
        "volume_driver": "azureblob", "storage_account_settings": "link", "azure_blob_container_name": "c",
        "container_path": "/v",
    }}}},
}  # fmt: skip
KEYED = {"credentials": {"batch": {"account_service_url": "https://a", "account_key": "k"}}}
ACCESS: Parts = {"credentials": {"docker_registry": {"me.azurecr.io": {"username": "u", "password": "p"}}}}
PLAIN: Parts = {"task": {"docker_image": None}, "global": {"docker_images": None}, **pool(**image(UBUNTU))}
SOURCE = {"priority": 150, "access": "allow", "source_address_prefix": "*"}
LOGIN = {"username": "u", "password": "p"}
ON_WINDOWS = pool(**image(WINDOWS))
OWN_IMAGE = vm(platform_image=None, custom_image=MINE)
AUTO_POOL = job(auto_pool={"pool_lifetime": "job"})
CIFS = shared(volume_driver="cifs", source="//s/x")
FILE_SHARE = shared(volume_driver="azurefile", storage_account_settings="link", azure_file_share_name="box")
SCALED = pool(autoscale={"scenario": SCENARIO})

CASES = [
    # --- images ---
    Case("image-kind", "pool.vm_configuration", "are given", vm(custom_image=MINE), {}),
    Case("image-kind", "pool.vm_configuration", "no image is named", vm(platform_image=None), vm(
        platform_image=None, custom_image=MINE)),
    values("image-unknown", "pool.vm_configuration.platform_image", "did you mean microsoft-dsvm:ubuntu-hpc:2404",
           {"sku": "2604"}, {"sku": "2604", "node_agent": "batch.node.ubuntu 24.04"}),
    Case("image-retired", "pool.vm_configuration.platform_image", "2024-06-30; use microsoft-dsvm:ubuntu-hpc:2404",
         pool(**image(CENTOS)), {}),
    values("node-agent", "pool.vm_configuration.platform_image.node_agent", "write `batch.node.ubuntu 24.04`",
           "batch.node.ubuntu 22.04", "batch.node.ubuntu 24.04"),
    pair("node-agent-unknown", "pool.vm_configuration.custom_image.node_agent",
         "did you mean `batch.node.ubuntu 24.04`?", lambda value: vm(platform_image=None, custom_image=value),
         MINE | {"node_agent": "batch.node.ubuntu 2404"}, MINE),
    pair("node-agent-retired", "pool.vm_configuration.custom_image.node_agent", "ended, on 2024-06-30",
         lambda value: vm(platform_image=None, custom_image=value), MINE | {"node_agent": "batch.node.centos 7"}, MINE),
    Case("vm-size-unknown", "pool.vm_size", "did you mean Standard_D4s_v5?", pool(vm_size="STANDARD_D4S_V55"), {}),
    Case("vm-size-unknown", "pool.vm_size", "did you mean Standard_ND96isr_H100_v5?",
         pool(vm_size="STANDARD_ND96IRS_H100_V5"), pool(vm_size="STANDARD_Q12Z_V9")),
    values("vm-size-form", "pool.vm_size", "`foo` is not the name of a VM size", "foo", "STANDARD_Q12Z_V9"),
    values("vm-size-new", "pool.vm_size", "which has no similar name", "STANDARD_Q12Z_V9", "STANDARD_ND96IRS_H100_V5"),
    Case("vm-size-new", "pool.vm_size", "similar names such as Standard_ND96isr_H100_v5",
         pool(vm_size="STANDARD_ND96ISR_H100_V9"), pool(vm_size="STANDARD_ND96ISR_H100_V55")),
    Case("vm-size-unknown", "pool.vm_size", "did you mean Standard_ND96isr_H100_v5?",
         pool(vm_size="STANDARD_ND96ISR_H100_V1"), pool(vm_size="STANDARD_ND96ISR_H100_V9")),
    values("size-refused", "pool.vm_size", "Batch does not support Standard_A0", "STANDARD_A0", "STANDARD_A1"),
    Case("size-refused", "pool.vm_size", "GS series", pool(vm_size="STANDARD_GS2"), pool(vm_size="STANDARD_G2")),
    Case("size-retired", "pool.vm_size", "2023-09-06. The nearest of today's", pool(vm_size="STANDARD_NC24R"), {}),
    Case("size-refused", "pool.vm_size", "DSv2", pool(vm_size="STANDARD_DS2_V2"), pool(vm_size="STANDARD_D2_V2")),
    Case("image-generation", "pool.vm_configuration.platform_image", "starts generation 2 images only",
         pool(vm_size=H100, **image(UBUNTU_GEN1)), pool(vm_size=H100, **image(UBUNTU))),
    Case("image-generation-old", "pool.vm_configuration.platform_image", "generation 1 images only",
         pool(vm_size="STANDARD_NC24R"), pool(vm_size="STANDARD_NC24R", **image(UBUNTU_GEN1))),
    Case("image-generation", "pool.vm_configuration.platform_image", "the Dv3 series starts generation 1 images only;"
         " use a suitable image, such as canonical:ubuntu-24_04-lts:server-gen1",
         both(PLAIN, pool(vm_size="STANDARD_D4_V3")), both(PLAIN, pool(vm_size="STANDARD_D4S_V3"))),
    Case("image-gpu-old", "pool.vm_configuration.platform_image", "such as almalinux:almalinux-hpc:8_10-hpc-v100-gen2",
         pool(vm_size="STANDARD_ND40RS_V2"),
         pool(vm_size="STANDARD_ND40RS_V2", **image(UBUNTU_HPC | {"sku": "2204-v100"}))),
    Case("image-unknown", "pool.vm_configuration.platform_image", "but its node agent is not documented",
         pool(**image(AZURE_LINUX)), pool(**image(AZURE_LINUX | {"node_agent": "batch.node.azurelinux 3.0"}))),
    Case("image-architecture", "pool.vm_size", "arm64 processors", pool(vm_size="STANDARD_D4PS_V5"), {}),
    Case("image-gpu-vendor", "pool.vm_configuration.platform_image", "has NVIDIA GPUs",
         pool(vm_size=H100, **image(ROCM)), pool(vm_size="STANDARD_ND96ISR_MI300X_V5", **image(ROCM))),
    fixed_by("image-gpu-driver", "pool.vm_configuration.platform_image", "but the image has no driver",
             pool(vm_size=T4, **image(UBUNTU)), pool(gpu={"nvidia_driver": {"source": "https://x"}})),
    fixed_by("image-gpu-driver", "pool.gpu.nvidia_driver.source", "the image has a driver",
             pool(vm_size=T4, gpu={"nvidia_driver": {"source": "https://x"}}), pool(**image(UBUNTU))),
    Case("gpu-driver-unused", "pool.gpu.nvidia_driver.source", "has no GPUs, so this driver is ignored",
         pool(gpu={"nvidia_driver": {"source": "https://x"}}), pool(gpu={"nvidia_driver": {}})),
    pair("gpu-driver-unused", "pool.gpu.nvidia_driver.source", "has AMD GPUs",
         lambda size: pool(vm_size=size, gpu={"nvidia_driver": {"source": "https://x"}}, **image(UBUNTU)),
         "STANDARD_ND96ISR_MI300X_V5", T4),
    pair("environment-network-direct", "task.environment_variables.I_MPI_FABRICS",
         "sets `I_MPI_FABRICS=shm:ofi` and `FI_PROVIDER=mlx`. Where the command starts mpirun itself, write these. Its"
         " InfiniBand (SR-IOV) needs Intel MPI 2019",
         lambda fabrics: both(pool(vm_size=HB), task(environment_variables={"I_MPI_FABRICS": fabrics})),
         "shm:dapl", "shm:ofi"),
    pair("environment-network-direct", "job.environment_variables.I_MPI_DAPL_PROVIDER", "has SR-IOV: remove it",
         lambda size: both(pool(vm_size=size), job(environment_variables={"I_MPI_DAPL_PROVIDER": "ofa-v2-ib0"})),
         HB, "STANDARD_H16R"),
    pair("environment-network-direct", "task.command", "`I_MPI_FABRICS shm:dapl` works only",
         lambda fabrics: both(pool(vm_size=HB), task(command=f"mpirun -genv I_MPI_FABRICS {fabrics} ./x")),
         "shm:dapl", "shm:ofa"),
    pair("environment-network-direct", "task.multi_instance.mpi.options[1]", "`I_MPI_FABRICS shm:dapl` works only",
         lambda fabrics: both(gang(options=["-genv", "I_MPI_FABRICS", fabrics]), pool(vm_size=HB)),
         "shm:dapl", "shm:ofi"),
    values("environment-network-direct", "task.additional_docker_run_options[0]", "has no InfiniBand: remove it",
           "-e I_MPI_DEVICE=rdma:x", "-e I_MPI_DEVICE=shm"),
    values("package-manager", "pool.additional_node_prep.commands.pre[0]", "has no `yum`; write `apt-get`, with",
           "sudo -E yum install -y wget", "if command -v yum; then yum install -y wget; else apt-get install wget; fi"),
    pair("package-manager", "job.job_preparation.command", "has no `apt-get`; write `dnf`",
         lambda chosen: both(job(job_preparation={"command": "X=1 apt-get update"}), pool(**image(chosen))),
         {"publisher": "almalinux", "offer": "almalinux-hpc", "sku": "9-hpc-gen2"}, UBUNTU),
    pair("package-manager", "task.command", "has no `yum`",
         lambda parts: {**PLAIN, "task": {"docker_image": None, "command": parts}},
         "cd x && yum -y install gcc", "echo yum is not here; ./yum-install x"),
    Case("image-rdma", "pool.vm_configuration.platform_image", "no drivers for it",
         both(gang(), pool(vm_size=HB, **image(UBUNTU))), both(gang(), pool(vm_size=HB))),
    fixed_by("image-rdma", "pool.vm_configuration.platform_image", "or set `infiniband: false` on the job",
             both(gang(), pool(vm_size=HB, **image(UBUNTU))), job(infiniband=False)),
    pair("image-gpu-driver", "pool.vm_configuration.platform_image", "such as microsoft-dsvm:ubuntu-hpc:2404-rocm",
         lambda value: pool(vm_size="STANDARD_ND96ISR_MI300X_V5", **image(value)), UBUNTU, ROCM),
    Case("image-generation", "pool.vm_configuration.platform_image", "no windows image of the catalogue meets",
         pool(vm_size="STANDARD_D4S_V6", **image(WINDOWS)), pool(vm_size="STANDARD_D4S_V5", **image(WINDOWS))),
    Case("image-retired", "pool.vm_configuration.platform_image", "on 2021-05-21; use microsoft-dsvm:ubuntu-hpc:2404",
         pool(**image(UBUNTU_16)), {}),
    Case("image-retired", "pool.vm_configuration.platform_image", "use canonical:ubuntu-24_04-lts:server",
         {**PLAIN, **pool(**image(UBUNTU_16))}, PLAIN),
    Case("rdma-unused", "pool.vm_size", "inter_node_communication_enabled: true",
         pool(vm_size=HB, inter_node_communication_enabled=False), pool(vm_size=HB)),
    Case("containers-native", "pool.vm_configuration", "so the pool is planned as with `native",
         vm(platform_image={"native": None}), {}),
    Case("image-without-docker", "pool.vm_configuration.platform_image", "such as microsoft-dsvm:ubuntu-hpc:2404",
         pool(**image(UBUNTU)), PLAIN),
    Case("image-without-docker", "pool.vm_configuration.platform_image", "no container engine",
         pool(**image(JAMMY)), PLAIN),
    Case("image-without-docker-old", "pool.vm_configuration.platform_image", "no container engine",
         pool(**image(CENTOS)), both(pool(**image(CENTOS)), PLAIN)),
    Case("image-new", "pool.vm_configuration.platform_image", "did you mean microsoft-dsvm:ubuntu-hpc:2404",
         vm(platform_image={"sku": "2604", "node_agent": "batch.node.ubuntu 24.04"}), {}),
    Case("container-type", "pool.vm_configuration.container_type", "dockerCompatible",
         vm(container_type="criCompatible"), vm(container_type="dockerCompatible")),
    Case("license-type", "pool.vm_configuration.platform_image.license_type", "run Linux",
         vm(platform_image={"license_type": "windows_server"}),
         pool(**image(WINDOWS | {"license_type": "windows_server"}))),
    Case("windows-updates", "pool.vm_configuration.windows_automatic_updates", "Linux",
         vm(windows_automatic_updates=True), pool(**image(WINDOWS, windows_automatic_updates=True))),
    Case("windows-mpi", "task.multi_instance.mpi", "nodes run Windows", both(gang(), ON_WINDOWS), gang()),
    Case("windows-mpi", "task.multi_instance", "nodes run Windows",
         both(task(multi_instance={"num_instances": 2}), ON_WINDOWS), task(multi_instance={"num_instances": 2})),
    broken_by("windows-source", "task.source", "nodes run Windows", task(source="src"), ON_WINDOWS),
    pair("windows-input", "task.input_data.azure_storage[0].local_path", "relative path",
         lambda value: both(task(input_data=brought(value)), ON_WINDOWS), "/data", "data"),
    values("windows-input", "task.input_data.azure_storage[0]", "only `include` patterns",
           {"storage_account_settings": "mine", "remote_path": "data", "exclude": ["*.tmp"]},
           {"storage_account_settings": "mine", "remote_path": "data", "include": ["a*"]}, ON_WINDOWS),
    Case("windows-input", "job.input_data.azure_storage[0].local_path", "relative path",
         both(job(input_data=brought("/data")), ON_WINDOWS), job(input_data=brought("/data"))),
    values("node-preparation", "pool.additional_node_prep.commands", "send it with `resource_files`",
           {"pre": ["x" * 33_000]}, {"pre": ["x" * 31_000]}),
    values("signing-key", "global.singularity_images.signed[0]", "give its `fingerprint`", {"image": "library://a/b"},
           {"image": "library://a/b", "signing_key": {"fingerprint": "F"}}),
    Case("zones-twice", "pool.vm_configuration.zones", "remove one of them",
         vm(node_placement="zonal", zones={}), vm(zones={})),
    broken_by("zonal-infiniband", "pool.vm_configuration.zones", "InfiniBand does not connect zones",
              both(pool(inter_node_communication_enabled=True), vm(zones={})), pool(vm_size=HB)),
    values("vm-sizes", "pool.vm_sizes.alternatives[0]", "2 vCPUs instead of 4", "STANDARD_D2S_V5", "STANDARD_D4AS_V5"),
    Case("vm-sizes", "pool.vm_sizes.alternatives[0]", "a size of the pool already",
         pool(vm_sizes={"alternatives": ["Standard_D4s_v5"]}), {}),
    Case("vm-sizes", "pool.vm_sizes.alternatives", "no size is named", pool(vm_sizes={"alternatives": []}), {}),
    Case("vm-sizes-new", "pool.vm_sizes.alternatives[0]", "is not in the catalogue",
         pool(vm_sizes={"alternatives": ["STANDARD_Q12Z_V9"]}), {}),
    pair("candidate-price", "pool.vm_size", "no price of STANDARD_D4S_V5", lambda value: value | PRICED,
         candidates({"vm_size": "STANDARD_D4AS_V5"}, order="price"), candidates({"vm_size": "STANDARD_D4AS_V5"})),
    values("candidate-account", "pool.candidates.alternatives[0].account", "did you mean `west`?", "wset", "west",
           accounts(batch_accounts={"west": {}})),
    Case("candidate-equal", "pool.candidates.alternatives[0]", "a candidate already",
         candidates({"vm_size": "Standard_D4s_v5"}), candidates({"spot": True})),
    Case("candidate-pool", "pool.candidates", "`autoscale`",
         both(candidates({"spot": True}), pool(autoscale="to_zero")), candidates({"spot": True})),
    broken_by("candidate-pool", "pool.candidates", "`vm_sizes`", pool(vm_sizes={"alternatives": ["STANDARD_D4AS_V5"]}),
              candidates({"spot": True})),
    broken_by("candidate-pool", "job.auto_pool", "tries no `candidates`", AUTO_POOL, candidates({"spot": True})),
    values("candidate-patience", "pool.candidates.patience", "no time to wait", "0s", "20m",
           candidates({"spot": True})),
    Case("candidate-recover", "task", "no `checkpoint`",
         candidates({"spot": True}, recover=True), candidates({"spot": True})),
    Case("candidate-recover", "task", "one task can be moved",
         both(candidates({"spot": True}, recover=True), task(task_factory={"repeat": 2})), candidates({"spot": True})),
    values("candidate-fabric", "pool.candidates.alternatives[0]", "has no InfiniBand", {"vm_size": "STANDARD_D4S_V5"},
           {"vm_size": "STANDARD_HB176RS_V4"}, gang(), pool(vm_size=HB)),
    broken_by("auto-pool", "job.auto_pool", "`vm_sizes`", pool(vm_sizes={"alternatives": ["STANDARD_D4AS_V5"]}),
              AUTO_POOL),
    broken_by("auto-pool", "job.auto_pool", "`identities`", pool(identities=[IDENTITY]), AUTO_POOL),
    broken_by("auto-pool", "job.auto_pool", "hyper_threading", vm(hyper_threading=False), AUTO_POOL),
    Case("auto-pool", "job.auto_pool", "zones", both(AUTO_POOL, vm(zones={})), vm(zones={})),
    pair("disk-lun", "pool.vm_configuration.data_disks[1].lun", "another disk",
         lambda value: vm(data_disks=[{"lun": 0, "size_gb": 1}, {"lun": value, "size_gb": 1}]), 0, 1),
    broken_by("disk-ephemeral-spot", "pool.vm_configuration.os_disk.ephemeral", "dedicated nodes alone",
              vm(os_disk={"ephemeral": True}), pool(vm_count={"dedicated": 0, "low_priority": 2})),
    pair("disk-ephemeral", "pool.vm_configuration.os_disk.caching", "readonly",
         lambda value: vm(os_disk={"ephemeral": True, "caching": value}), "readwrite", "readonly"),
    fixed_by("vm-confidential", "pool.vm_configuration.security_profile.security_type", "VMGuestStateOnly",
             vm(security_profile={"security_type": "confidentialvm"}),
             vm(os_disk={"security_encryption": "VMGuestStateOnly"})),
    Case("vm-confidential", "pool.vm_configuration.os_disk.security_encryption", "this is only for confidential VMs",
         vm(os_disk={"security_encryption": "VMGuestStateOnly"}), {}),
    Case("vm-uefi", "pool.vm_configuration.security_profile.vtpm", "trustedLaunch", vm(security_profile={"vtpm": True}),
         vm(security_profile={"vtpm": True, "security_type": "trustedLaunch"})),
    Case("vm-trusted-image", "pool.vm_configuration.security_profile.security_type", "generation 2 image",
         pool(**image(UBUNTU_GEN1, security_profile={"security_type": "trustedLaunch"})),
         vm(security_profile={"security_type": "trustedLaunch"})),
    broken_by("secure-boot-drivers", "pool.vm_configuration.security_profile.secure_boot", "unsigned drivers",
              vm(security_profile={"security_type": "trustedLaunch", "secure_boot": True}), pool(vm_size=T4)),
    values("disk-encryption", "pool.vm_configuration.disk_encryption.targets",
           "Linux nodes encrypt only the temporary disk", ["osdisk"], ["temporarydisk"]),
    Case("image-managed", "pool.vm_configuration.custom_image.arm_image_id", "copy this managed image to a gallery",
         vm(platform_image=None, custom_image=MINE | {"arm_image_id": f"{ID}Microsoft.Compute/images/i"}), OWN_IMAGE),
    Case("disk-encryption", "pool.vm_configuration.disk_encryption", "an image of a gallery",
         vm(platform_image=None, custom_image=MINE, disk_encryption={"targets": ["temporarydisk"]}), OWN_IMAGE),
    Case("zonal-infiniband", "pool.vm_configuration.node_placement", "InfiniBand does not connect zones",
         both(pool(vm_size=HB), vm(node_placement="zonal")), vm(node_placement="zonal")),
    Case("extension-names", "pool.vm_configuration.extensions[0].provision_after[0]", "did you mean `second`?", vm(
        extensions=[{"name": "first", "publisher": "p", "type": "t", "provision_after": ["secnd"]},
                    {"name": "second", "publisher": "p", "type": "t"}]), vm(
        extensions=[{"name": "first", "publisher": "p", "type": "t", "provision_after": ["second"]},
                    {"name": "second", "publisher": "p", "type": "t"}])),
    # --- pools ---
    Case("inter-node-mixed", "pool.vm_count", "cannot mix", pool(vm_count={"low_priority": 1}), pool(
        vm_count={"low_priority": 1}, inter_node_communication_enabled=False)),
    Case("inter-node-mixed", "pool.autoscale.scenario.maximum_vm_count", "cannot mix",
         scenario({"maximum_vm_count": {"dedicated": 4, "low_priority": -1}}), SCALED),
    pair("inter-node-limit", "pool.vm_count", "101 nodes", lambda value: pool(vm_count={"dedicated": value}), 101, 100),
    Case("inter-node-limit", "pool.autoscale.scenario.maximum_vm_count", "200 nodes",
         scenario({"maximum_vm_count": {"dedicated": 200}}), SCALED),
    *(Case("inter-node-limit", "pool.autoscale.scenario.maximum_vm_count", "101 nodes",
           pool(vm_count={"dedicated": 0}, autoscale={"scenario": SCENARIO | {"maximum_vm_count": {kind: 101}}}),
           pool(vm_count={"dedicated": 0}, autoscale={"scenario": SCENARIO | {"maximum_vm_count": {kind: 100}}}))
      for kind in ("dedicated", "low_priority")),
    Case("inter-node-limit", "pool.autoscale.formula", "101 nodes", scaled(101), scaled(100)),
    pair("custom-image-limit", "pool.autoscale.formula", "at most 2000",
         lambda value: both(scaled(value), OWN_IMAGE), 2001, 2000),
    Case("public-ips-few", "pool.public_ips", "100 nodes of a kind",
         both(scaled(101), pool(public_ips=[ADDRESS])), both(scaled(100), pool(public_ips=[ADDRESS]))),
    Case("gang-nodes", "task.multi_instance.num_instances", "the pool has 2", both(gang(3), scaled(2)),
         both(gang(3), pool(autoscale={"formula": "$TargetDedicatedNodes = $PendingTasks.GetSample(1);"}))),
    Case("custom-image-limit", "pool.vm_count.low_priority", "at most 1000",
         both(pool(vm_count={"low_priority": 1001}), OWN_IMAGE), pool(vm_count={"low_priority": 1001})),
    Case("spot-inter-node", "pool.vm_count", "checkpoints", pool(vm_count=SPOT),
         pool(vm_count=SPOT, inter_node_communication_enabled=False)),
    Case("spot-inter-node", "pool.vm_count", "`checkpoint` of the task", both(pool(vm_count=SPOT), gang()),
         both(pool(vm_count=SPOT), gang(), NFS, task(checkpoint={"volume": "v"}))),
    Case("pool-empty", "pool.vm_count", "no nodes", pool(vm_count={"dedicated": 0}),
         pool(vm_count={"dedicated": 0}, autoscale={"scenario": SCENARIO})),
    values("slots-limit", "pool.task_slots_per_node", "at most 16", 17, 16),
    values("resize-timeout", "pool.resize_timeout", "5 minutes", "00:04:59", "00:05:00"),
    Case("autoscale-empty", "pool.autoscale", "does not scale", pool(autoscale={"evaluation_interval": "00:10:00"}),
         SCALED),
    pair("autoscale-both", "pool.autoscale.scenario", "remove one of them", lambda value: pool(autoscale=value),
         {"scenario": SCENARIO, "formula": "$TargetDedicatedNodes=1;"}, {"scenario": SCENARIO}),
    Case("autoscale-interval", "pool.autoscale.evaluation_interval", "between 5 minutes and 7 days",
         pool(autoscale={"scenario": SCENARIO, "evaluation_interval": "7.00:00:01"}),
         pool(autoscale={"scenario": SCENARIO, "evaluation_interval": "7.00:00:00"})),
    Case("on-bad-node", "pool.on_bad_node", "a formula decides", pool(on_bad_node="replace", idle_timeout="5m"),
         pool(on_bad_node="replace")),
    values("on-bad-node", "pool.on_bad_node", "has its own pool", "replace", "fail", AUTO_POOL),
    broken_by("on-bad-node", "pool.on_bad_node", "so no fault is found", both(gang(), pool(on_bad_node="replace")),
              task(multi_instance={"preflight": False})),
    Case("idle-timeout", "pool.idle_timeout", "between 5 minutes", pool(idle_timeout="4m59s"), pool(idle_timeout="5m")),
    Case("idle-timeout", "pool.idle_timeout", "7 days", pool(idle_timeout="7d1s"), pool(idle_timeout="7d")),
    Case("idle-timeout", "pool.idle_timeout", "remove one of them", pool(idle_timeout="5m", autoscale="to_zero"),
         pool(autoscale="to_zero")),
    values("autoscale-formula", "pool.autoscale.formula", "line 1", "$TargetDedicatedNodes=(",
           "$TargetDedicatedNodes=(1);"),
    values("autoscale-formula", "pool.autoscale.formula", "100 statements", "x=1;" * 101,
           "x=1;" * 99 + "$TargetDedicatedNodes=x;"),
    values("autoscale-formula", "pool.autoscale.formula", "did you mean `$PendingTasks`?",
           "$TargetDedicatedNodes=$PendingTask.GetSample(1);", "$TargetDedicatedNodes=$PendingTasks.GetSample(1);"),
    fixed_by("autoscale-count", "pool.vm_count", "the autoscale formula decides the number of nodes",
             pool(autoscale={"formula": "$TargetDedicatedNodes=1;"}), pool(vm_count={"dedicated": 0})),
    pair("autoscale-maximum", "pool.autoscale.scenario.maximum_vm_count.dedicated",
         "less than the minimum of 2 (`vm_count`)",
         lambda value: scenario({"maximum_vm_count": {"dedicated": value}}), 1, -1),
    Case("autoscale-maximum", "pool.autoscale.scenario.maximum_vm_count.dedicated", "there is no limit",
         pool(autoscale={"scenario": {"name": "workday", "maximum_vm_count": {"dedicated": -1}}}),
         pool(autoscale={"scenario": {"name": "workday", "maximum_vm_count": {"dedicated": 9}}})),
    fixed_by("autoscale-nothing", "pool.autoscale.scenario.maximum_vm_count", "never gets a node",
             pool(vm_count={"dedicated": 0}, autoscale={"scenario": {"name": "workday", "maximum_vm_count": {}}}),
             pool(vm_count={"dedicated": 1})),
    pair("upgrade-policy", "pool.upgrade_policy.rolling.max_batch_instance_percent", "50 is more than",
         lambda value: pool(upgrade_policy={"mode": "rolling", "rolling": value}),
         {"max_batch_instance_percent": 50, "max_unhealthy_instance_percent": 20}, {"max_batch_instance_percent": 50}),
    fixed_by("upgrade-policy", "pool.upgrade_policy.automatic_os.enabled", "also install Windows updates",
             both(pool(upgrade_policy={"mode": "automatic", "automatic_os": {"enabled": True}}),
             vm(platform_image=WINDOWS, windows_automatic_updates=True)), vm(windows_automatic_updates=False)),
    fixed_by("upgrade-policy", "pool.upgrade_policy.rolling.enable_cross_zone_upgrade", "zonal",
             pool(upgrade_policy={"mode": "rolling", "rolling": {"enable_cross_zone_upgrade": True}}),
             vm(node_placement="zonal")),
    values("user-name", "pool.user_accounts[0].name", "21 characters", "a" * 21, "a" * 20),
    Case("user-name", "pool.user_accounts[1].name", "another account",
         pool(user_accounts=[{"name": "a"}, {"name": "A"}]), pool(user_accounts=[{"name": "a"}, {"name": "b"}])),
    Case("user-ids", "pool.user_accounts[0].uid", "`gid` is missing", pool(user_accounts=[{"name": "a", "uid": 1000}]),
         pool(user_accounts=[{"name": "a", "uid": 1000, "gid": 1000}])),
    fixed_by("user-system", "pool.user_accounts[0].login_mode", "the login mode is only for Windows",
             pool(user_accounts=[{"name": "a", "login_mode": "batch"}]), pool(**image(WINDOWS))),
    Case("user-password", "pool.user_accounts[0].name", "user_accounts.a.password", pool(user_accounts=[{"name": "a"}]),
         both(pool(user_accounts=[{"name": "a"}]), accounts(user_accounts={"a": {"password": "p"}}))),
    Case("login-system", "pool.rdp", "`ssh`", pool(rdp={"username": "u"}), pool(ssh={"username": "u"})),
    Case("ssh-key", "pool.ssh.ssh_public_key_data", "another key",
         pool(ssh={"username": "u", "ssh_public_key": "k", "ssh_public_key_data": "d"}),
         pool(ssh={"username": "u", "ssh_public_key": "k"})),
    Case("pool-packages", "pool.application_packages[1]", "twice",
         pool(application_packages=[{"id": "a"}, {"id": "A"}]),
         pool(application_packages=[{"id": "a", "version": "1"}, {"id": "a", "version": "2"}])),
    pair("auto-pool-prefix", "pool.id", "21", lambda value: both(pool(id="p" * value), job(auto_pool={})), 21, 20),
    Case("disk-encryption-set", "pool.vm_configuration.data_disks[0].disk_encryption_set", "UserSubscription",
         vm(data_disks=[{"lun": 0, "size_gb": 1, "disk_encryption_set": ENCRYPTION_SET}]),
         vm(data_disks=[{"lun": 0, "size_gb": 1}])),
    Case("disk-encryption-set", "pool.vm_configuration.os_disk.disk_encryption_set", "UserSubscription",
         vm(os_disk={"disk_encryption_set": ENCRYPTION_SET}), vm(os_disk={})),
    Case("customer-key", "pool.vm_configuration.disk_encryption.customer_managed_key.key_url", "keys/NAME/VERSION",
         encrypted("https://v/keys/k", *BOTH_DISKS), encrypted("https://v/keys/k/1", *BOTH_DISKS)),
    Case("customer-key", "pool.vm_configuration.disk_encryption.targets", "needs `osdisk`",
         encrypted("https://v/keys/k/1", "temporarydisk"), encrypted("https://v/keys/k/1", *BOTH_DISKS)),
    values("resource-id", "pool.vm_configuration.service_artifact", "vmArtifactsProfiles/NAME", ADDRESS, ARTIFACT),
    # --- networks ---
    Case("nat-name", "pool.network.inbound_nat_pools[0].name", "78 characters", nat({"name": "n" * 78}),
         nat({"name": "n" * 77})),
    Case("nat-name", "pool.network.inbound_nat_pools[0].name", "letters, digits", nat({"name": "-n"}),
         nat({"name": "n_"})),
    pair("nat-backend-port", "pool.network.inbound_nat_pools[0].backend_port",
         "port 29877 of the nodes is reserved for Batch", lambda value: nat({"backend_port": value}), 29877, 29878),
    Case("nat-frontend-ports", "pool.network.inbound_nat_pools[0].frontend_port_range", "39 ports",
         nat({"frontend_port_range": [1, 39]}), nat({"frontend_port_range": [1, 40]})),
    Case("nat-frontend-ports", "pool.network.inbound_nat_pools[0].frontend_port_range", "50000 to 55000",
         nat({"frontend_port_range": [49961, 50000]}), nat({"frontend_port_range": [49960, 49999]})),
    Case("nat-frontend-ports", "pool.network.inbound_nat_pools[0].frontend_port_range", "between 1 and 65534",
         nat({"frontend_port_range": [65000, 65535]}), nat({"frontend_port_range": [65000, 65534]})),
    values("nat-frontend-ports", "pool.remote_access_control.starting_port", "which is reserved for Batch", 49001,
           49000, pool(ssh={"username": "u"})),
    pair("nat-overlap", "pool.network.inbound_nat_pools[1].frontend_port_range", "of `n`",
         lambda value: nat({}, {"name": "m", "backend_port": 9, "frontend_port_range": [value, 1200]}), 1100, 1101),
    Case("nat-rules", "pool.network.inbound_nat_pools[0].rules[1].priority", "priority 150", nat({"rules": [
        {"priority": 150, "access": "allow", "source_address_prefix": "*"},
        {"priority": 150, "access": "deny", "source_address_prefix": "*"}]}), nat({"rules": [
        {"priority": 150, "access": "allow", "source_address_prefix": "*"},
        {"priority": 151, "access": "deny", "source_address_prefix": "*"}]})),
    Case("nat-rules", "pool.network.inbound_nat_pools", "26 rules", nat({"rules": [
        {"priority": 150 + n, "access": "allow", "source_address_prefix": "*"} for n in range(26)]}), nat({"rules": [
        {"priority": 150 + n, "access": "allow", "source_address_prefix": "*"} for n in range(25)]})),
    pair("login-addresses", "pool.remote_access_control.allow[0]", "10.0.0.0/33",
         lambda value: pool(remote_access_control={"allow": value}), ["10.0.0.0/33"], ["10.0.0.0/8", "*", "Internet"]),
    Case("login-addresses", "pool.network.inbound_nat_pools[0].rules[0].source_address_prefix", "10.0.0.0/33",
         nat({"rules": [{"priority": 150, "access": "allow", "source_address_prefix": "10.0.0.0/33"}]}),
         nat({"rules": [{"priority": 150, "access": "allow", "source_address_prefix": "10.0.0.0/32"}]})),
    pair("nat-source-ports", "pool.network.inbound_nat_pools[0].rules[0].source_port_ranges", "overlap",
         lambda value: nat({"rules": [SOURCE | {"source_port_ranges": ["1-5", value]}]}), "5", "6"),
    Case("nat-unreachable", "pool.network.ip_tags", "could have tags",
         pool(network={"public_ip": "nopublicipaddresses", "ip_tags": [{"type": "a", "tag": "b"}]}),
         pool(network={"ip_tags": [{"type": "a", "tag": "b"}]})),
    Case("nat-unreachable", "pool.network.inbound_nat_pools", "no public addresses",
         both(nat({}), network(public_ip="nopublicipaddresses")), nat({})),
    Case("public-ips", "pool.network.public_ip", "usermanaged",
         both(pool(public_ips=[ADDRESS]), network(public_ip="batchmanaged")), pool(public_ips=[ADDRESS])),
    values("ip-families", "pool.network.ip_families", "write `[IPv4]`", ["IPv4", "IPv6", "IPv6"], ["IPv4", "IPv6"]),
    pair("public-ips-few", "pool.public_ips", "100 nodes of a kind",
         lambda value: pool(public_ips=[ADDRESS], vm_count={"dedicated": value}), 101, 100),
    values("ip-families", "pool.network.ip_families", "IPv6 alone", ["IPv6"], ["IPv4", "IPv6"]),
    values("network-kind", "pool.virtual_network", "arm_subnet_id", {}, {"arm_subnet_id": SUBNET}),
    fixed_by("network-subscription", "pool.virtual_network.name", "subscription_id",
             pool(virtual_network={"name": "n", "resource_group": "g", "subnet": {"name": "s"}}),
             accounts(management={"subscription_id": "s"})),
    Case("network-by-name", "pool.virtual_network.create_nonexistant",
         "run `az network vnet subnet show -g GROUP --vnet-name n -n s || az network vnet subnet create -g GROUP"
         " --vnet-name n -n s --address-prefixes PREFIX`",
         pool(virtual_network={"name": "n", "subnet": {"name": "s"}, "create_nonexistant": True}),
         pool(virtual_network={"name": "n", "subnet": {"name": "s", "address_prefix": "10.0.1.0/24"}})),
    Case("job-network", "job.network", "dynamic_vnet_assignment_scope", job(network={"subnet_id": SUBNET}),
         both(job(network={"subnet_id": SUBNET}), network(dynamic_vnet_assignment_scope="job"))),
    values("resource-id", "pool.virtual_network.arm_subnet_id", "virtualNetworks/NAME/subnets/NAME",
           SUBNET.removesuffix("/subnets/s"), SUBNET.upper()),
    fixed_by("identity-missing", "task.resource_files[0].identity", "pool_specification.identities",
             task(resource_files=[FILE | {"identity": IDENTITY}]), pool(identities=[IDENTITY.upper()])),
    broken_by("entra-needed", "pool.virtual_network", "used first and the service would refuse it",
              pool(virtual_network={"arm_subnet_id": SUBNET}), KEYED),
    pair("entra-needed", "pool.virtual_network", "used first and the service would refuse it",
         lambda value: both(pool(virtual_network={"arm_subnet_id": SUBNET}), KEYED, accounts(batch=value)),
         {"aad": {}}, {"aad": {}, "account_key": None}),
    Case("entra-needed", "pool.vm_configuration.custom_image", "image needs a sign-in with Microsoft Entra ID",
         both(OWN_IMAGE, KEYED), OWN_IMAGE),
    # --- accounts ---
    values("account-url", "credentials.batch.account_service_url", "it looks like https://NAME.REGION", "myacc",
           "myacc.westeurope.batch.azure.com"),
    values("account-url", "credentials.batch.account_service_url", "unencrypted", "http://a.westeurope.batch.azure.com",
           "http://127.0.0.1:10010"),
    values("account-url", "credentials.batch.account_service_url", "it looks like https://NAME.REGION",
           "ftp://a.westeurope.batch.azure.com", "<batch URL>"),
    values("account-key", "credentials.batch.account_key", "copy the whole key", "not base64!", "a2V5"),
    pair("account-key", "credentials.storage.link.account_key", "copy the whole key",
         lambda value: accounts(storage={"link": {"account": "one", "account_key": value}}), "a2V5$", "<storage key>"),
    values("webhook-url", "batchtrain.notify.url", "not a https URL", "http://a.org/x", "https://a.org/x"),
    values("storage-account", "credentials.storage.link.account", "3 to 24 lower-case", "My_Store", "mystore1"),
    Case("storage-account", "credentials.storage.link.endpoint", "core.windows.net",
         accounts(storage={"link": {"account": "one", "endpoint": "not an endpoint"}}),
         accounts(storage={"link": {"account": "one", "endpoint": "https://one.blob.core.windows.net/"}})),
    values("secret-id", "credentials.batch.account_key_keyvault_secret_id",
           "it looks like https://NAME.vault.azure.net", "https://evil.example.com/secrets/key",
           "https://mine.vault.usgovcloudapi.net/secrets/key"),
    values("secret-id", "task.environment_variables_keyvault_secret_id", "it looks like https://NAME.vault.azure.net",
           "http://mine.vault.azure.net/secrets/key", "name-in-the-vault"),
    Case("mount-key", "global.volumes.shared_data_volumes.v.storage_account_settings", "or an `identity` of the pool",
         both(BLOB_VOLUME, accounts(storage={"link": {"account": "one"}})),
         both(BLOB_VOLUME, accounts(storage={"link": {"account": "one", "account_key": "a2V5"}}))),
    # --- storage ---
    fixed_by("storage-link", "task.input_data.azure_storage[0].storage_account_settings", "`link`",
             task(input_data={"azure_storage": [STORED]}), KNOWN_LINK),
    broken_by("storage-link", "batchtrain.storage_account_settings", "travel inside the requests",
              settings(storage_account_settings="link"), task(source="src")),
    Case("gang-files", "task.input_data", "which lies in `$AZ_BATCH_JOB_PREP_WORKING_DIR/LOCAL_PATH`, or",
         both(launched("pytorch"), task(**IN)), both(launched("pytorch"), job(**IN))),
    *(Case("gang-files", "task.resource_files", "`multi_instance`, which lie in `$AZ_BATCH_TASK_SHARED_DIR`",
           both(gang(), FILES),
           both(gang(), FILES, other))
      for other in (gang(1), task(shared_data_volumes=["v"]), *(
          task(multi_instance={name: "x"}) for name in ("coordination_command", "pre_execution_command")))),
    values("gang-shared-files", "task.command", "write this in place of `bin/hello`", "exec ./bin/hello 1",
           "$AZ_BATCH_TASK_SHARED_DIR/bin/hello 1", gang(),
           task(multi_instance={"resource_files": [{"blob_source": "https://x", "file_path": "bin/hello"}]})),
    fixed_by("link-expiry", UPLOAD, "set `batchtrain.generated_sas_expiry_days: 46`",
             both(task(**OUT), job(max_wall_time="45.00:00:00")), settings(generated_sas_expiry_days=46)),
    Case("link-expiry", UPLOAD, "expires after 2 days, and its last use may be after 11",
         both(lasting(10, **OUT), settings(generated_sas_expiry_days=2)), lasting(10, **OUT)),
    fixed_by("link-expiry", UPLOAD, "Entra ID signs it) expires after 7 days", both(lasting(7, **OUT), KEYLESS), KEY),
    Case("link-expiry", UPLOAD, "or the output an `identity` of the pool and set `batchtrain.gener",
         both(lasting(40, **OUT), KEYLESS), both(lasting(6, **OUT), KEYLESS)),
    Case("link-expiry", UPLOAD, "an `identity` of the pool, or shorten", both(lasting(9, **OUT), KEYLESS),
         both(lasting(9, output_data={"azure_storage": [STORED | {"identity": IDENTITY}]}), KEYLESS)),
    Case("link-expiry", UPLOAD, "after 41", lasting(10, **OUT, max_task_retries=3),
         both(lasting(10, **OUT, max_task_retries=1), job(max_task_retries=3))),
    Case("link-expiry", UPLOAD, "after 42 (time limits, retries, queue",  # 40 tasks on two nodes
         lasting(2, **OUT, id=None, task_factory={"repeat": 40}),
         lasting(2, **OUT, id=None, task_factory={"repeat": 28})),
    Case("link-expiry", "job.tasks[1].output_data.azure_storage[0]", "after 31", after(20), after(19)),
    pair("link-expiry", "job.merge_task.output_data.azure_storage[0]", "after 31",
         lambda value: both(lasting(value, id="a"), job(merge_task={"max_wall_time": "10.00:00:00", **OUT})), 20, 19),
    Case("link-expiry", "job.job_manager.output_data.azure_storage[0]", "after 46",
         job(job_manager={"command": "x", "max_wall_time": "45.00:00:00", **OUT}, max_wall_time="45.00:00:00"),
         job(job_manager={"command": "x", "max_wall_time": "29.00:00:00", **OUT}, max_wall_time="29.00:00:00")),
    *(Case("link-expiry", f"{at}.input_data.azure_storage[0]", "after 46",
           both(lasting(45), parts), both(lasting(29), parts))
      for at, parts in (("task", task(**IN)), ("job", job(**IN)), ("pool", pool(**IN)))),
    Case("link-expiry", "task.task_factory.file.azure_storage", "after 46",
         both(lasting(45, id=None), made_of_files("x")), both(lasting(29, id=None), made_of_files("x"))),
    pair("link-expiry", "batchtrain.storage_account_settings", "after 46",
         lambda value: both(lasting(value), KEY, settings(storage_account_settings="link")), 45, 29),
    Case("link-unlimited", UPLOAD, "what is uploaded later is lost; set `max_wall_time` of", task(**OUT),
         lasting(1, **OUT)),
    Case("link-unlimited", UPLOAD, "expires after 30 days", lasting(1, **OUT, max_task_retries=-1),
         both(lasting(1, **OUT, max_task_retries=-1), job(max_wall_time="1.00:00:00"))),
    Case("link-unlimited", "task.input_data.azure_storage[0]", "expires after 7 days", both(task(**IN), KEYLESS),
         both(task(**IN), KEY)),
    Case("link-unlimited", "pool.input_data.azure_storage[0]", "a node that starts later fails",
         pool(**IN, idle_timeout="30m"), both(pool(**IN, idle_timeout="30m"), lasting(1))),
    Case("schedule-links", UPLOAD, "set a higher `batchtrain.generated_sas_expiry_days`",
         both(lasting(1, **OUT), job(recurrence={"schedule": {"recurrence_interval": "01:00:00"}})), task(**OUT)),
    Case("storage-link-unknown", "task.output_data.azure_storage[0].storage_account_settings", "did you mean `link`?",
         both(task(output_data={"azure_storage": [STORED | {"storage_account_settings": "lnk"}]}), KNOWN_LINK),
         both(task(output_data={"azure_storage": [STORED]}), KNOWN_LINK)),
    values("volume-unknown", "task.shared_data_volumes[0]", "did you mean `v`?", "vv", "v", NFS),
    Case("volume-unknown", "job.data_volumes[0]", "one of `shared_data_volumes`", both(NFS, job(data_volumes=["v"])),
         both(NFS, job(shared_data_volumes=["v"]))),
    values("checkpoint-volume", "task.checkpoint.volume", "did you mean `v`?", "vv", "v", NFS),
    fixed_by("checkpoint-volume", "task.checkpoint.volume", "is not mounted; use another driver",
             both(shared(volume_driver="glusterfs_on_compute"), task(checkpoint={"volume": "v"})), NFS),
    fixed_by("checkpoint-volume", "task.checkpoint.volume", "add `{source: VfsMounts}` to `bind_mounts`",
             both(NFS, job(restrict_default_bind_mounts=True), task(docker_image="x", checkpoint={"volume": "v"})),
             task(bind_mounts=[{"source": "VfsMounts"}])),
    broken_by("checkpoint-volume", "task.checkpoint.volume", "the nodes run Windows",
              both(FILE_SHARE, task(checkpoint={"volume": "v"})), ON_WINDOWS),
    fixed_by("volume-fields", "global.volumes.shared_data_volumes.v", "`azure_blob_container_name`",
             shared(volume_driver="azureblob", storage_account_settings="link"),
             shared(azure_blob_container_name="box")),
    Case("volume-fields", "global.volumes.shared_data_volumes.v.source", "server:/path",
         shared(volume_driver="nfs", source="server"), NFS),
    Case("volume-on-host", "task.shared_data_volumes[0]", "the volume is `$AZ_BATCH_NODE_MOUNTS_DIR/v`",
         both(NFS, task(shared_data_volumes=["v"], docker_image=None)), both(NFS, task(shared_data_volumes=["v"]))),
    Case("volume-driver", "global.volumes.shared_data_volumes.v.volume_driver", "use `azurefile`",
         shared(volume_driver="glusterfs_on_compute"), NFS),
    pair("volume-limit", "global.volumes.shared_data_volumes", "there are 11",
         lambda value: resources(volumes={"shared_data_volumes": value}),
         {f"v{n}": {"volume_driver": "nfs", "source": "s:/x"} for n in range(11)},
         {f"v{n}": {"volume_driver": "nfs", "source": "s:/x"} for n in range(10)}),
    Case("volume-limit", "global.volumes.shared_data_volumes", "there are 11",
         resources(volumes={"shared_data_volumes": {f"v{n}": {"volume_driver": "custom_linux_mount",
         "fstab_entry": {"fs_spec": "s:/x", "fs_vfstype": "nfs4"}} for n in range(11)}}), NFS),
    Case("volume-system", "global.volumes.shared_data_volumes.v.volume_driver",
         "`nfs` can only be mounted by Linux nodes", both(NFS, ON_WINDOWS), NFS),
    values("volume-bind-options", "global.volumes.shared_data_volumes.v.bind_options", "`readonly` is no", "readonly",
           "ro", NFS, shared(volume_driver="nfs", source="s:/x")),
    Case("volume-bind-options", "global.volumes.data_volumes.v.bind_options", "`rx` is not a bind option",
         data_volumes(v={"container_path": "/v", "bind_options": "ro,rx"}),
         data_volumes(v={"container_path": "/v", "bind_options": "ro,z"})),
    values("volume-path", "global.volumes.data_volumes.v.container_path", "such as `/data`", "data",
           "$AZ_BATCH_NODE_SHARED_DIR/data"),
    Case("volume-path", "global.volumes.shared_data_volumes.v.container_path",
         "write options such as `ro` in `bind_options`", both(NFS, shared(container_path="/data:ro")), NFS),
    Case("volume-path", "global.volumes.data_volumes.v.container_path", r"such as `C:\data`",
         {"global": {"volumes": {"data_volumes": {"v": {"container_path": "/data"}}}}, **ON_WINDOWS},
         {"global": {"volumes": {"data_volumes": {"v": {"container_path": "D:\\data"}}}}, **ON_WINDOWS}),
    fixed_by("volumes-meet", "task.shared_data_volumes[0]", "`v` and `d` are both mounted at `/v`",
             both(NFS, data_volumes(d={"container_path": "/v/"}), job(data_volumes=["d"]),
             task(shared_data_volumes=["v"])), data_volumes(d={"container_path": "/d"})),
    fixed_by("volumes-meet", "job.data_volumes[1]", "both mounted",
             both(data_volumes(d={"host_path": "/v"}, e={"container_path": "/v"}), job(data_volumes=["d", "e"]),
             task(data_volumes=["d"])), job(data_volumes=["d", "d"])),
    Case("share-login", "global.volumes.shared_data_volumes.v", "shares.v", CIFS,
         both(CIFS, accounts(shares={"v": {"password": "p"}}))),
    Case("share-login", "global.volumes.shared_data_volumes.v", "shares.v",
         shared(volume_driver="custom_linux_mount", fstab_entry={
             "fs_spec": "//s/x", "fs_vfstype": "cifs", "fs_mntops": "username=u,password=p"}), NFS),
    Case("container-name", "task.input_data.azure_storage[0].remote_path", "`My_Box`",
         task(input_data={"azure_storage": [STORED | {"remote_path": "My_Box/in"}]}),
         task(input_data={"azure_storage": [STORED | {"remote_path": "my-box/In_1"}]})),
    values("resource-file-source", "task.resource_files[0]", "`blob_source` and `storage_container_url`",
           FILE | {"storage_container_url": "https://x/y"}, FILE),
    values("resource-file-sum", "task.resource_files", "36000 characters",
           [FILE | {"blob_source": f"https://{'h' * 291}", "file_path": "f"}] * 120, [FILE] * 120),
    pair("resource-file-source", "task.multi_instance.resource_files[0]", "no source is given",
         lambda value: task(multi_instance=GANG | {"resource_files": [value]}), {"file_path": "f"}, FILE),
    Case("resource-file-url", "pool.resource_files[0].blob_source", "this is not an http(s) URL",
         pool(resource_files=[FILE | {"blob_source": "example.com/f"}]), pool(resource_files=[FILE])),
    Case("file-mode", "job.job_release.resource_files[0].file_mode", "`0788`",
         job(**PREPARED, job_release={"command": "x", "resource_files": [FILE | {"file_mode": "0788"}]}),
         job(**PREPARED, job_release={"command": "x", "resource_files": [FILE | {"file_mode": "0755"}]})),
    Case("files-absent", "global.files[0].source.path", "/x/data does not exist on this machine; a relative path",
         uploaded(""), uploaded(""), {".": Survey(absent="/x/data")}, {}),
    pair("files-destination", "global.files[0].destination", "add `storage_account_settings`",
         lambda value: resources(files=[{"source": {"path": "."}, "destination": value}]), {},
         {"storage_account_settings": "link", "data_transfer": {"remote_path": "box"}}),
    # --- containers ---
    values("container-processors", "task.docker_image", "recipes with an image for both: Digits-Sweep",
           "example/deepspeed:cpu", "example/pytorch:gpu", pool(vm_size="Standard_ND128isr_NDR_GB200_v6")),
    Case("image-not-listed", "task.docker_image", "did you mean `a/b`?", task(docker_image="a/bb"), {}),
    Case("image-registry", "global.docker_images[0]", "`batchtrain images build . --push` build and push it",
         both(resources(docker_images=["example/x:1"]), task(docker_image="example/x:1")), {}),
    pair("image-name", "global.docker_images[1]", "b` is no name of an image",
         lambda value: resources(docker_images=["a/b", value]), "My Image:a:b", "my.azurecr.io/my__image:A-b"),
    Case("registry-misspelt", "global.docker_images[1]", "no login for `myacr.azurecr.io`, but one for `myacrr",
         {"global": {"docker_images": ["a/b", "myacr.azurecr.io/c", "myacr.azurecr.io/d"]},
          "credentials": {"docker_registry": {"myacrr.azurecr.io": LOGIN}}},
         {"global": {"docker_images": ["a/b", "mcr.microsoft.com/c"]},
          "credentials": {"docker_registry": {"myacr.azurecr.io": LOGIN}}}),
    values("fallback-registry", "batchtrain.fallback_registry", "`me/path` is not a registry", "me/path",
           "me.azurecr.io/path", settings(delay_docker_image_preload=True)),
    fixed_by("fallback-registry-unused", "batchtrain.fallback_registry", "Batch pulls the images of this pool",
             settings(fallback_registry="me.azurecr.io"), settings(delay_docker_image_preload=True)),
    broken_by("fallback-registry-unused", "batchtrain.fallback_registry", "sign in to `me.azurecr.io/path`",
              settings(fallback_registry="me.azurecr.io/path", delay_docker_image_preload=True), ACCESS),
    fixed_by("image-not-listed", "job.job_preparation.docker_image", "`c`",
             job(job_preparation={"command": "x", "docker_image": "c"}), job(allow_run_on_missing_image=True)),
    Case("singularity-not-listed", "task.singularity_image", "did you mean `library://a`?",
         {"task": {"singularity_image": "library://b"},
          "global": {"singularity_images": {"unsigned": [{"image": "library://a"}]}}},
         {"task": {"singularity_image": "library://a"},
          "global": {"singularity_images": {"unsigned": [{"image": "library://a"}]}}}),
    Case("image-both", "task.singularity_image", "one container", task(singularity_image="library://a"),
         task(singularity_image="library://a", docker_image=None)),
    broken_by("singularity-windows", "task.singularity_image", "Windows",
              task(singularity_image="library://a", docker_image=None), ON_WINDOWS),
    Case("host-task", "task", "a task without `docker_image`", task(docker_image=None), PLAIN),
    Case("container-only", "task.entrypoint", "no effect", task(docker_image=None, entrypoint="e"),
         task(entrypoint="e")),
    Case("entrypoint-arguments", "task.entrypoint", "and begin `command` with `-c \"a b\"`",
         task(entrypoint='/bin/bash -c "a b"'), task(entrypoint="/bin/bash")),
    Case("entrypoint-arguments", "task.entrypoint",
         "`entrypoint: /bin/bash`, and begin `command` with `-c`, with the program in quotes after it",
         task(entrypoint='["/bin/bash", "-c"]'), task(entrypoint="/bin/bash")),
    *(Case("entrypoint-arguments", "task.additional_docker_run_options", "`entrypoint: /bin/sh`, and begin `command`",
           task(additional_docker_run_options=options), task(additional_docker_run_options=["--entrypoint", "/bin/sh"]))
      for options in (["--entrypoint", "/bin/sh -c"], ["--entrypoint='/bin/sh -c'"], ["--entrypoint=/bin/sh", "-c"])),
    *(Case("engine-inside", "task.command", "as `docker_image` of the task", task(command=command),
           task(command="echo docker run; ./docker run x"))
      for command in ("docker run a/b x", "cd x && sudo docker  exec c ls", "bash -c 'podman run a'",
                      "docker-compose up", "singularity exec a.sif b")),
    Case("engine-inside", "task.command", "`docker run`", task(command="docker run a"),
         task(command="docker run a", additional_docker_run_options=["-v /var/run/docker.sock:/var/run/docker.sock"])),
    Case("engine-inside", "task.command", "`podman run`", task(command="podman run a"),
         both(task(command="podman run a", data_volumes=["engine"]),
              data_volumes(engine={"host_path": "/run/podman/podman.sock", "container_path": "/s"}))),
    *(Case("gang-directory", "task.bind_mounts", "add `source: Task`", both(gang(), task(bind_mounts=mounts)),
           both(gang(), task(bind_mounts=[*mounts, {"source": "Task"}])))
      for mounts in ([{"source": "Shared"}], [{"source": "Task", "read_only": True}])),
    values("registry-unknown", "task.container_registry", "did you mean `reg.io`?", "rge.io", "reg.io",
           accounts(docker_registry={"reg.io": LOGIN})),
    *(
        Case("shell-text", "task.additional_docker_run_options[0]", words,
             task(additional_docker_run_options=[option]),
             task(additional_docker_run_options=["-v $AZ_BATCH_TASK_WORKING_DIR/web:/web"]))
        for option, words in {
            "-v $(pwd)/web:/web": "the output of a command", "-e A=`date`": "the output of a command",
            "-v ~/web:/web": "the home directory", "-v $PWD:/web": "`PWD`", "-v ${DATA}/web:/web": "`DATA`",
        }.items()
    ),
    pair("shell-text", "global.volumes.data_volumes.v.host_path", "`HOME`",
         lambda value: data_volumes(v={"host_path": value, "container_path": "/x"}),
         "$HOME/x", "$AZ_BATCH_NODE_SHARED_DIR/x"),
    pair("shell-text", "global.volumes.shared_data_volumes.v.mount_options[0]", "write the value itself",
         lambda value: shared(volume_driver="nfs", source="s:/x", mount_options=[value]), "uid=$(id -u)", "uid=1"),
    Case("shell-text", "task.output_data.azure_storage[0].remote_path", "`AZ_BATCH_TASK_ID`",
         task(output_data={"azure_storage": [STORED | {"remote_path": "box/$AZ_BATCH_TASK_ID"}]}),
         task(output_data={"azure_storage": [STORED | {"remote_path": "$web/x"}]})),
    values("shell-text", "task.additional_docker_run_options[0]", "`PATH`",
           "-v $AZ_BATCH_NODE_SHARED_DIR:/a -e P=$PATH", "-v $AZ_BATCH_NODE_SHARED_DIR:/a -e P=$AZ_BATCH_TASK_ID"),
    Case("shell-text", "task.resource_files[0].blob_source", "`web2`",
         task(resource_files=[{"file_path": "x", "blob_source": "https://a.blob.core.windows.net/$web2/x"}]),
         task(resource_files=[{"file_path": "x", "blob_source": "https://a.blob.core.windows.net/$web/x"}])),
    pair("shell-text", "task.resource_files[0].file_path", "the home directory",
         lambda value: task(resource_files=[{"file_path": value, "blob_source": "https://h/x"}]), "~/x", "x~"),
    *(Case("shell-twice", "task.command", f"replaces `${name}` in the double quotes",
           both(gang(), task(command=f'{shell} "{text}"')), both(gang(), task(command=f"{shell} '{text}'")))
      for shell, text, name in (
          ("/bin/bash -c", "for h in a b; do ssh $h true; done", "h"),
          ("bash -e -xc", "n=$(nproc); ./a ${n}", "n"),
          ("cd x && sh -c", "./a; echo $?", "?"),
          ("mpirun -n 4 bash -c", "./a $OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK"),
      )),
    Case("mount-path", "task.command", "here it is `$AZ_BATCH_NODE_MOUNTS_DIR/v`",
         both(FILE_SHARE, accounts(storage={"link": {"account": "one", "account_key": "a2V5"}}),
         task(command="sh /mnt/batch/tasks/mounts/azfile-one-box/run.sh")),
         task(command="sh $AZ_BATCH_NODE_MOUNTS_DIR/v/run.sh")),
    Case("registry-login", "global.additional_registries.docker[0]", "docker_registry",
         resources(additional_registries={"docker": ["reg.io"]}),
         {"global": {"additional_registries": {"docker": ["reg.io"]}},
          "credentials": {"docker_registry": {"reg.io": LOGIN}}}),
    values("registry-login", "credentials.docker_registry.hub", "password is missing", {"username": "u"},
           {"username": "u", "password_keyvault_secret_id": "s"}),
    Case("shm-size", "job.shm_size", "`banana`", job(shm_size="banana"), job(shm_size="1.5g")),
    values("shm-small", "task.shm_size", "and this is 255m", "255m", "256m", gang(processes_per_node=2)),
    Case("shm-small", "task.additional_docker_run_options", "or remove it for the default of 1g",
         both(gang(processes_per_node=8), task(shm_size="1g", additional_docker_run_options=["--shm-size", "64m"])),
         both(gang(processes_per_node=8), task(shm_size="64m", additional_docker_run_options=["--ipc=host"]))),
    Case("shm-small", "job.shm_size", "8 of Standard_ND96isr_H100_v5's GPUs, whose processes share memory (NCCL, data"
         " loaders): at least 256m are needed, and this is 64m; write more, or remove it for the default of 64g",
         both(pool(vm_size=H100), job(shm_size="64m")), pool(vm_size=H100)),
    Case("shm-small", "job.shm_size", "or remove it for the default of 64g",
         both(pool(vm_size=H100), job(shm_size="64m")), both(pool(vm_size=H100), job(shm_size="64m"), task(gpus="1"))),
    broken_by("shm-twice", "task.additional_docker_run_options", "`--shm-size` is 1g here and overrides `shm_size",
              task(additional_docker_run_options=["--shm-size=1g"]), job(shm_size="8g")),
    values("gpus-chosen", "task.gpus", "0` means no GPU", "0", "disable", pool(vm_size=T4)),
    values("gpus-chosen", "task.gpus", "uses 0,1,2,3 of them", "4", "all", pool(vm_size=H100)),
    Case("ports", "task.ports[0]", "`abc` is not a port", task(ports=["abc"]),
         task(ports=["80", "80:8080/udp", "127.0.0.1:80:8080", "127.0.0.1::8080", "7000-7001:7000-7001"])),
    Case("ports", "task.ports[1]", "`80:65536`", task(ports=["80", "80:65536"]), task(ports=["80:65535"])),
    values("image-for-cpus", "task.docker_image", "so the 8 GPUs of Standard_ND96isr_H100_v5 would be idle",
           "example/script:base-cpu-72222bef", "example/script:base-gpu-72222bef", pool(vm_size=H100)),
    Case("gpus-impossible", "job.gpus", "Standard_D4s_v5 has none", job(gpus="all"), job(gpus="disable")),
    values("gpus-too-many", "task.gpus", "more than the 8 of", "9", "8", pool(vm_size=H100)),
    values("container-options", "task.additional_docker_run_options[0]", "use `gpus`", "--gpus=all", "--privileged"),
    values("container-options", "task.additional_docker_run_options[0]", "removes containers itself", "--ipc=host --rm",
           "--ipc=host"),
    values("container-options", "task.additional_docker_run_options[0]", "`-itd`: Batch waits for the container",
           "-itd", "-it"),
    Case("container-options", "task.additional_docker_run_options[0]", "Batch names containers itself",
         task(additional_docker_run_options=["--ipc=host --name=x"]), {}),
    values("gang-network", "task.additional_docker_run_options",
           "the other nodes reach this container at the address of its node", ["--network=bridge"], ["--net=host"],
           gang()),
    broken_by("gang-network", "task.additional_docker_run_options", "`--net none`",
              task(additional_docker_run_options=["--net none"]), gang()),
    values("gang-user", "task.additional_docker_run_options", "the sshd of the container", ["-u", "1000:1000"],
           ["--user=root"], gang()),
    fixed_by("gang-user", "job.user_identity.specific_user", "needs root",
             both(gang(), job(user_identity={"specific_user": {"uid": 1000, "gid": 1000}})),
             task(user_identity={"default_pool_admin": True})),
    Case("plain-docker", "pool.vm_configuration.plain_docker", "an image of the nodes with a container engine",
         vm(plain_docker=True), vm(plain_docker=False)),
    *(Case("plain-docker", "pool.vm_configuration.plain_docker", use, both(PLAIN, vm(plain_docker=True)), PLAIN)
      for use in ("images of the nodes without container support", "options of `docker run`", "only some tasks")),
    pair("user-identity", "task.user_identity", "as one user", lambda value: task(user_identity=value),
         {"default_pool_admin": True, "username": "u"}, {"default_pool_admin": True}),
    Case("user-unknown", "job.job_release.user_identity.username", "have no `jan`",
         job(**PREPARED, job_release={"command": "x", "user_identity": {"username": "jan"}}),
         job(**PREPARED, job_release={"command": "x", "user_identity": {"default_pool_admin": True}})),
    values("user-unknown", "job.user_identity.username", "did you mean `jane`?", "jan", "jane",
           pool(user_accounts=[{"name": "jane"}])),
    Case("user-host", "task.user_identity.specific_user", "no effect",
         task(docker_image=None, user_identity={"specific_user": {"uid": 1, "gid": 1}}),
         task(user_identity={"specific_user": {"uid": 1, "gid": 1}})),
    # --- jobs ---
    Case("duplicate-id", "job_specifications[1].id", "another job is called `j` (ids", {"jobs": [{"id": "J"}]},
         {"jobs": [{"id": "k"}]}),
    pair("duplicate-id", "job.tasks[1].id", "another task of this job is called `t`",
         lambda value: {"tasks": [{"id": "t"}, {"id": value}]}, "T", "u"),
    Case("duplicate-id", "task.id", "the job manager", both(job(job_manager={"command": "x"}), task(id="jobmanager")),
         both(job(job_manager={"command": "x", "id": "leader"}), task(id="jobmanager"))),
    Case("reserved-id", "task.id", "release task",
         both(job(**PREPARED, job_release={"command": "x"}), task(id="JobRelease")), task(id="JobRelease")),
    fixed_by("made-ids", "job", "`a b/00000`", job(autogenerated_task_id={"prefix": "a b/"}), task(id="t")),
    Case("made-ids", "task.task_factory.autogenerated_task_id", "which is not a valid id",
         task(task_factory={"repeat": 2, "autogenerated_task_id": {"prefix": "!"}}), FACTORY),
    pair("unknown-dependency", "job.tasks[1].depends_on[0]", "did you mean `first`?",
         lambda value: {"tasks": [{"id": "first"}, {"depends_on": [value]}]}, "frst", "first"),
    pair("unknown-dependency", "job.tasks[1].depends_on[0]", "`task-00000`",
         lambda value: {"tasks": [value, {"id": "b", "depends_on": ["task-00000"]}]}, {"id": "a"}, {}),
    Case("unknown-dependency", "job.tasks[1].depends_on[0]", "did you mean `one`?",
         {"tasks": [{"id": "one"}, {"depends_on": ["ONE"]}]}, {"tasks": [{"id": "one"}, {"depends_on": ["one"]}]}),
    Case("unknown-dependency", "job.tasks[1].depends_on[0]", "did you mean `ONE`?",
         {"tasks": [{"id": "ONE"}, {"depends_on": ["one"]}]}, {"tasks": [{"id": "ONE"}, {"depends_on": ["ONE"]}]}),
    Case("dependency-circle", "job.tasks[1].depends_on[1]", "`a` waits for `c` waits for `b` waits for `a`",
         {"tasks": [{"id": "late", "depends_on": ["a"]}, {"id": "a", "depends_on": ["d", "c"]},
                    {"id": "b", "depends_on": ["a"]}, {"id": "c", "depends_on": ["b"]}, {"id": "d"}]},
         {"tasks": [{"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "b", "depends_on": ["a"]}]}),
    Case("dependency-circle", "job.tasks[0].depends_on[0]", "would ever start: `a` waits for `b` waits for `a`",
         {"tasks": [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}, {"id": "c"}]},
         {"tasks": [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["c"]}, {"id": "c"}]}),
    pair("dependency-length", "job.merge_task", "64,000",
         lambda value: both(value, task(task_factory={"repeat": 5819})),
         job(merge_task={"command": "x"}, autogenerated_task_id={"prefix": "step-"}), job(merge_task={"command": "x"})),
    Case("dependency-length", "job.tasks[1].depends_on", "108,889",
         {"tasks": [{"id": "sweep", "task_factory": {"repeat": 10_000, "autogenerated_task_id": {"prefix": "sweep-",
         "zfill_width": 0}}}, {"depends_on": ["sweep"]}]},
         {"tasks": [{"task_factory": {"repeat": 10_000}, "id": "sweep"}, {"depends_on": ["sweep"]}]}),
    pair("dependency-length", "task.depends_on", "64,999", lambda value: task(depends_on=["d" * value] * 1000), 64, 63),
    values("dependency-range-order", "task.depends_on_range", "9 to 1 is not a range", [9, 1], [1, 9], task(id="9")),
    values("dependency-range-order", "task.depends_on_range", "1 to 0 is not a range", [1, 0], [0, 0], task(id="9")),
    pair("dependency-range", "job.tasks[1].depends_on_range", "no task",
         lambda value: {"tasks": [{"id": value}, {"depends_on_range": [1, 3]}]}, "t1", "01"),
    Case("command-missing", "task", "no `command`", task(command=None, docker_image=None), task(command=None)),
    Case("job-empty", "job", "ends it at once", {"tasks": [], **job(auto_complete=True)}, {}),
    Case("merge-task", "job.merge_task.multi_instance", "one task",
         job(merge_task={"command": "x", "multi_instance": GANG}), job(merge_task={"command": "x"})),
    Case("factory-kind", "task.task_factory", "the factory has no kind", task(task_factory={}), FACTORY),
    values("factory-kind", "task.task_factory.random", "`integer`", {"generate": 2},
           {"generate": 2, "integer": {"start": 0, "stop": 9}}),
    values("factory-id", "task.id", "no values for `t{0}`", "t{0}", "t", task(task_factory={"repeat": 2})),
    Case("id-braces", "task.id", "no factory whose values", task(id="t-{lr}"),
         swept("x", product=[{"start": 0, "stop": 2}])),
    Case("factory-values", "task.task_factory.parametric_sweep.product[0].step", "step of 0",
         task(task_factory={"parametric_sweep": {"product": [{"start": 0, "stop": 1, "step": 0}]}}),
         task(task_factory={"parametric_sweep": {"product": [{"start": 0, "stop": 1}]}})),
    pair("factory-values", "task.task_factory.parametric_sweep.combinations.length", "3 of 2",
         lambda value: task(task_factory={"parametric_sweep": {"combinations": value}}),
         {"iterable": ["a", "b"], "length": 3}, {"iterable": ["a", "b"], "length": 3, "replacement": True}),
    Case("factory-values", "task.task_factory.random.distribution", "cannot be drawn",
         task(task_factory={"random": {"generate": 1, "distribution": {"pareto": {"alpha": 0}}}}),
         task(task_factory={"random": {"generate": 1, "distribution": {"pareto": {"alpha": 1}}}})),
    Case("factory-size", "task.task_factory.parametric_sweep", "creates 1,000,000,000,000 tasks",
         swept("x", product=[{"start": 0, "stop": 10**6}] * 2), swept("x", product=[{"start": 0, "stop": 10**6}])),
    Case("factory-size", "task.task_factory.parametric_sweep", "at most 100,000,000 are allowed",
         swept("x", permutations={"iterable": list("abcdefghijklmn"), "length": 14}),
         swept("x", permutations={"iterable": list("abcdefghi"), "length": 9})),
    values("factory-values", "task.task_factory.grid.lr", "the list is empty", [], ["1"]),
    Case("factory-values", "task.task_factory.grid.l-r", "`l-r` cannot be written as `{l-r}`",
         task(task_factory={"grid": {"l-r": ["1"]}}), task(task_factory={"grid": {"l_r": ["1"]}})),
    pair("factory-values", "task.task_factory.list[1]", "`b` is in some sets",
         lambda value: task(task_factory={"list": [value, {"a": "1", "b": "2"}]}), {"a": "1"}, {"a": "1", "b": "3"}),
    Case("factory-values", "task.task_factory.file.azure_storage.remote_path", "`data/{lr}` has braces",
         made_of_files("x", "data/{lr}"), made_of_files("x", "data/lr")),
    values("factory-command", "task.environment_variables.A", "`{x}` fits no value; the factory gives {lr}", "{x}",
           "{lr} {{x}}", task(task_factory={"grid": {"lr": ["1"]}})),
    Case("dependency-circle", "job.tasks[0].depends_on[0]", "`sweep` waits for `best` waits for `sweep`",
         {"tasks": [{"id": "sweep", "depends_on": ["best"], "task_factory": {"repeat": 2}},
                    {"id": "best", "depends_on": ["sweep"]}]},
         {"tasks": [{"id": "sweep", "task_factory": {"repeat": 2}}, {"id": "best", "depends_on": ["sweep"]}]}),
    pair("dependency-circle", "job.tasks[1].depends_on_range", "`3` waits for itself",
         lambda value: {"tasks": [{"id": "1"}, {"id": "3", "depends_on_range": [1, value]}]}, 3, 2),
    Case("unknown-dependency", "job.tasks[1].depends_on[0]", "`sweep-00002`",
         {"tasks": [{"id": "sweep", "task_factory": {"repeat": 2}}, {"id": "best", "depends_on": ["sweep-00002"]}]},
         {"tasks": [{"id": "sweep", "task_factory": {"repeat": 2}}, {"id": "best", "depends_on": ["sweep-00001"]}]}),
    Case("unknown-dependency", "job.tasks[1].depends_on[0]", "`r_c`",
         {"tasks": [{"id": "r_{x}", "task_factory": {"grid": {"x": ["a", "b"]}}}, {"depends_on": ["r_c"]}]},
         {"tasks": [{"id": "r_{x}", "task_factory": {"grid": {"x": ["a", "b"]}}}, {"depends_on": ["r_b"]}]}),
    Case("unknown-dependency", "job.tasks[1].depends_on[0]", "`s_c`",
         {"tasks": [{"id": "r_{0}", "task_factory": {"custom": {"module": "m"}}}, {"depends_on": ["s_c"]}]},
         {"tasks": [{"id": "r_{0}", "task_factory": {"custom": {"module": "m"}}}, {"depends_on": ["r_c"]}]}),
    *(Case("factory-command", "task.command", "`{lr:.2f}` fits no value",
           task(command="{lr:.2f}", task_factory=wrong), task(command="{lr:.2f}", task_factory=right))
      for wrong, right in (
        ({"grid": {"lr": ["0.1", "auto", "1"], "n": ["1"]}}, {"grid": {"lr": ["0.1", "1"], "n": ["auto"]}}),
        ({"list": [{"lr": "0.1"}, {"lr": "auto"}, {"lr": "1"}]}, {"list": [{"lr": "0.1"}, {"lr": "1"}]}),
    )),
    Case("factory-command", "task.command", "`{0[1]}` fits no value",
         swept("{0[1]}", product_iterables=[["ab", "c", "de"]]), swept("{0[1]}", product_iterables=[["ab", "de"]])),
    Case("factory-command", "task.command", "`{1}` fits no value; the factory gives {0}", swept("{1}", zip=["ab"]),
         swept("{0}", zip=["ab"])),
    Case("factory-command", "task.command", "`{HOME}` fits no value", swept("ls ${HOME}", zip=["ab"]),
         swept("ls ${{HOME}}", zip=["ab"])),
    fixed_by("factory-command", "task.command", "braces do not fit", swept("echo }", zip=["ab"]), swept("echo }}")),
    Case("factory-command", "task.command", ">99999999}` is too wide", swept("{0:>99999999}", zip=["ab"]),
         swept("{0:>9}", zip=["ab"])),
    pair("factory-command", "task.command", "`{name}` fits no value",
         lambda value: task(command=value, task_factory={"custom": {"module": "m"}}), "{name}", "{0[a]} {}"),
    Case("factory-command", "task.command", "gives {url}, {file_path}", made_of_files("{path}"),
         made_of_files("{url}")),
    values("required-slots", "task.required_slots", "wait for ever", 3, 2, pool(task_slots_per_node=2)),
    Case("required-slots", "job.job_manager.required_slots", "3 slots are more than the 2",
         both(pool(task_slots_per_node=2), job(job_manager={"command": "x", "required_slots": 3})),
         both(pool(task_slots_per_node=2), job(job_manager={"command": "x", "required_slots": 2}))),
    values("required-slots", "task.required_slots", "multi-instance", 2, 1, gang()),
    pair("task-packages", "task.application_packages[1]", "twice",
         lambda value: task(application_packages=[{"id": "a"}, {"id": value}]), "a", "b"),
    Case("metric-patterns", "task.metrics[0].pattern", "no group for the value",
         task(metrics=[{"name": "a", "pattern": "loss"}]), task(metrics=[{"name": "a", "pattern": "loss=(.+)"}])),
    Case("metric-patterns", "task.metrics[0].pattern", "not a regular expression",
         task(metrics=[{"name": "a", "pattern": "(loss"}]), task(metrics=[{"name": "a", "pattern": "loss=(.+)"}])),
    Case("affinity", "task.affinity_id", "TVM:", task(affinity_id="tvmps_1_d"), task(affinity_id="TVM:tvmps_1_d")),
    Case("results-outside", "task.results.include[1]", "out of the working directory",
         task(results={"include": ["a/**", "../x"]}), task(results={"include": ["a..b/**"], "exclude": ["*.tmp"]})),
    values("max-parallel-tasks", "job.max_parallel_tasks", "no task would run", 0, -1),
    Case("span", "task.max_wall_time", "`99:99:99`", task(max_wall_time="99:99:99"), task(max_wall_time="99:59:59")),
    values("span", "job.recurrence.schedule.start_window", "`1.24:00:00`", "1.24:00:00", "1.23:00:00"),
    Case("span", "pool.resize_timeout", "`00:60:00`", pool(resize_timeout="00:60:00"), pool(resize_timeout="01:00:00")),
    Case("span", "job.max_wall_time", "with a time of 0 it would be terminated as soon as it starts",
         job(max_wall_time="00:00:00"), job(retention_time="00:00:00")),
    values("task-life", "task.max_wall_time", "180 days", "180.00:00:01", "180.00:00:00"),
    pair("wall-time-order", "task.max_wall_time", "the job ends after 01:00:00",
         lambda value: both(job(max_wall_time=value), task(max_wall_time="02:00:00")), "01:00:00", "02:00:00"),
    values("wall-time-retention", "task.retention_time", "keep them longer", "01:00:00", "03:00:00",
           job(max_wall_time="02:00:00")),
    Case("release-preparation", "job.job_release", "needs a `job_preparation`",
         job(job_release={"command": "x"}), job(**PREPARED, job_release={"command": "x"})),
    pair("release-wall-time", "job.job_release.max_wall_time", "15 minutes",
         lambda value: job(**PREPARED, job_release={"command": "x", "max_wall_time": value}), "00:15:01", "00:15:00"),
    values("schedule-minute", "job.recurrence.schedule.recurrence_interval", "59` is less than the minimum of a minute",
           "00:00:59", "00:01:00"),
    values("schedule-times", "job.recurrence.schedule.do_not_run_until", "is not a time", "tomorrow",
           "2027-01-31T18:00:00.1234567Z"),
    Case("schedule-times", "job.recurrence.schedule.do_not_run_after", "no job would ever start",
         job(recurrence={"schedule": MIDNIGHT | {"do_not_run_after": "2027-01-01"}}),
         job(recurrence={"schedule": MIDNIGHT | {"do_not_run_after": "2027-01-02"}})),
    fixed_by("auto-pool", "job.auto_pool.pool_lifetime", "no `recurrence`",
             job(auto_pool={"pool_lifetime": "job_schedule"}), job(recurrence={"schedule": {}})),
    Case("auto-pool", "job.auto_pool", "no pool.yaml", {"pool": None, **job(auto_pool={})}, job(auto_pool={})),
    Case("auto-pool-files", "job.auto_complete", "deletes the `auto_pool` with all files",
         job(auto_pool={}, auto_complete=True), job(auto_pool={"keep_alive": True}, auto_complete=True)),
    Case("output-replaced", "task.output_data.azure_storage[0].remote_path", "write `box/out/{lr}` there",
         both(SWEPT, task(**OUT)), both(SWEPT, task(output_data={"azure_storage": [
             {"storage_account_settings": "link", "remote_path": "box/{lr}"}]}))),
    Case("output-replaced", "task.output_data.azure_storage[0].remote_path", "the name of a parameter",
         both(FACTORY, task(**OUT)), task(**OUT)),
    broken_by("recurrence-tasks", "job.tasks", "1 more cannot be added", job(recurrence={"schedule": {}}), FACTORY),
    Case("recurrence-tasks", "job.tasks", "`job_manager`, which adds", job(
        recurrence={"schedule": {}}, job_manager={"command": "x"}), {"tasks": [], **job(
        recurrence={"schedule": {}}, job_manager={"command": "x"})}),
    Case("recurrence-tasks", "task.multi_instance", "one node", both(gang(), job(recurrence={"schedule": {}})), gang()),
    values("exit-codes", "task.exit_conditions.exit_code_ranges[0]", "9 to 1", {"start": 9, "end": 1},
           {"start": 1, "end": 9}),
    Case("exit-job-action", "task.exit_conditions.exit_codes[0].exit_options.job_action", "noaction",
         both(task(exit_conditions=EXIT), job(on_task_failure="noaction")), task(exit_conditions=EXIT)),
    # --- gangs ---
    Case("num-instances", "task.multi_instance.num_instances", "did you mean `pool_current_dedicated`?",
         gang("pool_curent_dedicated"), gang("pool_current_dedicated")),
    Case("gang-inter-node", "task.multi_instance", "wait for ever",
         both(gang(), pool(inter_node_communication_enabled=False)), gang()),
    Case("gang-slots", "task.multi_instance", "slots_per_node: 1`", both(gang(), pool(task_slots_per_node=2)), gang()),
    Case("gang-nodes", "task.multi_instance.num_instances", "3 instances", gang(3), gang(2)),
    Case("gang-nodes", "task.multi_instance.num_instances", "no low_priority nodes", gang("pool_current_low_priority"),
         both(gang("pool_current_low_priority"), pool(vm_count=SPOT))),
    fixed_by("gang-nodes", "task.multi_instance.num_instances", "the pool has 4", both(gang(5), SCALED), gang(4)),
    pair("gang-autoscale", "task.multi_instance.num_instances", "write a number",
         lambda value: both(gang(value), SCALED), "pool_current_dedicated", 2),
    Case("gang-alone", "task.multi_instance.num_instances", "starts sooner", gang(1), gang(2)),
    Case("processes-per-node", "task.multi_instance.mpi.processes_per_node", "write `2`",
         gang(processes_per_node="two"), gang(processes_per_node="2")),
    Case("processes-per-node", "task.multi_instance.mpi.processes_per_node", "at least 1", gang(processes_per_node=0),
         gang(processes_per_node=1)),
    Case("processes-word", "task.multi_instance.mpi.processes_per_node", "`ranks` is run as a command on the primary",
         gang(processes_per_node="ranks"), gang(processes_per_node="nproc")),
    fixed_by("processes-nvidia", "task.multi_instance.mpi.processes_per_node", "no NVIDIA GPU",
             gang(processes_per_node="nvidia-smi -L | wc -l"), pool(vm_size=T4)),
    Case("processes-over-gpus", "task.multi_instance.mpi.processes_per_node", "9 processes share the 8 GPUs",
         both(pool(vm_size=H100), gang(processes_per_node=9)), both(pool(vm_size=H100), gang(processes_per_node=8))),
    fixed_by("gpus-idle", "task.multi_instance.mpi.processes_per_node", "uses 1 of its 8 GPUs",
             both(pool(vm_size=H100), gang(processes_per_node=1)), task(gpus="disable")),
    values("stop-when", "job.stop_when", "no limit", {}, {"silent": "60s"}, launched("jax")),
    values("stop-when", "job.stop_when", "shorter than 60 s", {"silent": "59s"}, {"silent": "1m"}, launched("jax")),
    fixed_by("stop-when", "job.stop_when.gpu_below", "has no GPUs",
             both(launched("jax"), job(stop_when={"gpu_below": "5% for 30m"})), pool(vm_size=H100)),
    Case("stop-when", "job.stop_when", "are watched", both(gang(), job(stop_when={"silent": "20m"})),
         both(launched("jax"), job(stop_when={"silent": "20m"}))),
    Case("processes-over-cores", "task.multi_instance.mpi.processes_per_node", "4 cores", gang(processes_per_node=5),
         gang(processes_per_node=4)),
    Case("infiniband-impossible", "task.infiniband", "Standard_D4s_v5 has none; omit `infiniband`",
         task(infiniband=True), both(pool(vm_size=HB), task(infiniband=True))),
    Case("network-direct", "task.multi_instance.mpi.runtime", "openmpi uses tcp",
         both(gang(), pool(vm_size="STANDARD_H16R")), both(gang(runtime="intelmpi"), pool(vm_size="STANDARD_H16R"))),
    pair("nested-launch", "task.command", "`mpirun`", lambda value: both(gang(), task(command=value)),
         "/bin/bash -c 'cd x && mpirun -n 2 y'", "python train.py --launcher mpirun"),
    broken_by("nested-launch", "task.command", "`python3 -m torch.distributed.run`",
              task(command="python3 -m torch.distributed.run x.py"), gang()),
    values("processes-per-node", "task.multi_instance.pytorch.processes_per_node", "write `auto`", "gpus", "auto",
           launched("pytorch")),
    values("processes-word", "task.multi_instance.jax.processes_per_node", "on each node", "ranks", "auto",
           launched("jax")),
    pair("gpus-idle", "task.multi_instance.horovod.processes_per_node", "uses 1 of its 8 GPUs",
         lambda value: both(pool(vm_size=H100), launched(value, processes_per_node=1)), "horovod", "tensorflow"),
    Case("network-direct", "task.multi_instance.pytorch", "pytorch uses tcp",
         both(launched("pytorch"), pool(vm_size="STANDARD_NC24R")), both(launched("pytorch"), pool(vm_size=H100))),
    # --- launches ---
    broken_by("gang-one-launch", "task.multi_instance.pytorch", "keep one of `mpi`", launched("pytorch"), gang()),
    Case("framework-plugin", "task.multi_instance.framework.mine", "in the group `batchtrain.frameworks`; install the",
         launched("framework", mine={}), launched("framework")),
    values("launcher-inside", "task.command", "`launcher: torchrun`", "torchrun --nproc-per-node 2 train.py",
           "python train.py --note torchrun", launched("pytorch")),
    values("launcher-inside", "task.command", "`deepspeed`", "deepspeed train.py --deepspeed_config ds.json",
           "python train.py --deepspeed --deepspeed_config ds.json", launched("deepspeed")),
    Case("launcher-inside", "task.command",
         "write `python train.py --lr 1`; its options: `--config_file fsdp.yaml`: `options` of the `accelerate` block;"
         " `--mixed_precision=bf16`: `options` of the `accelerate` block; `--use_fsdp`: `options` of the `accelerate`"
         " block; `--num_processes 8`: `processes: 8`",
         both(launched("accelerate"), task(command="accelerate launch --config_file fsdp.yaml --mixed_precision=bf16"
                                                   " --use_fsdp --num_processes 8 train.py --lr 1")),
         both(launched("accelerate", options=["--use_fsdp"]), task(command="python train.py --lr 1"))),
    Case("launcher-inside", "task.command", "write `python -m pkg.train`; its options: `-m`",
         both(launched("deepspeed"), task(command="torchrun -m pkg.train")), both(launched("deepspeed"))),
    Case("launcher-inside", "task.command",
         "write `./t --x`, or an `mpi` block in place of this one; its options: `--mca a b`: `options` of the",
         both(launched("horovod"), task(command="mpirun --mca a b ./t --x")), both(launched("horovod"))),
    Case("mpi-module", "task.multi_instance.mpi", "write `pre_execution_command: module load mpi/hpcx`",
         on_host(gang()),
         on_host(both(gang(), task(multi_instance={"pre_execution_command": "module load mpi/hpcx"})))),
    Case("mpi-module", "task.multi_instance.mpi", "they have no MPICH", on_host(gang(runtime="mpich")),
         on_host(gang(runtime="mpich", executable_path="/opt/mpich/bin/mpirun"))),
    Case("nested-launch", "task.command", "its options: `-ppn 4`: `processes_per_node: 4`",
         both(gang(), task(command="mpiexec -ppn 4 ./a")), gang()),
    values("accelerate-options", "task.command", "starts with Python", "./train.sh", "python3 train.py",
           launched("accelerate", options=["--use_fsdp"])),
    *(Case("launcher-inside", "task.command", words, both(launched("pytorch"), task(command=command)),
           launched("pytorch"))
      for command, words in {
          "torchrun --nproc-per-node": "`--nproc-per-node`", "deepspeed --num_gpus": "`--num_gpus`",
          "mpirun -np 2 -genv A": "`-genv A`", "mpirun -np": "`-np`",
          "mpirun -np 4 --report-bindings python train.py data": "write `python train.py data`",
          "mpirun -n 1 a : -n 2 b": "`:`: no property has its place", "srun -N2 -n4 a": "`-n4`: `num_instances` times",
          "srun --label --kill-on-bad-exit --cpu-bind=none --mpi pmix ./a b": "write `./a b`; its options: `--label`",
          "module load x\nA=1 conda run -n e torchrun t.py": "write `A=1 conda run -n e python t.py`, and",
          "/opt/bin/torchrun --nproc-per-node=gpu t.py": "write `python t.py`, and",
          "torchrun --nproc-per-node=gpu t.py": "`--nproc-per-node=gpu`: `processes_per_node: auto`",
          "accelerate-launch --use_fsdp t.py": "write `python t.py`, or an `accelerate` block in place of this one; its"
                                               " options: `--use_fsdp`: `options` of the `accelerate` block",
      }.items()),
    Case("launcher-inside", "task.command", "an `mpi` block in place of this one",
         both(launched("horovod"), task(command="cd x; mpirun -np 4 python t.py")),
         both(gang(), task(command="python t.py"))),
    values("launcher-inside", "task.command", "`horovodrun`", "horovodrun --min-np 2 -np 4 python t.py", "python t.py",
           launched("horovod")),
    Case("environment-reserved", "task.environment_variables.RANK",
         "`RANK` is set for each process by the `pytorch` launch",
         both(launched("pytorch"), environment(RANK="0")), both(launched("pytorch"), environment(RANKS="0"))),
    pair("environment-reserved", "job.environment_variables.TF_CONFIG", "`tensorflow` launch",
         lambda value: both(launched(value), job(environment_variables={"TF_CONFIG": "{}"})), "tensorflow", "pytorch"),
    values("environment-reserved", "task.command", "`port` of the block", "A=1 MASTER_PORT=29500 python t.py",
           "python t.py --env MASTER_PORT=29500", launched("pytorch")),
    Case("environment-reserved", "task.multi_instance.pre_execution_command", "`DMLC_ROLE`",
         task(multi_instance={"num_instances": 2, "mxnet": {}, "pre_execution_command": "export DMLC_ROLE=worker"}),
         task(multi_instance={"num_instances": 2, "mxnet": {}, "pre_execution_command": "export DMLC_RANGE=worker"})),
    Case("environment-reserved", "task.environment_variables.HOROVOD_ELASTIC", "but the nodes of a gang are fixed",
         both(launched("horovod"), environment(HOROVOD_ELASTIC="1")),
         both(launched("horovod"), environment(HOROVOD_TIMELINE="t.json"))),
    pair("launch-port", "task.multi_instance.pytorch.port", "Batch uses port 6000 on the primary",
         lambda value: launched("pytorch", port=value), 6000, 6001),
    Case("processes-divide", "task.multi_instance.jax.processes", "do not divide among 2 nodes",
         launched("jax", processes=3), launched("jax", processes=4)),
    Case("processes-divide", "task.multi_instance.jax.processes", "keep one of them",
         launched("jax", processes=4, processes_per_node=2), launched("jax", processes_per_node=2)),
    fixed_by("ranks-over-gpus", "task.multi_instance.pytorch.processes_per_node",
             "two processes cannot share a GPU (NCCL refuses it)",
             both(pool(vm_size=H100), launched("pytorch", processes_per_node=9)), task(gpus="disable")),
    pair("ranks-over-gpus", "task.multi_instance.deepspeed.processes", "9 processes a node, and 8 GPUs",
         lambda value: both(pool(vm_size=H100), launched("deepspeed", processes=value)), 18, 16),
    Case("elastic", "task.multi_instance.pytorch.max_restarts", "needs torchrun", launched("pytorch", max_restarts=1),
         launched("pytorch", max_restarts=1, launcher="torchrun", rendezvous="c10d")),
    Case("elastic", "task.multi_instance.pytorch.max_restarts", "needs `rendezvous: c10d`",
         launched("pytorch", max_restarts=1, launcher="torchrun"),
         launched("pytorch", max_restarts=1, launcher="torchrun", rendezvous="c10d")),
    Case("elastic", "task.multi_instance.pytorch.min_instances", "needs `rendezvous: c10d`",
         launched("pytorch", min_instances=1, launcher="torchrun"),
         launched("pytorch", min_instances=1, launcher="torchrun", rendezvous="c10d")),
    pair("elastic", "task.multi_instance.pytorch.min_instances", "more than the 2 nodes",
         lambda value: launched("pytorch", min_instances=value, launcher="torchrun", rendezvous="c10d"), 3, 2),
    values("one-node-strategy", "task.command", "each node would train alone", "python t.py --strategy dp",
           "python t.py --strategy ddp", launched("pytorch")),
    values("one-node-strategy", "task.command", "`MirroredStrategy`", "python t.py --with MirroredStrategy",
           "python t.py --with MultiWorkerMirroredStrategy", launched("tensorflow")),
    Case("tensorflow-launch", "task.multi_instance.tensorflow.parameter_servers", "no parameter servers",
         launched("tensorflow", parameter_servers=1),
         launched("tensorflow", parameter_servers=1, mode="parameter_server")),
    pair("tensorflow-launch", "task.multi_instance.tensorflow.parameter_servers", "give one or more",
         lambda value: launched("tensorflow", parameter_servers=value, mode="estimator"), 0, 1),
    pair("tensorflow-launch", "task.multi_instance.tensorflow.evaluator", "a role of TF_CONFIG",
         lambda value: launched("tensorflow", mode=value, evaluator=True), "flags", "estimator"),
    pair("tensorflow-launch", "task.multi_instance.tensorflow.mode", "write `mode: flags`",
         lambda value: both(value, task(command=BENCH)), launched("tensorflow"), launched("tensorflow", mode="flags")),
    values("tensorflow-launch", "task.command", "does not support a cluster on several nodes",
           BENCH + "--variable_update=replicated", COLLECTIVE, launched("tensorflow", mode="flags")),
    values("tensorflow-launch", "task.command", "add `--all_reduce_spec=collective`",
           BENCH + "--variable_update=collective_all_reduce", COLLECTIVE, launched("tensorflow", mode="flags")),
    values("tensorflow-launch", "task.command", "`--job_name={job_name}`", BENCH + "--job_name=worker",
           BENCH + "--job_name={job_name}", launched("tensorflow", mode="flags")),
    pair("tensorflow-launch", "task.command", "`nccl/xring`",
         lambda value: both(launched("tensorflow", mode="flags"), task(command=BENCH + value)),
         "--variable_update=distributed_all_reduce --all_reduce_spec=nccl",
         "--variable_update=distributed_all_reduce --all_reduce_spec=nccl/xring"),
    values("tensorflow-launch", "task.command", "it works only with parameter servers", COLLECTIVE + " --staged_vars",
           BENCH + "--staged_vars", launched("tensorflow", mode="flags")),
    pair("tensorflow-launch", "task.command", "wait for each other",
         lambda value: both(launched("tensorflow", mode="flags"), task(command=BENCH + value)),
         "--variable_update=distributed_replicated --cross_replica_sync=False",
         "--variable_update=distributed_replicated --staged_vars=False"),
    values("ray-launch", "task.command", "`ray start` in the command", "ray start --head && python train.py",
           "python train.py --ray start", launched("ray")),
    Case("mxnet-rendezvous", "task.multi_instance.mxnet.rendezvous", "ADDRESS:PORT",
         launched("mxnet", rendezvous="ib0"), launched("mxnet", rendezvous="ib0:IP_ADDRESS:29500")),
    pair("mxnet-horovod", "task.multi_instance.mxnet", "a `horovod` block",
         lambda value: both(launched(value), task(command="python t.py --kv-store horovod")), "mxnet", "horovod"),
    pair("mxnet-horovod", "task.multi_instance.horovod", "an `mxnet` block",
         lambda value: both(launched(value), task(command="python t.py --kvstore=dist_sync")), "horovod", "mxnet"),
    Case("mpi-count-twice", "task.multi_instance.horovod.options[1]", "`-np`",
         launched("horovod", over="mpi", options=["-v", "-np 4"]), launched("horovod", over="mpi", options=["-v"])),
    values("ranks-over-gpus", "task.multi_instance.horovod.processes_per_node", "3 processes a node, and 2 GPUs", 3, 2,
           pool(vm_size=H100), launched("horovod"), environment(CUDA_VISIBLE_DEVICES="4,5")),
    Case("gang-alone", "task.multi_instance.num_instances", "starts sooner", gang(1), launched("pytorch", nodes=1)),
    pair("cntk-mpi", "task.multi_instance.mpi.runtime", "write `runtime: intelmpi`",
         lambda value: both(value, task(docker_image="a/cntk:2.1-gpu-intelmpi")), gang(), gang(runtime="intelmpi")),
    Case("mpi-count-twice", "task.multi_instance.mpi.options[0]", "`-np`",
         gang(processes_per_node=1, options=["-np 2"]), gang(options=["-np 2"])),
    # --- frameworks ---
    Case("cntk-one-bit", "task.command", "`-q 1`", both(task(command="python cntk_train.py -q 1 --outputdir o")),
         task(command="python cntk_train.py -q 1 -a 0 --outputdir o")),
    Case("cntk-one-bit", "task.command", "`gradientBits=1`", task(command="cntk configFile=x gradientBits=1"),
         task(command="cntk configFile=x gradientBits=1 parallelizationStartEpoch=2")),
    pair("tensorflow-roles", "task.command", "needs parameter servers", lambda value: task(command=BENCH + value),
         "--job_name=worker --worker_hosts=$W", "--job_name=worker --ps_hosts=$PS --worker_hosts=$W"),
    values("tensorflow-roles", "task.command", "`--job_name=ps` belongs to a cluster",
           BENCH + "--job_name=ps --ps_hosts=a:1", BENCH + "--job_name=ps --ps_hosts=a:1 --worker_hosts=b:1"),
    Case("tensorflow-roles", "task.command", "`--task_index=2` of 2 `worker` processes",
         task(command=BENCH + "--job_name=worker --ps_hosts=a:1 --worker_hosts=b:1,c:1 --task_index=2"),
         task(command=BENCH + "--job_name=worker --ps_hosts=a:1 --worker_hosts=b:1,c:1 --task_index=1")),
    pair("tensorflow-roles", "task.command", "has no parameter servers", lambda value: task(command=BENCH + value),
         "--variable_update=horovod --ps_hosts=a:1", "--variable_update=horovod"),
    Case("tensorflow-roles", "task.command", "--controller_host",
         task(command=BENCH + "--variable_update distributed_all_reduce --job_name worker --worker_hosts a:1,b:1"),
         task(command=BENCH + "--variable_update distributed_all_reduce --job_name worker --controller_host c:1")),
    Case("tensorflow-cluster", "task.environment_variables.TF_CONFIG", "add `worker`",
         environment(TF_CONFIG='{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}'),
         environment(TF_CONFIG='{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "ps", "index": 0}}')),
    Case("tensorflow-cluster", "task.environment_variables.TF_CONFIG", "`worker` 1",
         environment(TF_CONFIG='{"cluster": {"worker": ["b:1"]}, "task": {"type": "worker", "index": 1}}'),
         environment(TF_CONFIG='{"cluster": {"worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}')),
    values("mxnet-roles", "task.environment_variables.DMLC_NUM_SERVER", "give one or more", "0", "1"),
    Case("mxnet-roles", "task.command", "but `launch.py` starts none",
         task(command="python tools/launch.py -n 2 -s 0 python t.py --kv-store dist_sync"),
         task(command="python tools/launch.py -n 2 -s 2 python t.py --kv-store dist_sync")),
    values("mxnet-local", "task.command", "so each process would train alone", "python t.py --kv-store device",
           "python t.py --kv-store dist_device_sync", gang()),
    # --- environment ---
    Case("environment-name", "task.environment_variables.A B", "cannot be the name", environment(**{"A B": "1"}),
         environment(**{"A-B": "1"})),
    Case("environment-shell", "task.environment_variables.A-B", "no shell", environment(**{"A-B": "1"}),
         environment(A_B="1")),
    Case("environment-batch", "job.environment_variables.CCP_NODES", "`CCP_NODES` is reserved for Batch",
         job(environment_variables={"CCP_NODES": "1"}), job(environment_variables={"CCP_NODE": "1"})),
    Case("environment-launcher", "pool.additional_node_prep.environment_variables.BATCHTRAIN_PREPARATION", "break it",
         pool(additional_node_prep={"environment_variables": {"BATCHTRAIN_PREPARATION": "x"}}),
         pool(additional_node_prep={"environment_variables": {"PREPARATION": "x"}})),
    Case("environment-path", "task.environment_variables.PATH", "set it in the command",
         environment(PATH="/opt/bin:$PATH"), environment(LD_LIBRARY_PATH="/opt/lib")),
    Case("environment-literal", "task.environment_variables.DATA", "does not expand", environment(DATA="$HOME/data"),
         environment(PRICE="5$")),
    Case("environment-launch", "task.environment_variables.PMI_SIZE", "counts the processes itself",
         both(gang(), environment(PMI_SIZE="2")), environment(PMI_SIZE="2")),
    Case("environment-launch", "job.environment_variables.OMPI_MCA_plm_rsh_agent", "use `mpi.options`",
         both(gang(), job(environment_variables={"OMPI_MCA_plm_rsh_agent": "x"})),
         both(gang(), job(environment_variables={"OMPI_MCA_btl_tcp_if_include": "eth1"}))),
    values("environment-port", "task.environment_variables.MASTER_PORT", "Batch uses port 6000 on the primary", "6000",
           "6001", gang()),
    Case("environment-size", "task.environment_variables.B", "900,003 bytes together",
         environment(A="a", B="b" * 450_000 + "c" * 450_000), environment(A="a", B="b" * 899_997)),
    Case("environment-rank", "task.environment_variables.RANK", "the same in every process",
         both(gang(), environment(RANK="0")), environment(RANK="0")),
    # --- older ---
    values("gone", "pool.batch_insights_enabled", "Azure Monitor agent", True, False),
    values("gone", "job.remove_container_after_exit", "always removes", False, True),
    Case("gone", "data_replication", "Batch fetches", {"replication": {}}, {}),
    Case("gone", "pool.prometheus", "exporters", pool(prometheus={"node_exporter": {"enabled": True}}),
         pool(prometheus={"node_exporter": {"enabled": False}})),
    values("gone", "pool.vm_configuration.plain_docker", "Batch itself runs the containers; remove it", False, True),
    pair("file-share", "task.input_data.azure_storage[0].is_file_share", "azurefile",
         lambda value: task(input_data={"azure_storage": [value]}), STORED | {"is_file_share": True}, STORED),
    Case("filter-approximate", "task.output_data.azure_storage[0].exclude", "uploads every file",
         task(output_data={"azure_storage": [STORED | {"exclude": ["*.tmp"]}]}),
         task(output_data={"azure_storage": [STORED | {"include": ["*.log"]}]})),
    pair("task-file-input", "job.input_data.azure_batch[0]", "`output_data`", lambda value: job(input_data=value),
         {"azure_batch": [{"job_id": "j", "task_id": "t"}]}, {"azure_storage": [STORED]}),
    Case("transfer-options", "task.input_data.azure_storage[0].blobxfer_extra_options", "`--delete` is not supported",
         task(input_data={"azure_storage": [STORED | {"blobxfer_extra_options": "--strip-components 2 --delete"}]}),
         task(input_data={"azure_storage": [STORED | {"blobxfer_extra_options": "--strip-components=2"}]})),
    Case("transfer-options", "task.output_data.azure_storage[0].blobxfer_extra_options", "not with these patterns",
         task(output_data={"azure_storage": [STORED | {"blobxfer_extra_options": "--strip-components 2"}]}),
         task(output_data={"azure_storage": [STORED | {"blobxfer_extra_options": "--strip-components 2",
                                                       "include": ["*.log"]}]})),
    Case("transfer-options", "global.files[0].destination.data_transfer.blobxfer_extra_options", "`-x` is not",
         uploaded("-x"), uploaded("--strip-components 0")),
    Case("volume-gone", "task.command", "`/gfs` of the volume `v` (glusterfs_on_compute)",
         task(command="ls /gfs/data") | GLUSTER, task(command="ls /gfs2 /data") | GLUSTER),
    broken_by("volume-gone", "task.command", "BeeOND", task(command="ls $AZ_BATCH_TASK_DIR/auto_scratch"),
              job(auto_scratch=True) | task(command="ls $AZ_BATCH_TASK_DIR/auto_scratch")),
    Case("mpi-ofa", "task.multi_instance.mpi.runtime", "else write `intelmpi`", gang(runtime="intelmpi-ofa"),
         gang(runtime="intelmpi")),
    Case("copy-to-nodes", "global.files[0].destination.data_transfer.method", "data ingress",
         resources(files=[{"source": {"path": "."}, "destination": {"data_transfer": {"method": "scp"}}}]),
         resources(files=[{"source": {"path": "."}, "destination": {"data_transfer": {"remote_path": "x"}}}])),
    *(
        Case(f"source-{word}", "task.source", "because", task(source="src"), task(source="src"),
             {"src": Survey(rule=f"source-{word}", message="because")}, {"src": Survey(("a.py",))})
        for word in ("missing", "unreadable", "empty", "reserved", "size")
    ),
    Case("source-size", "task.source", "because", task(source="src"), task(source="src"),
         {"src": Survey(("a.py",), too_large="because")}, {"src": Survey(("a.py",))}),
    Case("factory-source", "task.task_factory.file.source", "no file of `s` fits",
         task(source="s", command="run {file_path}", task_factory={"file": {"source": {"path": "none"}}}),
         task(source="s", command="run {file_path}", task_factory={"file": {"source": {"path": "lib"}}}),
         {"s": SCRIPTS}),
    Case("factory-source", "task.task_factory.file.source", "has braces in its name",
         task(source="s", command="run", task_factory={"file": {"source": {}}}),
         task(source="s", command="run", task_factory={"file": {"source": {"exclude": ["*}"]}}}),
         {"s": Survey(("a.py", "{b}"))}),
    Case("source-script", "task.command", "it has no `source`", task(command="python -u train.py", docker_image=None),
         task(command="python -u /data/train.py")),
    Case("source-script", "task.command", "it has no `source`", task(command="python train.py", docker_image=None),
         task(command="git clone x && python x/train.py")),
    Case("source-script", "task.command", "it has no `source`",
         task(command="A=1 exec python3 ./train.py", docker_image=None),
         task(command="python3 ./train.py", resource_files=[{"blob_source": "https://x/y", "file_path": "train.py"}])),
    Case("source-script", "task.command", "has `a.py`, `lib/b.py`",
         task(source="s", docker_image="a/b", command="bash $AZ_BATCH_TASK_SHARED_DIR/run.sh"),
         task(source="s", docker_image="a/b", command='python "$AZ_BATCH_TASK_SHARED_DIR/lib/b.py" --x'),
         {"s": SCRIPTS}),
    Case("source-script", "task.command", "is not in the `source`",
         both(gang(), task(source="s", command="${AZ_BATCH_TASK_SHARED_DIR}/run.sh")),
         both(gang(), task(source="s", command="run.sh", docker_image="a/b")), {"s": SCRIPTS}),
    Case("source-script", "task.command", "is not in the `source`",
         task(source="s", command="python x.py", docker_image="a/b"),
         task(source="s", command="python x.py", docker_image="a/b", default_working_dir="container"), {"s": SCRIPTS}),
    Case("source-script", "task.command", "write `a.py`",
         task(source="s", command="python src/a.py", docker_image=None),
         task(source="s", command="python $AZ_BATCH_TASK_SHARED_DIR/a.py", docker_image=None), {"s": SCRIPTS}),
    *(
        Case("source-left-out", "task.command", text, task(source="s", command=f"run --from={name}", **parts),
             task(source="s", **{"command": "run --from=runs/y"} | right), {"s": UNSENT})
        for name, text, parts, right in (
            ("runs/x", "`runs/x` is not sent to the task: it is left out of the `source` by a rule;", {}, {}),
            ("./data/a", "`data/a` is not sent", {}, {"command": "run 'runs/x'", **IN}),
            ("runs/x", "`--resume RUN` continues", {"checkpoint": {"volume": "v"}}, {}),
        )
    ),
    *(
        Case("source-twice", f"task.{where}[0].file_path", "`lib/b.py` is also a file of the `source` s",
             task(source="s", command="run", **wrong), task(source="s", command="run", **right),
             {"s": SCRIPTS})
        for where, wrong, right in (
            ("resource_files", {"resource_files": [FILE | {"file_path": "./lib/b.py"}]},
             {"resource_files": [FILE | {"file_path": "b.py"}]}),
            ("multi_instance.resource_files",
             {"multi_instance": GANG | {"resource_files": [FILE | {"file_path": "lib/b.py"}]}},
             {"multi_instance": GANG | {"resource_files": [FILE]}}),
        )
    ),
    Case("script-syntax", "task.command", "`b.py` of the `source` does not compile, line 2",
         task(source="s", command="python -u $AZ_BATCH_TASK_SHARED_DIR/b.py"),
         task(source="s", command="python -u $AZ_BATCH_TASK_SHARED_DIR/bb.py"), {"s": BROKEN}),
    Case("source-syntax", "task.source", "`b.py` of the `source` does not compile, line 2",
         task(source="s", command="python -u $AZ_BATCH_TASK_SHARED_DIR/bb.py"),
         task(source="s", command="python -u $AZ_BATCH_TASK_SHARED_DIR/b.py"), {"s": BROKEN}),
    Case("script-line-ends", "task.source", "the line ends of `run.sh`", task(source="s", command="true"),
         task(source="s", command="true"), {"s": Survey(("run.sh",), line_ends=("run.sh",))},
         {"s": Survey(("run.sh",))}),
    values("script-line-ends", "task.command", "those of Windows", "echo a\r\necho b", "echo a\necho b"),
    values("command-quotes", "task.command", "the quote at `\"it's fine; echo` is never closed",
           "echo 'a b' # don't\necho \"it's fine; echo", "echo \"it's\" 'say \"hi' don\\'t $'it\\'s' ${#x} # don't\nx"),
    values("command-quotes", "job.job_preparation.command", "write `\\'`", "echo don't", "echo \"$(echo 'it\"s')\""),
    Case("command-quotes", "pool.additional_node_prep.commands.pre", "the quote at `'it` is never closed",
         pool(additional_node_prep={"commands": {"pre": ["echo 'it"]}}),
         pool(additional_node_prep={"commands": {"pre": ["echo 'it", "is'"], "post": ["echo it"]}})),
    Case("command-length", "task.command", "65,536 at most", task(command="x" * 65_537), task(command="x" * 65_536)),
    values("command-length", "job.job_preparation.command", "at most", "x" * 70_000, "x"),
    # --- the other side of each condition: images and sizes ---
    Case("image-kind", "pool.vm_configuration", "`platform_image`, and `custom_image` are given", vm(custom_image=MINE),
         OWN_IMAGE),
    Case("image-kind", "pool.vm_configuration", "`shared_gallery_image`, `community_gallery_image`",
         vm(platform_image=None), OWN_IMAGE),
    Case("image-unknown", "pool.vm_configuration.platform_image", "add it to catalog.yaml",
         vm(platform_image={"publisher": "qqq", "offer": "zzz", "sku": "1"}), {}),
    Case("node-agent-unknown", "pool.vm_configuration.platform_image.node_agent", "`batch.node.beos`",
         vm(platform_image={"sku": "2604", "node_agent": "batch.node.beos"}),
         vm(platform_image={"node_agent": "batch.node.beos"})),
    Case("image-gpu-vendor", "pool.vm_configuration.platform_image", "has AMD GPUs",
         pool(vm_size="STANDARD_ND96ISR_MI300X_V5"), pool(vm_size="STANDARD_D4S_V5", **image(ROCM))),
    fixed_by("image-gpu-driver", "pool.vm_configuration.platform_image", "or name one in `gpu.nvidia_driver.source`",
             pool(vm_size=T4, **image(UBUNTU)), pool(additional_node_prep={"commands": {"post": ["install"]}})),
    Case("image-gpu-driver", "pool.vm_configuration.platform_image", "the image has no driver",
         pool(vm_size=T4, **image(UBUNTU)), pool(vm_size=T4, **image(WINDOWS))),
    Case("image-rdma", "pool.vm_configuration.platform_image", "no drivers for it",
         both(gang(), pool(vm_size=HB, **image(UBUNTU)), job(infiniband=False), task(infiniband=True)),
         both(gang(), pool(vm_size=HB, **image(UBUNTU)), job(infiniband=True), task(infiniband=False))),
    fixed_by("image-rdma", "pool.vm_configuration.platform_image", "no drivers for it",
             both(gang(), pool(vm_size=HB, **image(UBUNTU))),
             vm(extensions=[{"name": "e", "publisher": "p", "type": "t"}])),
    Case("image-without-docker", "pool.vm_configuration.platform_image", "no container engine", pool(**image(UBUNTU)),
         both(pool(**image(UBUNTU)), task(docker_image=None), resources(docker_images=None))),
    pair("license-type", "pool.vm_configuration.platform_image.license_type", "is none of Windows_Server",
         lambda value: pool(**image(WINDOWS | {"license_type": value})), "rhel", "Windows_Client"),
    Case("vm-uefi", "pool.vm_configuration.security_profile.secure_boot", "trustedLaunch",
         vm(security_profile={"secure_boot": False}), vm(security_profile={})),
    Case("vm-confidential", "pool.vm_configuration.os_disk.security_encryption", "this is only for confidential VMs",
         vm(security_profile={"security_type": "trustedLaunch"}, os_disk={"security_encryption": "VMGuestStateOnly"}),
         vm(security_profile={"security_type": "trustedLaunch"}, os_disk={})),
    Case("secure-boot-drivers", "pool.vm_configuration.security_profile.secure_boot", "GPUs or InfiniBand",
         both(pool(vm_size=HB), vm(security_profile={"security_type": "trustedLaunch", "secure_boot": True})),
         both(pool(vm_size=HB), vm(security_profile={"security_type": "trustedLaunch", "secure_boot": False}))),
    Case("disk-ephemeral", "pool.vm_configuration.os_disk.caching", "only `readonly`",
         vm(os_disk={"ephemeral": True, "caching": "none"}), vm(os_disk={"ephemeral": True})),
    Case("disk-ephemeral", "pool.vm_configuration.os_disk.caching", "only `readonly`",
         vm(os_disk={"ephemeral": True, "caching": "none"}), vm(os_disk={"caching": "none"})),
    Case("disk-encryption", "pool.vm_configuration.disk_encryption.targets", "both disks or none",
         pool(**image(WINDOWS, disk_encryption={"targets": ["osdisk"]})),
         pool(**image(WINDOWS, disk_encryption={"targets": ["temporarydisk", "osdisk"]}))),
    values("zonal-infiniband", "pool.vm_configuration.node_placement", "is `regional`", "zonal", "regional",
           pool(vm_size=HB)),
    fixed_by("zonal-infiniband", "pool.vm_configuration.node_placement", "is `regional`",
             both(pool(vm_size=HB), vm(node_placement="zonal")), pool(inter_node_communication_enabled=False)),
    Case("extension-names", "pool.vm_configuration.extensions[1].name", "another extension is called `e`",
         vm(extensions=[{"name": "e", "publisher": "p", "type": "t"}, {"name": "e", "publisher": "p", "type": "u"}]),
         vm(extensions=[{"name": "e", "publisher": "p", "type": "t"}, {"name": "f", "publisher": "p", "type": "t"}])),
    broken_by("extension-names", "pool.vm_configuration.extensions[0].provision_after[0]",
              "no other extension is called `e`", vm(extensions=[{"name": "e", "publisher": "p", "type": "t"}]),
              vm(extensions=[{"name": "e", "publisher": "p", "type": "t", "provision_after": ["e"]}])),
    # --- the other side of each condition: pools ---
    Case("custom-image-limit", "pool.vm_count.dedicated", "at most 2000",
         both(pool(vm_count={"dedicated": 2001}), OWN_IMAGE),
         both(pool(vm_count={"dedicated": 2000, "low_priority": 1000}), OWN_IMAGE)),
    Case("spot-inter-node", "pool.autoscale.scenario.maximum_vm_count", "checkpoints",
         scenario({"maximum_vm_count": {"low_priority": 4}}), SCALED),
    Case("pool-empty", "pool.vm_count", "wait until it is resized", pool(vm_count={"dedicated": 0}),
         pool(vm_count={"dedicated": 0, "low_priority": 1})),
    values("resize-timeout", "pool.resize_timeout", "less than the minimum", "00:00:00", "99:99:99"),
    pair("autoscale-interval", "pool.autoscale.evaluation_interval", "`00:04:59` is not between",
         lambda value: pool(autoscale={"scenario": SCENARIO, "evaluation_interval": value}), "00:04:59", "00:05:00"),
    pair("autoscale-interval", "pool.autoscale.evaluation_interval", "`00:00:00` is not between",
         lambda value: pool(autoscale={"scenario": SCENARIO, "evaluation_interval": value}), "00:00:00", "99:99:99"),
    Case("autoscale-count", "pool.vm_count", "the autoscale formula decides",
         pool(autoscale={"formula": "$TargetDedicatedNodes=1;"}, vm_count=SPOT), pool(vm_count=SPOT)),
    pair("autoscale-maximum", "pool.autoscale.scenario.maximum_vm_count.dedicated", "less than the minimum",
         lambda value: pool(autoscale=value), {"scenario": SCENARIO | {"maximum_vm_count": {"dedicated": 1}}},
         {"scenario": SCENARIO | {"maximum_vm_count": {"dedicated": 1}}, "formula": "$TargetDedicatedNodes=1;"}),
    Case("upgrade-policy", "pool.upgrade_policy.rolling.max_batch_instance_percent", "21 is more than",
         pool(upgrade_policy={"mode": "rolling", "rolling": {
             "max_batch_instance_percent": 21, "max_unhealthy_instance_percent": 20}}),
         pool(upgrade_policy={"mode": "rolling", "rolling": {
             "max_batch_instance_percent": 20, "max_unhealthy_instance_percent": 20}})),
    Case("user-ids", "pool.user_accounts[0].gid", "`uid` is missing", pool(user_accounts=[{"name": "a", "gid": 1000}]),
         pool(user_accounts=[{"name": "a"}])),
    broken_by("user-system", "pool.user_accounts[0].uid", "Windows nodes have no user ids",
              pool(user_accounts=[{"name": "a", "uid": 1000, "gid": 1000}]), pool(**image(WINDOWS))),
    Case("login-system", "pool.ssh", "use `rdp`", pool(ssh={"username": "u"}, **image(WINDOWS)),
         pool(rdp={"username": "u"}, **image(WINDOWS))),
    Case("auto-pool-prefix", "pool.id", "it has 21", both(pool(id="p" * 21), job(auto_pool={})), pool(id="p" * 21)),
    # --- the other side of each condition: networks and accounts ---
    Case("nat-name", "pool.network.inbound_nat_pools[1].name", "another endpoint is called `N`",
         nat({}, {"name": "N", "backend_port": 9}), nat({}, {"name": "m", "backend_port": 9})),
    Case("nat-backend-port", "pool.network.inbound_nat_pools[1].backend_port", "another endpoint maps port 8888",
         nat({}, {"name": "m"}), nat({}, {"name": "m", "backend_port": 8889})),
    Case("nat-frontend-ports", "pool.network.inbound_nat_pools[0].frontend_port_range", "0 to 100 is not a range",
         nat({"frontend_port_range": [0, 100]}), nat({"frontend_port_range": [1, 100]})),
    Case("nat-frontend-ports", "pool.network.inbound_nat_pools[0].frontend_port_range", "reserved for Batch",
         nat({"frontend_port_range": [55000, 55100]}), nat({"frontend_port_range": [55001, 55100]})),
    fixed_by("nat-overlap", "pool.remote_access_control.starting_port", "3000 to 3999 overlaps 3900 to 4000 of `n`",
             both(nat({"frontend_port_range": [3900, 4000]}), pool(ssh={"username": "u"},
             remote_access_control={"starting_port": 3000})), nat({"frontend_port_range": [4000, 4100]})),
    Case("nat-overlap", "pool.ssh", "49000 to 49999 overlaps 49000 to 49100 of `n`",
         both(nat({"frontend_port_range": [49000, 49100]}), pool(ssh={"username": "u"})),
         both(nat({"frontend_port_range": [49000, 49100], "backend_port": 22}), pool(ssh={"username": "u"}))),
    Case("nat-name", "pool.network.inbound_nat_pools[0].name", "another endpoint is called `ssh`",
         both(nat({"name": "ssh"}), pool(ssh={"username": "u"})), nat({"name": "ssh"})),
    pair("nat-overlap", "pool.network.inbound_nat_pools[1].frontend_port_range", "of `n`",
         lambda value: nat({}, {"name": "m", "backend_port": 9, "frontend_port_range": [900, value]}), 1000, 999),
    values("nat-rules", "pool.remote_access_control", "there are 26 rules",
           {"starting_port": 3000, "allow": ["*"] * 13, "deny": ["*"] * 13},
           {"starting_port": 3000, "allow": ["*"] * 13, "deny": ["*"] * 12}),
    Case("login-addresses", "pool.remote_access_control.deny[1]", "`1.2.3`",
         pool(remote_access_control={"deny": ["10.0.0.1", "1.2.3"]}),
         pool(remote_access_control={"deny": ["10.0.0.1/8", "::1"]})),
    Case("public-ips", "pool.network.public_ip", "needs the ids of the addresses", network(public_ip="usermanaged"),
         both(pool(public_ips=[ADDRESS]), network(public_ip="usermanaged"))),
    Case("public-ips-few", "pool.public_ips", "2 addresses serve 200 nodes of a kind, the pool has 201",
         pool(public_ips=[ADDRESS] * 2, vm_count={"low_priority": 201}),
         pool(public_ips=[ADDRESS] * 2, vm_count={"low_priority": 200, "dedicated": 200})),
    values("ip-families", "pool.network.ip_families", "IPv6 alone", ["IPv6"], ["IPv4"]),
    Case("network-kind", "pool.virtual_network.name", "names a subnet already",
         pool(virtual_network={"arm_subnet_id": SUBNET, "name": "n"}), pool(virtual_network={"arm_subnet_id": SUBNET})),
    Case("network-kind", "pool.virtual_network.name", "needs `subnet.name` too", pool(virtual_network={"name": "n"}),
         pool(virtual_network={"name": "n", "subnet": {"name": "s"}})),
    pair("network-subscription", "pool.virtual_network.name", "needs `resource_group` here",
         lambda value: both(pool(virtual_network={"name": "n", "subnet": {"name": "s"}}), {"credentials": value}),
         {"management": {"subscription_id": "s"}},
         {"management": {"subscription_id": "s"}, "batch": {"resource_group": "g"}}),
    Case("network-by-name", "pool.virtual_network.create_nonexistant",
         "run `az network vnet show -g g -n n || az network vnet create -g g -n n --address-prefixes 10.1.0.0/16`",
         pool(virtual_network={"name": "n", "resource_group": "g", "address_space": "10.1.0.0/16",
                               "subnet": {"name": "s"}, "create_nonexistant": True}),
         pool(virtual_network={"name": "n", "resource_group": "g", "address_space": "10.1.0.0/16",
                               "subnet": {"name": "s"}, "create_nonexistant": False})),
    pair("resource-id", "pool.vm_configuration.custom_image.arm_image_id", "galleries/NAME/images/NAME",
         lambda value: vm(platform_image=None, custom_image=value), MINE | {"arm_image_id": ADDRESS}, MINE),
    values("resource-id", "pool.public_ips[0]", "publicIPAddresses/NAME", SUBNET, ADDRESS),
    values("resource-id", "pool.identities[0]", "userAssignedIdentities/NAME", "reader", IDENTITY + "/"),
    values("resource-id", "job.network.subnet_id", "subnets/NAME", ADDRESS, SUBNET),
    fixed_by("identity-missing", 'credentials.docker_registry["r.io"].identity', "the nodes do not have",
             accounts(docker_registry={"r.io": {"identity": IDENTITY}}), pool(identities=[IDENTITY + "/"])),
    fixed_by("identity-missing", "global.volumes.shared_data_volumes.v.identity", "the nodes do not have",
             both(BLOB_VOLUME, shared(identity=IDENTITY)), pool(identities=[IDENTITY])),
    Case("identity-missing", "pool.resource_files[0].identity", "the nodes do not have",
         pool(resource_files=[FILE | {"identity": IDENTITY}]), pool(resource_files=[FILE])),
    Case("entra-needed", "pool.public_ips", "a user-managed public address needs",
         both(pool(public_ips=[ADDRESS]), KEYED), KEYED),
    Case("entra-needed", "pool.identities", "remove `batch.account_key_keyvault_secret_id`",
         both(pool(identities=[IDENTITY]), accounts(batch={"account_key_keyvault_secret_id": "name"})),
         both(pool(identities=[IDENTITY]), accounts(batch={"aad": {}}))),
    values("account-url", "credentials.batch.account_service_url", "unencrypted", "http://a.westeurope.batch.azure.com",
           "https://localhost:10010/path"),
    Case("storage-account", "credentials.storage.link.endpoint", "core.windows.net",
         accounts(storage={"link": {"account": "one", "endpoint": "core"}}),
         accounts(storage={"link": {"account": "one", "endpoint": "http://127.0.0.1:10000/one"}})),
    pair("secret-id", "credentials.storage.link.account_key_keyvault_secret_id", "it looks like https://NAME",
         lambda value: accounts(storage={"link": {"account": "one", "account_key_keyvault_secret_id": value}}),
         "https://example.org/s", "https://m.vault.azure.cn/s"),
    values("secret-id", "job.environment_variables_keyvault_secret_id", "it looks like https://NAME",
           "https://vault.example.org/secrets/key", "https://MINE.vault.azure.net/secrets/key"),
    Case("mount-key", "global.volumes.shared_data_volumes.v.storage_account_settings", "the credentials have none",
         both(FILE_SHARE, accounts(storage={"link": {"account": "one"}})),
         both(BLOB_VOLUME, shared(identity=IDENTITY), accounts(storage={"link": {"account": "one"}}))),
    # --- the other side of each condition: storage ---
    Case("storage-link", "global.volumes.shared_data_volumes.v.storage_account_settings",
         "it is needed when this is sent",
         both(BLOB_VOLUME, task(input_data={"azure_storage": [STORED]})), both(BLOB_VOLUME, KNOWN_LINK)),
    Case("storage-link", "task.task_factory.file.azure_storage.storage_account_settings", "no storage account `mine`",
         made_of_files("{url}"), both(made_of_files("{url}"), accounts(storage={"mine": {"account": "one"}}))),
    values("storage-link-unknown", "batchtrain.storage_account_settings", "did you mean `link`?", "lnk", "link",
           KNOWN_LINK),
    Case("volume-unknown", "global.files[0].destination.shared_data_volume", "has no `vv`; did you mean `v`?",
         both(NFS, resources(files=[{"source": {"path": "."}, "destination": {"shared_data_volume": "vv"}}])),
         both(NFS, resources(files=[{"source": {"path": "."}, "destination": {"shared_data_volume": "v"}}]))),
    pair("volume-unknown", "task.shared_data_volumes[0]", "`d` is one of `data_volumes`; list it there",
         lambda value: both(data_volumes(d={"container_path": "/d"}), value),
         task(shared_data_volumes=["d"]), task(data_volumes=["d"])),
    Case("checkpoint-volume", "task.checkpoint.volume", "add `{source: VfsMounts}`",
         both(NFS, task(checkpoint={"volume": "v"}, bind_mounts=[{"source": "VfsMounts", "read_only": True}])),
         both(NFS, job(restrict_default_bind_mounts=True),
              task(checkpoint={"volume": "v"}, restrict_default_bind_mounts=False))),
    Case("checkpoint-volume", "task.checkpoint.volume", "add `{source: VfsMounts}`",
         both(NFS, task(checkpoint={"volume": "v"}, restrict_default_bind_mounts=True)),
         both(NFS, task(checkpoint={"volume": "v"}, restrict_default_bind_mounts=True, docker_image=None))),
    Case("volume-fields", "global.volumes.shared_data_volumes.v", "it needs a `container_path`",
         both(NFS, shared(container_path=None), task(shared_data_volumes=["v"])),
         both(NFS, shared(container_path=None), task(shared_data_volumes=["v"], docker_image=None))),
    pair("volume-fields", "global.volumes.shared_data_volumes.v", "it needs a `container_path`",
         lambda value: both(value, shared(container_path=None), job(shared_data_volumes=["v"])), NFS, GLUSTER),
    Case("volume-fields", "global.volumes.data_volumes.d", "it needs a `container_path`",
         both(data_volumes(d={"host_path": "/d"}), task(data_volumes=["d"])), data_volumes(d={"host_path": "/d"})),
    Case("volume-fields", "global.volumes.shared_data_volumes.v.source", "//server/share",
         shared(volume_driver="cifs", source="/s/x"), CIFS),
    broken_by("volume-gone", "task.multi_instance.coordination_command", "BeeOND",
              task(multi_instance=GANG | {"coordination_command": "ls auto_scratch"}), pool(per_job_auto_scratch=True)),
    Case("volume-limit", "global.volumes.shared_data_volumes", "there are 11",
         resources(volumes={"shared_data_volumes": {f"v{n}": {"volume_driver": "nfs",
         "source": "s:/x"} for n in range(11)}}),
         resources(volumes={"shared_data_volumes": {f"v{n}": {"volume_driver": "custom_linux_mount",
         "fstab_entry": {"fs_spec": "s", "fs_vfstype": "lustre"}} for n in range(11)}})),
    pair("volume-system", "global.volumes.shared_data_volumes.v.volume_driver",
         "`azureblob` can only be mounted by Linux", lambda value: both(value, ON_WINDOWS), BLOB_VOLUME, CIFS),
    pair("share-login", "global.volumes.shared_data_volumes.v", "shares.v",
         lambda value: both(CIFS, accounts(shares={"v": value})),
         {"username": "u"}, {"password_keyvault_secret_id": "s"}),
    values("container-name", "global.volumes.shared_data_volumes.v.azure_blob_container_name", "`My_Box`", "My_Box",
           "$root", shared(volume_driver="azureblob", storage_account_settings="link")),
    pair("container-name", "task.output_data.azure_storage[0].remote_path", "`a--b`",
         lambda value: task(output_data={"azure_storage": [STORED | {"remote_path": value}]}), "/a--b/x", "$web/x"),
    values("resource-file-source", "task.resource_files[0]", "needs a `file_path`", {"blob_source": "https://x/y"},
           {"storage_container_url": "https://x/y"}),
    Case("resource-file-source", "task.resource_files[0].blob_prefix", "a file by URL has none",
         task(resource_files=[FILE | {"blob_prefix": "p"}]),
         task(resource_files=[{"auto_storage_container_name": "box", "blob_prefix": "p"}])),
    Case("resource-file-url", "job.job_preparation.resource_files[0].storage_container_url", "not an http(s) URL",
         job(job_preparation={"command": "x", "resource_files": [{"storage_container_url": "ftp://x/y"}]}),
         job(job_preparation={"command": "x", "resource_files": [{"storage_container_url": "https://x/y"}]})),
    pair("files-destination", "global.files[0].destination.shared_data_volume", "keep one of them",
         lambda value: both(NFS, resources(files=[{"source": {"path": "."}, "destination": value}])),
         {"shared_data_volume": "v", "storage_account_settings": "link", "data_transfer": {"remote_path": "box"}},
         {"shared_data_volume": "v"}),
    Case("files-destination", "global.files[0].destination", "needs `data_transfer.remote_path`",
         resources(files=[{"source": {"path": "."}, "destination": {"storage_account_settings": "link"}}]),
         resources(files=[{"source": {"path": "."}, "destination": {"data_transfer": {"method": "scp"}}}])),
    Case("windows-input", "task.input_data.azure_storage[0].local_path", "relative path",
         both(task(input_data=brought("/data")), ON_WINDOWS), both(pool(input_data=brought("/data")), ON_WINDOWS)),
    Case("file-share", "task.task_factory.file.azure_storage.is_file_share", "put the files there",
         task(task_factory={"file": {"azure_storage": {"storage_account_settings": "mine", "remote_path": "data",
         "is_file_share": True}}}), made_of_files("x")),
    pair("transfer-options", "task.output_data.azure_storage[0].blobxfer_extra_options", "not with these patterns",
         lambda value: task(output_data={"azure_storage": [value]}),
         STORED | {"blobxfer_extra_options": "--strip-components 2", "include": ["a/*.log"]}, STORED),
    # --- the other side of each condition: containers ---
    Case("image-not-listed", "task.docker_image", "fetches it; list it there or set", task(docker_image="zzzz"), {}),
    Case("image-not-listed", "task.docker_image", "? If not, list it there or set", task(docker_image="a/c"), {}),
    pair("image-name", "job.job_release.docker_image", "`A B` is no name",
         lambda value: job(**PREPARED, job_release=value), {"command": "x", "docker_image": "A B"}, {"command": "x"}),
    Case("host-task", "task", "an Apptainer task, and", task(docker_image=None, singularity_image="library://a"),
         both(PLAIN, task(singularity_image="library://a"))),
    Case("gang-directory", "task.bind_mounts", "add `source: Task`",
         both(gang(), task(bind_mounts=[{"source": "Shared"}])), task(bind_mounts=[{"source": "Shared"}])),
    values("registry-login", "credentials.docker_registry.hub", "the username is missing", {"password": "p"},
           {"identity": IDENTITY}),
    values("registry-login", "credentials.singularity_registry.hub", "the username and password is missing", {}, LOGIN),
    Case("registry-login", "global.additional_registries.singularity[0]",
         "so it counts as public; did you mean `reg.io`?",
         {"global": {"additional_registries": {"singularity": ["rge.io"]}},
          "credentials": {"singularity_registry": {"reg.io": LOGIN}}},
         {"global": {"additional_registries": {"singularity": ["reg.io"]}},
          "credentials": {"singularity_registry": {"reg.io": LOGIN}}}),
    Case("registry-login", "task.container_registry", "no login for `reg.io`", task(container_registry="reg.io"),
         both(task(container_registry="reg.io"), accounts(docker_registry={"other.io": LOGIN}))),
    values("registry-misspelt", "task.docker_image", "but one for `mine.io`", "mien.io/c", "mxxx.io/c",
           accounts(docker_registry={"mine.io": LOGIN})),
    Case("fallback-registry-unused", "batchtrain.fallback_registry", "Batch pulls the images",
         both(ON_WINDOWS, settings(fallback_registry="me.azurecr.io", delay_docker_image_preload=True)),
         both(PLAIN, settings(fallback_registry="me.azurecr.io"))),
    Case("fallback-registry-unused", "batchtrain.fallback_registry", "does not sign in",
         {"credentials": {"docker_registry": {"me.azurecr.io": LOGIN}},
          "settings": {"fallback_registry": "me.azurecr.io", "delay_docker_image_preload": True}},
         settings(fallback_registry="me.azurecr.io", delay_docker_image_preload=True)),
    Case("shm-small", "task.shm_size", "and this is 63m",
         both(pool(vm_size=H100), job(shm_size="64g"), task(shm_size="63m")),
         both(pool(vm_size=H100), job(shm_size="63m"), task(shm_size="64g"))),
    Case("shm-small", "job.shm_size", "and this is 63m", both(pool(vm_size=H100), job(shm_size="63m")),
         both(pool(vm_size=H100), job(shm_size="63m"), task(docker_image=None))),
    broken_by("shm-twice", "task.additional_docker_run_options", "overrides `shm_size: 2g`",
              both(job(shm_size="8g"), task(shm_size="2g")), task(additional_docker_run_options=["--shm-size=1g"])),
    values("gang-user", "task.user_identity.specific_user", "user 1000 is not", {"uid": 1000, "gid": 1},
           {"uid": 0, "gid": 1}, gang()),
    fixed_by("gang-user", "task.additional_docker_run_options", "user 7 is not",
             both(gang(), task(additional_docker_run_options=["--user", "7"])),
             task(multi_instance={"coordination_command": "sshd"})),
    Case("user-host", "job.job_preparation.user_identity.specific_user", "no container",
         job(job_preparation={"command": "x", "user_identity": {"specific_user": {"uid": 1, "gid": 1}}}),
         job(job_preparation={"command": "x", "docker_image": "a/b",
                              "user_identity": {"specific_user": {"uid": 1, "gid": 1}}})),
    Case("user-unknown", "task.user_identity.username", "have no `jan`", task(user_identity={"username": "jan"}),
         both(task(user_identity={"username": "jan"}), pool(user_accounts=[{"name": "jan"}]))),
    # --- the other side of each condition: jobs ---
    pair("duplicate-id", "job.merge_task.id", "another task of this job is called `t`",
         lambda value: both(job(merge_task={"command": "x", "id": value}), task(id="t")), "T", "u"),
    values("duplicate-id", "job.merge_task", "another task of this job is called `merge-task-00000`", {"command": "x"},
           {"command": "x", "id": "u"}, task(id="merge-task-00000")),
    fixed_by("duplicate-id", "job.job_manager.id", "a task without an id would get the id `task-00000`",
             job(job_manager={"command": "x", "id": "task-00000"}), task(id="t")),
    broken_by("reserved-id", "job.merge_task.id", "`JobRelease` is the id of the job's release task",
              job(merge_task={"command": "x", "id": "JobRelease"}), job(**PREPARED, job_release={"command": "x"})),
    Case("reserved-id", "job.job_manager.id", "`JobRelease` is the id of the job's release task",
         job(**PREPARED, job_release={"command": "x"}, job_manager={"command": "x", "id": "JobRelease"}),
         job(**PREPARED, job_release={"command": "x"}, job_manager={"command": "x"})),
    Case("reserved-id", "task.id", "the job's preparation task",
         both(job(job_preparation={"command": "x"}), task(id="JobPreparation")), task(id="JobPreparation")),
    Case("reserved-id", "task.id", "the job's preparation task",
         both(job(input_data=brought("data")), task(id="JobPreparation")),
         both(job(**PREPARED, job_release={"command": "x"}), task(id="JobOther"))),
    Case("reserved-id", "task.id", "the job's preparation task", both(job(**PREPARED), task(id="jobpreparation")),
         both(job(job_release={"command": "x"}), task(id="JobPreparation"))),
    Case("made-ids", "job", "which is not a valid id",
         {**job(autogenerated_task_id={"prefix": "p" * 64, "zfill_width": 0}), "tasks": [{"command": "x"}]},
         {**job(autogenerated_task_id={"prefix": "p" * 63, "zfill_width": 0}), "tasks": [{"command": "x"}]}),
    Case("made-ids", "task.task_factory.autogenerated_task_id", "which is not a valid id",
         task(task_factory={"repeat": 11, "autogenerated_task_id": {"prefix": "p" * 63, "zfill_width": 0}}),
         task(task_factory={"repeat": 10, "autogenerated_task_id": {"prefix": "p" * 63, "zfill_width": 0}})),
    Case("dependency-circle", "job.tasks[0].depends_on", "`best` waits for `sweep` waits for `best`",
         {"tasks": [{"id": "best", "depends_on": ["sweep-00001"]},
                    {"id": "sweep", "depends_on": ["best"], "task_factory": {"repeat": 2}}]},
         {"tasks": [{"id": "best", "depends_on": ["sweep-00001"]}, {"id": "sweep", "task_factory": {"repeat": 2}}]}),
    pair("dependency-circle", "job.tasks[0].depends_on", "`tasks[0]` waits for `tasks[1]` waits for `tasks[0]`",
         lambda value: {"tasks": [value, {"depends_on": ["task-00000"]}]}, {"depends_on": ["task-00001"]}, {}),
    Case("dependency-circle", "job.tasks[0].depends_on_range", "`1` waits for `3` waits for `1`",
         {"tasks": [{"id": "1", "depends_on_range": [2, 3]}, {"id": "3", "depends_on": ["1"]}]},
         {"tasks": [{"id": "1", "depends_on_range": [2, 3]}, {"id": "4", "depends_on": ["1"]}]}),
    *(Case("dependency-range", "job.tasks[1].depends_on_range", "no task",
           {"tasks": [COUNTED, {"id": "x", "depends_on_range": [106, 200]}]},
           {"tasks": [COUNTED, {"id": "x", "depends_on_range": meets}]}) for meets in ([105, 106], [0, 100],
           [103, 104])),
    fixed_by("dependency-range", "job.tasks[1].depends_on_range",
             "`autogenerated_task_id: {prefix: '', zfill_width: 0}`",
             {"tasks": [{"task_factory": {"repeat": 2}}, {"id": "x", "depends_on_range": [0, 1]}]},
             job(autogenerated_task_id={"prefix": "", "zfill_width": 0})),
    Case("dependency-range", "job.tasks[1].depends_on_range", "no task",
         {"tasks": [COUNTED, {"id": "x", "depends_on_range": [0, 99]}]},
         {"tasks": [COUNTED, {"id": "x", "depends_on_range": [104, 104]}]}),
    Case("dependency-range", "job.tasks[1].depends_on_range", "no task",
         {"tasks": [{"id": "4"}, {"id": "x", "depends_on_range": [0, 3]}]},
         {"tasks": [{"id": "4"}, {"id": "x", "depends_on_range": [4, 4]}]}),
    Case("dependency-range", "job.tasks[1].depends_on_range", "no task",
         {"tasks": [{"id": "4"}, {"id": "x", "depends_on_range": [0, 0]}]},
         {"tasks": [{"id": "4"}, {"id": "x", "depends_on_range": [9, 5]}]}),
    values("dependency-range-order", "task.depends_on_range", "-1 to 3 is not a range", [-1, 3], [0, 0]),
    Case("command-missing", "task", "no `command`", {"task": gang()["task"] | {"command": None}},
         task(command=None, docker_image=None, singularity_image="library://a")),
    *(Case("job-empty", "job", "the job has no tasks", {"tasks": []}, {"tasks": [], **job(**{name: {"command": "x"}})})
      for name in ("merge_task", "job_manager")),
    Case("merge-task", "job.merge_task.depends_on_range", "one task",
         job(merge_task={"command": "x", "depends_on_range": [1, 2]}), job(merge_task={"command": "x"})),
    Case("required-slots", "task.required_slots", "2 slots are more than the 1", task(required_slots=2),
         both(task(required_slots=2), pool(task_slots_per_node=2))),
    fixed_by("required-slots", "job.job_manager.required_slots", "2 slots are more than the 1",
             job(job_manager={"command": "x", "required_slots": 2}), pool(task_slots_per_node=2)),
    Case("task-packages", "task.application_packages[1]", "`A` is listed twice",
         task(application_packages=[{"id": "a", "version": "1"}, {"id": "A", "version": "1"}]),
         task(application_packages=[{"id": "a", "version": "1"}, {"id": "a", "version": "2"}])),
    *(Case("results-outside", "task.results.exclude[0]", "out of the working directory",
           task(results={"include": ["*"], "exclude": [outside]}),
           task(results={"include": ["*"], "exclude": ["a/$x"]}))
      for outside in ("/tmp/x", "$HOME/x", "a/../../x")),
    *(Case("span", f"pool.autoscale.{name}", "is not a duration",
           pool(autoscale=laid({"scenario": SCENARIO}, bad)), SCALED)
      for name, bad in (
          ("evaluation_interval", {"evaluation_interval": "00:00:60"}),
          ("scenario.sample_lookback_interval", {"scenario": {"sample_lookback_interval": "00:60:00"}}),
      )),
    Case("span", "pool.upgrade_policy.rolling.pause_time_between_batches", "`00:60:00` is not a duration",
         pool(upgrade_policy={"mode": "rolling", "rolling": {"pause_time_between_batches": "00:60:00"}}),
         pool(upgrade_policy={"mode": "rolling", "rolling": {"pause_time_between_batches": "00:59:59"}})),
    Case("span", "job.job_preparation.max_wall_time", "terminated as soon as it starts",
         job(job_preparation={"command": "x", "max_wall_time": "00:00:00"}),
         job(job_preparation={"command": "x", "retention_time": "00:00:00"})),
    Case("span", "task.retention_time", "`00:00:60`", task(retention_time="00:00:60"), task(retention_time="00:00:00")),
    values("span", "job.recurrence.schedule.recurrence_interval", "`1.24:00:00`", "1.24:00:00", "24:00:00"),
    Case("wall-time-order", "task.max_wall_time", "the job ends after 00:00:00",
         both(job(max_wall_time="00:00:00"), task(max_wall_time="00:00:01")),
         both(job(max_wall_time="99:99:99"), task(max_wall_time="02:00:00"))),
    values("wall-time-retention", "task.retention_time", "deleted 00:00:00 after its end", "00:00:00", "02:00:00",
           job(max_wall_time="02:00:00")),
    values("schedule-minute", "job.recurrence.schedule.start_window", "less than the minimum of a minute", "00:00:00",
           "99:99:99"),
    Case("schedule-times", "job.recurrence.schedule.do_not_run_after", "is not after",
         job(recurrence={"schedule": MIDNIGHT | {"do_not_run_after": "2027-01-01T00:00:00Z"}}),
         job(recurrence={"schedule": MIDNIGHT | {"do_not_run_after": "2027-01-01T00:00:01Z"}})),
    *(Case("recurrence-tasks", "job", "but there is none",
           {"tasks": [], **job(recurrence={"schedule": {}}, merge_task=merge)}, job(recurrence={"schedule": {}}))
      for merge in (None, {"command": "x"})),
    Case("recurrence-tasks", "job.tasks", "1 more cannot be added",
         job(recurrence={"schedule": {}}, merge_task={"command": "x"}), job(merge_task={"command": "x"})),
    Case("exit-codes", "job.exit_conditions.exit_codes[1].code", "the exit code 1 is listed twice",
         job(exit_conditions={"exit_codes": EXIT["exit_codes"] * 2}), job(exit_conditions=EXIT)),
    values("exit-codes", "task.exit_conditions.exit_code_ranges[0]", "2 to 1 is not a range", {"start": 2, "end": 1},
           {"start": 2, "end": 2}),
    Case("exit-codes", "task.exit_conditions.exit_code_ranges[1]", "5 to 9 overlaps an earlier range",
         task(exit_conditions={"exit_code_ranges": [{"start": 1, "end": 5}, {"start": 5, "end": 9}]}),
         task(exit_conditions={"exit_code_ranges": [{"start": 1, "end": 4}, {"start": 5, "end": 9}]})),
    pair("exit-job-action", "job.exit_conditions.file_upload_error.exit_options.job_action", "noaction",
         lambda value: job(exit_conditions={"file_upload_error": {"exit_options": value}}, on_task_failure="noaction"),
         {"job_action": "terminate"}, {"dependency_action": "block"}),
    broken_by("exit-job-action", "task.exit_conditions.exit_code_ranges[0].exit_options.job_action", "noaction",
              task(exit_conditions={"exit_code_ranges": [{"start": 1, "end": 2,
              "exit_options": {"job_action": "terminate"}}]}), job(on_task_failure="noaction")),
    # --- the other side of each condition: gangs and launches ---
    Case("num-instances", "task.multi_instance.num_instances", ": a number from 1 up or one of", gang("12x"), gang(1)),
    Case("num-instances", "task.multi_instance.num_instances", "`0` is not a number of instances", gang(0), gang(1)),
    broken_by("gang-slots", "task.multi_instance", "slots_per_node: 1`", pool(task_slots_per_node=2), gang()),
    pair("gang-nodes", "task.multi_instance.num_instances", "the pool has 4", lambda value: both(gang(5), value),
         pool(vm_count={"dedicated": 1, "low_priority": 3}),
         scenario({"maximum_vm_count": {"dedicated": 1, "low_priority": -1}})),
    Case("gang-nodes", "task.multi_instance.num_instances", "the pool has 2",
         both(gang(3), scenario({"maximum_vm_count": {"dedicated": 1}})),
         both(gang(3), scenario({"maximum_vm_count": {"dedicated": -1}}))),
    Case("processes-per-node", "task.multi_instance.mpi.processes_per_node", "`1.5` is not a whole number",
         gang(processes_per_node="1.5"), gang(processes_per_node="./count.sh")),
    fixed_by("processes-nvidia", "task.multi_instance.mpi.processes_per_node", "counts 0",
             both(pool(vm_size="STANDARD_ND96ISR_MI300X_V5"), gang(processes_per_node="nvidia-smi -L | wc -l")),
             pool(vm_size="STANDARD_Q12Z_V9")),
    Case("gpus-idle", "task.multi_instance.mpi.processes_per_node",
         "uses 7 of its 8 GPUs, because each process uses one",
         both(pool(vm_size=H100), gang(processes_per_node=7)), both(pool(vm_size=H100), gang(processes_per_node=8))),
    Case("gpus-idle", "task.multi_instance.mpi.processes_per_node",
         "uses 1 of its 8 GPUs, because each process uses one",
         both(pool(vm_size=H100), gang(processes_per_node=1)), both(pool(vm_size=H100), gang(processes_per_node=9))),
    values("infiniband-impossible", "task.infiniband", "needs `inter_node_communication_enabled: true`", True, False,
           pool(vm_size=HB, inter_node_communication_enabled=False)),
    broken_by("network-direct", "task.multi_instance.mpi.runtime", "openmpi uses tcp",
              both(gang(), pool(vm_size="STANDARD_H16R"), job(infiniband=False)), task(infiniband=True)),
    Case("mpi-count-twice", "task.multi_instance.horovod.options[0]", "`-np`",
         launched("horovod", over="mpi", options=["-np=4"]), launched("pytorch")),
    values("ranks-over-gpus", "task.multi_instance.pytorch.processes_per_node", "2 processes a node, and 1 GPU: two", 2,
           1, pool(vm_size=T4), launched("pytorch")),
    pair("ranks-over-gpus", "task.multi_instance.deepspeed.processes", "9 processes a node, and 8 GPUs",
         lambda value: both(pool(vm_size=H100), launched("deepspeed", processes=value)), 17, 15),
    broken_by("ranks-over-gpus", "task.multi_instance.pytorch.processes_per_node", "2 processes a node, and 1 GPU: two",
              both(pool(vm_size=H100), launched("pytorch", processes_per_node=2),
              environment(CUDA_VISIBLE_DEVICES=" ")),
              both(environment(CUDA_VISIBLE_DEVICES="0"), job(environment_variables={"CUDA_VISIBLE_DEVICES": "0,1"}))),
    fixed_by("one-node-strategy", "task.command", "each node would train alone",
             both(launched("pytorch"), task(command="python t.py --strategy dp")), launched("pytorch", nodes=1)),
    pair("cntk-mpi", "task.multi_instance.mpi.runtime", "write `runtime: intelmpi`",
         lambda value: both(gang(), task(docker_image=value)), "a/cntk:2.1-gpu-intelmpi", "a/b:2.1-gpu-intelmpi"),
    Case("environment-path", "task.environment_variables.PATH", "this replaces the PATH of the image",
         environment(PATH="/opt/bin"), environment(PYTHONPATH="/opt/lib")),
    Case("environment-size", "task.environment_variables.B", "900,001 bytes together",
         environment(A="a", B="b" * 899_998), environment(A="a", B="b" * 899_997)),
    values("environment-size", "task.environment_variables.B", "900,001 bytes together", "ß" * 450_000, "b" * 450_000),
    Case("environment-port", "job.environment_variables.MASTER_PORT", "such as 29500",
         both(gang(), job(environment_variables={"MASTER_PORT": " 6000 "})), environment(MASTER_PORT="6000")),
    # --- the other side of each condition: frameworks ---
    *(Case("cntk-one-bit", "task.command", "uses 1-bit SGD", task(command="python train.py -q 1", **runs),
           task(command="python train.py -q 1"))
      for runs in ({"docker_image": "microsoft/CNTK"},
      {"docker_image": None, "singularity_image": "library://1bitsgd"})),
    *(Case("tensorflow-roles", "task.command", says, task(command=BENCH + bad), task(command=BENCH + good))
      for says, bad, good in (
          ("makes it one of a cluster", "--variable_update=replicated --job_name=ps", "--variable_update=replicated"),
          ("makes it one of a cluster", "--variable_update=independent --job_name=ps",
           "--variable_update=$KIND --job_name=ps"),
          ("needs `--job_name` (ps or worker)", "--variable_update=distributed_replicated",
           "--variable_update=distributed_replicated --job_name=ps --ps_hosts=a:1 --worker_hosts=b:1"),
          ("remove `--ps_hosts` and the role `ps`",
           "--variable_update=collective_all_reduce --all_reduce_spec=x --job_name=ps",
           "--variable_update=collective_all_reduce --all_reduce_spec=x --job_name=worker"),
          ("stays within one node",
           ONE_NODE_REDUCE + "a:1,b:1",
           ONE_NODE_REDUCE + "a:1"),
          ("`--task_index=1` of 1 `ps` processes",
           "--job_name=ps --ps_hosts=a:1 --worker_hosts=b:1,c:1 --task_index=1",
           "--job_name=ps --ps_hosts=$PS --worker_hosts=b:1,c:1 --task_index=1"),
          ("`--variable_update=collective_all_reduce`", "--variable_update=collective_all_reduce",
           "--variable_update=collective_all_reduce --all_reduce_spec=x"),
          ("remove `--controller_host`",
           "--variable_update=collective_all_reduce --all_reduce_spec=x --controller_host=c:1",
           "--variable_update=collective_all_reduce --all_reduce_spec=x"),
          ("`--num_gpus=2` is refused", "--variable_update=horovod --num_gpus=2",
           "--variable_update=horovod --num_gpus=1"),
          ("`--staged_vars` works only", "--variable_update=replicated --staged_vars=True", "--staged_vars=True"),
      )),
    *(Case("tensorflow-cluster", "task.environment_variables.TF_CONFIG", says, environment(TF_CONFIG=bad),
           environment(TF_CONFIG=good))
      for says, bad, good in (
          ("TF_CONFIG is not JSON", "{cluster}", "${CONFIG}"),
          ("needs a `cluster`", "[]", '{"cluster": {"worker": ["b:1"]}}'),
          ("needs a `cluster`", '{"cluster": {"worker": ["b:1"]}, "task": 1}', '{"cluster": {"worker": ["b:1"]}}'),
          ("the role `ps`, which is not in the cluster; it has chief, worker",
           '{"cluster": {"worker": ["b:1"], "chief": ["a:1"]}, "task": {"type": "ps", "index": 0}}',
           '{"cluster": {"worker": ["b:1"], "chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}'),
          ("has the role `worker` -1", '{"cluster": {"worker": ["b:1"]}, "task": {"type": "worker", "index": -1}}',
           '{"cluster": {"worker": ["b:1"]}, "task": {"type": "worker"}}'),
      )),
    Case("tensorflow-cluster", "job.environment_variables.TF_CONFIG", "not JSON",
         job(environment_variables={"TF_CONFIG": "x"}), job(environment_variables={"TF": "x"})),
    fixed_by("mxnet-roles", "job.environment_variables.DMLC_NUM_WORKER", "for workers; give one or more",
             job(environment_variables={"DMLC_NUM_WORKER": "0"}), environment(DMLC_NUM_WORKER="1")),
    Case("mxnet-roles", "task.command", "`DMLC_ROLE=boss` is not a role", task(command="DMLC_ROLE='boss' python t.py"),
         task(command="DMLC_ROLE=$ROLE python t.py")),
    values("mxnet-roles", "task.environment_variables.DMLC_ROLE", "`DMLC_ROLE=boss` is not a role", "boss",
           "scheduler"),
    values("mxnet-roles", "task.command", "use a `_sync` one", "python t.py --kv-store dist_async",
           "python t.py --kv-store dist_sync", environment(DMLC_PS_VAN_TYPE="p3")),
    broken_by("mxnet-local", "task.command", "write `horovod`", task(command="python t.py --kv-store local"),
              launched("horovod")),
    # --- the other side of each condition: sources ---
    Case("source-script", "task.command", "has `n0.py`, `n1.py`, `n2.py`, `n3.py`, `n4.py`, `n5.py`, `n6.py`, `n7.py`,"
         " `n8.py`, `n9.py` and 1 more", task(source="s", command="python -u b.py", docker_image=None),
         task(source="s", command="python -u ../b.py", docker_image=None),
         {"s": Survey(tuple(f"n{n}.py" for n in range(11)))}, {"s": SCRIPTS}),
    pair("command-length", "task.multi_instance.coordination_command", "65,536 at most",
         lambda value: task(multi_instance=GANG | {"coordination_command": "x" * value}), 65_537, 65_536),
]  # fmt: skip

PLACES = {
    "pool": "pool_specification", "job": "job_specifications[0]", "task": "job_specifications[0].tasks[0]",
    "global": "global_resources",
}  # fmt: skip


def place(short: str) -> str:
    head, dot, rest = short.partition(".")
    return f"{PLACES.get(head, head)}{dot}{rest}"


def found(rule: str, parts: Parts, sources: Mapping[str, Survey] | None = None) -> list[tuple[str, str]]:
    told = check.run(recipe(parts), sources=sources)
    return [(dotted(one.path), one.message) for one in told if one.rule == rule]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule} {case.at}")
def test_a_rule_reports_its_mistake_and_nothing_else(case: Case) -> None:
    told = found(case.rule, case.bad, case.sources)
    assert [path for path, _ in told] == [place(case.at)]
    assert case.says in told[0][1]
    good_sources = case.sources if case.good_sources is None else case.good_sources
    assert found(case.rule, case.good, good_sources) == []


LARGE = "factory-size"
"""The rule whose cases have up to a million tasks."""


@pytest.mark.property
@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_no_rule_calls_an_error_can_be_planned(large: bool) -> None:
    cases = [case for case in CASES if (case.rule == LARGE) is large]
    for parts in [parts for case in examples.some(cases, 0) for parts in (case.bad, case.good)]:
        whole = recipe(parts)
        if any(task.source for job in whole.jobs for task in job.tasks):
            continue  # what is in it is on no disk
        if all(one.level != "error" for one in check.run(whole)):
            if whole.pool is not None:
                plan_pool(whole)
            plan_jobs(whole)


def test_every_rule_with_a_function_is_tried_here() -> None:
    assert {rule.name for rule in check.RULES if rule.find} - {case.rule for case in CASES} == set()


@pytest.mark.parametrize(
    ("rule", "size", "parts"),
    [
        ("infiniband-impossible", "STANDARD_D4S_V5", both(pool(vm_size=HB), job(infiniband=True), gang())),
        ("image-architecture", "STANDARD_D4PS_V5", pool(vm_size=HB)),
        ("vm-size-unknown", "STANDARD_D4SV_5", {}),
    ],
)
def test_a_candidate_that_can_never_run_the_recipe_is_an_error_at_its_place(rule: str, size: str, parts: Parts) -> None:
    found = list(check.run(recipe(both(parts, candidates({"vm_size": size})))))
    at = "pool_specification.candidates.alternatives[0]"
    assert (rule, "error", at) in [(one.rule, one.level, dotted(one.path)) for one in found]
    assert rule not in [one.rule for one in check.run(recipe(parts))]


def test_every_rule_has_a_name_of_its_own_a_level_a_sentence_and_a_source() -> None:
    names = [rule.name for rule in check.RULES]
    assert len(names) == len(set(names))
    for rule in check.RULES:
        assert rule.level in ("error", "warning", "info")
        assert rule.sentence.endswith(".")
        assert rule.source


NEVER_WORKS = {
    "command-missing", "dependency-circle", "duplicate-id", "gang-inter-node", "gang-nodes", "gang-slots",
    "gpus-impossible", "image-kind", "image-not-listed", "infiniband-impossible", "inter-node-mixed", "made-ids",
    "num-instances", "processes-per-node", "slots-limit", "source-missing", "source-reserved", "unknown-dependency",
    "vm-size-unknown",
}  # fmt: skip


def test_what_could_never_work_is_an_error() -> None:
    assert {rule.name for rule in check.RULES if rule.level == "error"} >= NEVER_WORKS


def test_the_base_of_these_cases_has_nothing_to_say_of() -> None:
    assert list(check.run(recipe({}))) == []


def test_rules_that_others_find_are_listed() -> None:
    listed = {rule.name for rule in check.RULES if rule.find is None}
    assert listed >= {"renamed", "elsewhere", "placeholder", "offline-count", "offline-files"}


def test_a_rule_stays_silent_where_a_section_it_reads_is_broken() -> None:
    parts = both(gang(), pool(inter_node_communication_enabled=False))
    rules = {one.rule for one in check.run(recipe(parts), frozenset({"pool_specification"}))}
    assert "gang-inter-node" not in rules


@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        ("image-kind", vm(platform_image=None)),
        ("identity-missing", both(BLOB_VOLUME, shared(identity=IDENTITY))),
        ("user-unknown", task(user_identity={"username": "jan"})),
        ("required-slots", task(required_slots=2)),
        ("required-slots", job(job_manager={"command": "x", "required_slots": 2})),
        ("job-network", job(network={"subnet_id": SUBNET})),
        ("gang-inter-node", gang()),
        ("gang-nodes", gang(1000)),
    ],
)
def test_a_rule_about_the_pool_stays_silent_without_a_pool(rule: str, parts: Parts) -> None:
    assert found(rule, {**parts, "pool": None}) == []


def test_a_circle_names_up_to_twenty_tasks_and_counts_the_others() -> None:
    def told(number: int) -> str:
        tasks = [{"id": f"t{n}", "depends_on": [f"t{(n + 1) % number}"]} for n in range(number)]
        return found("dependency-circle", {"tasks": tasks})[0][1]

    assert told(20).endswith("`t18` waits for `t19` waits for `t0`")
    assert told(21).endswith("`t19` waits for 1 more waits for `t0`")


@pytest.mark.parametrize(
    ("rule", "parts", "never"),
    [
        ("launcher-inside", both(launched("pytorch"), task(command="deepspeed x.py")), "in place of"),
        ("job-empty", {"tasks": []}, "ends it at once"),
        ("image-gpu-driver", pool(vm_size="STANDARD_ND96ISR_MI300X_V5", **image(UBUNTU)), "nvidia_driver"),
        ("fallback-registry-unused", {"settings": {"fallback_registry": "r.io"}, **pool(**image(WINDOWS))}, "delay_"),
        (
            "mount-key",
            both(shared(volume_driver="azurefile", storage_account_settings="link"),
                 accounts(storage={"link": {"account": "one"}})),
            "identity",
        ),
        (
            "source-script",
            {"task": {"command": "python a.py", "source": "s", "docker_image": None}},
            "write `$AZ_BATCH_TASK_SHARED_DIR",
        ),
        ("image-not-listed", task(docker_image="zzzz"), "If not"),
    ],
)  # fmt: skip
def test_a_message_gives_no_advice_that_does_not_apply(rule: str, parts: Parts, never: str) -> None:
    ((_, message),) = found(rule, parts, {"s": Survey(("x/a.py", "y/a.py"))})
    assert never not in message


def test_what_a_rule_reads_are_sections() -> None:
    sections = {
        "credentials", "batchtrain", "global_resources", "data_replication", "pool_specification", "job_specifications",
    }  # fmt: skip
    assert {section for rule in check.RULES for section in rule.reads} <= sections


def test_a_persons_own_size_is_known() -> None:
    own = Catalog(own_sizes=(VmSize("Standard_New", "New", 8, 16.0, gpus=2, gpu_vendor="nvidia"),))
    parts = both(pool(vm_size="standard_new"), job(gpus="all", shm_size="1g"))
    assert list(check.run(msgspec.structs.replace(recipe(parts), catalog=own))) == []


# --- properties that are gone ---------------------------------------------------------------------------------------

_GONE_TASK = {"remove_container_after_exit": False, "name": "n"}
_SIGNATURE = {"image": "library://a", "encryption": {"certificate": {}}}
_THUMBPRINT = {"x509_cert_sha1_thumbprint": "AB12"}
_SIGN_IN = {**_THUMBPRINT, "endpoint": "https://example.org"}
_ACCOUNT = {"test_cluster": True, "application_insights": {"application_id": "a"}, "aad": _THUMBPRINT}
EVERYTHING_GONE: Parts = {
    "credentials": {
        "batch": _ACCOUNT, "batch_accounts": {"v": _ACCOUNT},
        "aad": _SIGN_IN, "storage_aad": _SIGN_IN, "keyvault": {"aad": _SIGN_IN}, "management": {"aad": _THUMBPRINT},
        "storage": {"v": {"account": "a", "resource_group": "g"}},
        "singularity_registry": {"v": {"identity": "i"}},
        "user_accounts": {"v": {"username": "u"}},
        "shares": {"v": {"ssh_private_key": "k"}},
        "monitoring": {"grafana": {"admin": {"username": "u"}}},
        "slurm": {"db_password": "p"},
    },
    "settings": {
        "encryption": {"enabled": True}, "store_timing_metrics": True, "use_shipyard_docker_image": True,
    },
    "replication": {},
    "global": {
        "singularity_images": {
            "unsigned": [{**_SIGNATURE, "signing_key": {"fingerprint": "AB12"}}], "signed": [_SIGNATURE]},
        "volumes": {"shared_data_volumes": {"v": {
            "volume_driver": "glusterfs_on_compute", "volume_type": "replica", "volume_options": ["o"]}}},
    },
    "pool": {
        "certificates": {"sha1": {}}, "per_job_auto_scratch": True, "batch_insights_enabled": True,
        "prometheus": {"cadvisor": {"enabled": True}}, "container_runtimes": {"default": "kata_containers"},
        "ssh": {"username": "u", "generate_docker_tunnel_script": True, "hpn_server_swap": True},
        "gpu": {"ignore_warnings": True}, "upload_diagnostics_logs_on_unusable": True,
        "vm_configuration": {"plain_docker": False},
    },
    "job": {
        "remove_container_after_exit": False, "auto_scratch": True,
        "federation_constraints": {"pool": {"location": "x"}}, "merge_task": _GONE_TASK,
    },
    "task": _GONE_TASK,
}  # fmt: skip


def test_every_removed_property_is_reported_at_its_position() -> None:
    told = {tuple("*" if step in (0, "v") else step for step in one.path) for one in gone(EVERYTHING_GONE)}
    assert told == {row.path for row in GONE}


def test_no_message_about_a_removed_property_shows_a_value() -> None:
    encrypted = {"encryption": {"enabled": True, "pfx": {"passphrase": "hunter2"}}}
    secret = {"credentials": {"slurm": {"db_password": "hunter2"}}, "settings": encrypted}
    assert len(gone(secret)) == 2
    assert not any("hunter2" in one.message for one in gone(secret))


def gone(parts: Parts) -> list[check.CheckFinding]:
    return [one for one in check.run(recipe(parts)) if one.rule == "gone"]


# --- many tasks -----------------------------------------------------------------------------------------------------


def test_the_number_of_suggestions_for_a_file_full_of_mistakes_is_limited() -> None:
    tasks = [{"id": f"task{n}", "command": "x", "docker_image": "a/b", "depends_on": [f"tsk{n}"]} for n in range(2000)]
    messages = [message for _, message in found("unknown-dependency", {"tasks": tasks})]
    assert len(messages) == 2000
    assert "did you mean" in messages[0]
    assert "did you mean" not in messages[-1]


def test_a_chain_of_many_tasks_is_no_circle() -> None:
    tasks = [{"id": f"t{n}", "command": "x", "depends_on": [f"t{n + 1}"] if n < 4999 else []} for n in range(5000)]
    assert found("dependency-circle", {"tasks": tasks}) == []


@pytest.mark.parametrize(
    "command",
    [
        "set -e\nmpirun -np 2 x",
        "FOO=1 BAR=2 mpirun x",
        "timeout -k 5 3600 torchrun t.py",
        "numactl -N 0 --membind=0 /opt/bin/mpirun x",
        "sudo -E mpirun x",
        "sudo -u root env A=1 mpirun x",
        "if ! mpirun x; then exit 1; fi",
        "(mpirun)",
        "python -m deepspeed.launcher.runner t.py",
    ],
)
def test_a_launcher_is_found_wherever_a_command_begins(command: str) -> None:
    assert len(found("nested-launch", both(gang(), task(command=command)))) == 1


@pytest.mark.parametrize(
    "command",
    ["sudo apt-get install -y deepspeed", "echo mpirun", "# mpirun x", "python t.py --by mpirun", "./mpirun_x"],
)
def test_a_word_that_starts_nothing_is_no_launcher(command: str) -> None:
    assert found("nested-launch", both(gang(), task(command=command))) == []


@pytest.mark.parametrize(
    "text", ["\n" * 20_000, "sudo " + "-x env " * 2800, "/a" * 10_000, "A=1 " * 5000, "bash -c" + " " * 19_000 + "x"]
)
def test_a_long_command_takes_no_time(text: str) -> None:
    assert found("nested-launch", both(gang(), task(command="x;" + text))) == []


def test_a_circle_of_many_tasks_names_some_of_them() -> None:
    tasks = [{"id": f"t{n}", "command": "x", "depends_on": [f"t{(n + 1) % 5000}"]} for n in range(5000)]
    ((path, message),) = found("dependency-circle", {"tasks": tasks})
    assert path == "job_specifications[0].tasks[0].depends_on[0]"
    assert "4980 more" in message
    assert len(message) < 1000


def test_each_circle_of_dependencies_is_reported_once() -> None:
    tasks = [{"id": name, "depends_on": [other]} for name, other in ("ab", "ba", "cd", "dc", "ea")]
    assert [path for path, _ in found("dependency-circle", {"tasks": tasks})] == [
        "job_specifications[0].tasks[0].depends_on[0]", "job_specifications[0].tasks[2].depends_on[0]",
    ]  # fmt: skip


def test_a_command_of_spaces_takes_no_time() -> None:
    assert found("nested-launch", both(gang(), task(command="bash -c" + " " * 300_000))) == []


def test_a_retention_of_the_job_is_reported_once() -> None:
    short = {"max_wall_time": "02:00:00", "retention_time": "01:00:00"}
    parts = {"job": short, "tasks": [{}, {}], "jobs": [{"id": "k", "tasks": [{}, {}], **short}]}
    assert [path for path, _ in found("wall-time-retention", parts)] == [
        "job_specifications[0].retention_time", "job_specifications[1].retention_time",
    ]  # fmt: skip


def test_tasks_are_walked_over_a_bounded_number_of_times_however_many_there_are() -> None:
    """Linear: twice the tasks give twice the steps, counted by what the rules ask of each task."""
    counts = [_steps(number) for number in (50, 100, 200)]
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), rel=0.05)


def _steps(number: int) -> int:
    import sys

    tasks = [
        {"id": f"t{n}", "command": "x", "docker_image": "a/b", "depends_on": ["t0"] if n else []} for n in range(number)
    ]
    whole = recipe({"tasks": tasks})
    lines = 0

    def count(_frame: object, event: str, _value: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        list(check.run(whole))
    finally:
        sys.settrace(before)
    return lines
