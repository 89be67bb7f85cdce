"""Tables of deprecated and removed properties and values, and their replacements."""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

Pattern = tuple[str, ...]
"""A path from the top-level section down; `*` stands for any item of a list and any key of a map."""


class Renamed(NamedTuple):
    """A renamed property. If `new` begins with `../`, the property is one level higher. quiet: no warning."""

    path: Pattern
    new: str
    why: str = ""
    quiet: bool = False


class RenamedValue(NamedTuple):
    """A renamed value."""

    path: Pattern
    old: str
    new: str


class Gone(NamedTuple):
    """A property without an effect: the reason, and what to do instead. Reported for every value except false, zero and
    empty, or (`only`) for one value."""

    path: Pattern
    instead: str
    only: bool | None = None


_Rule = TypeVar("_Rule", Renamed | RenamedValue, Gone)


class Branch(Generic[_Rule]):
    """A tree of patterns: the branches below, by step, and the rules whose pattern ends here."""

    __slots__ = ("below", "rules")

    def __init__(self, rules: Iterable[_Rule] = ()) -> None:
        self.below: dict[str, Branch[_Rule]] = {}
        self.rules: list[_Rule] = []
        for rule in rules:
            branch = self
            for step in rule.path:
                branch = branch.below.setdefault(step, Branch())
            branch.rules.append(rule)


JOB: Pattern = ("job_specifications", "*")
TASK: Pattern = (*JOB, "tasks", "*")
MERGE: Pattern = (*JOB, "merge_task")
POOL: Pattern = ("pool_specification",)

RENAMED: tuple[Renamed, ...] = (
    Renamed((*POOL, "max_tasks_per_node"), "task_slots_per_node"),
    Renamed(("credentials", "storage", "aad"), "../storage_aad", "it was one of the links", quiet=True),
)

RENAMED_VALUES: tuple[RenamedValue, ...] = (
    *(
        RenamedValue((*task, "multi_instance", "mpi", "runtime"), "intelmpi_ofa", "intelmpi-ofa")
        for task in (TASK, MERGE)
    ),
    RenamedValue(
        (*TASK, "multi_instance", "num_instances"),
        "pool_specification_vm_count",
        "pool_specification_vm_count_dedicated",
    ),
)

SIGN_INS: tuple[Pattern, ...] = (
    ("credentials", "aad"),
    ("credentials", "batch", "aad"),
    ("credentials", "batch_accounts", "*", "aad"),
    ("credentials", "storage_aad"),
    ("credentials", "management", "aad"),
    ("credentials", "keyvault", "aad"),
)

_CERTIFICATES = (
    "Batch removed certificates (February 2024); keep secrets in Key Vault and read them with a managed identity"
)
_INSIGHTS = "Batch Insights is archived; use the Azure Monitor agent as an extension of the pool"
_GLUSTER = "GlusterFS is not set up on nodes; use `nfs`, `azurefile` or `azureblob`"

GONE: tuple[Gone, ...] = (
    *(
        Gone((*path, "x509_cert_sha1_thumbprint"), "it is read from the file of `rsa_private_key_pem`")
        for path in SIGN_INS
    ),
    Gone(("credentials", "aad", "endpoint"), "set it in the `aad` of each service"),
    Gone(("credentials", "storage_aad", "endpoint"), "set the `endpoint` of the storage account"),
    Gone(("credentials", "keyvault", "aad", "endpoint"), "set `keyvault.uri`"),
    Gone(("credentials", "storage", "*", "resource_group"), "batchtrain looks up nothing in a storage account"),
    Gone(("credentials", "singularity_registry", "*", "identity"), "Apptainer signs in with user name and password"),
    Gone(("credentials", "user_accounts", "*", "username"), "the name is in the pool's `user_accounts`"),
    Gone(("credentials", "shares", "*", "ssh_private_key"), "a share needs a password"),
    Gone(("global_resources", "singularity_images", "unsigned", "*", "signing_key"), "list the image as `signed`"),
    *(
        gone
        for path in (("credentials", "batch"), ("credentials", "batch_accounts", "*"))
        for gone in (
            Gone((*path, "test_cluster"), "there are no test clusters outside Microsoft"),
            Gone((*path, "application_insights"), _INSIGHTS),
        )
    ),
    Gone(("credentials", "monitoring"), "batchtrain creates no monitoring VM; use Azure Monitor"),
    Gone(("credentials", "slurm"), "batchtrain creates no Slurm cluster; use Azure CycleCloud"),
    Gone(("batchtrain", "encryption"), _CERTIFICATES),
    Gone(("batchtrain", "store_timing_metrics"), "Batch itself keeps the times of tasks; see `batchtrain jobs show`"),
    Gone(("batchtrain", "use_shipyard_docker_image"), "batchtrain runs no container of its own on the nodes"),
    Gone(("data_replication",), "Batch fetches the images itself on every node"),
    Gone(("global_resources", "singularity_images", "unsigned", "*", "encryption"), _CERTIFICATES),
    Gone(("global_resources", "singularity_images", "signed", "*", "encryption"), _CERTIFICATES),
    Gone(("global_resources", "volumes", "shared_data_volumes", "*", "volume_type"), _GLUSTER),
    Gone(("global_resources", "volumes", "shared_data_volumes", "*", "volume_options"), _GLUSTER),
    Gone((*POOL, "certificates"), _CERTIFICATES),
    Gone((*POOL, "per_job_auto_scratch"), "BeeOND is not set up; use the node's own disk, or a share as a volume"),
    Gone((*POOL, "batch_insights_enabled"), _INSIGHTS),
    Gone((*POOL, "prometheus"), "no exporters are installed; `additional_node_prep` may start them"),
    Gone((*POOL, "ssh", "generate_docker_tunnel_script"), "no port is opened for it; use `docker -H ssh://USER@NODE`"),
    Gone((*POOL, "ssh", "hpn_server_swap"), "HPN-SSH is not installed; move data through storage"),
    Gone((*POOL, "container_runtimes", "default"), "Batch's own container support runs with runc"),
    Gone((*POOL, "gpu", "ignore_warnings"), "batchtrain does not check the warnings of `nvidia-smi`"),
    Gone((*POOL, "upload_diagnostics_logs_on_unusable"), "upload them with `az batch node service-logs upload`"),
    *(
        Gone((*path, "remove_container_after_exit"), "Batch always removes a task's container", only=False)
        for path in (JOB, TASK, MERGE)
    ),
    Gone((*POOL, "vm_configuration", "plain_docker"), "Batch itself runs the containers; remove it", only=False),
    *(Gone((*path, "gpu"), "write `gpus: all` or `gpus: disable`") for path in (JOB, TASK, MERGE)),
    *(Gone((*path, "name"), "Batch names a task's container itself") for path in (TASK, MERGE)),
    Gone((*JOB, "auto_scratch"), "BeeOND is not set up; use the node's own disk, or a share as a volume"),
    Gone((*JOB, "federation_constraints"), "batchtrain has no federations of pools; add the job to a suitable pool"),
)  # fmt: skip

ELSEWHERE: dict[str, str] = {
    "remote_fs": "batchtrain creates no file servers; use a volume with driver `azurefile` or `nfs`",
    "monitoring": "batchtrain creates no monitoring VM; use Azure Monitor, with its agent as an extension of the pool",
    "federation": "batchtrain has no federations of pools; add the job to a suitable pool, or use `auto_pool`",
    "slurm": "batchtrain creates no Slurm clusters; use Azure CycleCloud",
}
"""Sections (and files) of Batch Shipyard that are no part of the language, and what to use instead."""

ELSEWHERE_FILES: dict[str, str] = {
    "fs": "remote_fs",
    "monitor": "monitoring",
    "federation": "federation",
    "slurm": "slurm",
}
"""Names of such files, and the section in each."""
