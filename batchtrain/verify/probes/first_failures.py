"""What fails first."""

from __future__ import annotations

from batchtrain.verify.probe import SMALL, Area, Probe
from batchtrain.verify.readings import fails_by_settings, has_pool_key, image_is_usable
from batchtrain.verify.reasons import DISK, NO_POOL_KEY, NO_VOLUME
from batchtrain.verify.recorded_answers import keys

PROBES = (
    Probe("image-built", "The image of a recipe is in the registry, and the nodes can pull it",
        "recipes name images of `docker/`, which somebody must build and push", "`batchtrain images check DIR`",
        "pools/container", image_is_usable,
        right="", wrong="ContainerInvalidImage", unread="AccountCoreQuotaReached",
        code="batchtrain/containers/recipe_images.py batchtrain/diagnosis/doctor.py", shape=str),
    Probe("allocation",
        "The nodes of a pool are allocated within 15 minutes, the default of `resizeTimeout`, and within the quota",
        "documentation of pools; the default of 15 minutes is short for ND sizes",
        "`batchtrain doctor`, then `batchtrain pool add`",
        "pools/host", lambda value: not value,
        right="", wrong="AccountCoreQuotaReached", unread={"unread": "Unreachable"},
        code="batchtrain/plan/pool.py batchtrain/diagnosis/service_rules.py", shape=str),
    Probe("key-mount", "The mount of the pool's key in a container has the files of the key",
        "Azure/Batch #34; Batch Shipyard", "`ls -ln /home/_azbatch/.ssh` in a container, as `admin` and as `nonadmin`",
        "coordination/nodes/pool_keys", has_pool_key,
        right=keys(), wrong=keys("/root/.ssh"), unread={"directory": "/home/_azbatch/.ssh"},
        code="batchtrain/runtime/gang.sh batchtrain/plan/container.py", not_local=NO_POOL_KEY),
    Probe("task-disk",
        "The disk of the tasks has at least 24 GiB, also on a size without a temporary disk (24 recipes use D4s_v5), "
        "where it is the disk of the operating system",
        "learn batch-nvme-temporary; the size of that disk is from memory",
        "`df -h $AZ_BATCH_NODE_ROOT_DIR` on `Standard_D4s_v5`",
        "host/nodes/disks", lambda value: value["gib"] >= 24,
        right={"apart": False, "gib": 61.8}, wrong={"apart": False, "gib": 15.2}, unread={"apart": True},
        code="batchtrain/plan/pool.py batchtrain/runtime/preflight.sh", not_local=DISK),
    Probe("nfs-network",
        "A pool with an NFS volume needs a virtual network in which its server is reachable; without one, its nodes "
        "do not become usable", "documentation (virtual-file-mount)",
        "`pool add` with an NFS volume and without `virtual_network`",
        "pools/nfs", fails_by_settings,
        right="StartTaskFailed", wrong="", unread="AccountCoreQuotaReached", code="batchtrain/plan/mounts.py",
        shape=str, needs=SMALL, not_local=NO_VOLUME),
    Probe("long-variable", "A container starts with 32 KiB of files in the variables of its task",
        "the limit of a variable is 128 KiB on Linux; Docker's and Batch's are not documented",
        "a task in a container with a variable of 32 KiB: `echo ${#VARIABLE}`",
        "service/long", lambda value: value["exit"] == 0 and len(value["code"]) == 0,
        right={"code": "", "exit": 0}, wrong={"code": "FailureExitCode", "exit": 1}, unread={"code": ""},
        code="batchtrain/plan/inputs.py batchtrain/launchers/shell.py"),
)  # fmt: skip

AREA = Area(
    "first-failures",
    "What fails first",
    (
        "The most probable failures of a first day, besides those above: `container-sshd`, `topology-file`, "
        "`nccl-speed` and `infiniband-ports`."
    ),
    PROBES,
)
