"""Fields of the service's create requests that no property sets, with the reason; a test compares them with the SDK.

The reference lists them, so that users do not search for a missing property.
"""

from __future__ import annotations

from typing import NamedTuple


class LeftOut(NamedTuple):
    """Fields, from the request's name down (`*` is one step; a field includes all below it), and their replacements."""

    fields: tuple[str, ...]
    reason: str


_OF_A_JOB = ("job.jobManagerTask", "job.jobPreparationTask", "job.jobReleaseTask")
_MACHINE = "pool.virtualMachineConfiguration"

LEFT_OUT = (
    LeftOut((f"{_MACHINE}.extensions.protectedSettings",),
        "The values are secrets, and a plan contains no secrets. Let the extension sign in with an identity of the"
        " pool, or read a Key Vault."),
    LeftOut((f"{_MACHINE}.dataDisks.managedDisk.securityProfile",),
        "On a confidential VM, only the disk of the operating system is encrypted: `os_disk.security_encryption`."),
    LeftOut((f"{_MACHINE}.imageReference.exactVersion",), "Read-only: only answers of the service contain it."),
    LeftOut(("pool.startTask.containerSettings", "pool.startTask.userIdentity"),
        "The start task installs and mounts, so it runs on the host as the administrator."),
    LeftOut(tuple(f"{task}.containerSettings.registry" for task in _OF_A_JOB),
        "The registries of the pool are used (`docker_registry` in credentials.yaml)."),
    LeftOut(tuple(f"{task}.containerSettings.{name}" for task in _OF_A_JOB
                  for name in ("workingDirectory", "containerHostBatchBindMounts")),
        "The command starts in the working directory of the task and sees every Batch directory of the node."),
    LeftOut(("job.jobPreparationTask.id", "job.jobReleaseTask.id"),
        "The ids are always `jobpreparation` and `jobrelease`."),
    LeftOut(("job.poolInfo.poolId",), "The `id` in pool.yaml."),
    LeftOut(("job.poolInfo.autoPoolSpecification.autoPoolIdPrefix",), "The beginning of the `id` in pool.yaml."),
    LeftOut(("pool.enableAutoScale",), "True if `autoscale` has a formula or a scenario."),
    LeftOut(("pool.networkConfiguration.endpointConfiguration.inboundNATPools.frontendPortRangeEnd",),
        "The second number of `frontend_port_range`."),
    LeftOut(("node user.isAdmin",), "Always true: a login can become root, as in Batch Shipyard."),
)  # fmt: skip
