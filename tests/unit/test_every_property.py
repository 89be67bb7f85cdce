"""Every property of the language is set once, and seen in the plan that comes of it, or in what is said about it."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.batch import models
from azure.batch._utils.model_base import Model

from batchtrain.catalog import api_versions
from batchtrain.client import logins, operations, pools
from batchtrain.client.late_values import Placeholders
from batchtrain.config import reference
from batchtrain.config.candidates import ordered, selected
from batchtrain.config.check import RULES
from batchtrain.config.reference import PropertyPath
from batchtrain.config.task_results import settings_of
from batchtrain.config.types import Credentials, Secret, StorageCredentials
from batchtrain.emulator import models as tables
from batchtrain.errors import UsageError
from batchtrain.frameworks import FRAMEWORKS
from batchtrain.launchers.rules import RULES as DECISIONS
from batchtrain.metrics.extract import Extractor, Pattern
from batchtrain.metrics.summary import Summary
from batchtrain.plan import Facts, ingress, plan_recipe, render
from batchtrain.plan.wire import Placeholder
from batchtrain.records import Endpoint
from batchtrain.runs import results, source_copy
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.results import Part
from batchtrain.service import downloads, entra, vault, webhook
from batchtrain.service.connect import Account, account_of
from batchtrain.service.notices import Notices
from batchtrain.service.register import Thing
from tests import judge
from tests.left_out import LEFT_OUT
from tests.properties import Effect, Row, Seen, Verdict, judged, outcome, path_of, value_for
from tests.reference_page import type_of

PROPERTIES = {
    place: item
    for place, item in reference.properties().items()
    if item.wire and "[" not in type_of(item.kind) and "merge_task" not in place
}
"""Those that hold a value; a block's properties stand for it, and a merge task is a task."""

NAMED = {path_of(place): place for place in PROPERTIES}

SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n"
IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
IMAGE_ID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/g/images/i/versions/1.0.0"
COMPUTE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
ARTIFACT = f"{COMPUTE}/galleries/g/serviceArtifacts/a/vmArtifactsProfiles/p"
PROFILE = f"{COMPUTE}/galleries/g/inVMAccessControlProfiles/p/versions/1"
SECRET = "https://vault.vault.azure.net/secrets/name"
POOL = "pool_specification"
VM = f"{POOL}.vm_configuration"
JOB = "job_specifications[0]"
TASK = f"{JOB}.tasks[0]"
VOLUMES = "global_resources.volumes"

# --- what else must be said where a block stands, by the block's anchor ----------------------------------------------

CONTAINER = {f"{TASK}.docker_image": "busybox", "global_resources.docker_images": ["busybox"]}
GANG = {f"{TASK}.multi_instance.num_instances": 2, f"{TASK}.multi_instance.mpi.runtime": "mpich"}
APPTAINER = {
    f"{TASK}.singularity_image": "library://a/b:1",
    "global_resources.singularity_images.unsigned": [{"image": "library://a/b:1"}],
}
REGISTRY = {"global_resources.docker_images": ["reg.example.org/a:1"]}
BLOB_SHARE = {
    "volume_driver": "azureblob", "container_path": "/share", "storage_account_settings": "link",
    "azure_blob_container_name": "blobs",
}  # fmt: skip
FILES_SHARE = {
    "volume_driver": "azurefile", "container_path": "/share", "storage_account_settings": "link",
    "azure_file_share_name": "files",
}  # fmt: skip
NFS = {"volume_driver": "nfs", "container_path": "/share", "source": "server:/export"}
CIFS = {"volume_driver": "cifs", "container_path": "/share", "source": "//server/export"}
MOUNTED = {**CONTAINER, f"{TASK}.shared_data_volumes": ["share"]}
NATIVE = {f"{VM}.platform_image.native": True, **CONTAINER}
WINDOWS = {
    f"{VM}.platform_image": {
        "publisher": "microsoftwindowsserver", "offer": "windowsserver", "sku": "2022-datacenter-core",
        "node_agent": "batch.node.windows amd64"},
    f"{POOL}.inter_node_communication_enabled": False,
    f"{TASK}.command": "cmd /c echo hello",
}  # fmt: skip


def in_place_of_mpi(name: str) -> dict[str, Any]:
    """A framework's block in place of an MPI's."""
    return {f"{TASK}.multi_instance.mpi": None, f"{TASK}.multi_instance.{name}": {}}


def other_image(kind: str) -> dict[str, Any]:
    """An image of another kind in place of the base's."""
    name = "arm_image_id" if kind == "custom_image" else "id"
    return {f"{VM}.platform_image": None, f"{VM}.{kind}": {name: IMAGE_ID, "node_agent": "batch.node.ubuntu 22.04"}}


# --- what else must be said where a block stands, by the block's anchor ----------------------------------------------

ENTRA = {"credentials.batch.account_key": None}
IDENTITIES = {**ENTRA, f"{POOL}.identities": [IDENTITY]}
VOLUME = f'{VOLUMES}.shared_data_volumes."share"'
OTHER_VOLUME = f'{VOLUMES}.shared_data_volumes."other"'
TRUSTED = {".security_type": "trustedLaunch"}
SCENARIO = f"{POOL}.autoscale.scenario"
FSTAB = {
    "volume_driver": "custom_linux_mount", "container_path": "/share",
    "fstab_entry": {"fs_spec": "server:/x", "fs_vfstype": "lustre"},
}  # fmt: skip
FILES = {
    "source": {"path": "data"},
    "destination": {"storage_account_settings": "link", "data_transfer": {"remote_path": "container/path"}},
}
SWEEP = f"{TASK}.task_factory.parametric_sweep"
RANDOM = f"{TASK}.task_factory.random"

BY_NAME = {
    **ENTRA,
    f"{POOL}.virtual_network.name": "net",
    f"{POOL}.virtual_network.resource_group": "rg",
    f"{POOL}.virtual_network.subnet.name": "sub",
    "credentials.management.subscription_id": "subscription",
}
CREATED = {**BY_NAME, f"{POOL}.virtual_network.create_nonexistant": True}
SOURCE = {"src/train.py": "print(1)", "src/.env": ""}
BROUGHT = {f"{TASK}.source": "src"}
LISTED = {"global_resources.docker_images": ["busybox"]}
ECHO_FILE = {f"{TASK}.command": "echo {file_name}"}
IMAGES = {"src/images/a.png": "a", "src/texts/b.txt": "b"}
GENERATE = "def generate(*args, word='made'):\n    yield (args[0] if args else word,)\n"
MODULE = {"mine_a.py": GENERATE, "pack_a/__init__.py": "", "pack_a/inner.py": GENERATE.replace("made", "packed")}

CONTEXT: dict[str, dict[str, Any]] = {
    "pool_specification.candidates": {f"{POOL}.candidates.alternatives[0].vm_size": "STANDARD_D2S_V5"},
    "job_specifications.tasks.metrics": {
        f"{TASK}.metrics[0].name": "perplexity", f"{TASK}.metrics[0].pattern": r"ppl=(\S+)"},
    "credentials.docker_registry": REGISTRY,
    "credentials.singularity_registry": {
        "global_resources.singularity_images.unsigned": [{"image": "docker://reg.example.org/a:1"}]},
    "credentials.user_accounts": {f"{POOL}.user_accounts": [{"name": "ann"}]},
    "credentials.shares": {VOLUME: CIFS, 'credentials.shares."share"': {"username": "ann", "password": "x"}, **MOUNTED},
    "batchtrain.autogenerated_task_id": {f"{TASK}.id": None},
    "global_resources.volumes.data_volumes": {
        **CONTAINER, f"{TASK}.data_volumes": ["scratch"],
        f'{VOLUMES}.data_volumes."scratch"': {"container_path": "/scratch", "host_path": "/mnt/scratch"}},
    "global_resources.volumes.shared_data_volumes": {**MOUNTED, VOLUME: BLOB_SHARE},
    "global_resources.volumes.shared_data_volumes.fstab_entry": {VOLUME: FSTAB},
    "global_resources.files": {"global_resources.files": [FILES]},
    f"{VM}.custom_image": {**ENTRA, **other_image("custom_image")},
    f"{VM}.shared_gallery_image": {**ENTRA, **other_image("shared_gallery_image")},
    f"{VM}.community_gallery_image": {**ENTRA, **other_image("community_gallery_image")},
    f"{VM}.disk_encryption.customer_managed_key": {
        **IDENTITIES, **WINDOWS, f"{VM}.disk_encryption.targets": ["osdisk", "temporarydisk"]},
    f"{POOL}.vm_sizes": {f"{POOL}.vm_sizes.alternatives": ["STANDARD_D4AS_V5"]},
    f"{POOL}.autoscale": {f"{POOL}.autoscale.formula": "$TargetDedicatedNodes = 1;"},
    f"{POOL}.autoscale.scenario": {
        f"{POOL}.autoscale.formula": None, f"{POOL}.inter_node_communication_enabled": False,
        SCENARIO: {"name": "active_tasks", "maximum_vm_count": {"dedicated": 8, "low_priority": 8}}},
    f"{POOL}.autoscale.scenario.time_ranges": {
        SCENARIO: {"name": "workday", "maximum_vm_count": {"dedicated": 8, "low_priority": 8}}},
    f"{POOL}.autoscale.scenario.time_ranges.weekdays": {f"{SCENARIO}.time_ranges.weekdays": {"start": 1, "end": 5}},
    f"{POOL}.autoscale.scenario.time_ranges.work_hours": {
        f"{SCENARIO}.time_ranges.work_hours": {"start": 8, "end": 17}},
    f"{POOL}.additional_node_prep": {f"{POOL}.additional_node_prep.commands.pre": ["true"]},
    f"{POOL}.remote_access_control": {f"{POOL}.ssh.username": "ann"},
    f"{POOL}.rdp": WINDOWS,
    f"{POOL}.virtual_network": ENTRA,
    "job_specifications.network": {f"{POOL}.network.dynamic_vnet_assignment_scope": "job", **ENTRA},
    "job_specifications.auto_pool": {f"{JOB}.auto_pool.pool_lifetime": "job"},
    "job_specifications.recurrence": {f"{JOB}.recurrence.schedule.recurrence_interval": "01:00:00"},
    "job_specifications.job_release": {f"{JOB}.job_preparation.command": "true"},
    "job_specifications.job_preparation": {f"{JOB}.job_preparation.command": "true"},
    "job_specifications.autogenerated_task_id": {f"{TASK}.id": None},
    "job_specifications.user_identity.specific_user": CONTAINER,
    **{
        f"job_specifications.{part}.user_identity.specific_user": {f"{JOB}.{part}.docker_image": "busybox", **LISTED}
        for part in ("job_manager", "job_preparation", "job_release")
    },
    "job_specifications.tasks.user_identity.specific_user": CONTAINER,
    "job_specifications.tasks.multi_instance": GANG,
    **{f"job_specifications.tasks.multi_instance.{name}": in_place_of_mpi(name) for name in FRAMEWORKS},
    "job_specifications.tasks.bind_mounts": CONTAINER,
    "job_specifications.tasks.checkpoint": {VOLUME: NFS, f"{TASK}.checkpoint.volume": "share"},
    "job_specifications.tasks.singularity_execution": APPTAINER,
    "job_specifications.tasks.task_factory": {f"{TASK}.id": None, f"{TASK}.command": "echo {0}"},
    "job_specifications.tasks.task_factory.autogenerated_task_id": {f"{TASK}.task_factory.repeat": 2},
    "job_specifications.tasks.task_factory.grid": {f"{TASK}.command": "echo {lr}"},
    "job_specifications.tasks.task_factory.random": {f"{RANDOM}.generate": 2},
    "job_specifications.tasks.task_factory.file": {
        f"{TASK}.task_factory.file.azure_storage": {"storage_account_settings": "link",
        "remote_path": "container/path"}},
    "job_specifications.tasks.task_factory.file.source": {
        **BROUGHT, f"{TASK}.task_factory.file.azure_storage": None, f"{TASK}.command": "echo {file_path}"},
}  # fmt: skip
"""Of the base and of each block above comes first; what a block cannot do without is filled in by its types."""

REQUIRED: dict[str, Any] = {
    "storage_account_settings": "link",
    "remote_path": "container/path",
    "lun": 1,
    "size_gb": 64,
    "frontend_port_range": [40000, 40100],
    "backend_port": 22,
    "priority": 200,
    "source_address_prefix": "10.0.0.0/8",
    "iterable": ["a", "b", "c"],
    "length": 2,
    "start": 1,
    "stop": 5,
    "subnet_id": SUBNET,
    "key_url": "https://v.vault.azure.net/keys/k/1",
    "identity": IDENTITY,
    "fs_spec": "server:/x",
    "fs_vfstype": "lustre",
    "image": "library://needed/image:1",
    "text": "needed-text",
}
"""Values of required properties that must fit, by name."""

# --- the rows: those of which the type alone does not give a value, or the wire field does not show it ----------------

ELSEWHERE = "https://elsewhere.blob.core.windows.net/container"
MOMENT = "2030-01-01T00:00:00Z"
BATCH_KEY = "credentials.batch.account_key"


def sent(seen: Seen) -> str:
    """All that a plan says."""
    return msgspec.json.encode(render.as_document(seen.plan)).decode()


def secret(name: str) -> Effect:
    """A placeholder that the plan holds, and what it is filled with when it is sent."""

    def effect(seen: Seen) -> list[str]:
        kind, _, rest = name.partition(":")
        placeholder = Placeholder(kind, rest)
        if str(placeholder) not in sent(seen):
            return []
        try:
            return [name, Placeholders(seen.recipe).fill(placeholder)]
        except UsageError:
            return [name]

    return effect


def advised(text: str) -> Effect:
    """A value in the command that a warning prints."""
    return lambda seen: [text for problem in seen.problems if f"--address-prefixes {text}" in problem.message]


def from_vault(read: Callable[[Credentials], Any]) -> Effect:
    """A value of the credentials, where a vault has every secret."""

    def effect(seen: Seen) -> list[Any]:
        known = seen.recipe.credentials
        uri = known.keyvault.uri if known.keyvault else None
        return [read(vault.resolved(known, lambda name: f"secret of {vault.id_of(name, uri)}"))]

    return effect


def in_vault(read: Callable[[Credentials], Any], **beside: Any) -> Row:
    """A secret of which only the id in a vault is given."""
    return Row(SECRET, shown=f"secret of {SECRET}", effect=from_vault(read), beside=beside)


def passwords_of(section: str) -> Callable[[Credentials], Any]:
    return lambda known: [entry.password for entry in getattr(known, section).values()]


def chosen_for(part: str) -> Effect:
    """Whether the user of a job's own task was chosen for it."""
    return lambda seen: any(
        one.rule == "user-identity" and one.where.endswith(f".{part}") for one in seen.plan.implicit
    )


def sign_in(section: str) -> Effect:
    """How a service is signed in to."""

    def effect(seen: Seen) -> list[Any]:
        known = seen.recipe.credentials
        if section in ("aad", "batch"):
            found = account_of(known, {})
            return [*found.sign_in, found.resource] if found else []
        block = getattr(known, section)
        return list(entra.sign_in_of(block if section == "storage_aad" else block and block.aad, known.aad))

    return effect


def of_account(name: str) -> Effect:
    return lambda seen: [getattr(account_of(seen.recipe.credentials, {}), name, None)]


def stores(seen: Seen) -> list[StorageCredentials]:
    """The storage accounts as they are connected to."""
    return list(seen.recipe.credentials.storage.values())


def vaulted(seen: Seen) -> list[str]:
    """What a secret that is given by its name alone becomes."""
    try:
        return list(from_vault(lambda c: c.batch and c.batch.account_key)(seen))
    except UsageError:
        return []


def owner(seen: Seen) -> list[bool]:
    """Whether the metadata of a pool names the user and the host."""
    register = operations.Operations(Account("http://127.0.0.1:1", "a", Secret("a2V5"))).register(seen.recipe)
    marks = register.marks(Thing("pool", "p"))
    return [bool(marks.user), bool(marks.host)]


def notified(seen: Seen) -> list[str]:
    """Where a webhook of the run is, and the events that a failed run sends it."""
    sent: list[str] = []

    def send(url: Secret, document: Mapping[str, Any]) -> str:
        sent.extend((url.reveal(), str(document["event"])))
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhook, "send", send)
        account = Account("http://127.0.0.1:1", "a", Secret("a2V5"))
        Notices(seen.recipe, account, lambda _: None).ended("j", "r", "failed", None)
    return sent


def whole_file(seen: Seen) -> list[str]:
    """The account's name where the vault holds a whole credentials file."""
    text = "credentials: {storage: {vaulted: {account: fromthevault}}}"
    return [store.account for store in vault.resolved(seen.recipe.credentials, lambda _: text).storage.values()]


def managed(seen: Seen) -> list[Any]:
    """Where Azure Resource Manager is."""
    block = seen.recipe.credentials.management
    return [block.aad.endpoint if block and block.aad else None]


def logged_in(seen: Seen) -> list[Any]:
    """The key of the command that logs in to a node."""
    login = seen.recipe.pool.ssh if seen.recipe.pool else None
    node = Endpoint("tvm", "20.0.0.1", 50000)
    return [shlex.join(logins.words(login.username, login.ssh_private_key or "", node))] if login else []


def key_pair(seen: Seen) -> list[str]:
    """Where a key pair is made."""
    with tempfile.TemporaryDirectory() as directory:
        return [str(Placeholders(seen.recipe, directory=Path(directory)).key_pair())]


def listed(seen: Seen) -> list[Any]:
    """The tasks that are made of three blobs."""
    names = ("container/path/one.csv", "container/path/two.txt")
    place = "link/container/path"
    return [step.document for step in plan_recipe(seen.recipe, Facts(listings={place: names})).steps]


def uploads(seen: Seen) -> list[Any]:
    """What `data ingress` would bring, and what it leaves out."""
    return [*map(list, ingress.plan(seen.recipe).steps), *map(list, ingress.left_out(seen.recipe))]


def launched(seen: Seen) -> list[Any]:
    return [*seen.bodies("task"), seen.launch]


def shells(seen: Seen) -> list[Any]:
    """What the shells of nodes and tasks are given."""
    return [*seen.bodies("pool"), *seen.bodies("job"), *seen.bodies("task"), seen.launch]


def arrived(seen: Seen) -> list[str]:
    """The files that travel with the tasks."""
    return [file.name for source in seen.sources.values() for file in source.files]


def brought(seen: Seen) -> list[str]:
    """The results that are fetched of two nodes."""
    nodes = (Part(f"n{number}", "", downloads.node_tree("p", f"n{number}")) for number in range(2))
    files = [(node, downloads.File(f"wd/{name}", 2000)) for node in nodes for name in ("output/a", "output/b", "c")]
    (task, *_) = seen.recipe.jobs[0].tasks
    return [name for _, _, name in results.select("train", settings_of(task), files).files]


def copied(seen: Seen) -> list[str]:
    """Why a run keeps no copy of the source."""
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory))
        return [source_copy.keep(run, seen.recipe, seen.recipe.jobs[0], seen.sources)]


def measured(seen: Seen) -> list[str]:
    """The metrics of two lines, and their units."""
    (task, *_) = seen.recipe.jobs[0].tasks
    patterns = [Pattern(metric.name, metric.pattern, metric.unit) for metric in task.metrics]
    summary = Summary({pattern.name: pattern.unit for pattern in patterns})
    for point in Extractor(patterns).feed(("step=4 ppl=2.5", "speed 3"), 0.0):
        summary.add(point)
    return [text for name, one in summary.metrics().items() for text in (f"{name}={one.last}", one.unit)]


def ids(seen: Seen) -> list[str]:
    return [task["id"] for task in seen.bodies("task")]


AAD = {
    "authority_url": Row("https://login.microsoftonline.us", shown="login.microsoftonline.us"),
    "directory_id": Row("tenant"),
    "application_id": Row("client"),
    "auth_key": Row("k", shown=entra.SECRET, beside={".directory_id": "t", ".application_id": "c"}),
    "rsa_private_key_pem": Row("k.pem", beside={".directory_id": "t", ".application_id": "c"}),
    "user": Row("ann@example.org"),
    "password": Row("pw", shown=entra.PASSWORD_NOTE, beside={".user": "ann@example.org"}),
}
CACHE = {
    "enabled": Row(False, instead=True, shown=()),
    "filename": Row("name"),
}
SIGN_INS = {
    "credentials.aad": "aad",
    "credentials.batch.aad": "batch",
    "credentials.storage_aad": "storage_aad",
    "credentials.management.aad": "management",
    "credentials.keyvault.aad": "keyvault",
}
SIGN_IN_ROWS = {
    f"{place}.{name}": row._replace(
        effect=sign_in(section), beside={BATCH_KEY: None, **row.beside},
        shown=row.value if row.shown is None else row.shown,
    )
    for place, section in SIGN_INS.items()
    for name, row in AAD.items()
} | {
    f"{place}.token_cache.{name}": row._replace(
        effect=sign_in(section), beside={BATCH_KEY: None, f"{place}.user": "ann@example.org"},
        shown=row.value if row.shown is None else row.shown,
    )
    for place, section in SIGN_INS.items()
    for name, row in CACHE.items()
}  # fmt: skip

NODES = {
    "processes_per_node": Row("my-count", effect=launched),
    "processes": Row(6, shown='"processes_per_node": 3', effect=launched),
    "binding": Row("none", shown='"binding": "none"', effect=launched),
    "interface": Row("ib7", effect=launched),
    "port": Row(29511, effect=launched),
    "barrier_seconds": Row(77, shown='"barrier_seconds": 77', effect=launched),
    "grace_seconds": Row(7, shown='"grace_seconds": 7', effect=launched),
    "leave_unset": Row(["OMP_NUM_THREADS"], shown=(), instead=["PYTHONUNBUFFERED"], effect=launched),
}
OF_FRAMEWORKS = {f"{block.__name__}.{key}": row for block in FRAMEWORKS.values() for key, row in NODES.items()}

GONE = Row(wire="batchtrain: warning `gone`")

BLOCK_ROWS: dict[str, Row] = {
    **OF_FRAMEWORKS,
    "ResourceFile.file_path": Row(beside={".blob_source": "https://example.org/x"}),
    "ResourceFile.blob_source": Row("https://example.org/y", beside={".file_path": "x"}),
    "ResourceFile.storage_container_url": Row(ELSEWHERE),
    "ResourceFile.blob_prefix": Row(beside={".storage_container_url": ELSEWHERE}),
    "ResourceFile.file_mode": Row("0755", beside={".blob_source": "https://example.org/x", ".file_path": "x"}),
    "ResourceFile.identity": Row(IDENTITY, beside={".storage_container_url": ELSEWHERE, **IDENTITIES}),
    "AzureBatchInput.include": Row(whole=True),
    "AzureBatchInput.exclude": Row(whole=True),
    "AzureBatchInput.destination": Row(whole=True),
    "Aad.x509_cert_sha1_thumbprint": GONE,
    "Aad.endpoint": GONE,
    "StorageInput.storage_account_settings": Row("other"),
    "StorageInput.blobxfer_extra_options": Row("--strip-components 2", shown="2", effect=shells),
    "StorageInput.exclude": Row(["*.tmp"], shown="*.tmp", effect=shells),
    "StorageOutput.storage_account_settings": Row("other"),
    "StorageOutput.remote_path": Row("container/some/path", shown="some/path"),
    "StorageOutput.identity": Row(IDENTITY, beside=IDENTITIES),
    "AutogeneratedTaskId.zfill_width": Row(3, shown="-000"),
    "Steps.start": Row(2, shown="echo 2", instead=None),
    "Steps.stop": Row(3, instead=4),
    "Steps.step": Row(2, instead=1),
    "Permutations.length": Row(1, instead=2),
    "Combinations.length": Row(1, instead=2),
    "Combinations.replacement": Row(True, instead=False),
    **dict.fromkeys(
        ("Beta.alpha", "Beta.beta", "Exponential.lambda", "Gamma.alpha", "Gamma.beta", "Gauss.mu", "Gauss.sigma",
        "Lognormal.mu", "Lognormal.sigma", "Pareto.alpha", "Triangular.low", "Uniform.a", "Weibull.alpha",
        "Weibull.beta"), Row(2.5, instead=3.5)),
    **dict.fromkeys(("Triangular.high", "Uniform.b"), Row(12.5, instead=13.5)),
    "Triangular.mode": Row(7.6, instead=7.7, beside={".low": 2.5, ".high": 12.5}),
    "UserIdentity.default_pool_admin": Row(shown="admin"),
    "UserIdentity.username": Row("ann", beside={f"{POOL}.user_accounts": [{"name": "ann"}]}),
}  # fmt: skip
"""Of blocks that stand in several places, by block and name."""

KEYED = {BATCH_KEY: None}
TASKS = "job_specifications.tasks"
GANGS = f"{TASKS}.multi_instance"
SHARE = "global_resources.volumes.shared_data_volumes"
RDMA = {f"{POOL}.vm_size": "STANDARD_HB120RS_V3", **GANG}
GPU = {f"{POOL}.vm_size": "STANDARD_NC24ADS_A100_V4"}
WATCHED = {**GPU, f"{TASK}.multi_instance": {"num_instances": 2, "jax": {}}}
CONFIDENTIAL = {
    f"{POOL}.vm_size": "STANDARD_DC4AS_V5",
    f"{VM}.security_profile": {"security_type": "confidentialvm"},
}

OF_JOB_AND_TASK = {
    "infiniband": Row(False, effect=launched, beside=RDMA, shown=(), instead=True),
    "gpus": Row("disable", beside={**GPU, **CONTAINER}, shown="void"),
    "shm_size": Row("512m", beside=CONTAINER),
    "default_working_dir": Row("container", beside=CONTAINER, shown="containerImageDefault"),
    "remove_container_after_exit": Row(False),
    "restrict_default_bind_mounts": Row(shown="Task", beside=CONTAINER),
    "data_volumes": Row(
        ["scratch"], shown="/scratch",
        beside={**CONTAINER, f"{VOLUMES}.data_volumes.scratch": {"container_path": "/scratch", "host_path": "/mnt/s"}}),
    "shared_data_volumes": Row(["share"], shown="/share", beside={**CONTAINER, VOLUME: BLOB_SHARE}),
}  # fmt: skip

ROWS: dict[str, Row] = {
    **SIGN_IN_ROWS,
    # credentials
    "credentials.batch.aad.endpoint": Row("https://batch.example.org", effect=sign_in("batch"), beside=KEYED),
    "credentials.batch.account_service_url": Row("https://b.westus.batch.azure.com", effect=of_account("endpoint")),
    "credentials.batch.account": Row("named", effect=of_account("name")),
    "credentials.batch.account_key": Row("b3RoZXI=", effect=of_account("key")),
    "credentials.batch.account_key_keyvault_secret_id": in_vault(lambda c: c.batch and c.batch.account_key, **KEYED),
    "credentials.management.aad.endpoint": Row("https://management.example.org", effect=managed),
    "credentials.storage.resource_group": GONE,
    "credentials.singularity_registry.identity": GONE,
    "credentials.user_accounts.username": GONE,
    "credentials.shares.ssh_private_key": GONE,
    "global_resources.singularity_images.unsigned.signing_key.fingerprint": GONE._replace(whole=True),
    "global_resources.singularity_images.unsigned.signing_key.file": GONE._replace(whole=True),
    "global_resources.volumes.data_volumes.container_path": Row("/inside"),
    "global_resources.volumes.data_volumes.bind_options": Row("ro"),
    f"{SHARE}.container_path": Row("/inside"),
    f"{SHARE}.bind_options": Row("ro"),
    "credentials.storage.account": Row("renamed", effect=lambda seen: [s.account for s in stores(seen)]),
    "credentials.storage.account_key": Row("b3RoZXI=", effect=lambda seen: [s.account_key for s in stores(seen)]),
    "credentials.storage.endpoint": Row(
        "core.usgovcloudapi.net", effect=lambda seen: [s.endpoint for s in stores(seen)]),
    "credentials.storage.account_key_keyvault_secret_id": in_vault(
        lambda c: [store.account_key for store in c.storage.values()], **{".account_key": None}),
    "credentials.docker_registry.password": Row("hunter2", effect=secret("registry:reg.example.org")),
    **{
        f"credentials.{section}.password_keyvault_secret_id": in_vault(passwords_of(section))
        for section in ("docker_registry", "singularity_registry", "user_accounts")
    },
    "credentials.docker_registry.identity": Row(IDENTITY, beside=IDENTITIES),
    "credentials.singularity_registry.username": Row("ann", beside={".password": "x"}, effect=lambda seen: sent(seen)),
    "credentials.singularity_registry.password": Row(
        "hunter2", beside={".username": "ann"}, effect=secret("singularity:reg.example.org")),
    "credentials.user_accounts.password": Row("hunter2", effect=secret("user:ann:password")),
    "credentials.user_accounts.ssh_private_key": Row("~/.ssh/key", shown="{{user:ann:ssh_private_key}}"),
    "credentials.shares.password": Row("hunter2", effect=secret("share:share:password")),
    "credentials.shares.password_keyvault_secret_id": in_vault(
        passwords_of("shares"), **{".password": None}),
    "credentials.keyvault.uri": Row(
        "https://v.vault.azure.net", shown="secret of https://v.vault.azure.net/secrets/name",
        beside={**KEYED, "credentials.batch.account_key_keyvault_secret_id": "name"},
        effect=lambda seen: vaulted(seen)),
    "credentials.keyvault.credentials_secret_id": Row(
        SECRET, shown="fromthevault", effect=lambda seen: whole_file(seen)),
    "credentials.management.subscription_id": Row("sub-id", wire="pool.networkConfiguration.subnetId", beside=BY_NAME),
    "credentials.batch.resource_group": Row(
        "batch-group", wire="pool.networkConfiguration.subnetId",
        beside={**BY_NAME, f"{POOL}.virtual_network.resource_group": None}),
    # config
    "batchtrain.source_copy.enabled": Row(
        False, shown="`source_copy.enabled` is false", beside=BROUGHT, files=SOURCE, effect=copied),
    "batchtrain.source_copy.max_size": Row(
        "1", shown="`source_copy.max_size` is 1", beside=BROUGHT, files=SOURCE, effect=copied),
    "batchtrain.storage_account_settings": Row(
        "link", wire="*.httpUrl", shown="sas:link/", beside=BROUGHT, files=SOURCE),
    "batchtrain.storage_entity_prefix": Row(
        "prefix", beside={**BROUGHT, "batchtrain.storage_account_settings": "link"}, files=SOURCE),
    "batchtrain.generated_sas_expiry_days": Row(
        7, beside={**BROUGHT, "batchtrain.storage_account_settings": "link"}, files=SOURCE),
    "batchtrain.delay_docker_image_preload": Row(shown="docker pull", beside=CONTAINER),
    "batchtrain.owner_metadata": Row(False, instead=True, shown=(), effect=owner),
    "batchtrain.notify.url": Row("https://example.org/other", instead="https://example.org/hook", effect=notified),
    "batchtrain.notify.on": Row(
        ["failure"], instead=["preempted"], shown="failure",
        beside={"batchtrain.notify.url": "https://example.org/hook"}, effect=notified),
    "batchtrain.fallback_registry": Row(
        "second.example.org", beside={**CONTAINER, "batchtrain.delay_docker_image_preload": True}),
    "batchtrain.ignore_checks": Row(
        ["size-retired"], shown=(), beside={f"{POOL}.vm_size": "STANDARD_NC24R"}, instead=["image-retired"],
        effect=lambda seen: sorted({problem.rule for problem in seen.problems})),
    "global_resources.singularity_images.signed.image": Row(
        "library://a/b:2", beside={".signing_key.fingerprint": "AB12"}),
    "global_resources.singularity_images.signed.encryption": Row(
        beside={".image": "library://a/b:2", ".signing_key.fingerprint": "AB12"}),
    "global_resources.additional_registries.singularity": Row(
        ["reg.example.org"], effect=lambda seen: ["reg.example.org" for text in [sent(seen)] if "PASSWORD_0" in text],
        shown="reg.example.org",
        beside={'credentials.singularity_registry."reg.example.org"': {"username": "u", "password": "x"}}),
    f"{SHARE}.volume_driver": Row("nfs", shown="server:/export", beside={VOLUME: NFS}),
    f"{SHARE}.storage_account_settings": Row("other"),
    f"{SHARE}.azure_file_share_name": Row(beside={VOLUME: FILES_SHARE}),
    f"{SHARE}.source": Row("server:/other", beside={VOLUME: NFS}),
    f"{SHARE}.identity": Row(IDENTITY, beside=IDENTITIES),
    "global_resources.files.source.path": Row("somewhere", effect=uploads),
    "global_resources.files.source.include": Row(["*.csv"], effect=uploads),
    "global_resources.files.source.exclude": Row(["*.tmp"], effect=uploads),
    "global_resources.files.destination.shared_data_volume": Row(
        "share", shown="blobs", effect=uploads, beside={".storage_account_settings": None, VOLUME: BLOB_SHARE}),
    "global_resources.files.destination.storage_account_settings": Row("other", effect=uploads),
    "global_resources.files.destination.relative_destination_path": Row("below", effect=uploads),
    "global_resources.files.destination.data_transfer.remote_path": Row("elsewhere/here", effect=uploads),
    "global_resources.files.destination.data_transfer.is_file_share": Row(True, shown="is_file_share", effect=uploads),
    "global_resources.files.destination.data_transfer.blobxfer_extra_options": Row(
        "--strip-components 2", shown=2, effect=uploads),
    # the pool
    f"{POOL}.gpu.nvidia_driver.source": Row(beside=GPU),
    f"{POOL}.vm_size": Row("STANDARD_D8S_V5"),
    f"{POOL}.identities": Row([IDENTITY], effect=sent, beside=KEYED),
    f"{POOL}.public_ips": Row(
        ["/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/a"],
        beside={**KEYED, f"{POOL}.virtual_network.arm_subnet_id": SUBNET, f"{POOL}.network.public_ip": "usermanaged"}),
    f"{POOL}.vm_count.low_priority": Row(beside={f"{POOL}.vm_count.dedicated": 0}),
    f"{POOL}.block_until_all_global_resources_loaded": Row(
        False, beside={**CONTAINER, "batchtrain.delay_docker_image_preload": True}),
    f"{POOL}.transfer_files_on_pool_creation": Row(
        shown="files.upload", effect=lambda seen: [step.action for step in seen.plan.steps],
        beside={"global_resources.files": [FILES]}),
    f"{POOL}.reboot_on_start_task_failed": Row(
        shown="starttaskfailed", effect=lambda seen: sorted(pools._mended(seen.recipe))),
    f"{POOL}.attempt_recovery_on_unusable": Row(
        shown="unusable", effect=lambda seen: sorted(pools._mended(seen.recipe))),
    f"{VM}.container_type": Row("criCompatible", beside=CONTAINER),
    f"{VM}.os_disk.ephemeral": Row(shown="cachedisk"),
    f"{VM}.os_disk.security_encryption": Row("VMGuestStateOnly", beside=CONFIDENTIAL),
    f"{VM}.security_profile.secure_boot": Row(True, beside=TRUSTED),
    f"{VM}.security_profile.vtpm": Row(True, beside=TRUSTED),
    f"{VM}.security_profile.security_type": Row("trustedLaunch"),
    f"{VM}.security_profile.proxy_agent.wire_server.mode": Row(
        wire="pool.virtualMachineConfiguration.securityProfile.proxyAgentSettings.wireServer.mode"),
    f"{VM}.security_profile.proxy_agent.wire_server.access_control_profile": Row(
        PROFILE,
        wire="pool.virtualMachineConfiguration.securityProfile.proxyAgentSettings.wireServer"
        ".inVMAccessControlProfileReferenceId",
    ),
    f"{VM}.security_profile.proxy_agent.imds.access_control_profile": Row(PROFILE),
    f"{VM}.service_artifact": Row(ARTIFACT),
    f"{VM}.os_disk.disk_encryption_set": Row(f"{COMPUTE}/diskEncryptionSets/d"),
    f"{VM}.data_disks.disk_encryption_set": Row(f"{COMPUTE}/diskEncryptionSets/d"),
    f"{VM}.disk_encryption.customer_managed_key.key_url": Row("https://v.vault.azure.net/keys/k/2"),
    f"{VM}.platform_image.native": Row(shown="dockerCompatible"),
    f"{VM}.platform_image.publisher": Row("somebody", beside={".node_agent": "batch.node.ubuntu 24.04"}),
    f"{VM}.platform_image.offer": Row("something", beside={".node_agent": "batch.node.ubuntu 24.04"}),
    f"{VM}.platform_image.sku": Row("7.10", beside={".node_agent": "batch.node.ubuntu 24.04"}),
    f"{VM}.windows_automatic_updates": Row(beside=WINDOWS),
    f"{VM}.hyper_threading": Row(shown=1),
    f"{VM}.platform_image.node_agent": Row("batch.node.ubuntu 22.04", beside={".sku": "some-2204"}),
    f"{VM}.custom_image.arm_image_id": Row(IMAGE_ID.replace("1.0.0", "2.0.0")),
    f"{VM}.custom_image.native": Row(shown="dockerCompatible"),
    f"{VM}.shared_gallery_image.native": Row(shown="dockerCompatible"),
    f"{VM}.community_gallery_image.native": Row(shown="dockerCompatible"),
    f"{VM}.disk_encryption.targets": Row(["temporarydisk"]),
    f"{VM}.disk_encryption.customer_managed_key.identity": Row(IDENTITY),
    f"{VM}.extensions.provision_after": Row(
        ["first"],
        beside={f"{VM}.extensions": [{"name": "second", "publisher": "p", "type": "t"},
        {"name": "first", "publisher": "p", "type": "t"}]}),
    f"{POOL}.autoscale.formula": Row("$TargetDedicatedNodes = 7;"),
    f"{POOL}.idle_timeout": Row("40m", shown="lookback = TimeInterval_Minute * 40;"),
    f"{POOL}.autoscale.scenario.sample_lookback_interval": Row("00:20:00", instead="00:30:00"),
    f"{POOL}.autoscale.scenario.bias_last_sample": Row(False, instead=True),
    f"{POOL}.autoscale.scenario.bias_node_type": Row("low_priority", instead="dedicated"),
    f"{POOL}.user_accounts.uid": Row(beside={".gid": 1000}),
    f"{POOL}.user_accounts.gid": Row(beside={".uid": 1000}),
    f"{POOL}.user_accounts.login_mode": Row(beside=WINDOWS),
    f"{POOL}.remote_access_control.allow": Row(["203.0.113.0/24"]),
    f"{POOL}.remote_access_control.deny": Row(["203.0.113.0/24"]),
    f"{POOL}.ssh.ssh_private_key": Row("~/.ssh/key", effect=logged_in),
    f"{POOL}.rdp.password": Row("hunter2", effect=secret("user:needed-text:password")),
    f"{SHARE}.fstab_entry.fs_spec": Row("server:/other", beside={".fs_vfstype": "nfs"}),
    f"{SHARE}.fstab_entry.fs_vfstype": Row("lustre", wire="pool.startTask.commandLine"),
    f"{SHARE}.fstab_entry.fs_mntops": Row("ro,hard", beside={".fs_vfstype": "nfs"}),
    f"{POOL}.ssh.generated_file_export_path": Row("keys", effect=key_pair),
    f"{POOL}.virtual_network.arm_subnet_id": Row(SUBNET),
    f"{POOL}.virtual_network.name": Row("vnet", beside=BY_NAME),
    f"{POOL}.virtual_network.resource_group": Row("group", beside=BY_NAME),
    f"{POOL}.virtual_network.create_nonexistant": Row(beside=BY_NAME),
    f"{POOL}.virtual_network.address_space": Row("10.0.0.0/16", effect=advised("10.0.0.0/16"), beside=CREATED),
    f"{POOL}.virtual_network.subnet.name": Row("nodes", beside=BY_NAME),
    f"{POOL}.virtual_network.subnet.address_prefix": Row("10.0.0.0/24", effect=advised("10.0.0.0/24"), beside=CREATED),
    f"{POOL}.network.ip_families": Row(["IPv4", "IPv6"]),
    f"{POOL}.network.inbound_nat_pools.frontend_port_range": Row([41000, 41200], shown=41000),
    f"{POOL}.network.inbound_nat_pools.rules.source_address_prefix": Row("192.0.2.0/24"),
    f"{POOL}.network.inbound_nat_pools.rules.source_port_ranges": Row(["80", "90-99"]),
    f"{POOL}.upgrade_policy.rolling.enable_cross_zone_upgrade": Row(beside={f"{VM}.node_placement": "zonal"}),
    f"{POOL}.container_runtimes.install": Row(["singularity"], shown="apptainer"),
    # the job
    **{f"{place}.{name}": row for place in ("job_specifications", TASKS) for name, row in OF_JOB_AND_TASK.items()},
    "job_specifications.auto_complete": Row(shown="terminatejob"),
    "job_specifications.allow_run_on_missing_image": Row(
        True, shown="missing:1", effect=launched,
        beside={f"{TASK}.docker_image": "missing:1", "global_resources.docker_images": ["a"]}),
    "job_specifications.network.subnet_id": Row(SUBNET),
    "job_specifications.stop_when.silent": Row("20m", shown='"silent": 1200', beside=WATCHED, effect=launched),
    "job_specifications.stop_when.gpu_below": Row("5% for 30m", shown='"idle": 1800', beside=WATCHED, effect=launched),
    "job_specifications.auto_pool.pool_lifetime": Row(
        "job_schedule", shown="jobschedule", wire="*.autoPoolSpecification.poolLifetimeOption",
        beside={f"{JOB}.recurrence.schedule.recurrence_interval": "01:00:00"}),
    "job_specifications.recurrence.job_manager.monitor_task_completion": Row(beside={f"{JOB}.auto_complete": True}),
    "job_specifications.recurrence.schedule.do_not_run_until": Row(MOMENT),
    "job_specifications.recurrence.schedule.do_not_run_after": Row(MOMENT),
    **{
        f"job_specifications.{part}.additional_docker_run_options": Row(
            ["--init"], shown="--init", beside={".docker_image": "busybox", **LISTED}
        )
        for part in ("job_manager", "job_preparation", "job_release")
    },
    **{
        f"job_specifications.{part}.user_identity.auto_user.elevation_level": Row("admin", beside={".scope": "task"})
        for part in ("job_preparation", "job_release")
    },
    **{
        f"job_specifications.{part}.user_identity.default_pool_admin": Row(True, shown=False, effect=chosen_for(part))
        for part in ("job_preparation", "job_release")
    },
    "job_specifications.job_manager.required_slots": Row(1),
    "job_specifications.job_manager.docker_image": Row("busybox", beside=LISTED),
    "job_specifications.job_preparation.docker_image": Row("busybox", beside=LISTED),
    "job_specifications.job_release.docker_image": Row("busybox", beside=LISTED),
    "job_specifications.job_release.max_wall_time": Row("00:10:00"),
    "job_specifications.on_task_failure": Row("performexitoptionsjobaction"),
    # the task
    f"{TASKS}.checkpoint.volume": Row(
        "other", shown='"$AZ_BATCH_NODE_MOUNTS_DIR"/other', effect=launched, beside={OTHER_VOLUME: NFS}),
    f"{TASKS}.checkpoint.signal": Row("SIGUSR1", effect=launched),
    f"{TASKS}.checkpoint.key": Row("lr-0.1", shown="}@lr-0.1", effect=launched),
    f"{TASKS}.checkpoint.reshard": Row(False, shown='"reshard": false', effect=launched),
    f"{TASKS}.checkpoint.keep": Row(3, shown="BATCHTRAIN_CHECKPOINT_KEEP=3", effect=launched),
    f"{TASKS}.docker_image": Row("busybox", beside=LISTED),
    f"{TASKS}.singularity_image": Row(
        "library://a/b:1", beside={k: v for k, v in APPTAINER.items() if "tasks" not in k}),
    f"{TASKS}.source": Row("src", shown="train.py", effect=arrived, files=SOURCE),
    f"{TASKS}.metrics.name": Row("mine", shown="mine=2.5", effect=measured),
    f"{TASKS}.metrics.pattern": Row(r"speed (\S+)", shown="perplexity=3.0", effect=measured),
    f"{TASKS}.metrics.unit": Row("km/h", shown="km/h", effect=measured),
    f"{TASKS}.results.include": Row(["c"], shown="outputs/train/c", effect=brought),
    f"{TASKS}.results.exclude": Row(["**/b"], instead=["nothing"], shown=(), effect=brought),
    f"{TASKS}.results.from": Row("all", shown="outputs/train/n1/a", effect=brought),
    f"{TASKS}.results.max_created_size": Row("1k", instead="10k", shown=(), effect=brought),
    f"{TASKS}.results.max_size": Row("3k", instead="10k", shown=(), effect=brought),
    f"{TASKS}.depends_on": Row(["first"], beside={f"{JOB}.tasks[1]": {"id": "first", "command": "true"}}),
    f"{TASKS}.depends_on_range": Row(
        [1, 2], shown=1,
        beside={f"{JOB}.tasks[1]": {"id": "1", "command": "true"}, f"{JOB}.tasks[2]": {"id": "2", "command": "true"}}),
    f"{TASKS}.required_slots": Row(2, beside={f"{POOL}.task_slots_per_node": 4}),
    f"{TASKS}.labels": Row(beside=CONTAINER),
    f"{TASKS}.ports": Row(["8080:80"], beside=CONTAINER),
    f"{TASKS}.entrypoint": Row(beside=CONTAINER),
    f"{TASKS}.additional_docker_run_options": Row(["--cpus=2"], beside=CONTAINER),
    f"{TASKS}.additional_singularity_options": Row(["--cleanenv"], beside=APPTAINER),
    f"{TASKS}.container_registry": Row(
        "reg.example.org",
        beside={'credentials.docker_registry."reg.example.org"': {"username": "u", "password": "x"}, **CONTAINER}),
    f"{TASKS}.multi_instance.num_instances": Row(2),
    f"{TASKS}.multi_instance.coordination_command": Row("my-coordination", effect=launched),
    f"{TASKS}.multi_instance.pre_execution_command": Row("source my-vars.sh", effect=launched),
    "pool_specification.on_bad_node": Row("replace", shown="replace=600", beside=GANG, effect=launched),
    f"{TASKS}.multi_instance.preflight": Row(False, instead=True, shown=(), effect=launched),
    f"{TASKS}.multi_instance.rank_logs": Row(False, instead=True, shown=(), effect=launched),
    f"{TASKS}.multi_instance.mpi.runtime": Row("openmpi", instead="mpich", shown=(), effect=launched),
    f"{TASKS}.multi_instance.mpi.executable_path": Row("/opt/my/mpirun", effect=launched),
    f"{TASKS}.multi_instance.mpi.options": Row(["-my-option"], effect=launched),
    f"{TASKS}.multi_instance.mpi.processes_per_node": Row("my-count", effect=launched),
    f"{TASKS}.multi_instance.mpi.allow_singletons": Row(True, instead=False, shown=(), effect=launched),
    f"{GANGS}.framework": Row({"echo": {}}, wire="batchtrain: error `framework-plugin`"),
    f"{GANGS}.pytorch.launcher": Row("torchrun", effect=launched),
    f"{GANGS}.pytorch.rendezvous": Row(
        "c10d", shown='"rendezvous": "c10d"', beside={".launcher": "torchrun"}, effect=launched),
    f"{GANGS}.pytorch.max_restarts": Row(
        3, shown='"max_restarts": 3', beside={".launcher": "torchrun", ".rendezvous": "c10d"}, effect=launched),
    f"{GANGS}.pytorch.min_instances": Row(
        1, shown='"min_instances": 1', beside={".launcher": "torchrun", ".rendezvous": "c10d"}, effect=launched),
    f"{GANGS}.pytorch.backend": Row("ucc", effect=launched),
    f"{GANGS}.accelerate.mixed_precision": Row("bf16", effect=launched),
    f"{GANGS}.accelerate.gradient_accumulation_steps": Row(
        3, shown='"gradient_accumulation_steps": 3', effect=launched),
    f"{GANGS}.accelerate.options": Row(
        ["--use_fsdp"], shown='accelerated.py\\" --use_fsdp -- python',
        beside={f"{TASK}.command": "python /data/train.py"}, effect=launched),
    f"{GANGS}.deepspeed.backend": Row("ccl", effect=launched),
    f"{GANGS}.deepspeed.accelerator": Row("xpu", effect=launched),
    f"{GANGS}.tensorflow.mode": Row("estimator", effect=launched),
    f"{GANGS}.tensorflow.parameter_servers": Row(5, shown='"total": 5', beside={".mode": "flags"}, effect=launched),
    f"{GANGS}.tensorflow.chief_name": Row("master", beside={".mode": "estimator"}, effect=launched),
    f"{GANGS}.tensorflow.evaluator": Row(True, shown='"name": "evaluator"', effect=launched),
    f"{GANGS}.mxnet.servers": Row(5, shown='"total": 5', effect=launched),
    f"{GANGS}.mxnet.server_command": Row("my-server", effect=launched),
    f"{GANGS}.mxnet.rendezvous": Row("ib8:10.0.0.4:29522", shown=["ib8", "29522"], effect=launched),
    f"{GANGS}.mxnet.verbose": Row(2, shown='"verbose": 2', effect=launched),
    f"{GANGS}.horovod.over": Row("mpi", shown="HOROVOD_CONTROLLER=mpi", effect=launched),
    f"{GANGS}.horovod.runtime": Row("mpich", shown="-ppn", beside={".over": "mpi"}, effect=launched),
    f"{GANGS}.horovod.executable_path": Row("/opt/my/mpirun", beside={".over": "mpi"}, effect=launched),
    f"{GANGS}.horovod.allow_singletons": Row(True, instead=False, shown=(), beside={".over": "mpi"}, effect=launched),
    f"{GANGS}.horovod.options": Row(["-my-option"], beside={".over": "mpi"}, effect=launched),
    f"{TASKS}.singularity_execution.elevated": Row(shown="admin"),
    f"{TASKS}.task_factory.repeat": Row(3, shown="task-00002", effect=ids, beside={f"{TASK}.command": "true"}),
    f"{TASKS}.task_factory.parametric_sweep.product_iterables": Row([["x", "y"]], shown=["echo x", "echo y"]),
    f"{TASKS}.task_factory.parametric_sweep.zip": Row(
        [["x", "y"], ["1", "2"]], shown=["echo x 1", "echo y 2"], beside={f"{TASK}.command": "echo {0} {1}"}),
    f"{TASKS}.task_factory.parametric_sweep.combinations.iterable": Row(
        ["p", "q"], shown="echo p q", beside={f"{TASK}.command": "echo {0} {1}"}),
    f"{TASKS}.task_factory.parametric_sweep.permutations.iterable": Row(
        ["p", "q"], shown="echo q p", beside={f"{TASK}.command": "echo {0} {1}"}),
    f"{TASKS}.task_factory.list": Row(
        [{"lr": "x"}, {"lr": "y"}], shown=["echo x", "echo y"], beside={f"{TASK}.command": "echo {lr}"}),
    f"{TASKS}.task_factory.random.generate": Row(
        3, shown="task-00002", effect=ids, beside={f"{RANDOM}.integer": {"start": 0, "stop": 9}}),
    f"{TASKS}.task_factory.random.seed": Row(1, instead=2, beside={f"{RANDOM}.integer": {"start": 0, "stop": 1000}}),
    f"{TASKS}.task_factory.random.integer.stop": Row(2000, instead=3000),
    f"{TASKS}.task_factory.random.integer.start": Row(2, instead=3, beside={".stop": 3000}),
    f"{TASKS}.task_factory.random.integer.step": Row(2, instead=3, beside={".stop": 3000}),
    f"{TASKS}.task_factory.file.task_filepath": Row("file_name", instead="file_path", beside=ECHO_FILE),
    f"{TASKS}.task_factory.file.azure_storage.storage_account_settings": Row("other", beside=ECHO_FILE),
    f"{TASKS}.task_factory.file.azure_storage.remote_path": Row("container/other", beside=ECHO_FILE),
    f"{TASKS}.task_factory.file.azure_storage.include": Row(
        ["*.csv"], shown="one.csv", beside=ECHO_FILE, effect=listed, instead=["*.txt"]),
    f"{TASKS}.task_factory.file.azure_storage.exclude": Row(
        ["*.csv"], shown="two.txt", beside=ECHO_FILE, effect=listed, instead=["*.txt"]),
    f"{TASKS}.task_factory.file.source.path": Row("images", shown="echo images/a.png", instead="texts", files=IMAGES),
    f"{TASKS}.task_factory.file.source.include": Row(
        ["*.png"], shown="echo images/a.png", instead=["*.txt"], files=IMAGES),
    f"{TASKS}.task_factory.file.source.exclude": Row(
        ["*.txt"], shown="echo images/a.png", instead=["*.png"], files=IMAGES),
    f"{TASKS}.task_factory.custom.module": Row("mine_a", shown="echo made", files=MODULE),
    f"{TASKS}.task_factory.custom.package": Row(
        "pack_a", shown="echo packed", beside={".module": ".inner"}, files=MODULE),
    f"{TASKS}.task_factory.custom.input_args": Row(
        ["arg"], shown="echo arg", beside={".module": "mine_a"}, files=MODULE),
    f"{TASKS}.task_factory.custom.input_kwargs": Row(
        {"word": "named"}, shown="echo named", beside={".module": "mine_a"}, files=MODULE),
}  # fmt: skip
"""By anchor."""


def of_named_account(name: str) -> Effect:
    """A value of the account of a candidate."""

    def effect(seen: Seen) -> list[Any]:
        value: Any = selected(seen.recipe.credentials, "west").batch
        for step in name.split("."):
            value = getattr(value, step, None)
        return [value]

    return effect


ROWS |= {
    f"credentials.batch_accounts.{name}": row._replace(
        effect=of_named_account(name),
        shown=row.value,
        beside={key: value for key, value in row.beside.items() if key.startswith(".")},
    )
    for name, row in {
        "account_service_url": ROWS["credentials.batch.account_service_url"],
        "account": ROWS["credentials.batch.account"],
        "account_key": ROWS["credentials.batch.account_key"],
        "account_key_keyvault_secret_id": Row(SECRET),
        "resource_group": Row("batch-group"),
        "aad.endpoint": Row("https://batch.example.org"),
        **{f"aad.{name}": row for name, row in AAD.items()},
        **{f"aad.token_cache.{name}": row for name, row in CACHE.items()},
    }.items()
}


def tried(seen: Seen) -> list[Any]:
    """The account, size and number of spot nodes of the first alternative, and its zones."""
    candidate = ordered(seen.recipe)[-1]
    pool, zones = candidate.pool, candidate.pool.vm_configuration.zones
    values = [candidate.account, pool.vm_size, pool.vm_count.low_priority > 0]
    return [*values, *((zones.max_count, zones.max_percent_per_zone) if zones else ())]


def waits(name: str) -> Effect:
    """A setting of the candidates that only a run shows."""
    return lambda seen: [getattr(seen.recipe.pool.candidates, name, None)] if seen.recipe.pool else []


PRICES = "prices: [{region: westeurope, dedicated: {STANDARD_D4S_V5: 0.2, STANDARD_D2S_V5: 0.1}}]"
CANDIDATES = f"{POOL}.candidates"
ROWS |= {
    f"{CANDIDATES}.alternatives.account": Row(
        "west", effect=tried,
        beside={'credentials.batch_accounts."west".account_service_url': "https://b.westus.batch.azure.com"}),
    f"{CANDIDATES}.alternatives.vm_size": Row("STANDARD_D8S_V5", effect=tried),
    f"{CANDIDATES}.alternatives.spot": Row(True, effect=tried),
    f"{CANDIDATES}.alternatives.zones.max_count": Row(3, effect=tried),
    f"{CANDIDATES}.alternatives.zones.max_percent_per_zone": Row(50, effect=tried),
    f"{CANDIDATES}.order": Row("price", effect=waits("order"), files={"catalog.yaml": PRICES}),
    f"{CANDIDATES}.patience": Row("20m", effect=waits("patience")),
    f"{CANDIDATES}.controller_identity": Row(IDENTITY, effect=waits("controller_identity")),
    f"{CANDIDATES}.recover": Row(
        True, effect=waits("recover"), beside={VOLUME: NFS, f"{TASK}.checkpoint.volume": "share"}),
}  # fmt: skip


def row_of(place: PropertyPath) -> Row:
    """What the tables say of a property."""
    by_block = BLOCK_ROWS.get(f"{BLOCKS[place[:-1]].name}.{place[-1]}", Row())
    return ROWS.get(reference.anchor(place), by_block)


def context_of(place: PropertyPath) -> dict[str, Any]:
    """What stands around a property: what its block and each block above it cannot do without."""
    found: dict[str, Any] = {}
    for above in range(1, len(place)):
        found.update(CONTEXT.get(reference.anchor(place[:above]), {}))
        block = BLOCKS.get(place[:above])
        for item in block.properties if block else ():
            here = path_of((*place[:above], item.name))
            if item.required and item.wire and not any(here.startswith(name) for name in (*found, *BASIC)):
                found[here] = REQUIRED.get(item.name) or REQUIRED.get(type_of(item.kind)) or value_for(item)
    path = path_of(place)
    return {name: value for name, value in found.items() if name != path}


BLOCKS = {place: block for block in reference.blocks() for place in block.paths}
BASIC = (f"{POOL}.id", f"{POOL}.vm_size", f"{VM}.platform_image", f"{JOB}.id", 'credentials.storage."link".account')
"""Of what is required, that which the base has."""


@cache
def looked_at(path: str) -> Verdict:
    place = NAMED[path]
    return judged(place, row_of(place), context_of(place))


def test_a_property_is_carried() -> None:
    lost = {path: verdict for path in NAMED if not (verdict := looked_at(path)).carried}
    assert [without_effect(path, verdict) for path, verdict in lost.items()] == []


PLANNERS = {"pool": "pool.py", "job": "job.py", "task": "task.py", "schedule": "schedule.py"}


def without_effect(path: str, verdict: Verdict) -> str:
    """What a property lacks, and where it is added."""
    wire = row_of(NAMED[path]).wire or PROPERTIES[NAMED[path]].wire
    planner = f"batchtrain/plan/{PLANNERS.get(wire.partition('.')[0], '')}"
    return (
        f"`{path}` has no effect: with it, {verdict.there!r} is at `{wire}`, without it {verdict.without!r}; expected"
        f" {verdict.wanted!r}. Is the line of {planner} missing that carries it? If its effect is seen elsewhere, add"
        " a row to ROWS."
    )


def test_a_property_without_its_line_in_the_planner_is_reported_with_the_file() -> None:
    path = f"{POOL}.resize_timeout"
    nothing = looked_at(path)._replace(wanted="some-text", there=[], without=[])
    assert not nothing.carried
    assert without_effect(path, nothing).startswith(f"`{path}` has no effect: with it, [] is at `pool.resizeTimeout`")
    assert "Is the line of batchtrain/plan/pool.py missing" in without_effect(path, nothing)


def test_the_sdk_takes_every_request_of_it() -> None:
    steps = [(path, step) for path in NAMED for step in looked_at(path).seen.plan.steps]
    sent = [(path, step) for path, step in steps if step.action not in judge.NOT_OF_BATCH]
    assert [(path, flaw) for path, step in sent for flaw in judge.flaws(step.action, step.document)] == []


@pytest.mark.parametrize("table", [ROWS, BLOCK_ROWS], ids=["rows", "block rows"])
def test_a_row_is_of_a_property_that_there_is(table: dict[str, Row]) -> None:
    known = {reference.anchor(place) for place in PROPERTIES}
    known |= {f"{BLOCKS[place[:-1]].name}.{place[-1]}" for place in PROPERTIES}
    assert set(table) - known == set()


def test_every_context_is_of_a_block_that_there_is() -> None:
    assert set(CONTEXT) - {reference.anchor(place) for place in reference.properties()} == set()


WIRES = sorted({field.strip() for item in PROPERTIES.values() for field in item.wire.split(",")})
ROOTS = {
    "pool": models.BatchPoolCreateOptions,
    "job": models.BatchJobCreateOptions,
    "task": models.BatchTaskCreateOptions,
    "schedule": models.BatchJobScheduleCreateOptions,
    "node user": models.BatchNodeUserCreateOptions,
}


def is_of_the_sdk(wire: str) -> bool:
    request, _, path = wire.partition(".")
    steps = tuple(path.split("."))
    if request != "*":
        return judge.knows(ROOTS[request], steps)
    anywhere = {model for root in ROOTS.values() for model in judge.reachable(root)}
    return any(judge.knows(model, steps) for model in anywhere)


def test_a_wire_field_is_one_of_the_sdks() -> None:
    named = [wire for wire in WIRES if not wire.startswith("batchtrain:")]
    assert [wire for wire in named if not is_of_the_sdk(wire)] == []


EMULATED = {
    "pool": "BatchPoolCreateOptions",
    "job": "BatchJobCreateOptions",
    "task": "BatchTaskCreateOptions",
    "schedule": "BatchJobScheduleCreateOptions",
    "node user": "BatchNodeUserCreateOptions",
}


def test_the_emulator_has_every_field() -> None:
    fields = [wire.partition(".") for wire in WIRES if not wire.startswith(("batchtrain:", "*."))]
    paths = [(request, path) for request, _, path in fields if "*" not in path]
    lacking = [path for request, path in paths if tables.field_at(EMULATED[request], path.replace(".", "/")) is None]
    assert lacking == []


def test_a_field_of_a_newer_version_can_be_said() -> None:
    wires = {f"{item.wire}." for item in reference.properties().values()}
    newer = [f"{field}." for field in api_versions.NEWER if field.partition(".")[0] in EMULATED]
    assert newer and [field for field in newer if not any(wire.startswith(field) for wire in wires)] == []


@pytest.mark.parametrize(("place", "name"), dict(api_versions.spans()))
def test_the_table_of_versions_names_what_the_emulator_has(place: str, name: str) -> None:
    root, _, path = place.partition(".")
    model = EMULATED.get(root, root)
    there = tables.field_at(model, "/".join(filter(None, (path.replace(".", "/"), name))))
    assert there is not None or name in tables.enums()[place]


def test_a_warning_is_one_that_can_be_silenced() -> None:
    warned = {wire.partition("warning `")[2].rstrip("`") for wire in WIRES if "warning `" in wire}
    assert warned - {check.name for check in RULES} == set()


def leaves(model: type[Model], above: tuple[str, ...] = (), seen: tuple[type[Model], ...] = ()) -> Iterator[str]:
    """Every field of a request that is a value, as a path of JSON names."""
    for name, hint in judge.fields(model).items():
        inner = [below for below in judge.models_in(hint) if below not in (*seen, model)]
        if not inner:
            yield ".".join((*above, name))
        for below in inner:
            yield from leaves(below, (*above, name), (*seen, model))


def is_said(path: str, by: str) -> bool:
    """Whether a wire field is a path, or stands above it; one that begins with `*` may stand anywhere."""
    anywhere, rest = (".+[.]", by[2:]) if by.startswith("*.") else ("", by)
    pattern = "[^.]+".join(map(re.escape, rest.split("*")))
    return re.match(rf"{anywhere}{pattern}([.]|$)", path) is not None


FIELDS = [
    f"{request}.{path}"
    for request, model in ROOTS.items()
    if request != "schedule"  # what is below jobSpecification is the job's, and said as that
    for path in leaves(model)
    if not path.startswith("poolInfo.autoPoolSpecification.pool.")  # the pool's own
]
OUT = [field for one in LEFT_OUT for field in one.fields]


def test_a_field_of_the_service_can_be_said_or_is_listed_as_left_out() -> None:
    for path in FIELDS:
        said = [wire for wire in WIRES if is_said(path, wire)]
        out = [field for field in OUT if is_said(path, field)]
        assert said or out, path
        assert not out or all(wire.startswith("*.") for wire in said), path


def test_what_is_left_out_is_a_field() -> None:
    assert [field for field in OUT if not any(is_said(path, field) for path in FIELDS)] == []


# --- decisions nobody wrote -----------------------------------------------------------------------------------------

NCCL = {f"{POOL}.vm_size": "STANDARD_ND96ASR_V4", f"{TASK}.multi_instance": {"num_instances": 2, "pytorch": {}}}
NVLINK = {**NCCL, **ENTRA, **other_image("custom_image"), f"{POOL}.vm_size": "STANDARD_ND128ISR_GB300_V6"}
OPENMPI = {f"{TASK}.multi_instance": {"num_instances": 2, "mpi": {"runtime": "openmpi"}}}
INTELMPI_OFA = {f"{TASK}.multi_instance": {"num_instances": 2, "mpi": {"runtime": "intelmpi-ofa"}}}
DECIDED: dict[str, dict[str, Any]] = {
    "rocm-devices": {f"{POOL}.vm_size": "STANDARD_ND96ISR_MI300X_V5", **CONTAINER},
    "autoscale-to-zero": {f"{POOL}.autoscale": "to_zero"},
    "sign-in-not-delayed": {
        "batchtrain.delay_docker_image_preload": True,
        'credentials.docker_registry."reg.example.org"': {"username": "u", "password": "x"}, **REGISTRY},
    "shell-functions": {f"{TASK}.command": "module load a"},
    "mpi4py-abort": {f"{TASK}.command": "python /data/train.py", **GANG},
    "ends-at-once": {
        f"{TASK}.command": "python /data/train.py", f"{TASK}.multi_instance": {"num_instances": 2, "jax": {}}},
    "ends-settled": {
        f"{TASK}.command": "python /data/train.py", f"{TASK}.multi_instance": {"num_instances": 2, "pytorch": {}}},
    "openmpi-as-root": {**OPENMPI, **CONTAINER},
    "ranks-on-nodes": GANG,
    "primary-first": GANG,
    "preflight": GANG,
    "gang-ssh": GANG,
    "mpich-abort": {f"{TASK}.multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich"}}},
    **dict.fromkeys(
        ("mpi-fabric", "mpi-binding", "openmpi-slots", "openmpi-prefix", "openmpi-environment", "openmpi-daemons",
        "openmpi-tcp"), OPENMPI),
    **dict.fromkeys(("libfabric-tcp", "intelmpi-tcp", "intelmpi-yield"), INTELMPI_OFA),
    "ucx-tcp": OPENMPI,
    "openmpi-hcoll": {**OPENMPI, f"{POOL}.vm_size": "STANDARD_ND96ISR_H100_V5"},
    "nccl-tcp": {**NCCL, f"{TASK}.infiniband": False},
    "nccl-graph": {**NCCL, f"{POOL}.vm_size": "STANDARD_NC24ADS_A100_V4"},
    "infiniband-by-size": RDMA,
    "infiniband-container": {**RDMA, **CONTAINER},
    "container-sshd": {**GANG, **CONTAINER},
    "pool-key": {**GANG, **CONTAINER},
    "shm-size": {**GANG, **CONTAINER},
    "apptainer-gpus": {**GPU, **APPTAINER},
    "merge-task": {f"{JOB}.merge_task.command": "true"},
    "framework-environment": NCCL,
    "omp-threads": NCCL,
    "python-unbuffered": NCCL,
    "nccl-warnings": {**NCCL, f"{TASK}.infiniband": False},
    "locked-memory": RDMA,
    "imex-domain": NVLINK,
    "nccl-nvlink": NVLINK,
    "imex-device": {
        **NVLINK, f"{TASK}.docker_image": "a/openmpi:digits", "global_resources.docker_images": ["a/openmpi:digits"]},
    "nccl-launch-file": {**NCCL, f"{POOL}.vm_size": "STANDARD_ND96ISR_H100_V5"},
    "resize-timeout-by-nodes": {f"{POOL}.vm_count.dedicated": 64},
    "cuda-device-order": NCCL,
    "nccl-bootstrap": NCCL,
    "nccl-relaxed-ordering": NCCL,
    "nccl-topology": NCCL,
    "nccl-cpu-affinity": NCCL,
    "nccl-cards": NCCL,
    "nccl-transport": NCCL,
    "ucx-cards": {
        f"{POOL}.vm_size": "STANDARD_HB120RS_V3",
        f"{TASK}.multi_instance": {"num_instances": 2, "pytorch": {"backend": "ucc"}}},
    "addresses-of-your-own": {
        **ENTRA, f"{POOL}.virtual_network.arm_subnet_id": SUBNET,
        f"{POOL}.public_ips": ["/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/a"]},
    "own-preparation-waits": {
        f"{POOL}.block_until_all_global_resources_loaded": False,
        f"{POOL}.additional_node_prep.commands.pre": ["true"]},
}  # fmt: skip
"""What leads to the rules that no property's row leads to."""


@pytest.mark.parametrize("rule", DECISIONS)
def test_a_rule_of_decisions_is_taken_by_some_plan(rule: str) -> None:
    plans = [outcome(DECIDED[rule]).plan] if rule in DECIDED else (looked_at(path).seen.plan for path in NAMED)
    assert any(item.rule == rule for plan in plans for item in plan.implicit)
