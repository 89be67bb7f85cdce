"""Tables of deprecated and removed properties and values, and their replacements."""

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

Pattern = tuple[str, ...]
"""A path from the top-level section down; `*` stands for any item of a list and any key of a map."""


class Renamed(NamedTuple):
    """A renamed property. `new` is the path from the old mapping: `../x` is one level higher, `x/y` is below `x`.

    values: current values by the old ones. beside: what the new name needs in addition. quiet: no warning.
    """

    path: Pattern
    new: str
    why: str = ""
    quiet: bool = False
    values: Mapping[str, str] = {}
    beside: Mapping[str, str] = {}

    @property
    def steps(self) -> Pattern:
        """The new path, without the way up."""
        return tuple(self.new.removeprefix("../").split("/"))


class Wrapped(NamedTuple):
    """A value of one type that is below a property of a mapping today."""

    path: Pattern
    kind: type
    below: str


class Replaced(NamedTuple):
    """A property of an older version without a mechanical replacement, and what to do."""

    path: Pattern
    instead: str
    level: str = "warning"


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


_Rule = TypeVar("_Rule", Renamed | RenamedValue | Wrapped | Replaced, Gone)


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

TASKS = (TASK, MERGE)
OWNERS = (JOB, TASK, MERGE)
VOLUMES: Pattern = ("global_resources", "volumes")
OLD_VOLUMES: Pattern = ("global_resources", "docker_volumes")
IMAGES: Pattern = ("global_resources", "singularity_images")
_STORAGE: Pattern = ("azure_storage", "*")
_INPUTS = tuple((*path, "input_data", *_STORAGE) for path in (POOL, *OWNERS))
_OUTPUTS = tuple((*path, "output_data", *_STORAGE) for path in TASKS)
_TRANSFERS = (
    *_INPUTS, *_OUTPUTS, (*TASK, "task_factory", "file", "azure_storage"),
    ("global_resources", "files", "*", "destination", "data_transfer"),
)  # fmt: skip

# Batch Shipyard's CHANGELOG.md, and its config_templates/ in versions 1.0 to 3.9.1.
RENAMED: tuple[Renamed, ...] = (
    Renamed((*POOL, "max_tasks_per_node"), "task_slots_per_node"),
    *(Renamed((*POOL, name), f"vm_configuration/platform_image/{name}") for name in ("publisher", "offer", "sku")),
    Renamed((*POOL, "additional_node_prep_commands"), "additional_node_prep/commands"),
    Renamed((*POOL, "ssh_docker_tunnel"), "ssh"),
    *(
        Renamed((*POOL, name, "generate_tunnel_script"), "generate_docker_tunnel_script", quiet=True)  # which is gone
        for name in ("ssh", "ssh_docker_tunnel")
    ),
    Renamed((*JOB, "multi_instance_auto_complete"), "auto_complete"),
    *(Renamed((*path, "gpu"), "gpus", values={"true": "all", "false": "disable"}) for path in OWNERS),
    *(Renamed((*path, "image"), "docker_image") for path in TASKS),
    *(
        Renamed((*path, "environment_variables_secret_id"), "environment_variables_keyvault_secret_id")
        for path in OWNERS
    ),
    *(Renamed((*path, "container"), "remote_path") for path in _TRANSFERS),
    *(Renamed((*path, "file_share"), "remote_path", beside={"is_file_share": "true"}) for path in _TRANSFERS),
    *(Renamed((*path, "destination"), "local_path") for path in _INPUTS),
    *(Renamed((*path, "source"), "local_path") for path in _OUTPUTS),
    Renamed(OLD_VOLUMES, "volumes"),
    *(Renamed((*IMAGES, "signed", "*", f"key_{name}"), f"signing_key/{name}") for name in ("fingerprint", "file")),
    Renamed(("credentials", "storage", "aad"), "../storage_aad", "it was one of the links", quiet=True),
)

RENAMED_VALUES: tuple[RenamedValue, ...] = (
    *(RenamedValue((*task, "multi_instance", "mpi", "runtime"), "intelmpi_ofa", "intelmpi-ofa") for task in TASKS),
    RenamedValue(
        (*TASK, "multi_instance", "num_instances"),
        "pool_specification_vm_count",
        "pool_specification_vm_count_dedicated",
    ),
    *(
        RenamedValue((*path, "shared_data_volumes", "*", "volume_driver"), "glusterfs", "glusterfs_on_compute")
        for path in (VOLUMES, OLD_VOLUMES)
    ),
)

WRAPPED: tuple[Wrapped, ...] = (
    Wrapped((*POOL, "vm_count"), str, "dedicated"),
    Wrapped((*POOL, "additional_node_prep_commands"), list, "post"),
    Wrapped(IMAGES, list, "unsigned"),
    Wrapped((*IMAGES, "unsigned", "*"), str, "image"),
)

REPLACED: tuple[Replaced, ...] = (
    Replaced((*POOL, "vm_configuration", "custom_image", "image_uris"),
             "Batch takes no VHD files; make a gallery image of it and write its id as `arm_image_id`", "error"),
    *(
        Replaced(("data_replication", name), "Batch fetches the images itself on every node")
        for name in ("peer_to_peer", "non_peer_to_peer_concurrent_downloading")
    ),
    Replaced((*POOL, "gpu", "nvidia_driver", "version"), "the node preparation chooses the version of the driver"),
)  # fmt: skip

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
    *(Gone((*path, "name"), "Batch names a task's container itself") for path in (TASK, MERGE)),
    Gone((*JOB, "auto_scratch"), "BeeOND is not set up; use the node's own disk, or a share as a volume"),
    Gone((*JOB, "federation_constraints"), "batchtrain has no federations of pools; add the job to a suitable pool"),
)  # fmt: skip

ELSEWHERE: dict[str, str] = {
    "docker_registry": "an image names its registry itself (SERVER/PATH), and `credentials.docker_registry` has the"
    " logins; list other servers as `global_resources.additional_registries`",
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
