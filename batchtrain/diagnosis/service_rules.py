"""Causes that the service's codes and the exit codes of a task prove. Tables and small rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from batchtrain.records import Failure, Node, Task
from batchtrain.records.attempt import LOSSES, Reason
from batchtrain.records.failure import TASK_ENDED


class Known(NamedTuple):
    """A rule's name, its cause, and the next step with the fields of `next_steps`."""

    rule: str
    cause: str
    next_step: str


_INPUT = "check the file's URL and the storage account's credentials; a SAS may have expired"
_UNREACHED = f"{_INPUT}; with --local, a URL is not the storage of this machine, from which `input_data` reads"
_IMAGE = (
    "check the image's name in `docker_image`, and `credentials.docker_registry`; `batchtrain images check` pulls it"
)
_UPLOAD = "check the container of `output_data` and the storage account's credentials{files_left}"
_RETRY_POOL = "{resize}, or choose another size or region"

# fmt: off
TASK_CODES = {
    "BlobNotFound": Known("input-not-found", "an input file does not exist", _INPUT),
    "BlobAccessDenied": Known("input-refused", "the storage refuses an input file", _INPUT),
    "BlobDownloadTimedOut": Known("input-download", "the download of an input file took too long", _INPUT),
    "BlobDownloadMiscError": Known("input-download", "an input file could not be downloaded", _UNREACHED),
    "ResourceDownloadTimedOut": Known("input-download", "the download of the task's files took too long", _INPUT),
    "ResourceFileWriteFailed": Known(
        "input-not-written", "an input file could not be written on the node", "check its path, and the node's disk"
    ),
    "ResourceDirectoryCreateFailed": Known(
        "input-not-written", "a directory of an input file could not be created", "check its path, and the node's disk"
    ),
    "DiskFull": Known(
        "disk-full", "a disk of the node is full", "choose a size with a larger local disk, or clean up in the task"
    ),
    "ContainerInvalidImage": Known("image-not-found", "the container image cannot be used", _IMAGE),
    "ContainerInvalidRegistry": Known("registry-refused", "the container registry cannot be used", _IMAGE),
    "ContainerInvalidSettings": Known("container-settings", "the container could not be made with these settings",
        "check `additional_docker_run_options` and the volumes of the task"),
    "ContainerPoolNotSupported": Known("container-settings", "the task has a container image, but its pool has none",
        "use a pool that was created for containers, as for a recipe with `docker_images`"),
    "ContainerMiscError": Known(
        "container-failed", "the container could not be started", "look at the message; run the image by hand on a node"
    ),
    "CommandProgramNotFound": Known(
        "missing-command", "the task's program is not on the node", "install it in the image, or name it by its path"
    ),
    "CommandLaunchFailed": Known(
        "launch-failed", "the task's command could not be started", "look at the message, and at the node's state"
    ),
    "ApplicationPackageError": Known(
        "package-failed", "an application package could not be installed", "check its name, its version and its upload"
    ),
    "MaxInternalRetryCountReached": Known(
        "launch-failed", "the service gave up starting the task", "run it again; another node may take it"
    ),
    "TaskSchedulingConstraintFailed": Known(
        "never-scheduled", "the task's constraints let no node take it", "check `required_slots`, and the pool"
    ),
}
"""By the code of a task's failure; codes of uploads begin with FileUpload."""

UPLOAD = Known("upload-failed", "the program ended, and its output could not be uploaded", _UPLOAD)
WALL_CLOCK = Known("wall-clock", "the task reached its limit of run time ({})",
    "raise `max_wall_time`, or resume from a checkpoint (docs/how-to/checkpoints.md)")
TERMINATED = Known("terminated", "the task was terminated",
    "a user or the job ended it{job_state}")

WARNED = Known("launch-warning", "the launch of the gang warned: {}",
    "if the gang is slow, measure its nodes: `batchtrain check fabric`; a fault would have stopped the launch")

ENDED_EARLY = Known("rank-ended-early", "a rank exited with code 0 before the others, which then missed it",
    "look at what this rank printed last{output}: find why it ends there, such as `sys.exit`, or fewer batches than the"
    " other ranks have (in PyTorch, `Join` allows them)")

CLOCKS = 1.0
"""Seconds by which the times of the service may differ from the limit that it enforced."""

EXIT_CODES = {
    126: Known(
        "not-executable", "a command could not be executed", "make the file executable, or name its interpreter"
    ),
    127: Known("missing-command", "a command was not found", "install it in the image, or name it by its path"),
    132: Known("illegal-instruction", "the processor does not know an instruction of the program (SIGILL)",
        "build the program for the node's processor, or choose a newer size"),
    134: Known("aborted", "the program aborted itself (SIGABRT)", "look at the lines before the end"),
    135: Known("bus-error", "the program lost memory that it had mapped (SIGBUS)", "set `shm_size`, or free the disk"),
    137: Known("host-out-of-memory", "the process was killed (SIGKILL), usually by the kernel because memory ran out",
        "start fewer processes on each node, load less data at once, or choose a size with more memory"),
    139: Known("segmentation-fault", "the program accessed memory that it does not have (SIGSEGV)",
        "look for a library that does not fit: another MPI or CUDA than the one it was built with"),
    143: Known("terminated", "the program was asked to end (SIGTERM)", "a user or another rank's failure ended it"),
}

RESIZE_CODES = {
    "AllocationFailed": Known("allocation-failed", "Azure has no capacity for the pool's nodes now", _RETRY_POOL),
    "AllocationTimedOut": Known("allocation-failed", "the nodes were not allocated in time", _RETRY_POOL),
    "AllocationTimedout": Known("allocation-failed", "the nodes were not allocated in time", _RETRY_POOL),
    "OverconstrainedAllocationRequestError": Known("allocation-failed",
        "no nodes of this size fit the pool's zones, placement and image now",
        "drop the zones (`node_placement`, `zones`), or choose another size or region"),
    "IncompatibleVMSize": Known("size-unfit", "the VM size does not fit the image or the settings of the pool",
        "choose another size; `batchtrain catalog sizes` lists them"),
    "CommunicationEnabledPoolReachedMaxVMCount": Known("pool-too-large",
        "a pool with inter-node communication cannot have so many nodes",
        "take fewer nodes, or set `inter_node_communication_enabled: false`"),
    "DependentResourceNotFound": Known("resource-missing", "a resource that the pool names does not exist",
        "check the ids of its network, image, addresses and identities"),
    "FailedIdentityOperation": Known("identity-failed", "the pool's managed identity could not be used",
        "check that the identity exists and that the Batch account may assign it"),
    "DiskEncryptionFailure": Known("encryption-failed", "the disks could not be encrypted",
        "check the key and its identity, or remove `disk_encryption`"),
    "MissingPublisherPropertyInMarketPlacePlan": Known("image-terms", "the image is sold under a marketplace plan",
        "accept the terms of the image (`az vm image terms accept`), or choose another image"),
    "ResizeStopped": Known("resize-stopped", "the resize was stopped", "{resize}"),
    "RemoveNodesFailed": Known("resize-stopped", "nodes could not be removed", "delete them again later"),
}
QUOTA = Known("quota-reached", "the account's core quota does not allow the pool's nodes",
    "`batchtrain doctor` shows the quotas; ask for more in the Azure portal, or take fewer or smaller nodes")

NODE_STATES = {
    "unusable": Known("node-unusable", "the node is unusable", "{reboot}, or remove the node"),
    "unknown": Known("node-lost", "the service lost contact with the node", "wait, or reboot it"),
    "offline": Known("node-offline", "the node takes no tasks (scheduling is disabled)", "enable its scheduling again"),
    "preempted": Known("spot-preempted", "Azure preempted the spot node",
        "wait until it is there again; `max_task_retries` and a checkpoint keep what was trained"
        " (docs/how-to/checkpoints.md)"),
}

_CHECKPOINT = "keep a checkpoint (docs/how-to/checkpoints.md)"
LOST: Mapping[Reason, Known] = {
    "preempted": Known("spot-preempted", LOSSES["preempted"], f"{_CHECKPOINT}, or use dedicated nodes"),
    "node lost": Known("node-lost", LOSSES["node lost"], _CHECKPOINT + "{nodes}"),
    "requeued": Known("task-requeued", LOSSES["requeued"],
        f"{_CHECKPOINT}: the node was lost, or was rebooted or removed, or the job was disabled"),
}
# fmt: on
"""Why the service started a task again, by the reason of the attempt before; with the node."""


def of_task(task: Task) -> tuple[Known, str] | None:
    """The cause by the service's code or by the exit code, and the message that proves it."""
    failure = task.failure
    if failure.code.startswith("FileUpload"):
        return UPLOAD, failure.detailed
    if failure.code == TASK_ENDED:  # the service tells no reason, so the time that the task took decides
        limit = task.request.wall_clock
        if limit is None or task.seconds is None or task.seconds < limit - CLOCKS:
            return TERMINATED, failure.detailed
        return WALL_CLOCK._replace(cause=WALL_CLOCK.cause.format(f"{limit:g} s")), failure.detailed
    if failure.code in TASK_CODES:
        return TASK_CODES[failure.code], failure.detailed
    if task.exit_code in EXIT_CODES:
        return EXIT_CODES[task.exit_code], f"exit code {task.exit_code}"
    return None


def of_resize(failure: Failure) -> Known:
    """The cause of an error of a resize."""
    if "Quota" in failure.code:
        return QUOTA
    unknown = Known("resize-failed", "the pool could not be resized", "look at the service's message")
    return RESIZE_CODES.get(failure.code, unknown)


def of_node(node: Node) -> tuple[Known, str] | None:
    """The cause of a node that takes no tasks."""
    if node.state not in NODE_STATES:
        return None
    return NODE_STATES[node.state], "; ".join(error.detailed for error in node.errors)
